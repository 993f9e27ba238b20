"""Fine-grained saliency of images, compiled: one sample after the other, in memory that stays in the cache."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import pool
from ..compiled import in_chunks, inner, kernel, noticed
from ..geometry.blocks_kernel import Floats, Indices

Doubles = NDArray[np.float64]

LEAST = 1 << 15  # places seen by a thread, below which a second one costs more than it saves
# Added and taken away again it leaves a whole number, for numbers below 2⁵¹.
TO_WHOLE = 1.5 * 2.0**52


def fine_maps(
    x: Tensor, low: Tensor, span: Tensor, scale: Tensor, shift: Tensor, surrounds: dict[int, int], digits: int
) -> Tensor:
    """``[B, H, W]`` in float64: the maps of ``x [B, C, H, W]``, in float32 or float64 on the CPU, of pixels
    ``(x − low) / span · scale + shift`` with ``low, span [B]`` and ``scale, shift [C]``.

    ``surrounds`` says how often each reach is counted; maps are rounded to ``digits``.
    """
    shape = (len(x), *x.shape[2:])
    is_small = 8 * math.prod(shape) < pool.LEAST_BYTES
    found = torch.empty(shape, dtype=torch.float64, device="cpu") if is_small else pool.empty(shape, torch.float64)
    pixels = x.contiguous().numpy()
    numbers = [values.double().contiguous().numpy() for values in (low, span, scale, shift)]
    reach, count = np.array(list(surrounds), np.int64), np.array(list(surrounds.values()), np.float64)
    arrays = (pixels, *numbers, reach, count, found.numpy(), 10.0**digits)
    least = max(1, LEAST // found[0].numel())
    with noticed(maps):
        in_chunks(lambda start, stop: maps(*arrays, start, stop), len(x), None, least)
    return found


@kernel
def maps(
    x: Floats,
    low: Doubles,
    span: Doubles,
    scale: Doubles,
    shift: Doubles,
    reach: Indices,
    count: Doubles,
    out: Doubles,
    steps: float,
    start: int,
    stop: int,
) -> None:
    height, width = out.shape[1:]
    grey, work = np.empty((height, width)), np.empty((height, width))
    integral = np.empty((height + 1, width + 1))
    for i in range(start, stop):
        least = brightness(x[i], low[i], span[i], scale, shift, grey)
        blur(grey, least, work)
        add_up(work, integral)
        top, bottom = contrasts(work, integral, reach, count, out[i], grey)
        stretch(out[i], grey, top, bottom, steps)


@inner
def brightness(x: Floats, low: float, span: float, scale: Doubles, shift: Doubles, grey: Doubles) -> float:
    """0.299 R + 0.587 G + 0.114 B, or the mean of other channels, in 0 … 255; returns how bright the darkest place is."""
    channels, height, width = x.shape
    weight = np.array([0.299, 0.587, 0.114]) if channels == 3 else np.full(channels, 1.0 / channels)
    grey[:] = 255 * (weight * shift).sum()
    weight *= 255 * scale / span
    lowest = np.full(width, np.inf)
    for y in range(height):
        line = grey[y]
        for c in range(channels):
            for u in range(width):
                line[u] += (x[c, y, u] - low) * weight[c]
        for u in range(width):
            lowest[u] = (line[u] if line[u] < lowest[u] else lowest[u]) + 0.0  # + 0.0: see soft_kernel.highest
    least: float = lowest.min()
    return least


@inner
def blur(grey: Doubles, least: float, out: Doubles) -> None:
    """[1, 2, 1]/4 twice along both axes, mirrored at the last place, after ``least`` is taken away, which changes ``grey``."""
    height, width = grey.shape
    line = np.empty(width + 4)
    inner = line[2:]
    for y in range(-2, height):
        if y + 2 < height:
            for u in range(width):
                grey[y + 2, u] -= least
        if y < 0:
            continue
        above, below = grey[mirrored(y - 1, height)], grey[mirrored(y + 1, height)]
        far_above, far_below = grey[mirrored(y - 2, height)], grey[mirrored(y + 2, height)]
        here, made = grey[y], out[y]
        for u in range(width):
            inner[u] = (far_above[u] + far_below[u] + 4 * (above[u] + below[u]) + 6 * here[u]) / 16
        for beyond in (-1, -2, width, width + 1):
            line[beyond + 2] = line[mirrored(beyond, width) + 2]
        for u in range(width):
            made[u] = (line[u] + line[u + 4] + 4 * (line[u + 1] + line[u + 3]) + 6 * line[u + 2]) / 16


@inner
def mirrored(place: int, side: int) -> int:
    """Where to look for a place that may lie up to two places beyond the border."""
    if side == 1:
        return 0
    place = abs(place) % (2 * side - 2)
    return min(place, 2 * side - 2 - place)


@inner
def add_up(grey: Doubles, integral: Doubles) -> None:
    """The sum of all places above and to the left of each corner."""
    height, width = grey.shape
    integral[:, 0] = 0
    integral[0] = 0
    # Four rows at once, since each sum has to wait for the one before it.
    whole = height - height % 4
    for y in range(0, whole, 4):
        before, made = integral[y], integral[y + 1 : y + 5]
        a = b = c = d = 0.0
        for u in range(width):
            a += grey[y, u]
            b += grey[y + 1, u]
            c += grey[y + 2, u]
            d += grey[y + 3, u]
            made[0, u + 1] = before[u + 1] + a
            made[1, u + 1] = made[0, u + 1] + b
            made[2, u + 1] = made[1, u + 1] + c
            made[3, u + 1] = made[2, u + 1] + d
    for y in range(whole, height):
        a = 0.0
        for u in range(width):
            a += grey[y, u]
            integral[y + 1, u + 1] = integral[y, u + 1] + a


@inner
def contrasts(grey: Doubles, integral: Doubles, reach: Indices, count: Doubles, on: Doubles, off: Doubles) -> tuple[float, float]:
    """How much each place is brighter, and how much it is darker, than its surrounds; returns the highest of both."""
    height, width = grey.shape
    margin = reach.max()
    # The columns' sums, with as much of the first and of the last beside them as a surround reaches.
    sums = np.zeros(width + 1 + 2 * margin)
    inner_sums, beyond = sums[margin:], sums[margin + width + 1 :]
    wide, weights, known = np.empty((len(reach), width)), np.empty((len(reach), width)), np.zeros(len(reach), np.int64)
    total, absolute, brightest, darkest = np.empty(width), np.empty(width), np.zeros(width), np.zeros(width)
    for n in range(len(reach)):
        for u in range(width):
            wide[n, u] = min(u + reach[n] + 1, width) - max(u - reach[n] + 1, 0)
    for y in range(height):
        here = grey[y]
        total[:] = 0
        absolute[:] = 0
        for n in range(len(reach)):
            top, bottom = max(y - reach[n] + 1, 0), min(y + reach[n] + 1, height)
            tall, times, columns, weight = float(bottom - top), count[n], wide[n], weights[n]
            if known[n] != bottom - top:  # in the middle of an image, all rows have the same
                known[n] = bottom - top
                for u in range(width):
                    # Of a single place there is no surround: 0 / 1 instead of 0 / 0.
                    weight[u] = times / max(tall * columns[u] - 1.0, 1.0)
            above, below = integral[top], integral[bottom]
            for u in range(width + 1):
                inner_sums[u] = below[u] - above[u]
            for u in range(reach[n]):
                beyond[u] = inner_sums[width]
            # Rows and views of sums, because of every other index the compiled code asks whether it is counted from the end.
            right, left = sums[margin + reach[n] + 1 :], sums[margin - reach[n] + 1 :]
            for u in range(width):
                contrast = here[u] * (times + weight[u]) - (right[u] - left[u]) * weight[u]
                total[u] += contrast
                absolute[u] += abs(contrast)
        for u in range(width):
            brighter, darker = absolute[u] + total[u], absolute[u] - total[u]  # twice as much, which stretching takes away
            on[y, u], off[y, u] = brighter, darker
            brightest[u] = (brighter if brighter > brightest[u] else brightest[u]) + 0.0  # + 0.0: see soft_kernel.highest
            darkest[u] = (darker if darker > darkest[u] else darkest[u]) + 0.0
    return brightest.max(), darkest.max()


@inner
def stretch(on: Doubles, off: Doubles, top: float, bottom: float, steps: float) -> None:
    """Both parts divided by their highest, added up in place of the first, and rounded to one of ``steps`` in 1."""
    bright, dark = steps / top if top > 0 else 0.0, steps / bottom if bottom > 0 else 0.0
    for y in range(on.shape[0]):
        for u in range(on.shape[1]):
            on[y, u] = ((on[y, u] * bright + off[y, u] * dark + TO_WHOLE) - TO_WHOLE) / steps
