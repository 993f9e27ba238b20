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


def block_sums(values: Tensor, grid: Sequence[int]) -> Tensor:
    """Return ``[…, *grid]``: the sum of ``values […, *size]`` over each block."""
    for axis, blocks in enumerate(grid, start=-len(grid)):
        values = _sums(values, axis, blocks)
    return values


def block_means(values: Tensor, grid: Sequence[int]) -> Tensor:
    """Return ``[…, *grid]``: the mean of ``values […, *size]`` over each block."""
    size = values.shape[-len(grid) :]
    return block_sums(values, grid) / areas(size, grid, values.device).to(values.dtype)


def block_saliency(saliency: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the share of ``saliency [B, H, W]`` in each block, ``[B, rows, columns]``.

    Shares sum to 1 per sample and are even for a map of zeros; float64 where the device has it.
    """
    saliency = saliency.to(torch.promote_types(saliency.dtype, torch.float32))
    sums = block_sums(saliency, grid).to(widest_float(saliency.device))
    total = sums.flatten(1).sum(1)[:, None, None]
    return torch.where(total > 0, sums / total.where(total > 0, 1.0), 1 / sums[0].numel())


def areas(size: Sequence[int], grid: Sequence[int], device: torch.device = CPU) -> Tensor:
    """Return ``[*grid]``: the number of places of each block."""
    area = torch.ones((), dtype=torch.int64, device=device)
    for side, blocks in zip(size, grid, strict=True):
        area = area.unsqueeze(-1) * borders_on(device, side, blocks).diff()
    return area


def spread(values: Tensor, size: Sequence[int]) -> Tensor:
    """Return ``[…, *size]``: every place gets the value ``[…, *grid]`` of its block."""
    for axis, side in enumerate(reversed(size), start=1):
        values = values.index_select(-axis, block_of(side, values.shape[-axis], values.device))
    return values


def _sums(values: Tensor, axis: int, blocks: int) -> Tensor:
    """Sum over the blocks of a negative axis.

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
    return (parts * exists.reshape(*exists.shape, *[1] * len(after))).sum(axis)
