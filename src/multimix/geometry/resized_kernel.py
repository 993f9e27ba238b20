"""Pasting a partner that is made smaller, compiled: every number of the result is written once, with nothing in between."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, inner, kernel, noticed
from ..mixing import chain, memory_format
from .blocks_kernel import LEAST, Floats, Indices, lerp

Places = NDArray[np.uint32]
Seen = tuple[Tensor, Tensor | None, Tensor | None]
"""Places ``[K, 1 or B, side]`` that are shown along an axis, and for linear interpolation those beside them, with their share."""


def paste_rows(
    z: Tensor, whole: Tensor, partner: Tensor, low: Tensor, high: Tensor, down: Seen, across: Seen, out: Tensor
) -> None:
    """Fill ``out [K·B, C, H, W]`` with ``z``, and with ``whole[partner]`` as seen ``down`` and ``across`` in boxes.

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
    arrays = (*views, partner.contiguous().numpy(), order, *edges, *_arrays(down, kind), *_arrays(across, kind))
    least = max(1, LEAST * len(z) // max(1, out.numel()))
    with noticed(paste):
        in_chunks(lambda start, stop: paste(*arrays, unit, start, stop), len(z), None, least)


def _arrays(seen: Seen, kind: np.dtype) -> tuple[Indices, Indices, Floats]:
    """None becomes an array without steps: a kernel is compiled for one type of each argument."""
    first, second, weight = seen
    if second is None or weight is None:
        return first.contiguous().numpy(), np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0), kind)
    return first.contiguous().numpy(), second.contiguous().numpy(), weight.contiguous().numpy().astype(kind)


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
    start: int,
    stop: int,
) -> None:
    """The samples ``order[start … stop − 1]``, each in all its steps while it is in the cache."""
    steps, rows = low.shape[:2]
    batch, planes, height, length = own.shape
    linear = down_second.shape[0] > 0
    # Unsigned, so that nobody asks whether a place is counted from the end.
    near, far = np.empty(length, np.uint32), np.empty(length, np.uint32)
    weight, line = np.empty(length, whole.dtype), np.empty(length, whole.dtype)
    for place in range(start, stop):
        i = order[place]
        j = partner[i]
        for k in range(steps):
            row, r = k * batch + i, min(i, rows - 1)
            top, bottom = low[k, r, 0], high[k, r, 0]
            left, right = low[k, r, 1] * unit, high[k, r, 1] * unit
            for x in range(left, right):
                near[x] = across[k, r, x // unit] * unit + x % unit
                if linear:
                    far[x] = across_second[k, r, x // unit] * unit + x % unit
                    weight[x] = across_weight[k, r, x // unit]
            for c in range(planes):
                for y in range(height):  # also what the box covers: to go around it takes longer
                    for x in range(length):
                        out[row, c, y, x] = own[i, c, y, x]
            for y in range(top, bottom):
                if linear:
                    rows_seen, w = (down[k, r, y], down_second[k, r, y]), down_weight[k, r, y]
                    between(whole[j], rows_seen, w, near, far, weight, line, left, right, y, out[row])
                else:
                    picked(whole[j], down[k, r, y], near, left, right, y, out[row])


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
