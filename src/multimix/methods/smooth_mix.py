"""SmoothMix (Lee et al., 2020): a smooth bump of the partner, of K widths around one center."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ..core.checks import Range, between, check_spatial, checked_range
from ..core.devices import uploaded
from ..core.plan import MaskPlan, PairPlan
from ..geometry.boxes import random_center
from ..geometry.threshold import outer_masks
from .path import PairMethod
from .registry import register

# Range of log q. In float64, flatter bumps are 1 everywhere; sharper ones vanish off the center.
MIN_LOG_Q, MAX_LOG_Q = -40.0, 60.0
MAX_NEWTON_STEPS = 64
TOLERANCE = 1e-12


def bumps_along(q: Tensor, center: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """Compute the factors of Gaussian bumps along each axis.

    Args:
        q: ``[K, rows]`` sharpness of exp(−q D²); an infinite value gives 0 everywhere.
        center: ``[rows, d]`` in shares of the sides.
        size: The image's sides.

    Returns:
        ``[K, rows, side]``, float32, for each axis.
    """
    is_zero = q.isinf()
    q = torch.where(is_zero, 0.0, q).unsqueeze(-1)
    along = [torch.exp(-q * squares).float() for squares in _squares(center, size)]
    along[0] = along[0].masked_fill(is_zero.unsqueeze(-1), 0.0)
    return along


def sharpness(lam: Tensor, center: Tensor, size: tuple[int, ...]) -> Tensor:
    """Solve for the sharpness at which the mean of a bump over all places is λ.

    Newton's method solves log mean = log λ for log q inside a bracket, with bisection if a step
    would leave it. The mean is a product over the axes, so the cost is K times the sum of the
    sides.

    Args:
        lam: ``[K, 1 or rows]`` means.
        center: ``[rows, d]`` in shares of the sides.
        size: The image's sides.

    Returns:
        ``q [K, rows]``: 0 for λ = 1, infinite for λ = 0.
    """
    squares = _squares(center, size)
    mean_square, min_square = torch.stack(
        [torch.stack([s.mean(-1), s.amin(-1)]) for s in squares]
    ).sum(0)
    log_lam = lam.clamp(min=torch.finfo(torch.float64).tiny).log() + torch.zeros_like(mean_square)
    # The mean of exp(−q D²) is between exp(−q · mean D²) and exp(−q · min D²).
    flat = (-log_lam / mean_square).log().clamp(MIN_LOG_Q, MAX_LOG_Q)
    sharp = (-log_lam / min_square).log().clamp(MIN_LOG_Q, MAX_LOG_Q)
    # The bump of mean λ in an infinite image has q = π / λ^(2/d).
    log_q = (math.log(math.pi / 2) - 2 / len(size) * log_lam).clamp(flat, sharp)
    is_solved = torch.zeros_like(log_lam, dtype=torch.bool)
    for _ in range(MAX_NEWTON_STEPS):
        log_mean, slope = _log_mean(log_q, squares)
        excess = log_mean - log_lam
        too_wide = excess > 0
        flat, sharp = torch.where(too_wide, log_q, flat), torch.where(too_wide, sharp, log_q)
        newton = log_q - excess / slope
        step = torch.where((newton > flat) & (newton < sharp), newton, (flat + sharp) / 2)
        # Each problem stops on its own convergence, so solutions are independent of the batch.
        is_solved |= (excess.abs() <= TOLERANCE) | (sharp - flat <= TOLERANCE)
        if bool(is_solved.all()):
            break
        log_q = torch.where(is_solved, log_q, step)
    q = torch.where(lam == 1, 0.0, torch.where(lam == 0, torch.inf, log_q.exp()))
    # Rounding may swap the solutions of nearly equal shares.
    return q.cummin(0).values


def _log_mean(log_q: Tensor, squares: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute log mean of the bumps, ``[K, rows]``, and its derivative with respect to log q."""
    q = log_q.exp()
    value, slope = torch.zeros_like(q), torch.zeros_like(q)
    for along in squares:
        nearest = along.amin(-1)
        rest = along - nearest.unsqueeze(-1)
        # Relative to the nearest place, so that exponentials cannot underflow along an entire axis.
        parts = torch.exp(-q.unsqueeze(-1) * rest)
        mean = parts.mean(-1)
        value = value + mean.log() - q * nearest
        slope = slope - q * (nearest + (parts * rest).mean(-1) / mean)
    return value, slope


def _squares(center: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """Compute squared distances from the center along every axis, ``[rows, side]`` each."""
    return [
        ((torch.arange(side, dtype=torch.float64) + 0.5) / side - center[:, axis, None]).square()
        for axis, side in enumerate(size)
    ]


@register(
    "smoothmix",
    shared="pair, center of a Gaussian bump",
    order="masks ordered pointwise, mean λ",
    examples=({}, {"width": (0.25, 0.5)}),
)
@dataclass(frozen=True, kw_only=True)
class SmoothMix(PairMethod):
    """SmoothMix: x̂_k = (1 − m_k) x + m_k x', m_k = exp(−D² / 2 w_k²).

    D is the distance from one uniformly drawn center, in units of the image's sides. The target
    follows the mean of the mask.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        width: Range (low, high) of the widths w_k, to which the drawn path is mapped linearly.
            (0.25, 0.5) with α = 1 is the published distribution. None chooses w_k such that the
            mean of m_k is λ_k.

    Example::

        mixed_forward(model, SmoothMix(k=5), x, y).loss().backward()
    """

    width: float | Range | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is None:
            return
        width = checked_range("width", self.width, 0, math.inf)
        if width[0] == 0:
            raise ValueError(f"width must be positive, got {self.width!r}")
        object.__setattr__(self, "width", width)

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
        partner = self.draw_partner(x, partner, generator)
        ends: Any = self.width
        width = between(ends, self.draw_path(x, generator))
        return self._plan(
            x, partner, 0.5 / width.square(), self._center(x, width.shape[1], generator)
        )

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        center = self._center(x, self.rows(x, lam), generator)
        return self._plan(x, partner, sharpness(lam, center, x.shape[2:]), center)

    def _center(self, x: Tensor, rows: int, generator: Generator) -> Tensor:
        check_spatial(x, "SmoothMix")
        size = x.shape[2:]
        return random_center(rows, size, "continuous", generator) / torch.tensor(
            size, dtype=torch.float64
        )

    def _plan(self, x: Tensor, partner: Tensor, q: Tensor, center: Tensor) -> PairPlan:
        partner, *along = uploaded(x.device, partner, *bumps_along(q, center, x.shape[2:]))
        return MaskPlan(partner=partner, share=outer_masks(along), size=x.shape[2:])
