"""Soft masks from the ratio of two saliency maps, and partners translated by whole places."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.devices import float32_or_better, widest_float
from ..core.mixing import like, mix
from ..core.plan import PairPlan


def smooth_maps(saliency: Tensor, length: int, sigma: float) -> Tensor:
    """Blur maps and divide each by its mean.

    Args:
        saliency: ``[B, *size]``, at least 0. A map of zeros becomes even.
        length: Odd number of places of the Gaussian; 1 does not blur.
        sigma: Its width in places.

    Returns:
        ``[B, *size]``, float32.
    """
    return _with_mean_1(_blurred(_with_mean_1(saliency), length, sigma))


def _blurred(values: Tensor, length: int, sigma: float) -> Tensor:
    """Blur along every axis; weights inside the image are normalized, so even maps stay even."""
    reach = length // 2
    weight = [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-reach, reach + 1)]
    for axis in range(1, values.ndim) if reach else ():
        side = values.shape[axis]
        total = torch.zeros_like(values)
        mass = torch.zeros(side, dtype=values.dtype, device=values.device)
        for offset in range(max(-reach, 1 - side), min(reach, side - 1) + 1):
            start, source, count = max(0, -offset), max(0, offset), side - abs(offset)
            part = values.narrow(axis, source, count)
            total.narrow(axis, start, count).add_(part, alpha=weight[reach + offset])
            mass.narrow(0, start, count).add_(weight[reach + offset])
        values = total / mass.reshape(-1, *[1] * (values.ndim - axis - 1))
    return values


def _with_mean_1(saliency: Tensor) -> Tensor:
    saliency = float32_or_better(saliency)
    axes = tuple(range(1, saliency.ndim))
    largest = saliency.amax(axes, keepdim=True)
    saliency = torch.where(largest > 0, saliency / largest, 1.0)  # gradients may be tiny
    return (saliency / saliency.mean(axes, keepdim=True)).float()


def shares_by_odds(ratio: Tensor, odds: Tensor) -> Tensor:
    """Compute the partner's share 1 / (1 + odds · ratio), which never falls where odds fall.

    It equals (1 − ρ) s' / (ρ s + (1 − ρ) s') for ``ratio`` s / s' and ``odds`` ρ / (1 − ρ). Where
    both products vanish the maps count as equal.

    Args:
        ratio: ``[B, *size]``.
        odds: ``[K, 1 or B]``.

    Returns:
        ``[K, B, 1, *size]``, float32.
    """
    odds = odds.reshape(*odds.shape, *[1] * (ratio.ndim - 1))
    # 0/0 counts as 1. The products 0 · ∞ become 0 if the odds are 0, and ∞ if the odds are ∞.
    ratio = ratio.nan_to_num(nan=1.0).clamp(min=torch.finfo(ratio.dtype).tiny)
    return (odds * ratio).add_(1).reciprocal_().unsqueeze(2)


def covered(shift: Tensor, size: torch.Size) -> Tensor:
    """Return ``[B, *size]`` bools: places still covered after a translation by ``shift [B, d]``."""
    within = torch.ones((), dtype=torch.bool, device=shift.device)
    for axis, side in enumerate(size):
        source = _source(shift, axis, size)
        within = within & (source >= 0) & (source < side)
    return within


def translated(z: Tensor, shift: Tensor) -> Tensor:
    """Translate every sample of ``z [B, C, *size]`` cyclically by its own ``shift [B, d]``."""
    size, place = z.shape[2:], torch.zeros((), dtype=torch.int64, device=z.device)
    for axis, side in enumerate(size):
        place = place * side + _source(shift, axis, size) % side
    index = place.flatten(1).unsqueeze(1).expand(-1, z.shape[1], -1)
    return z.flatten(2).gather(2, index).view(z.shape)


def _source(shift: Tensor, axis: int, size: torch.Size) -> Tensor:
    """The place shown at each place of an axis, possibly outside: ``[B, 1 …, side, 1 …]``."""
    place = torch.arange(size[axis], device=shift.device) - shift[:, axis, None]
    return place.reshape(len(shift), *[1] * axis, size[axis], *[1] * (len(size) - axis - 1))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TranslatedPlan(PairPlan):
    """A translated partner, mixed by the ratio of two maps.

    The partner's share is 1 / (1 + odds · ratio), and 0 where the translation leaves a gap.

    Args:
        odds: ``[K, 1 or B]``, float32.
        ratio: ``[B, *size]``, the sample's map divided by the translated partner's.
        shift: ``[B, d]``, int64, the translation, the same for all K steps.
    """

    odds: Tensor
    ratio: Tensor
    shift: Tensor
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "ratio", "shift")

    @property
    def lam(self) -> Tensor:
        return self.mask.flatten(2).mean(2, dtype=widest_float(self.ratio.device))

    @property
    def mask(self) -> Tensor:
        visible = covered(self.shift, self.size).unsqueeze(1)
        return torch.where(visible, shares_by_odds(self.ratio, self.odds), 0.0)

    def _mix(self, z: Tensor) -> Tensor:
        pair = translated(z[self.partner], self.shift)
        return like(mix(z, pair, self.mask).flatten(0, 1), z)
