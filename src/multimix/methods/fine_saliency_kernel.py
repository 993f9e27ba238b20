"""Fine-grained saliency of images, compiled: one sample after the other, in memory that stays in the cache."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import pool
from ..compiled import in_chunks, inner, kernel, noticed
from ..geometry.blocks_kernel import Floats, Indices
from ..geometry.soft_kernel import highest

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
        brightness(x[i], low[i], span[i], scale, shift, grey)
        for _ in range(2):
            blur_down(grey, work)
            blur_across(work, grey)
        add_up(grey, integral)
        contrasts(grey, integral, reach, count, out[i], work)
        stretch(out[i], work, steps)


@inner
def brightness(x: Floats, low: float, span: float, scale: Doubles, shift: Doubles, grey: Doubles) -> None:
    """0.299 R + 0.587 G + 0.114 B, or the mean of other channels, in 0 … 255; then the darkest place is made 0."""
    channels, height, width = x.shape
    lowest = np.full(width, np.inf)
    for y in range(height):
        for u in range(width):
            if channels == 3:
                red = (x[0, y, u] - low) / span * scale[0] + shift[0]
                green = (x[1, y, u] - low) / span * scale[1] + shift[1]
                blue = (x[2, y, u] - low) / span * scale[2] + shift[2]
                value = 255 * (0.299 * red + 0.587 * green + 0.114 * blue)
            else:
                total = 0.0
                for c in range(channels):
                    total += (x[c, y, u] - low) / span * scale[c] + shift[c]
                value = 255 * (total / channels)
            grey[y, u] = value
            lowest[u] = (value if value < lowest[u] else lowest[u]) + 0.0  # as in highest
    least = lowest.min()
    for y in range(height):
        for u in range(width):
            grey[y, u] -= least


@inner
def blur_down(grey: Doubles, out: Doubles) -> None:
    """[1, 2, 1]/4 along columns, mirrored at the last place."""
    height, width = grey.shape
    for y in range(height):
        above = y - 1 if y > 0 else min(1, height - 1)
        below = y + 1 if y < height - 1 else max(height - 2, 0)
        for u in range(width):
            out[y, u] = (grey[above, u] + 2 * grey[y, u] + grey[below, u]) / 4


@inner
def blur_across(grey: Doubles, out: Doubles) -> None:
    """[1, 2, 1]/4 along rows, mirrored at the last place."""
    height, width = grey.shape
    for y in range(height):
        beside, before = min(1, width - 1), max(width - 2, 0)
        out[y, 0] = (grey[y, beside] + 2 * grey[y, 0] + grey[y, beside]) / 4
        left, here, right, inner = grey[y], grey[y, 1:], grey[y, 2:], out[y, 1:]
        for u in range(width - 2):
            inner[u] = (left[u] + 2 * here[u] + right[u]) / 4
        if width > 1:
            out[y, width - 1] = (grey[y, before] + 2 * grey[y, width - 1] + grey[y, before]) / 4


@inner
def add_up(grey: Doubles, integral: Doubles) -> None:
    """The sum of all places above and to the left of each corner."""
    height, width = grey.shape
    integral[0] = 0
    for y in range(height):
        integral[y + 1, 0] = 0
        for u in range(width):
            integral[y + 1, u + 1] = integral[y, u + 1] + grey[y, u]
    for y in range(1, height + 1):
        for u in range(width):
            integral[y, u + 1] += integral[y, u]


@inner
def contrasts(grey: Doubles, integral: Doubles, reach: Indices, count: Doubles, on: Doubles, off: Doubles) -> None:
    """How much each place is brighter, and how much it is darker, than its surrounds."""
    height, width = grey.shape
    margin = reach.max()
    # The columns' sums, with as much of the first and of the last beside them as a surround reaches.
    sums = np.zeros(width + 1 + 2 * margin)
    inner_sums, beyond = sums[margin:], sums[margin + width + 1 :]
    wide, brighter, darker = np.empty((len(reach), width)), np.empty(width), np.empty(width)
    for n in range(len(reach)):
        for u in range(width):
            wide[n, u] = min(u + reach[n] + 1, width) - max(u - reach[n] + 1, 0)
    for y in range(height):
        here = grey[y]
        brighter[:] = 0
        darker[:] = 0
        for n in range(len(reach)):
            top, bottom = max(y - reach[n] + 1, 0), min(y + reach[n] + 1, height)
            tall, times, columns = float(bottom - top), count[n], wide[n]
            above, below = integral[top], integral[bottom]
            for u in range(width + 1):
                inner_sums[u] = below[u] - above[u]
            for u in range(reach[n]):
                beyond[u] = inner_sums[width]
            # Rows and views of sums, because of every other index the compiled code asks whether it is counted from the end.
            right, left = sums[margin + reach[n] + 1 :], sums[margin - reach[n] + 1 :]
            for u in range(width):
                # Of a single place there is no surround: 0 / 1 instead of 0 / 0.
                others = max(tall * columns[u] - 1.0, 1.0)
                contrast = here[u] - (right[u] - left[u] - here[u]) / others
                brighter[u] += times * max(contrast, 0.0)
                darker[u] -= times * min(contrast, 0.0)
        on[y] = brighter
        off[y] = darker


@inner
def stretch(on: Doubles, off: Doubles, steps: float) -> None:
    """Both parts divided by their highest, added up in place of the first, and rounded to one of ``steps`` in 1."""
    top, bottom = highest(on), highest(off)
    top, bottom = top if top > 0 else 1.0, bottom if bottom > 0 else 1.0
    for y in range(on.shape[0]):
        for u in range(on.shape[1]):
            value = (on[y, u] / top + off[y, u] / bottom) * steps
            on[y, u] = ((value + TO_WHOLE) - TO_WHOLE) / steps
