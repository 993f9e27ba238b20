"""Pasting a partner into boxes, as it is or made smaller, compiled.

Large results are put together in the cache and written past it, since reading what is to be overwritten takes a third of the
time.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, inner, kernel, noticed
from ..mixing import chain, is_small, memory_format
from ..streamed_kernel import copy_row, fence
from .axes import Taps
from .blocks_kernel import LEAST, Floats, Indices, lerp

BAND = 1 << 15  # numbers that are put together at a time: they stay in the cache until they are written
Places = NDArray[np.uint32]


def paste_rows(
    z: Tensor, whole: Tensor, partner: Tensor, low: Tensor, high: Tensor, seen: Sequence[Taps] | None, out: Tensor
) -> None:
    """Fill ``out [K·B, C, H, W]`` with ``z``, and with ``whole[partner]`` in boxes, as ``seen`` down and across or as it is.

    ``low, high [K, 1 or B, 2]`` are their edges; all in float32 or float64 on the CPU.
    """
    last = memory_format(out) == torch.channels_last
    # Rows of numbers that lie side by side: W of them, or W·C where channels come last.
    unit = z.shape[1] if last else 1
    views = []
    for image in (z.detach(), whole.detach(), out):
        image = image if image is out else image.contiguous(memory_format=memory_format(out))
        flat = image.permute(0, 2, 3, 1).reshape(len(image), 1, z.shape[2], -1) if last else image
        views.append(flat.numpy())
    kind = views[1].dtype
    order = np.array(chain(partner.tolist()), np.int64)
    edges = (low.contiguous().numpy(), high.contiguous().numpy())
    down, across = (_arrays(None if seen is None else seen[axis], kind) for axis in range(2))
    arrays = (*views, partner.contiguous().numpy(), order, *edges, *down, *across)
    least = max(1, LEAST * len(z) // max(1, out.numel()))
    at_once = 0 if is_small(z) else max(1, BAND * z.shape[2] // max(1, z[0].numel()))
    with noticed(paste):
        in_chunks(lambda start, stop: paste(*arrays, unit, at_once, start, stop), len(z), None, least)


def _arrays(seen: Taps | None, kind: np.dtype) -> tuple[Indices, Indices, Floats]:
    """None becomes an array without steps: a kernel is compiled for one type of each argument."""
    first, second, weight = (None, None, None) if seen is None else seen
    no_places, no_weights = np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0), kind)
    return (
        no_places if first is None else first.contiguous().numpy(),
        no_places if second is None else second.contiguous().numpy(),
        no_weights if weight is None else weight.contiguous().numpy().astype(kind),
    )


@kernel
def paste(
    own: Floats,
    whole: Floats,
    out: Floats,
    partner: Indices,
    order: Indices,
    low: Indices,
    high: Indices,
    down: Indices,
    down_second: Indices,
    down_weight: Floats,
    across: Indices,
    across_second: Indices,
    across_weight: Floats,
    unit: int,
    at_once: int,
    start: int,
    stop: int,
) -> None:
    """The samples ``order[start … stop − 1]``, each in all its steps while it is in the cache.

    ``at_once`` rows of an image are put together and written past the cache; 0: they are put together where they belong.
    """
    steps, boxes = low.shape[:2]
    batch, planes, height, length = own.shape
    moved, linear = down.shape[0] > 0, down_second.shape[0] > 0
    # Unsigned, so that no check for negative indices is compiled in.
    near, far = np.empty((steps, length), np.uint32), np.empty((steps, length), np.uint32)
    weight, line = np.empty((steps, length), whole.dtype), np.empty(length, whole.dtype)
    rows = min(at_once, height) if at_once > 0 else height
    band = np.empty((planes, min(at_once, rows), length), out.dtype)
    for place in range(start, stop):
        i = order[place]
        j, r = partner[i], min(i, boxes - 1)
        if moved and (boxes > 1 or place == start):
            for k in range(steps):
                for x in range(max(low[k, r, 1], 0) * unit, min(high[k, r, 1] * unit, length)):
                    near[k, x] = across[k, r, x // unit] * unit + x % unit
                    if linear:
                        far[k, x] = across_second[k, r, x // unit] * unit + x % unit
                        weight[k, x] = across_weight[k, r, x // unit]
        for y_first in range(0, height, rows):
            y_last = min(y_first + rows, height)
            for k in range(steps):
                row = k * batch + i
                made = band if at_once > 0 else out[row]
                top, bottom = max(low[k, r, 0], y_first), min(high[k, r, 0], y_last)
                left, right = max(low[k, r, 1], 0) * unit, max(0, min(high[k, r, 1] * unit, length))
                # Later steps begin with what the step before has, and put the sample back where its box is not covered.
                if k == 0 or at_once == 0:
                    fill_rows(own[i], y_first, y_last, 0, length, y_first, made)
                else:
                    before, after = max(low[k - 1, r, 0], y_first), min(high[k - 1, r, 0], y_last)
                    first, last = max(low[k - 1, r, 1], 0) * unit, max(0, min(high[k - 1, r, 1] * unit, length))
                    if before < top or after > bottom or first < left or last > right:
                        fill_rows(own[i], before, after, first, last, y_first, made)
                if not moved:
                    fill_rows(whole[j], top, bottom, left, right, y_first, made)
                else:
                    for y in range(top, bottom):
                        if linear:
                            rows_seen, w = (down[k, r, y], down_second[k, r, y]), down_weight[k, r, y]
                            between(whole[j], rows_seen, w, near[k], far[k], weight[k], line, left, right, y - y_first, made)
                        else:
                            picked(whole[j], down[k, r, y], near[k], left, right, y - y_first, made)
                if at_once > 0:
                    count = (y_last - y_first) * length
                    for c in range(planes):
                        to = out[row, c].reshape(height * length)[y_first * length : y_last * length]
                        copy_row(made[c].reshape(rows * length)[:count], to)
    fence()


@inner
def fill_rows(source: Floats, first: int, last: int, left: int, right: int, shift: int, made: Floats) -> None:
    """Part ``[left, right)`` of rows ``first … last − 1`` of every plane; row 0 of ``made`` is row ``shift`` of ``source``."""
    for c in range(len(source)):
        for y in range(first, last):
            row, to = source[c, y, left:right], made[c, y - shift, left:right]
            for x in range(len(to)):
                to[x] = row[x]


@inner
def picked(whole: Floats, y_near: int, near: Places, left: int, right: int, y: int, out: Floats) -> None:
    """Row y of the box from places ``near`` of one row; three planes at a time, for which a place is looked up once."""
    planes = len(whole)
    for c in range(0, planes - 2, 3):
        for x in range(left, right):
            at = near[x]
            out[c, y, x] = whole[c, y_near, at]
            out[c + 1, y, x] = whole[c + 1, y_near, at]
            out[c + 2, y, x] = whole[c + 2, y_near, at]
    for c in range(planes - planes % 3, planes):
        for x in range(left, right):
            out[c, y, x] = whole[c, y_near, near[x]]


@inner
def between(
    whole: Floats,
    rows: tuple[int, int],
    w: float,
    near: Places,
    far: Places,
    weight: Floats,
    line: Floats,
    left: int,
    right: int,
    y: int,
    out: Floats,
) -> None:
    """Row y of the box from a ``line`` between two rows, and there between places ``near`` and ``far``."""
    one = whole.dtype.type(1)
    for c in range(len(whole)):
        for x in range(len(line)):
            line[x] = lerp(whole[c, rows[0], x], whole[c, rows[1], x], w, one)
        for x in range(left, right):
            out[c, y, x] = lerp(line[near[x]], line[far[x]], weight[x], one)
