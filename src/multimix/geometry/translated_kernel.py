"""What SAGE does at every place, compiled: translations are compared, and shares are taken from two maps.

Places have three axes here, ``[D, H, W]``; signals and images have the first ones of length 1.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, kernel, noticed
from .blocks_kernel import LEAST

Floats = NDArray[np.float32] | NDArray[np.float64]
Indices = NDArray[np.int64]
LANES = 64  # pairs whose maps lie side by side: a multiple of what a processor computes at once, and few enough for its cache


def gains(own: Tensor, pair: Tensor, rho: Tensor, shifts: list[tuple[int, ...]]) -> Tensor:
    """``[S, B]``, float64: what each translation of ``pair [B, *size]`` changes in the saliency that is seen."""
    batch, size = len(own), own.shape[1:]
    found = np.empty((len(shifts), batch))
    table = np.array(shifts, np.int64).reshape(len(shifts), -1)
    table = np.pad(table, ((0, 0), (3 - table.shape[1], 0)))
    rho = rho.float().expand(-1, batch)
    for start in range(0, batch, LANES):
        part, lanes = slice(start, start + LANES), min(LANES, batch - start)
        # Pairs last, and as many as fit evenly: the loop over them is the one that is computed many at a time.
        filled = [
            torch.nn.functional.pad(values, (0, -lanes % 16)).contiguous().numpy()
            for values in (*(of[part].reshape(lanes, *_three(size)).movedim(0, 3) for of in (own, pair)), rho[:, part])
        ]
        with noticed(fill_gains):
            in_chunks(partial(fill_gains, *filled, table, found[:, part]), len(shifts))
    return torch.from_numpy(found)


@kernel
def fill_gains(own: Floats, pair: Floats, rho: Floats, shifts: Indices, found: Floats, start: int, stop: int) -> None:
    """Rows ``start … stop`` of ``found [S, B]`` for maps ``[D, H, W, lanes]`` and ``rho [K, lanes]``, lanes ≥ B."""
    deep, height, width, lanes = own.shape
    row, total = np.empty(lanes, np.float32), np.empty(lanes)
    rest, tiny = np.float32(1) - rho, np.finfo(np.float32).tiny
    for n in range(start, stop):
        back, down, right = shifts[n]
        total[:] = 0
        for z in range(max(0, back), min(deep, deep + back)):
            for y in range(max(0, down), min(height, height + down)):
                row[:] = 0
                for x in range(max(0, right), min(width, width + right)):
                    s, s_pair = own[z, y, x], pair[z - back, y - down, x - right]
                    for k in range(len(rho)):
                        weight, weight_pair = rho[k], rest[k]
                        for i in range(lanes):
                            a, b = weight[i] * s[i], weight_pair[i] * s_pair[i]
                            row[i] += b * (b - a) / max(a + b, tiny)
                for i in range(lanes):
                    total[i] += row[i]
        for i in range(found.shape[1]):
            found[n, i] = total[i]


def ratios(own: Tensor, partner: Tensor, shift: Tensor) -> Tensor:
    """``[B, *size]``: each map over its partner's, moved by ``shift``; 1 where both are 0 or nothing is left of the partner."""
    found = torch.empty_like(own, memory_format=torch.contiguous_format)
    views = [of.contiguous().view(len(of), *_three(of.shape[1:])).numpy() for of in (own, found)]
    arrays = (*views, partner.contiguous().numpy(), _three_shifts(shift))
    least = max(1, LEAST // own[0].numel())
    with noticed(fill_ratios):
        in_chunks(lambda start, stop: fill_ratios(*arrays, start, stop), len(own), None, least)
    return found


@kernel
def fill_ratios(own: Floats, found: Floats, partner: Indices, shift: Indices, start: int, stop: int) -> None:
    """Maps ``start … stop`` of ``found [B, D, H, W]``."""
    deep, height, width = own.shape[1:]
    zero, tiny, inf = np.float32(0), np.float32(1e-45), np.float32(np.inf)
    for i in range(start, stop):
        back, down, right = shift[i]
        found[i] = 1
        for d in range(max(0, back), min(deep, deep + back)):
            for y in range(max(0, down), min(height, height + down)):
                s_pair = own[partner[i], d - back, y - down, max(0, -right) :]
                s, row = own[i, d, y, max(0, right) :], found[i, d, y, max(0, right) :]
                for x in range(width - abs(right)):
                    a, b = s[x], s_pair[x]
                    row[x] = a / max(b, tiny) if b > zero else (inf if a > zero else np.float32(1))


def shares_where_covered(ratio: Tensor, shift: list[int], odds: Tensor, room: Tensor) -> Tensor:
    """``[K, 1, …]``: the partner's share at the places of ``ratio [*size]`` that it covers, moved by ``shift``.

    It lies in ``room``, one row of at least K times as many numbers as there are places.
    """
    size = _three(ratio.shape)
    kept = [side - abs(along) for side, along in zip(ratio.shape, shift, strict=True)]
    found = room[: len(odds) * math.prod(kept)].view(len(odds), 1, *kept)
    low = (*[0] * (3 - len(shift)), *(max(0, along) for along in shift))
    with noticed(fill_covered):
        fill_covered(ratio.view(size).numpy(), low, odds.numpy(), found.view(len(odds), *_three(torch.Size(kept))).numpy())
    return found


@kernel
def fill_covered(ratio: Floats, low: tuple[int, int, int], odds: Floats, found: Floats) -> None:
    """``found [K, …]`` for the part of ``ratio [D, H, W]`` that begins at ``low``."""
    for k in range(len(odds)):
        for d in range(found.shape[1]):
            for y in range(found.shape[2]):
                fill_shares(ratio[low[0] + d, low[1] + y, low[2] :], odds[k], found[k, d, y])


@kernel
def fill_shares(ratio: Floats, odds: Any, share: Floats) -> None:
    """``share`` of one row."""
    one = np.float32(1)
    for x in range(len(share)):
        against = odds * ratio[x]
        against = against if against == against else odds  # 0/0 and 0 · ∞: both products are 0
        share[x] = one / max(one + against, one)


def mean_shares(shift: Tensor, ratio: Tensor, odds: Tensor) -> Tensor:
    """``[K, B]``, float64: the partner's share of each mixed sample."""
    batch, size = len(ratio), ratio.shape[1:]
    found = np.empty((len(odds), batch))
    maps = ratio.contiguous().view(batch, *_three(size)).numpy()
    arrays = (_three_shifts(shift), maps, np.ascontiguousarray(odds.expand(-1, batch).numpy()), found)
    least = max(1, LEAST // (len(odds) * size.numel()))
    with noticed(fill_means):
        in_chunks(lambda start, stop: fill_means(*arrays, start, stop), batch, None, least)
    return torch.from_numpy(found)


@kernel
def fill_means(shift: Indices, ratio: Floats, odds: Floats, found: Floats, start: int, stop: int) -> None:
    """Columns ``start … stop`` of ``found [K, B]``."""
    deep, height, width = ratio.shape[1:]
    share, summed = np.empty(width, np.float32), np.empty(width)
    for i in range(start, stop):
        back, down, right = shift[i]
        low, high = max(0, right), min(width, width + right)
        for k in range(len(odds)):
            total = 0.0
            for d in range(max(0, back), min(deep, deep + back)):
                summed[:] = 0
                for y in range(max(0, down), min(height, height + down)):
                    fill_shares(ratio[i, d, y, low:], odds[k, i], share[: high - low])
                    for x in range(high - low):
                        summed[x] += share[x]
                for x in range(high - low):
                    total += summed[x]
            found[k, i] = total / (deep * height * width)


def _three(size: torch.Size) -> tuple[int, ...]:
    return (*[1] * (3 - len(size)), *size)


def _three_shifts(shift: Tensor) -> Indices:
    return np.pad(shift.numpy(), ((0, 0), (3 - shift.shape[1], 0)))
