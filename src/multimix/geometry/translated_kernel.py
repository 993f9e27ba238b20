"""What SAGE does at every place, compiled: translations are compared, and shares are taken from two maps.

Places have three axes here, ``[D, H, W]``; signals and images have the first ones of length 1.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, inner, kernel, noticed
from ..mixing import chain, memory_format
from ..streamed_kernel import fence, lerp_row
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


def mix_moved(z: Tensor, partner: Tensor, shift: Tensor, ratio: Tensor, odds: Tensor, out: Tensor) -> None:
    """Fill ``out [K·B, C, *size]``, dense and in the memory format of ``z``, as :class:`.TranslatedPlan` says."""
    batch, steps, size = len(z), len(odds), ratio.shape[1:]
    last = memory_format(z) != torch.contiguous_format
    # Rows of numbers that lie side by side: W of them, or W·C where channels come last.
    unit = z.shape[1] if last else 1
    rows, filled = (
        of.movedim(1, -1).view(len(of), 1, -1) if last else of.view(len(of), z.shape[1], -1)
        for of in (z.contiguous(memory_format=memory_format(z)), out)
    )
    arrays = (
        rows.numpy(),
        partner.contiguous().numpy(),
        np.array(chain(partner.tolist()), np.int64),
        _three_shifts(shift),
        ratio.contiguous().view(batch, -1).numpy(),
        np.ascontiguousarray(odds.expand(-1, batch).numpy()),
        filled.view(steps, batch, *filled.shape[1:]).numpy(),
        (*_three(size)[1:], unit),
    )
    least = max(1, LEAST // (steps * z[0].numel()))
    with noticed(mix_pairs):
        in_chunks(lambda start, stop: mix_pairs(*arrays, start, stop), batch, None, least)


@kernel
def mix_pairs(
    z: Floats,
    partner: Indices,
    order: Indices,
    shift: Indices,
    ratio: Floats,
    odds: Floats,
    out: Floats,
    size: tuple[int, int, int],
    start: int,
    stop: int,
) -> None:
    """The pairs ``order[start … stop − 1]`` of ``out [K, B, planes, numbers]`` from ``z [B, planes, numbers]``.

    ``size`` is H, W and how many numbers a place has in a row.
    """
    height, unit = size[0], size[2]
    width = size[1] * unit
    wide, moved = np.empty(z.shape[2], np.float32), np.empty(z.shape[2], z.dtype)
    shares = np.empty((len(odds), z.shape[2]), z.dtype)
    for i in order[start:stop]:
        back, down, right = shift[i, 0], shift[i, 1], shift[i, 2] * unit
        if unit > 1:
            for u in range(unit):
                for x in range(ratio.shape[1]):
                    wide[x * unit + u] = ratio[i, x]
        for k in range(len(odds)):
            fill_shares(ratio[i] if unit == 1 else wide, odds[k, i], shares[k])
        for c in range(z.shape[1]):
            own, pair = z[i, c], z[partner[i], c]
            if shift[i].any():
                fill_row(own, moved)  # mixed with itself, a sample stays as it is
                for row in range(len(moved) // width):
                    if 0 <= row % height - down < height and 0 <= row // height - back < len(moved) // width // height:
                        to, begin = row * width + max(0, right), (row - back * height - down) * width + max(0, -right)
                        fill_row(pair[begin:], moved[to : to + width - abs(right)])
                pair = moved
            for k in range(len(odds)):
                lerp_row(own, pair, shares[k], out[k, i, c])
    fence()


@inner
def fill_row(source: Floats, row: Floats) -> None:
    """``row`` becomes the first numbers of ``source``."""
    for x in range(len(row)):
        row[x] = source[x]


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
