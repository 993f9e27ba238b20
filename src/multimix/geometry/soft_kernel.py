"""Smooth maps and soft masks by their ratio, compiled: one sample after the other while it is in the cache."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, inner, kernel, noticed
from ..mixing import rows_like
from .blocks_kernel import Floats, Indices

Singles = NDArray[np.float32]

LEAST = 1 << 17  # places seen by a thread, below which a second one costs more than it saves


def smooth_planes(values: Tensor, weight: list[float]) -> Tensor:
    """``[B, H, W]`` in float32: each of ``values``, not negative, blurred by ``weight`` along both axes and divided by its mean.

    At the border the weights that fall inside are made to sum to 1; a map of zeros becomes even.
    """
    found = (
        rows_like(values, 1) if values.dtype == torch.float32 else torch.empty(values.shape, dtype=torch.float32, device="cpu")
    )
    arrays = (values.contiguous().numpy(), np.array(weight), found.numpy())
    with noticed(smooth):
        in_chunks(lambda start, stop: smooth(*arrays, start, stop), len(values), None, _least(values))
    return found


def ratio_shares(own: Tensor, others: Tensor, partner: Tensor, odds: Tensor, out: Tensor) -> None:
    """``out [K, B, places]`` becomes 1 / (1 + odds · own / others[partner]), ``odds [K, 1 or B]``; where both are 0 they count
    as alike.
    """
    arrays = tuple(values.contiguous().numpy() for values in (own, others, partner, odds))
    with noticed(shares):
        in_chunks(lambda start, stop: shares(*arrays, out.numpy(), start, stop), len(own), None, _least(own))


def _least(values: Tensor) -> int:
    return max(1, LEAST // max(1, values[0].numel()))


@kernel
def smooth(values: Floats, weight: NDArray[np.float64], out: Singles, start: int, stop: int) -> None:
    height, width = values.shape[1:]
    reach = len(weight) // 2
    kind = values.dtype.type
    down, across = masses(height, weight), (1 / masses(width, weight)).astype(values.dtype)
    scaled, one = np.empty((height, width), values.dtype), np.empty((height, width), values.dtype)
    longer, line = np.zeros(width + 2 * reach, values.dtype), np.empty(width, values.dtype)
    totals = np.empty(width)
    for i in range(start, stop):
        top = highest(values[i])
        if not top > 0:
            out[i] = 1
            continue
        for y in range(height):
            for u in range(width):
                scaled[y, u] = np.divide(values[i, y, u], top)  # first by the maximum, so that no sum overflows
        totals[:] = 0
        for y in range(height):
            line[:] = 0
            for offset in range(max(-reach, -y), min(reach, height - 1 - y) + 1):
                share, there = kind(weight[reach + offset] / down[y]), scaled[y + offset]
                for u in range(width):
                    line[u] += share * there[u]
            longer[reach : reach + width] = line
            line[:] = 0
            for offset in range(2 * reach + 1):
                share, beside = kind(weight[offset]), longer[offset:]
                for u in range(width):
                    line[u] += share * beside[u]
            for u in range(width):
                one[y, u] = line[u] * across[u]
                totals[u] += one[y, u]
        over_mean = kind(height * width / totals.sum())
        for y in range(height):
            for u in range(width):
                out[i, y, u] = one[y, u] * over_mean


@inner
def masses(side: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """What falls inside of the weights around each place of an axis."""
    reach = len(weight) // 2
    mass = np.zeros(side)
    for place in range(side):
        for offset in range(max(-reach, -place), min(reach, side - 1 - place) + 1):
            mass[place] += weight[reach + offset]
    return mass


@inner
def highest(values: Floats) -> Any:
    """The highest number, or 0 where there is none above."""
    best = np.zeros(values.shape[1], values.dtype)
    for y in range(values.shape[0]):
        for u in range(values.shape[1]):
            # + 0.0, or the compiler stores under a mask, which takes some processors ten times as long as storing all.
            best[u] = (values[y, u] if values[y, u] > best[u] else best[u]) + best.dtype.type(0)
    return best.max()


@kernel
def shares(own: Singles, others: Singles, partner: Indices, odds: Singles, out: Singles, start: int, stop: int) -> None:
    steps, rows = odds.shape
    places = own.shape[1]
    run = 2048  # of places, which stay in the innermost cache
    ratio = np.empty(run, np.float32)
    one = np.float32(1)
    for i in range(start, stop):
        for first in range(0, places, run):
            count = min(run, places - first)
            mine, theirs = own[i, first:], others[partner[i], first:]
            for u in range(count):
                # NumPy's division asks nobody whether it is by 0.
                ratio[u] = np.divide(mine[u], theirs[u]) if mine[u] != theirs[u] else one
            for k in range(steps):
                against, shown = odds[k, min(i, rows - 1)], out[k, i, first:]
                for u in range(count):
                    shown[u] = np.divide(one, one + against * ratio[u])
