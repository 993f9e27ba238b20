"""K boxes around one centre, half-open ``[low, high)`` along each axis, and the plans that show the partner in them.

For signals, images and volumes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from .. import one_pass
from ..devices import widest_float
from ..mixing import (
    AtOnce,
    by_step,
    can_write_in_place,
    chain,
    filled_at_once,
    into,
    is_small,
    is_worth_compiling,
    mixed_batch,
    rows_like,
)
from ..plan import PairPlan, check_size
from .axes import Taps

Fit = Literal["clip", "shift"]
Grid = Literal["continuous", "integer"]


def random_center(rows: int, size: tuple[int, ...], grid: Grid, generator: Generator) -> Tensor:
    """``[rows, d]`` in float64: uniform on [0, side) along each axis, or on the whole numbers 0 … side − 1."""
    sides = _sides(tuple(size))
    center = torch.rand(rows, len(size), dtype=torch.float64, generator=generator).mul_(sides)
    return center.floor() if grid == "integer" else center


def random_boxes(
    lam: Tensor, rows: int, size: tuple[int, ...], fit: Fit, grid: Grid, generator: Generator
) -> tuple[Tensor, Tensor]:
    """:func:`centered_boxes` around ``rows`` centres as :func:`random_center` draws them."""
    if rows == lam.shape[1] == 1:
        places = torch.rand(len(size), dtype=torch.float64, generator=generator, device="cpu").tolist()
        center = [place * side for place, side in zip(places, size, strict=True)]
        return _one_centre(lam.tolist(), [math.floor(a) for a in center] if grid == "integer" else center, size, fit, grid)
    return centered_boxes(lam, random_center(rows, size, grid, generator), size, fit, grid)


def centered_boxes(lam: Tensor, center: Tensor, size: tuple[int, ...], fit: Fit, grid: Grid) -> tuple[Tensor, Tensor]:
    """``low, high [K, rows, d]``: boxes whose sides are the image's times λ^(1/d), nested in λ for one ``center [rows, d]``.

    ``clip`` cuts off what falls outside the image, as in the paper, so the area is less than λ near the border. ``shift``
    slides the box inside: area λ up to rounding, empty at 0, the whole image at 1. On the ``continuous`` grid centres and sides
    are real; clipped edges are then rounded down, as in the code the paper builds on, which moves a box half a place towards
    the origin on average, while shifted edges are rounded to the nearest, so that no border is favoured. On the ``integer``
    grid (the original code) centres and half sides are whole numbers, so every unclipped side of a clipped box is even.
    """
    if lam.shape[1] == center.shape[0] == 1:
        return _one_centre(lam.tolist(), center.tolist()[0], size, fit, grid)
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


def _one_centre(
    lam: list[list[float]], center: list[float], size: tuple[int, ...], fit: Fit, grid: Grid
) -> tuple[Tensor, Tensor]:
    """:func:`centered_boxes` that a whole batch shares, in Python's numbers: calls take longer than the work."""
    lows, highs, power = [], [], 1 / len(size)
    for (share,) in lam:
        for side, middle in zip(size, center, strict=True):
            length = side * share**power
            if fit == "shift":
                length = round(length)
                low = middle - length // 2 if grid == "integer" else math.floor(middle - length / 2 + 0.5)
                low = min(max(low, 0), side - length)
                high = low + length
            else:
                half = math.floor(length) // 2 if grid == "integer" else length / 2
                low, high = min(max(middle - half, 0), side), min(max(middle + half, 0), side)
            lows.append(int(low))
            highs.append(int(high))
    low, high = torch.from_numpy(np.array(lows + highs, np.int64).reshape(2, len(lam), 1, len(size))).unbind()
    return low, high


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
        out = rows_like(z, self.k) if out is None else out
        if is_small(z) and one_pass.paste(z, self.partner, self.low, self.high, out):
            return out
        if self.low.shape[1] == 1:
            return mixed_batch(z, self.partner, self._planes(), out)
        if is_small(z):
            return mixed_batch(z, self.partner, inside(self.low, self.high, self.size), out)
        if self._has_kernel(z, out):
            self._paste_rows(z, z, out)
        else:
            self._paste(z, by_step(out, self.k))
        return out

    def _mix_at_once(self, z: Tensor, label: Tensor | None = None, classes: int = 0) -> AtOnce | None:
        if type(self) is not BoxPlan:
            return None
        check_size(z, self.size)
        fill = partial(one_pass.paste, z, self.partner, self.low, self.high)
        return filled_at_once(z, self.low.shape[0], fill, label, classes)

    def _planes(self) -> Tensor:
        """The masks ``[K, 1, 1, *size]`` of boxes that the whole batch shares: filled, which is quicker than compared."""
        planes = np.zeros((self.low.shape[0], 1, 1, *self.size), np.float32)
        for plane, (low,), (high,) in zip(planes, self.low.tolist(), self.high.tolist(), strict=True):
            plane[slices(low, high)] = 1
        return torch.from_numpy(planes)

    def _has_kernel(self, z: Tensor, out: Tensor) -> bool:
        """Whether large samples can be pasted by compiled code, and it is worth loading."""
        return len(self.size) in (1, 2) and is_worth_compiling(z, out)

    def _paste_rows(self, z: Tensor, whole: Tensor, out: Tensor) -> None:
        """Fill ``out`` with ``z``, and in the boxes with ``whole[partner]``; for signals and images."""
        from .pasted_kernel import paste_rows

        low, high, size = self.low, self.high, self.size
        if low.shape != high.shape or low.shape[1:] not in ((1, len(size)), (len(z), len(size))):
            wanted = f"[K, 1 or {len(z)}, {len(size)}]"
            raise ValueError(f"low and high must both be {wanted}, got {list(low.shape)} and {list(high.shape)}")
        if len(size) == 1:  # a signal is one row
            low, high, size = pad(low, (1, 0)), pad(high, (1, 0), value=1), torch.Size((1, *size))
        own, other = (rows.reshape(*rows.shape[:2], *size) for rows in (z, whole))
        paste_rows(own, other, self.partner, low, high, self._seen(low, high, size), out.view(*out.shape[:2], *size))

    def _seen(self, low: Tensor, high: Tensor, size: torch.Size) -> Sequence[Taps] | None:
        """What of the partner each place shows along every axis; None where it is that place itself."""
        return None

    def _paste(self, z: Tensor, steps: Tensor) -> None:
        """Box by box, without compiled code."""
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
    return (slice(None), slice(None), *(slice(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)))
