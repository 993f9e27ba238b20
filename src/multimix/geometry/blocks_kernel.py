"""Mixing by blocks in one pass over memory, compiled: rows where nothing moved, then the few cells that did."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compiled import in_chunks, kernel, noticed
from ..mixing import chain, memory_format
from .grid import block_of, borders

Floats = NDArray[np.float32] | NDArray[np.float64]
Indices = NDArray[np.int64]

LEAST = 1 << 18  # numbers produced by a thread, below which a second one costs more than it saves


def mix_rows(
    own: Tensor,
    pair: Tensor,
    partner: Tensor,
    levels: Tensor,
    steps: int,
    cells: tuple[int, int],
    source: Tensor | None,
    source_pair: Tensor | None,
    out: Tensor,
) -> None:
    """Fill ``out [K·B, C, H, W]`` from ``own`` and ``pair[partner]``, both ``[B, C, H, W]`` in float32 or float64 on the CPU."""
    batch, channels, height, width = own.shape
    k, _, rows, columns = levels.shape
    last = memory_format(out) == torch.channels_last
    # Rows of numbers that lie side by side: W of them, or W·C where channels come last.
    unit = channels if last else 1
    views = []
    for z in (own, pair, out):
        z = z.contiguous(memory_format=memory_format(out)) if z is not out else z
        flat = z.permute(0, 2, 3, 1).reshape(len(z), 1, height, -1) if last else z
        views.append(flat.numpy())
    nothing = np.empty((0, 0, 0), np.int32)
    # Contiguous, because every other layout would be compiled for anew.
    moves = [nothing if s is None else s.contiguous().numpy() for s in (source, source_pair)]
    weight = (levels.to(out.dtype) / steps).contiguous().numpy()
    across = block_of(width, columns).repeat_interleave(unit).numpy()
    edges = [np.array(borders(*pair_), np.int64) for pair_ in ((height, rows), (height, cells[0]), (width, cells[1]))]
    pairs = partner.contiguous().numpy()
    order = np.array(chain(partner.tolist()), np.int64)
    arrays = (*views, pairs, order, weight, across, *moves, *edges)
    least = max(1, LEAST // (k * channels * height * width))
    with noticed(mix_pairs):
        in_chunks(lambda start, stop: mix_pairs(*arrays, unit, start, stop), batch, None, least)


@kernel
def lerp(a: Any, b: Any, w: Any, one: Any) -> Any:
    """As torch.lerp: exact at both ends. ``one`` has the type of the others, so that nothing is computed in another."""
    return a + w * (b - a) if w + w < one else b - (b - a) * (one - w)


@kernel
def mix_pairs(
    own: Floats,
    pair: Floats,
    out: Floats,
    partner: Indices,
    order: Indices,
    weight: Floats,
    across: Indices,
    source: NDArray[np.int32],
    source_pair: NDArray[np.int32],
    block_rows: Indices,
    cell_rows: Indices,
    cell_columns: Indices,
    unit: int,
    start: int,
    stop: int,
) -> None:
    """Mix the pairs ``order[start … stop − 1]``, each in all its steps while it is in the cache."""
    steps, batch, rows = weight.shape[:3]
    planes, length = own.shape[1], own.shape[3]
    m = np.empty(length, weight.dtype)
    one = weight.dtype.type(1)
    for place in range(start, stop):
        i = order[place]
        j = partner[i]
        for r in range(rows):
            for k in range(steps):
                for x in range(length):
                    m[x] = weight[k, i, r, across[x]]
                row = k * batch + i
                for y in range(block_rows[r], block_rows[r + 1]):
                    for c in range(planes):
                        for x in range(length):
                            out[row, c, y, x] = lerp(own[i, c, y, x], pair[j, c, y, x], m[x], one)
        if source.shape[0] + source_pair.shape[0] > 0:
            for k in range(steps):
                patch(own, pair, out, i, j, k, weight, across, source, source_pair, block_rows, cell_rows, cell_columns, unit)


@kernel
def patch(
    own: Floats,
    pair: Floats,
    out: Floats,
    i: int,
    j: int,
    k: int,
    weight: Floats,
    across: Indices,
    source: NDArray[np.int32],
    source_pair: NDArray[np.int32],
    block_rows: Indices,
    cell_rows: Indices,
    cell_columns: Indices,
    unit: int,
) -> None:
    """Mix again the cells of pair i, step k, that show another cell of the sample or of the partner."""
    columns = len(cell_columns) - 1
    one = weight.dtype.type(1)
    row = k * weight.shape[1] + i
    r = 0
    for cell in range((len(cell_rows) - 1) * columns):
        first = source[k, i, cell] if source.shape[0] > 0 else cell
        second = source_pair[k, i, cell] if source_pair.shape[0] > 0 else cell
        if first == cell and second == cell:
            continue
        top, left = cell_rows[cell // columns], cell_columns[cell % columns]
        while block_rows[r + 1] <= top:
            r += 1
        w = weight[k, i, r, across[left * unit]]
        for y in range(top, cell_rows[cell // columns + 1]):
            y_own = min(cell_rows[first // columns] + y - top, cell_rows[first // columns + 1] - 1)
            y_pair = min(cell_rows[second // columns] + y - top, cell_rows[second // columns + 1] - 1)
            for x in range(left, cell_columns[cell % columns + 1]):
                x_own = min(cell_columns[first % columns] + x - left, cell_columns[first % columns + 1] - 1)
                x_pair = min(cell_columns[second % columns] + x - left, cell_columns[second % columns + 1] - 1)
                for c in range(own.shape[1]):
                    for u in range(unit):
                        a, b = own[i, c, y_own, x_own * unit + u], pair[j, c, y_pair, x_pair * unit + u]
                        out[row, c, y, x * unit + u] = lerp(a, b, w, one)
