"""A grid of blocks over an image.

A side of ``s`` places in ``n`` blocks has its borders at ⌊s·i/n⌋: block sizes differ by at most one
place. Cutting every block into m gives the grid of n·m blocks, whose borders include the old ones.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ..core.devices import widest_float

CPU = torch.device("cpu")


def as_plane(size: Sequence[int]) -> tuple[int, int]:
    """Return a size as rows and columns; a signal is one row."""
    return (size[0], size[1]) if len(size) == 2 else (1, size[0])


def grid_of(values: Tensor) -> tuple[int, int]:
    """Return rows and columns of ``values […, rows, columns]``."""
    return values.shape[-2], values.shape[-1]


def cut_finer(side: int, blocks: int, cell: int) -> int:
    """Return the number of cells if each block is cut into as many of ``cell`` places as fit."""
    return blocks * max(1, side // blocks // cell)


@lru_cache(maxsize=256)
def borders(side: int, blocks: int) -> tuple[int, ...]:
    """Return where the blocks of a side begin, and the side itself."""
    return tuple(side * i // blocks for i in range(blocks + 1))


def block_of(side: int, blocks: int, device: torch.device = CPU) -> Tensor:
    """Return ``[side]``: the block of each place, computed on ``device``."""
    # Block i begins at or before place p, ⌊s·i/n⌋ ≤ p, if i ≤ (n·(p + 1) − 1) / s.
    return (torch.arange(1, side + 1, device=device) * blocks - 1) // side


def borders_on(device: torch.device, side: int, blocks: int) -> Tensor:
    """Return ``[blocks + 1]``: :func:`borders`, computed on ``device``."""
    return torch.arange(blocks + 1, device=device) * side // blocks


def block_sums(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return ``[…, rows, columns]``: the sum of ``values […, H, W]`` over each block."""
    return _sums(_sums(values, -2, grid[0]), -1, grid[1])


def block_means(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return ``[…, rows, columns]``: the mean of ``values […, H, W]`` over each block."""
    return block_sums(values, grid) / areas(grid_of(values), grid, values.device).to(values.dtype)


def block_saliency(saliency: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the share of ``saliency [B, H, W]`` in each block, ``[B, rows, columns]``.

    Shares sum to 1 per sample and are even for a map of zeros; float64 where the device has it.
    """
    saliency = saliency.to(torch.promote_types(saliency.dtype, torch.float32))
    sums = block_sums(saliency, grid).to(widest_float(saliency.device))
    total = sums.flatten(1).sum(1)[:, None, None]
    return torch.where(total > 0, sums / total.where(total > 0, 1.0), 1 / sums[0].numel())


def areas(size: tuple[int, int], grid: tuple[int, int], device: torch.device = CPU) -> Tensor:
    """Return ``[rows, columns]``: the number of places of each block."""
    pairs = zip(size, grid, strict=True)
    height, width = (borders_on(device, side, count).diff() for side, count in pairs)
    return height.unsqueeze(1) * width


def spread(values: Tensor, size: Sequence[int]) -> Tensor:
    """Return ``[…, *size]``: every place gets the value ``[…, *grid]`` of its block."""
    for axis, side in enumerate(reversed(size), start=1):
        values = values.index_select(-axis, block_of(side, values.shape[-axis], values.device))
    return values


def _sums(values: Tensor, axis: int, blocks: int) -> Tensor:
    """Sum over the blocks of axis -1 or -2.

    A product with a 0/1 matrix would round differently from batch to batch.
    """
    side, before = values.shape[axis], values.shape[:axis]
    after = values.shape[values.ndim + axis + 1 :]
    if side % blocks == 0:
        return values.reshape(*before, blocks, side // blocks, *after).sum(axis)
    edges, longest = borders_on(values.device, side, blocks), -(-side // blocks)
    place = edges[:-1, None] + torch.arange(longest, device=values.device)
    exists = (place < edges[1:, None]).to(values.dtype)
    parts = values.index_select(axis, place.clamp(max=side - 1).flatten())
    parts = parts.reshape(*before, blocks, longest, *after)
    return (parts * (exists if axis == -1 else exists.unsqueeze(-1))).sum(axis)
