"""K boxes around one centre, half-open ``[low, high)`` along each axis, and the plans that show the partner in them.

For signals, images and volumes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from ..devices import widest_float
from ..mixing import PAIR_BY_PAIR, by_step, can_write_in_place, chain, into, mix, mixed_batch, rows_like
from ..plan import PairPlan, check_size

Fit = Literal["clip", "shift"]
Grid = Literal["continuous", "integer"]


def random_center(rows: int, size: tuple[int, ...], grid: Grid, generator: Generator) -> Tensor:
    """``[rows, d]`` in float64: uniform on [0, side) along each axis, or on the whole numbers 0 … side − 1."""
    sides = _sides(tuple(size))
    center = torch.rand(rows, len(size), dtype=torch.float64, generator=generator) * sides
    return center.floor() if grid == "integer" else center


def centered_boxes(lam: Tensor, center: Tensor, size: tuple[int, ...], fit: Fit, grid: Grid) -> tuple[Tensor, Tensor]:
    """``low, high [K, rows, d]``: boxes whose sides are the image's times λ^(1/d), nested in λ for one ``center [rows, d]``.

    ``clip`` cuts off what falls outside the image, as in the paper, so the area is less than λ near the border. ``shift``
    slides the box inside: area λ up to rounding, empty at 0, the whole image at 1. On the ``continuous`` grid centres and sides
    are real; clipped edges are then rounded down, as in the code the paper builds on, which moves a box half a place towards
    the origin on average, while shifted edges are rounded to the nearest, so that no border is favoured. On the ``integer``
    grid (the original code) centres and half sides are whole numbers, so every unclipped side of a clipped box is even.
    """
    # In NumPy, whose calls are quicker than torch's where there is next to nothing to compute.
    sides, middle = _sides(tuple(size)).numpy(), center.numpy()
    side = sides * lam.numpy()[..., None] ** (1 / len(size))
    if fit == "shift":
        side = np.rint(side)
        low = middle - np.floor(side / 2) if grid == "integer" else np.floor(middle - side / 2 + 0.5)
        low = np.minimum(np.maximum(low, 0), sides - side)
        high = low + side
    else:
        half = np.floor(np.floor(side) / 2) if grid == "integer" else side / 2
        low = np.minimum(np.maximum(middle - half, 0), sides)
        high = np.minimum(np.maximum(middle + half, 0), sides)
    return torch.from_numpy(low.astype(np.int64)), torch.from_numpy(high.astype(np.int64))


def inside(low: Tensor, high: Tensor, size: torch.Size) -> Tensor:
    """``[…, 1, *size]`` of bools: which places lie in the box ``low, high […, d]``."""
    within = torch.ones((), dtype=torch.bool, device=low.device)
    for axis, side in enumerate(size):
        place = torch.arange(side, device=low.device).reshape(side, *[1] * (len(size) - axis - 1))
        edge = (..., axis, *[None] * len(size))
        within = within & ((place >= low[edge]) & (place < high[edge]))
    return within.unsqueeze(-1 - len(size))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoxPlan(PairPlan):
    """Inside box ``[low, high)`` the partner, outside the sample: ``low, high [K, 1 or B, d]``, nested in k."""

    low: Tensor
    high: Tensor
    has_places = True

    @property
    def lam(self) -> Tensor:
        area = (self.high - self.low).to(widest_float(self.low.device)).prod(-1) / self.size.numel()
        return area.expand(-1, self.partner.shape[0])

    @property
    def mask(self) -> Tensor:
        share = inside(self.low, self.high, self.size).float()
        return share.expand(-1, len(self.partner), *share.shape[2:])

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        if not can_write_in_place(z):
            return into(torch.where(inside(self.low, self.high, self.size), z[self.partner], z).flatten(0, 1), z, out)
        if self.low.shape[1] == 1:
            return mixed_batch(z, self.partner, self._planes(), out)
        if z[0].numel() < PAIR_BY_PAIR:
            return mixed_batch(z, self.partner, inside(self.low, self.high, self.size), out)
        out = rows_like(z, self.k) if out is None else out
        self._paste(z, by_step(out, self.k))
        return out

    def _planes(self) -> Tensor:
        """The masks ``[K, 1, 1, *size]`` of boxes that the whole batch shares: filled, which is quicker than compared."""
        planes = np.zeros((self.low.shape[0], 1, 1, *self.size), np.float32)
        for plane, (low,), (high,) in zip(planes, self.low.tolist(), self.high.tolist(), strict=True):
            plane[slices(low, high)] = 1
        return torch.from_numpy(planes)

    def _paste(self, z: Tensor, steps: Tensor) -> None:
        """Box by box, where every pair has its own: the masks would be as large as the batch."""
        own, pairs, of_pair = z.unbind(0), self.partner.tolist(), steps.unbind(1)
        low, high = self.low.tolist(), self.high.tolist()
        for i in chain(pairs):
            of_pair[i].copy_(own[i])
            for k, step in enumerate(of_pair[i].unbind(0)):
                box = slices(low[k][i], high[k][i])[1:]
                step[box].copy_(own[pairs[i]][box])


@lru_cache(maxsize=64)
def _sides(size: tuple[int, ...]) -> Tensor:
    return torch.tensor(size, dtype=torch.float64, device="cpu")


def slices(low: list[int], high: list[int]) -> tuple[slice, ...]:
    """An index into ``[B, C, *size]`` that takes the box out of every sample and channel."""
    return (slice(None), slice(None), *(slice(a, b) for a, b in zip(low, high, strict=True)))


Resize = Literal["nearest", "bilinear"]


class Taps(NamedTuple):
    """What is shown along one axis: ``first`` and ``second [K, rows, side]`` are places, ``weight`` is the second's share.

    ``nearest`` has no second place.
    """

    first: Tensor
    second: Tensor | None = None
    weight: Tensor | None = None

    def of(self, k: int, row: int | slice = slice(None), places: slice = slice(None)) -> "Taps":
        """Those of one step, row (or all rows) and run of places."""
        first, second, weight = (None if part is None else part[k, row, places] for part in self)
        assert first is not None
        return Taps(first, second, weight)


def roaming_boxes(lam: Tensor, point: Tensor, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """``low, high [K, rows, d]``: boxes of sides λ^(1/d) times the image's, rounded, that lie inside it and nest.

    The share of the room left of a box is that of the image left of ``point [rows, d]``, which lies in every box that is not
    empty. For a uniform point all positions of a box are equally likely, whatever its size; a box that is only pushed back
    inside would lie at a border most of the time.
    """
    sides = torch.tensor(size, dtype=torch.float64)
    side = (sides * lam.unsqueeze(-1) ** (1 / len(size))).round()
    low = torch.minimum((point / sides * (sides - side + 1)).floor(), sides - side)
    return low.long(), (low + side).long()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ResizedPlan(BoxPlan):
    """In box ``[low, high)`` all of the partner, made smaller; outside the sample: ``low, high [K, 1 or B, d]``, nested in k."""

    resize: Resize

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        return self._pasted(z, z, out)

    def _pasted(self, z: Tensor, whole: Tensor, out: Tensor | None) -> Tensor:
        """``z`` with all of ``whole[partner]``, made smaller, in its boxes."""
        check_size(z, self.size)
        taps = [self._taps(axis) for axis in range(len(self.size))]
        if can_write_in_place(z) and (self.low.shape[1] == 1 or z[0].numel() >= PAIR_BY_PAIR):
            out = rows_like(z, self.k) if out is None else out
            self._fill(z, whole, taps, by_step(out, self.k))
            return out
        pair, within = whole[self.partner], inside(self.low, self.high, self.size)
        steps = [torch.where(within[k], _resized(pair, [tap.of(k) for tap in taps]).to(z.dtype), z) for k in range(self.k)]
        return into(torch.cat(steps), z, out)

    def _fill(self, z: Tensor, whole: Tensor, taps: list[Taps], steps: Tensor) -> None:
        """Box by box, so that only what is shown is resized: for the whole batch at once where it shares its boxes."""
        low, high = self.low.tolist(), self.high.tolist()
        rows = [slice(None)] if self.low.shape[1] == 1 else [slice(i, i + 1) for i in range(len(z))]
        for k, step in enumerate(steps.unbind(0)):
            step.copy_(z)
            for row, samples in enumerate(rows):
                box = slices(low[k][row], high[k][row])
                if any(edge.start == edge.stop for edge in box[2:]):
                    continue
                shown = [tap.of(k, slice(row, row + 1), edge) for tap, edge in zip(taps, box[2:], strict=True)]
                partner = self.partner[samples]
                if len(rows) == 1:
                    step[box] = _resized(whole, shown)[partner]
                else:
                    step[samples][box] = _resized(whole[partner], shown)

    def _taps(self, axis: int) -> Taps:
        """Where each place along an axis looks in the partner; outside the box, where nothing is shown, it looks anywhere."""
        side, low = self.size[axis], self.low[..., axis, None]
        width = (self.high[..., axis, None] - low).clamp(min=1)
        place = torch.minimum((torch.arange(side, device=low.device) - low).clamp(min=0), width - 1)
        if self.resize == "nearest":
            return Taps(place * side // width)
        # The middle of a shown place, in places of the partner; beyond the middle of the outermost one that one is shown.
        middle = (((2 * place + 1) * side - width).to(widest_float(low.device)) / (2 * width)).clamp(0, side - 1)
        first = middle.floor()
        return Taps(first.long(), (first.long() + 1).clamp(max=side - 1), middle - first)


def _resized(z: Tensor, taps: list[Taps]) -> Tensor:
    """``z [B, C, *size]`` looked up along every axis at places ``[1 or B, places]``."""
    half = z.dtype in (torch.float16, torch.bfloat16) and taps[0].second is not None
    shown = z.float() if half else z  # rounded once, at the end
    for axis, (first, second, weight) in enumerate(taps, 2):
        near = _looked_up(shown, axis, first)
        if second is None or weight is None:
            shown = near
        else:
            along = weight.reshape(len(weight), *[1] * (axis - 1), -1, *[1] * (z.ndim - axis - 1))
            shown = mix(near, _looked_up(shown, axis, second), along)
    return shown.to(z.dtype)


def _looked_up(z: Tensor, axis: int, place: Tensor) -> Tensor:
    if len(place) == 1 and axis < z.ndim - 1:
        return z.index_select(axis, place[0])  # whole rows; along the last axis it is slower than gathering
    place = place.reshape(len(place), *[1] * (axis - 1), -1, *[1] * (z.ndim - axis - 1))
    return z.gather(axis, place.expand(*z.shape[:axis], -1, *z.shape[axis + 1 :]))
