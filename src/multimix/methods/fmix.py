"""FMix (Harris et al., 2020): K nested thresholds of one random gray field."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Generator, Tensor

from ..core.checks import check_number, check_share, check_spatial
from ..core.devices import uploaded
from ..core.plan import MaskPlan, PairPlan
from ..geometry.threshold import masks_of_ranks, ranks
from .path import PairMethod
from .registry import register

Spectrum = Literal["full", "reference"]


def gray_field(
    rows: int, size: tuple[int, ...], decay: float, spectrum: Spectrum, generator: Generator
) -> Tensor:
    """Draw smooth random fields.

    The fields are inverse Fourier transforms of Gaussian coefficients times
    max(f · longest side, 1)^−decay, where f is the radial frequency in cycles per place.

    Args:
        rows: Number of fields.
        size: Sides of a field.
        decay: Exponent of the spectrum; larger values give smoother fields.
        spectrum: ``full`` follows the FMix paper. ``reference`` reproduces a defect of its
            published code (2-D only), which uses two rows of the spectrum as real and imaginary
            part. The field then has no horizontal frequency above 1.
        generator: A CPU generator.

    Returns:
        ``[rows, *size]``, float32.
    """
    axes = list(range(1, len(size) + 1))
    if spectrum == "full":
        # The transform of white noise has the symmetry of a real field's spectrum. Independent
        # draws for the half-plane lack it in two columns, and the field would not be isotropic.
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
    """Compute max(f · longest side, 1)^−decay for every coefficient of a real transform."""
    squares = torch.zeros((), dtype=torch.float32)
    for axis, side in enumerate(size):
        last = axis == len(size) - 1
        frequency = (torch.fft.rfftfreq if last else torch.fft.fftfreq)(side, dtype=torch.float32)
        squares = squares + frequency.square().reshape(-1, *[1] * (len(size) - axis - 1))
    # In units of the lowest frequency, which keeps the ranks and avoids overflow.
    return (squares.sqrt() * max(size)).clamp(min=1) ** -decay


@register(
    "fmix",
    shared="pair, gray field, rounding coin",
    order="masks nest, area ± 1 pixel, both ends exact",
    examples=({}, {"decay": 1.5}, {"softness": 0.3}),
)
@dataclass(frozen=True, kw_only=True)
class FMix(PairMethod):
    """FMix: x̂_k takes the λ_k·N brightest places of one smooth random field from x'.

    For signals, images and volumes.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        decay: Exponent δ of the field's spectrum; larger values give fewer, larger regions.
        softness: Width of the ramp at the edge of the mask, in [0, 0.5]; 0 gives binary masks.
        spectrum: ``full`` follows the paper. ``reference`` reproduces a defect of the published
            code: see :func:`gray_field`.

    Example::

        mixed_forward(model, FMix(k=5, decay=3.0), x, y).loss().backward()
    """

    decay: float = 3.0
    softness: float = 0.0
    spectrum: Spectrum = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("decay", self.decay)
        check_share("softness", self.softness, 0.5)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "FMix")
        size = x.shape[2:]
        if self.spectrum == "reference" and (len(size) != 2 or size[0] < 2):
            raise ValueError(
                f"spectrum='reference' needs images x of at least 2 rows, got {list(x.shape)}"
            )
        rows = self.rows(x, lam)
        field = gray_field(rows, size, self.decay, self.spectrum, generator)
        round_up = torch.rand(rows, generator=generator) < 0.5
        partner, rank, count = uploaded(x.device, partner, *ranks(field, lam, round_up))
        return MaskPlan(
            partner=partner, share=masks_of_ranks(rank, count, self.softness), size=size
        )
