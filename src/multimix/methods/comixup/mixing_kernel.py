"""Mixing by blocks of many samples in one pass over memory, compiled: neighbours that show the same are copied together."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...compiled import in_chunks, kernel, noticed
from ...geometry.blocks_kernel import LEAST, Floats, Indices
from ...geometry.grid import borders
from ...mixing import memory_format


def show_blocks(z: Tensor, first: Tensor, second: Tensor, out: Tensor) -> None:
    """Fill ``out [K·B, C, H, W]``: block by block the mean of two samples of ``z [B, C, H, W]``, twice the same where it is one.

    ``first`` and ``second [K, B, rows, columns]`` index the samples. float32 or float64, on the CPU.
    """
    batch, channels, height, width = z.shape
    order = memory_format(out)
    # Numbers that lie side by side: W of them, or W·C where channels come last.
    unit = channels if order == torch.channels_last else 1

    def flat(values: Tensor) -> NDArray[Any]:
        values = values.detach().contiguous(memory_format=order) if values is not out else values
        whole = values.permute(0, 2, 3, 1).reshape(len(values), 1, -1) if unit > 1 else values.view(len(values), channels, -1)
        return whole.numpy()

    rows, columns = first.shape[2:]
    down = np.array(borders(height, rows), np.int64) * (width * unit)
    across = np.array(borders(width, columns), np.int64) * unit
    # Contiguous, because every other layout would be compiled for anew.
    arrays = (flat(z), first.contiguous().numpy(), second.contiguous().numpy(), down, across, flat(out))
    least = max(1, LEAST // (len(first) * z[0].numel()))
    with noticed(copy_blocks):
        in_chunks(lambda start, stop: copy_blocks(*arrays, start, stop), batch, None, least)


@kernel
def copy_blocks(
    z: Floats, first: Indices, second: Indices, down: Indices, across: Indices, out: Floats, start: int, stop: int
) -> None:
    """Fill the rows ``start … stop − 1`` of every step: samples that they share are still in the cache."""
    steps, batch, rows, columns = first.shape
    for i in range(start, stop):
        for k in range(steps):
            for r in range(rows):
                one, two = first[k, i, r], second[k, i, r]
                left = 0
                while left < columns:
                    right = left + 1
                    while right < columns and one[right] == one[left] and two[right] == two[left]:
                        right += 1
                    # Whole lines lie side by side, too.
                    lines = down[r + 1] - down[r]
                    stride = lines if right - left == columns else across[columns]
                    length = lines if right - left == columns else across[right] - across[left]
                    for plane in range(z.shape[1]):
                        own, pair, mixed = z[one[left], plane], z[two[left], plane], out[k * batch + i, plane]
                        for low in range(down[r] + across[left], down[r + 1], stride):
                            if one[left] == two[left]:
                                copy(own[low : low + length], mixed[low : low + length])
                            else:
                                copy_mean(own[low : low + length], pair[low : low + length], mixed[low : low + length])
                    left = right


@kernel
def copy(own: Floats, mixed: Floats) -> None:
    """Not by a slice: numba would look for an overlap first."""
    for x in range(len(mixed)):
        mixed[x] = own[x]


@kernel
def copy_mean(own: Floats, pair: Floats, mixed: Floats) -> None:
    """As torch.lerp at a half."""
    half = mixed.dtype.type(0.5)
    for x in range(len(mixed)):
        mixed[x] = pair[x] - (pair[x] - own[x]) * half
