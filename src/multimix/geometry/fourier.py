"""Smooth random grey fields: Gaussian Fourier coefficients that fall off with frequency (FMix)."""

from functools import lru_cache
from typing import Literal

import torch
from torch import Generator, Tensor

Spectrum = Literal["full", "reference"]


def grey_field(rows: int, size: tuple[int, ...], decay: float, spectrum: Spectrum, generator: Generator) -> Tensor:
    """``[rows, *size]`` in float32: Gaussian Fourier coefficients times max(f · longest side, 1)^−decay, transformed back.

    f is the radial frequency in cycles per place. ``full`` has the whole spectrum, as the FMix paper describes.
    ``reference`` reproduces a defect of its published code (2-D only): two rows of the spectrum are taken for the real and the
    imaginary part, so that the field holds no horizontal frequency above 1.
    """
    axes = list(range(1, len(size) + 1))
    if spectrum == "full":
        # The transform of white noise has the symmetry of a real field's spectrum. Coefficients drawn freely on the half-plane
        # lack it on the first and last column, and lose half their energy there: the field would not be isotropic.
        white = torch.randn(rows, *size, generator=generator)
        coefficients = torch.fft.rfftn(white, dim=axes) * _falloff(tuple(size), decay)
    else:
        scale = _falloff(tuple(size), decay)[:2, : size[0]]
        part = torch.randn(rows, *scale.shape, 2, generator=generator) * scale.unsqueeze(-1)
        coefficients = torch.complex(part[:, 0], part[:, 1])
    field: Tensor = torch.fft.irfftn(coefficients, s=list(size), dim=axes)
    return field


@lru_cache(maxsize=64)
def _falloff(size: tuple[int, ...], decay: float) -> Tensor:
    """max(f · longest side, 1)^−decay for every coefficient of a real transform."""
    squares = torch.zeros((), dtype=torch.float32)
    for axis, side in enumerate(size):
        last = axis == len(size) - 1
        frequency = (torch.fft.rfftfreq if last else torch.fft.fftfreq)(side, dtype=torch.float32)
        squares = squares + frequency.square().reshape(-1, *[1] * (len(size) - axis - 1))
    # In units of the lowest frequency: ranks do not change, and no power overflows.
    return (squares.sqrt() * max(size)).clamp(min=1) ** -decay
