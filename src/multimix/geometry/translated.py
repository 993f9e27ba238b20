"""Soft masks by the ratio of two saliency maps, and a partner that is moved by whole places before it is mixed in."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from ..devices import widest_float
from ..mixing import PAIR_BY_PAIR, by_step, can_write_in_place, into, memory_format, mix, rows_like
from ..plan import PairPlan, check_size
from ..precision import float32_or_better

CELLS = 32  # along a side, at most, where translations are compared by cells


def blurred(values: Tensor, length: int, sigma: float) -> Tensor:
    """``values [B, *size]`` blurred along every axis by a Gaussian of ``length`` (odd) places; 1 leaves them as they are.

    At the border the weights that fall inside are made to sum to 1: an even map stays even, whatever its size.
    """
    reach = length // 2
    weight = bell(length, sigma)
    for axis in range(1, values.ndim) if reach else ():
        side = values.shape[axis]
        total, mass = torch.zeros_like(values), torch.zeros(side, dtype=values.dtype, device=values.device)
        for offset in range(max(-reach, 1 - side), min(reach, side - 1) + 1):
            here, there, kept = max(0, -offset), max(0, offset), side - abs(offset)
            total.narrow(axis, here, kept).add_(values.narrow(axis, there, kept), alpha=weight[reach + offset])
            mass.narrow(0, here, kept).add_(weight[reach + offset])
        values = total / mass.reshape(-1, *[1] * (values.ndim - axis - 1))
    return values


def with_mean_1(saliency: Tensor) -> Tensor:
    """``[B, *size]`` in float32, each map divided by its mean; a map of zeros becomes even."""
    saliency = float32_or_better(saliency)
    axes = tuple(range(1, saliency.ndim))
    largest = saliency.amax(axes, keepdim=True)
    saliency = torch.where(largest > 0, saliency / largest, 1.0)  # first by the maximum, so that no sum overflows
    return (saliency / saliency.mean(axes, keepdim=True)).float()


def smooth_maps(saliency: Tensor, length: int, sigma: float) -> Tensor:
    """``saliency [B, *size]`` as :func:`blurred` with ``length`` and ``sigma`` and then :func:`with_mean_1` make it."""
    saliency = float32_or_better(saliency)
    if saliency.ndim > 3 or not can_write_in_place(saliency):
        return with_mean_1(blurred(with_mean_1(saliency), length, sigma))
    from .soft_kernel import smooth_planes

    planes = saliency if saliency.ndim == 3 else saliency.unsqueeze(1)  # a signal is one row
    return smooth_planes(planes, bell(length, sigma)).reshape(saliency.shape)


def bell(length: int, sigma: float) -> list[float]:
    """The weights of a Gaussian of ``length`` places, 1 in the middle."""
    return [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-(length // 2), length // 2 + 1)]


def soft_shares(own: Tensor, others: Tensor, partner: Tensor, rho: Tensor) -> Tensor:
    """``[K, B, 1, *size]``, float32: the partner's share (1 − ρ_k) s' / (ρ_k s + (1 − ρ_k) s') at every place, for maps
    ``s = own [B, *size]`` and ``s' = others[partner]`` and the weights ``rho [K, 1 or B]`` of the sample.

    Taken as 1 / (1 + ρ/(1−ρ) · s/s'), every rounding of which keeps the order: shares never fall where ρ falls. Where both
    products vanish the share is 1 − ρ, as if both maps were alike there.
    """
    odds = (rho / (1 - rho)).float().to(own.device)
    if not can_write_in_place(own) or own.dtype != torch.float32:
        return shares_by_odds(own / others[partner], odds)
    from .soft_kernel import ratio_shares

    share = by_step(rows_like(own, len(odds)), len(odds))
    ratio_shares(own.flatten(1), others.flatten(1), partner, odds, share.flatten(2))
    if not bool(((odds > 0) & odds.isfinite()).all()):
        at_end = (odds == 0).float().reshape(*odds.shape, *[1] * (own.ndim - 1))
        share = torch.where(share.isnan(), at_end, share)  # 0 · ∞: both products are 0
    return share.unsqueeze(2)


def shares_by_odds(ratio: Tensor, odds: Tensor) -> Tensor:
    """``[K, B, 1, *size]``, float32: 1 / (1 + ``odds`` · ``ratio``), for ``odds [K, 1 or B]`` and ``ratio [B, *size]``."""
    odds = odds.reshape(*odds.shape, *[1] * (ratio.ndim - 1))
    against = odds * ratio
    against = torch.where(against.isnan(), odds, against)  # 0/0 and 0 · ∞: both products are 0
    return (1 / (1 + against)).unsqueeze(2)


def random_shifts(count: int, size: torch.Size, generator: Generator) -> list[tuple[int, ...]]:
    """``count`` different translations, uniform among all that leave at least a corner inside."""
    sides = [2 * side - 1 for side in size]
    drawn = torch.randperm(math.prod(sides), generator=generator, device="cpu")[:count].numpy()
    along = [places - side // 2 for places, side in zip(np.unravel_index(drawn, sides), sides, strict=True)]
    return list(zip(*(places.tolist() for places in along), strict=True))


def cell_sides(size: torch.Size) -> tuple[int, ...]:
    """How many places a side of a cell has along each axis, so that there are at most ``CELLS`` of them."""
    return tuple(-(-side // CELLS) for side in size)


def pooled(values: Tensor, sides: tuple[int, ...]) -> Tensor:
    """Sums of ``values [B, *size]`` over cells with ``sides``; the last of each axis may be cut short."""
    for axis, side in enumerate(sides, start=1):
        if side > 1:
            count = -(-values.shape[axis] // side)
            if missing := count * side - values.shape[axis]:
                values = torch.nn.functional.pad(values, (0, 0) * (values.ndim - axis - 1) + (0, missing))
            values = torch.unflatten(values, axis, (count, side)).sum(axis + 1)
    return values


def by_cell(shifts: list[tuple[int, ...]], sides: tuple[int, ...]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The translations in whole cells next to ``shifts``, in the order of these, each with the first that it stands for."""
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    for cell, shift in zip(np.round(np.array(shifts) / sides).astype(int).tolist(), shifts, strict=True):
        first.setdefault(tuple(cell), shift)
    return first


def best_shift(own: Tensor, pair: Tensor, rho: Tensor, shifts: list[tuple[int, ...]]) -> Tensor:
    """``[B]``: of the translations of ``pair [B, *size]`` that under which most saliency is seen, the first of several.

    Seen at a place is (a² + b²) / (a + b) with a = ρ_k s and b = (1 − ρ_k) s', the moved map, summed over places and k. What
    moving changes is b (b − a) / (a + b), summed over the places that the moved partner covers.
    """
    if can_write_in_place(own):
        from .translated_kernel import gains

        return gains(own, pair, rho, shifts).argmax(0)
    rho = rho.float().to(own.device)
    rho = rho.reshape(*rho.shape, *[1] * (own.ndim - 1))
    a_all, b_all = rho * own, (1 - rho) * pair
    axes, wide = (0, *range(2, a_all.ndim)), widest_float(own.device)
    return torch.stack([_gain(*_overlap(a_all, b_all, shift)).sum(axes, dtype=wide) for shift in shifts]).argmax(0)


def _gain(a: Tensor, b: Tensor) -> Tensor:
    return (b - a).mul_(b).div_((a + b).clamp_(min=torch.finfo(a.dtype).tiny))


def _overlap(a: Tensor, b: Tensor, shift: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The places of ``a [K, B, *size]`` that ``b``, moved by ``shift``, covers, and what covers them."""
    for axis, along in enumerate(shift, start=2):
        kept = a.shape[axis] - abs(along)
        a, b = a.narrow(axis, max(0, along), kept), b.narrow(axis, max(0, -along), kept)
    return a, b


def covered(shift: Tensor, size: torch.Size) -> Tensor:
    """``[B, *size]`` of bools: the places where something is left after a translation by ``shift [B, d]``."""
    within = torch.ones((), dtype=torch.bool, device=shift.device)
    for axis, side in enumerate(size):
        source = _source(shift, axis, size)
        within = within & (source >= 0) & (source < side)
    return within


def translated(z: Tensor, shift: Tensor) -> Tensor:
    """``z [B, C, *size]``, every sample moved by its own ``shift [B, d]``; what leaves on one side comes in on the other."""
    size, place = z.shape[2:], torch.zeros((), dtype=torch.int64, device=z.device)
    for axis, side in enumerate(size):
        place = place * side + _source(shift, axis, size) % side
    index = place.flatten(1).unsqueeze(1).expand(-1, z.shape[1], -1)
    return z.flatten(2).gather(2, index).view(z.shape)


def _source(shift: Tensor, axis: int, size: torch.Size) -> Tensor:
    """Along ``axis``, the place that is shown at each place, possibly outside: ``[B, 1 …, side, 1 …]``."""
    place = torch.arange(size[axis], device=shift.device) - shift[:, axis, None]
    return place.reshape(len(shift), *[1] * axis, size[axis], *[1] * (len(size) - axis - 1))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TranslatedPlan(PairPlan):
    """A partner that is moved by ``shift [B, d]`` places first, for all K steps alike, then shown by the ratio of two maps.

    Its share is 1 / (1 + ``odds`` · ``ratio``), ``odds [K, 1 or B]``, ``ratio [B, *size]``, and 0 where nothing is left of it.
    """

    odds: Tensor
    ratio: Tensor
    shift: Tensor
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "ratio", "shift")

    @property
    def lam(self) -> Tensor:
        if can_write_in_place(self.ratio):
            from .translated_kernel import mean_shares

            return mean_shares(self.shift, self.ratio, self.odds)
        return self.mask.flatten(2).mean(2, dtype=widest_float(self.ratio.device))

    @property
    def mask(self) -> Tensor:
        here = covered(self.shift, self.size).unsqueeze(1)
        return torch.where(here, shares_by_odds(self.ratio, self.odds), 0.0)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        if not can_write_in_place(z):
            return into(mix(z, translated(z[self.partner], self.shift), self.mask).flatten(0, 1), z, out)
        if z.numel() < len(z) * PAIR_BY_PAIR:
            out = rows_like(z, self.k) if out is None else out
            torch.lerp(z, translated(z[self.partner], self.shift), self.mask.to(z.dtype), out=by_step(out, self.k))
            return out
        from .translated_kernel import mix_moved

        is_dense = out is not None and out.is_contiguous(memory_format=memory_format(z))
        rows = out if out is not None and is_dense else rows_like(z, self.k)
        mix_moved(z, self.partner, self.shift, self.ratio, self.odds, rows)
        return rows if out is None or is_dense else out.copy_(rows)


def ratio_to_moved(own: Tensor, partner: Tensor, shift: Tensor) -> Tensor:
    """``[B, *size]``: each map ``own [B, *size]`` over that of its ``partner [B]``, moved by ``shift [B, d]``."""
    if can_write_in_place(own):
        from .translated_kernel import ratios

        return ratios(own, partner, shift)
    return own / translated(own[partner].unsqueeze(1), shift).squeeze(1)
