"""Smooth random grey fields: Gaussian Fourier coefficients that fall off with frequency (FMix)."""

from typing import Literal

import torch
from torch import Generator, Tensor

Spectrum = Literal["full", "reference"]


def grey_field(rows: int, size: tuple[int, ...], decay: float, spectrum: Spectrum, generator: Generator) -> Tensor:
    """``[rows, *size]`` in float32: N(0, 1) + i N(0, 1) coefficients times max(f, 1/longest side)^−decay, transformed back.

    f is the radial frequency in cycles per place. ``full`` uses the whole half-plane of a real transform, as the FMix paper
    describes. ``reference`` reproduces a defect of its published code (2-D only): two rows of the spectrum are taken for the
    real and the imaginary part, so that the field holds no horizontal frequency above 1.
    """
    scale = _radius(size) ** -decay
    if spectrum == "full":
        part = torch.randn(2, rows, *scale.shape, generator=generator) * scale
        coefficients = torch.complex(part[0], part[1])
    else:
        scale = _radius_of_reference(size) ** -decay
        part = torch.randn(rows, 2, *scale.shape[1:], 2, generator=generator) * scale.unsqueeze(-1)
        coefficients = torch.complex(part[:, 0], part[:, 1])
    axes = list(range(1, len(size) + 1))
    field: Tensor = torch.fft.irfftn(coefficients, s=list(size), dim=axes)
    return field


def _radius(size: tuple[int, ...]) -> Tensor:
    """Radial frequency of every coefficient of a real transform, at least that of one cycle along the longest side."""
    squares = torch.zeros((), dtype=torch.float32)
    for axis, side in enumerate(size):
        last = axis == len(size) - 1
        frequency = (torch.fft.rfftfreq if last else torch.fft.fftfreq)(side, dtype=torch.float32)
        squares = squares + frequency.square().reshape(-1, *[1] * (len(size) - axis - 1))
    return squares.sqrt().clamp(min=1 / max(size))


def _radius_of_reference(size: tuple[int, ...]) -> Tensor:
    """``[2, bins]``: what the published code scales by, vertical frequencies 0 and 1 of the spectrum's columns.

    Its last axis is then read as the vertical frequency, and the axis of size 2 that follows as the horizontal one; bins
    beyond the height are cut off by the inverse transform.
    """
    return _radius(size)[:2, : size[0]]
