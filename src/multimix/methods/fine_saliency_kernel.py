"""Fine-grained saliency of images, compiled: one sample after the other, in cached memory."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.compiled import in_chunks, inner, kernel

Floats = NDArray[np.float32] | NDArray[np.float64]
Indices = NDArray[np.int64]
Doubles = NDArray[np.float64]

MIN_PLACES_PER_THREAD = 1 << 15
TO_WHOLE = 1.5 * 2.0**52
"""Adding and subtracting it rounds numbers below 2⁵¹ to integers."""


def fine_maps(
    x: Tensor, low: Tensor, weight: Tensor, surrounds: dict[int, int], digits: int
) -> Tensor:
    """Compute the maps of :func:`multimix.methods.saliency_mix.fine_saliency`.

    Args:
        x: ``[B, C, H, W]``, float32 or float64, on the CPU.
        low: ``[B]``, subtracted from x.
        weight: ``[B, C]``: brightness is the weighted sum of the channels.
        surrounds: How often each reach is counted.
        digits: Maps are rounded to that many digits.

    Returns:
        ``[B, H, W]``, float64.
    """
    maps = torch.empty(len(x), *x.shape[2:], dtype=torch.float64, device="cpu")
    numbers = [values.double().contiguous().numpy() for values in (low, weight)]
    reach = np.array(list(surrounds), np.int64)
    count = np.array(list(surrounds.values()), np.float64)
    arrays = (x.contiguous().numpy(), *numbers, reach, count, maps.numpy(), 10.0**digits)
    min_samples = max(1, MIN_PLACES_PER_THREAD // maps[0].numel())
    in_chunks(lambda start, stop: fill_maps(*arrays, start, stop), len(x), None, min_samples)
    return maps


@kernel
def fill_maps(
    x: Floats,
    low: Doubles,
    weight: Doubles,
    reach: Indices,
    count: Doubles,
    out: Doubles,
    steps: float,
    start: int,
    stop: int,
) -> None:
    """Fill samples ``start … stop − 1`` of ``out``, rounded to multiples of 1 / ``steps``."""
    height, width = out.shape[1:]
    gray, work = np.empty((height, width)), np.empty((height, width))
    integral = np.empty((height + 1, width + 1))
    for i in range(start, stop):
        fill_brightness(x[i], low[i], weight[i], gray)
        blur(gray, work)
        add_up(work, integral)
        contrasts(work, integral, reach, count, out[i], gray)
        stretch(out[i], gray, steps)


@inner
def fill_brightness(x: Floats, low: float, weight: Doubles, gray: Doubles) -> None:
    """The brightness, less that of the darkest place."""
    channels, height, width = x.shape
    darkest = np.inf
    for y in range(height):
        line = gray[y]
        for u in range(width):
            line[u] = (x[0, y, u] - low) * weight[0]
        for c in range(1, channels):
            for u in range(width):
                line[u] += (x[c, y, u] - low) * weight[c]
        for u in range(width):
            darkest = min(darkest, line[u])
    for y in range(height):
        for u in range(width):
            gray[y, u] -= darkest


@inner
def blur(gray: Doubles, out: Doubles) -> None:
    """[1, 2, 1]/4 twice along both axes, mirrored at the last place."""
    height, width = gray.shape
    line = np.empty(width + 4)
    middle = line[2:]
    for y in range(height):
        above, below = gray[mirrored(y - 1, height)], gray[mirrored(y + 1, height)]
        far_above, far_below = gray[mirrored(y - 2, height)], gray[mirrored(y + 2, height)]
        center, blurred = gray[y], out[y]
        for u in range(width):
            near, far = above[u] + below[u], far_above[u] + far_below[u]
            middle[u] = (far + 4 * near + 6 * center[u]) / 16
        for beyond in (-1, -2, width, width + 1):
            line[beyond + 2] = line[mirrored(beyond, width) + 2]
        for u in range(width):
            near, far = line[u + 1] + line[u + 3], line[u] + line[u + 4]
            blurred[u] = (far + 4 * near + 6 * line[u + 2]) / 16


@inner
def mirrored(place: int, side: int) -> int:
    """The place to read for a place that may lie up to two places beyond the border."""
    if side == 1:
        return 0
    place = abs(place) % (2 * side - 2)
    return min(place, 2 * side - 2 - place)


@inner
def add_up(gray: Doubles, integral: Doubles) -> None:
    """The sum of all places above and to the left of each corner."""
    height, width = gray.shape
    for u in range(width + 1):
        integral[0, u] = 0.0
    for y in range(height):
        total, line, before = 0.0, integral[y + 1], integral[y]
        line[0] = 0.0
        for u in range(width):
            total += gray[y, u]
            line[u + 1] = before[u + 1] + total


@inner
def contrasts(
    gray: Doubles, integral: Doubles, reach: Indices, count: Doubles, on: Doubles, off: Doubles
) -> None:
    """How much each place is brighter, and how much it is darker, than its surrounds, doubled."""
    height, width = gray.shape
    margin = 0
    for n in range(len(reach)):
        margin = max(margin, reach[n])
    # The columns' sums, continued on both sides as far as a surround reaches.
    sums = np.zeros(width + 1 + 2 * margin)
    inside, beyond = sums[margin:], sums[margin + width + 1 :]
    total, absolute = np.empty(width), np.empty(width)
    for y in range(height):
        center = gray[y]
        for u in range(width):
            total[u], absolute[u] = 0.0, 0.0
        for n in range(len(reach)):
            top, bottom = max(y - reach[n] + 1, 0), min(y + reach[n] + 1, height)
            tall, times = float(bottom - top), count[n]
            above, below = integral[top], integral[bottom]
            for u in range(width + 1):
                inside[u] = below[u] - above[u]
            for u in range(reach[n]):
                beyond[u] = inside[width]
            # Views of sums: every other index is checked for being negative.
            right, left = sums[margin + reach[n] + 1 :], sums[margin - reach[n] + 1 :]
            for u in range(width):
                wide = min(u + reach[n] + 1, width) - max(u - reach[n] + 1, 0)
                # A single place has no surround: 0 / 1 instead of 0 / 0.
                weight = times / max(tall * wide - 1.0, 1.0)
                contrast = center[u] * (times + weight) - (right[u] - left[u]) * weight
                total[u] += contrast
                absolute[u] += abs(contrast)
        for u in range(width):
            on[y, u], off[y, u] = absolute[u] + total[u], absolute[u] - total[u]


@inner
def stretch(on: Doubles, off: Doubles, steps: float) -> None:
    """``on`` becomes the rounded sum of both, each divided by its maximum."""
    brightest, darkest = 0.0, 0.0
    for y in range(on.shape[0]):
        for u in range(on.shape[1]):
            brightest, darkest = max(brightest, on[y, u]), max(darkest, off[y, u])
    bright = steps / brightest if brightest > 0 else 0.0
    dark = steps / darkest if darkest > 0 else 0.0
    for y in range(on.shape[0]):
        for u in range(on.shape[1]):
            on[y, u] = ((on[y, u] * bright + off[y, u] * dark + TO_WHOLE) - TO_WHOLE) / steps
