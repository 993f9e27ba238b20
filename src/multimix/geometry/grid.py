"""A grid of blocks over an image, and what an image holds per block.

A side of ``s`` places in ``n`` blocks has its borders at ⌊s·i/n⌋: sizes differ by at most one place. Cutting every block into m
gives the grid of n·m blocks, whose borders include the old ones.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def as_plane(size: Sequence[int]) -> tuple[int, int]:
    """A size as rows and columns: a signal is one row."""
    return (size[0], size[1]) if len(size) == 2 else (1, size[0])


def grid_of(values: Tensor) -> tuple[int, int]:
    """Rows and columns of ``values […, rows, columns]``."""
    return values.shape[-2], values.shape[-1]


def cut_finer(side: int, blocks: int, cell: int) -> int:
    """How many cells a side has if each of its blocks is cut into as many cells of ``cell`` places as fit, at least 1."""
    return blocks * max(1, side // blocks // cell)


@lru_cache(maxsize=256)
def borders(side: int, blocks: int) -> tuple[int, ...]:
    """Where the blocks of a side begin, and the side itself."""
    return tuple(side * i // blocks for i in range(blocks + 1))


@lru_cache(maxsize=256)
def block_of(side: int, blocks: int) -> Tensor:
    """``[side]``: the block that each place lies in."""
    edges = borders(side, blocks)
    return torch.repeat_interleave(torch.arange(blocks, device="cpu"), torch.tensor(edges, device="cpu").diff())


def block_sums(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[…, rows, columns]``: the sum of ``values […, H, W]`` over each block."""
    return _sums(_sums(values, -2, grid[0]), -1, grid[1])  # whole rows first: they lie side by side


def block_means(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[…, rows, columns]``: the mean of ``values […, H, W]`` over each block."""
    return block_sums(values, grid) / areas(grid_of(values), grid).to(values)


def block_saliency(saliency: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[B, rows, columns]`` in float64, sum 1 per sample: what blocks hold of ``saliency [B, H, W]``; even where it is 0."""
    held = block_sums(saliency.to(torch.promote_types(saliency.dtype, torch.float32)), grid).to(torch.float64)
    if not bool(torch.isfinite(held).all()):  # finite maps whose sums are too large for float32
        held = block_sums(saliency.to(torch.float64), grid)
    total = held.flatten(1).sum(1)[:, None, None]
    return torch.where(total > 0, held / total.where(total > 0, 1.0), 1 / held[0].numel())


@lru_cache(maxsize=256)
def areas(size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """``[rows, columns]``: how many places each block has."""
    height, width = (torch.tensor(borders(side, count), device="cpu").diff() for side, count in zip(size, grid, strict=True))
    return height.outer(width)


def spread(values: Tensor, size: Sequence[int]) -> Tensor:
    """``[…, *size]``: every place gets the value ``[…, *grid]`` of its block."""
    for axis, side in enumerate(reversed(size), start=1):
        values = values.index_select(-axis, block_of(side, values.shape[-axis]).to(values.device))
    return values


def _sums(values: Tensor, axis: int, blocks: int) -> Tensor:
    """Sums over the blocks of an axis, -1 or -2; a product with a 0/1 matrix would round differently from batch to batch."""
    side, before = values.shape[axis], values.shape[:axis]
    after = values.shape[values.ndim + axis + 1 :]
    if side % blocks == 0:
        return values.reshape(*before, blocks, side // blocks, *after).sum(axis)
    edges = torch.tensor(borders(side, blocks), device="cpu")
    longest = int(edges.diff().max())
    place = edges[:-1, None] + torch.arange(longest, device="cpu")
    there = (place < edges[1:, None]).to(values)
    parts = values.index_select(axis, place.clamp(max=side - 1).flatten().to(values.device))
    parts = parts.reshape(*before, blocks, longest, *after)
    return (parts * (there if axis == -1 else there.unsqueeze(-1))).sum(axis)
