"""The search of SAGE over translations, compiled.

Places have three axes here, ``[D, H, W]``; the first ones of signals and images have length 1.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.compiled import in_chunks, kernel

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
LANES = 64
"""Pairs whose maps lie side by side: few enough for a processor's cache."""
VECTOR = 16
"""Numbers that a processor computes at once."""


def gains(maps: Tensor, pair_maps: Tensor, rho: Tensor, shifts: list[tuple[int, ...]]) -> Tensor:
    """Compute how much each translation changes the visible saliency.

    Args:
        maps: ``[B, *size]``, the samples' maps, on the CPU.
        pair_maps: ``[B, *size]``, their partners' maps.
        rho: ``[K, 1 or B]`` weights of the sample.
        shifts: Candidate translations.

    Returns:
        ``[S, B]``, float64.
    """
    batch, size = len(maps), maps.shape[1:]
    size3 = (*[1] * (3 - len(size)), *size)
    table = np.array([(*[0] * (3 - len(size)), *shift) for shift in shifts], np.int64)
    rho = rho.float().expand(-1, batch)
    parts = []
    for start in range(0, batch, LANES):
        part, lanes = slice(start, start + LANES), min(LANES, batch - start)
        # Pairs last, a multiple of VECTOR: the loop over them is vectorized.
        values = [of[part].float().reshape(lanes, *size3).movedim(0, 3) for of in (maps, pair_maps)]
        filled = [
            torch.nn.functional.pad(value, (0, -lanes % VECTOR)).contiguous().numpy()
            for value in (*values, rho[:, part])
        ]
        gain = np.empty((len(shifts), lanes))
        in_chunks(partial(fill_gains, *filled, table, gain), len(shifts))
        parts.append(torch.from_numpy(gain))
    return torch.cat(parts, 1)


@kernel
def fill_gains(
    maps: Floats,
    pair_maps: Floats,
    rho: Floats,
    shifts: Indices,
    gain: NDArray[np.float64],
    start: int,
    stop: int,
) -> None:
    """Fill rows ``start … stop − 1`` of ``gain [S, B]``.

    Maps are ``[D, H, W, lanes]`` and ``rho [K, lanes]``, lanes ≥ B.
    """
    deep, height, width, lanes = maps.shape
    row, total = np.empty(lanes, np.float32), np.empty(lanes)
    full, tiny = np.float32(1), np.finfo(np.float32).tiny
    for n in range(start, stop):
        back, down, right = shifts[n, 0], shifts[n, 1], shifts[n, 2]
        for i in range(lanes):
            total[i] = 0
        for z in range(max(0, back), min(deep, deep + back)):
            for y in range(max(0, down), min(height, height + down)):
                for i in range(lanes):
                    row[i] = 0
                for x in range(max(0, right), min(width, width + right)):
                    s, s_pair = maps[z, y, x], pair_maps[z - back, y - down, x - right]
                    for k in range(len(rho)):
                        weight = rho[k]
                        for i in range(lanes):
                            a, b = weight[i] * s[i], (full - weight[i]) * s_pair[i]
                            row[i] += b * (b - a) / max(a + b, tiny)
                for i in range(lanes):
                    total[i] += row[i]
        for i in range(gain.shape[1]):
            gain[n, i] = total[i]
