"""SmoothMix (Lee et al., 2020): a smooth bump of the partner, of K widths around one centre."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ..checks import Range, between, check_spatial, checked_range
from ..devices import uploaded
from ..geometry.axes import outer_masks
from ..geometry.boxes import random_center
from ..plan import MaskPlan, PairPlan
from .base import PairMethod
from .registry import register

# Of log q: for all that float64 can tell a bump is 1 everywhere below, and above it is 0 beside its centre.
FLATTEST, SHARPEST = -40.0, 60.0
STEPS = 64
CLOSE = 1e-12


def bump_masks(q: Tensor, center: Tensor, size: tuple[int, ...]) -> Tensor:
    """``[K, rows, 1, *size]``, float32: bumps of sharpness ``q [K, rows]`` around ``center [rows, d]``, in shares of the sides.

    A bump of infinite sharpness is 0 everywhere.
    """
    return outer_masks(bumps_along(q, center, size))


def bumps_along(q: Tensor, center: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """``[K, rows, side]``, float32, for each axis: the factors of the bump."""
    gone = q.isinf()
    q = torch.where(gone, 0.0, q).unsqueeze(-1)
    along = [torch.exp(-q * squares).float() for squares in _squares(center, size)]
    along[0] = along[0].masked_fill(gone.unsqueeze(-1), 0.0)
    return along


def sharpness(lam: Tensor, center: Tensor, size: tuple[int, ...]) -> Tensor:
    """``q [K, rows]`` for which the mean of the bump over all places is ``lam [K, rows]``: 0 for 1, infinite for 0.

    log mean = log λ, solved for log q by Newton's method inside a bracket, which is halved wherever Newton would leave it. The
    mean is a product over the axes, so this costs K times the sum of the sides, not their product.
    """
    squares = _squares(center, size)
    mean_square, least_square = torch.stack([torch.stack([s.mean(-1), s.amin(-1)]) for s in squares]).sum(0)
    wanted = lam.clamp(min=torch.finfo(torch.float64).tiny).log() + torch.zeros_like(mean_square)
    # A mean of exp(−q D²) lies above exp(−q · mean D²) and below exp(−q · least D²).
    flat = (-wanted / mean_square).log().clamp(FLATTEST, SHARPEST)
    sharp = (-wanted / least_square).log().clamp(FLATTEST, SHARPEST)
    # The bump of mean λ in an image that goes on for ever has q = π / λ^(2/d).
    log_q = (math.log(math.pi / 2) - 2 / len(size) * wanted).clamp(flat, sharp)
    found = torch.zeros_like(wanted, dtype=torch.bool)
    for _ in range(STEPS):
        log_mean, slope = _log_mean(log_q, squares)
        excess = log_mean - wanted
        too_wide = excess > 0
        flat, sharp = torch.where(too_wide, log_q, flat), torch.where(too_wide, sharp, log_q)
        newton = log_q - excess / slope
        step = torch.where((newton > flat) & (newton < sharp), newton, (flat + sharp) / 2)
        # Each stops for itself, so that a solution does not depend on what else is solved beside it.
        found = found | (excess.abs() <= CLOSE) | (sharp - flat <= CLOSE)
        if bool(found.all()):
            break
        log_q = torch.where(found, log_q, step)
    q = torch.where(lam == 1, 0.0, torch.where(lam == 0, torch.inf, log_q.exp()))
    # Where two shares are closer than rounding, the solutions may change places.
    return q.cummin(0).values


def _log_mean(log_q: Tensor, squares: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The logarithm of the mean of the bumps ``[K, rows]`` and its derivative by ``log_q``."""
    q = log_q.exp()
    value, slope = torch.zeros_like(q), torch.zeros_like(q)
    for along in squares:
        least = along.amin(-1)
        beyond = along - least.unsqueeze(-1)
        # Less the nearest place's, exponents do not underflow along a whole axis.
        parts = torch.exp(-q.unsqueeze(-1) * beyond)
        mean = parts.mean(-1)
        value = value + mean.log() - q * least
        slope = slope - q * (least + (parts * beyond).mean(-1) / mean)
    return value, slope


def _squares(center: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """For every axis ``[rows, side]``: the squared distance of the places' middles from the centre."""
    return [
        ((torch.arange(side, dtype=torch.float64) + 0.5) / side - center[:, axis, None]).square()
        for axis, side in enumerate(size)
    ]


@register(
    "smoothmix",
    shared="pair, centre of a Gaussian bump",
    order="masks ordered pointwise, mean λ",
    examples=({}, {"width": (0.25, 0.5)}),
)
@dataclass(frozen=True, kw_only=True)
class SmoothMix(PairMethod):
    """x̂_k = (1 − m_k) x + m_k x', m_k = exp(−D² / 2 w_k²): D is the distance from one uniformly drawn centre, in sides.

    The width w_k is the one for which the mean of m_k is λ_k. With ``width`` the widths are drawn instead, the path stretched
    over that range: (0.25, 0.5) and α = 1 is the published law. The target always follows the mean of the mask.
    """

    width: float | Range | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and checked_range("width", self.width, 0, math.inf)[0] == 0:
            raise ValueError(f"width must be positive, got {self.width!r}")

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        if lam is not None or self.width is None:
            return super().draw(x, generator=generator, partner=partner, lam=lam, **given)
        partner = self.pairs(x, partner, generator)
        width = between(checked_range("width", self.width, 0, math.inf), self.path(x, generator))
        return self._plan(x, partner, 0.5 / width.square(), self._center(x, width.shape[1], generator))

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        center = self._center(x, self.rows(x, lam), generator)
        return self._plan(x, partner, sharpness(lam, center, x.shape[2:]), center)

    def _center(self, x: Tensor, rows: int, generator: Generator) -> Tensor:
        check_spatial(x, "SmoothMix")
        size = x.shape[2:]
        return random_center(rows, size, "continuous", generator) / torch.tensor(size, dtype=torch.float64)

    def _plan(self, x: Tensor, partner: Tensor, q: Tensor, center: Tensor) -> PairPlan:
        partner, *along = uploaded(x.device, partner, *bumps_along(q, center, x.shape[2:]))
        return MaskPlan(partner=partner, share=outer_masks(along), size=x.shape[2:])
