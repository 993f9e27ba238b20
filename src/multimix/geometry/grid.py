"""A grid of blocks over an image, and what an image holds per block.

A side of ``s`` places in ``n`` blocks has its borders at ⌊s·i/n⌋: sizes differ by at most one place. Cutting every block into m
gives the grid of n·m blocks, whose borders include the old ones.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .. import pool
from ..checks import can_inspect
from ..devices import widest_float
from ..mixing import can_write_in_place

CPU = torch.device("cpu")


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


def block_of(side: int, blocks: int, device: torch.device = CPU) -> Tensor:
    """``[side]``: the block that each place lies in."""
    return _kept_block_of(side, blocks) if device.type == "cpu" else _block_of(side, blocks, device)


def _block_of(side: int, blocks: int, device: torch.device) -> Tensor:
    # Block i begins at or before place p, ⌊s·i/n⌋ ≤ p, if i ≤ (n·(p + 1) − 1) / s. Reckoned where it is used: nothing is copied.
    return (torch.arange(1, side + 1, device=device) * blocks - 1) // side


@lru_cache(maxsize=256)
def _kept_block_of(side: int, blocks: int) -> Tensor:
    return _block_of(side, blocks, CPU)


def borders_on(device: torch.device, side: int, blocks: int) -> Tensor:
    """``[blocks + 1]``: :func:`borders`, reckoned on ``device``."""
    return torch.arange(blocks + 1, device=device) * side // blocks


def block_sums(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[…, rows, columns]``: the sum of ``values […, H, W]`` over each block."""
    return _sums(_sums(values, -2, grid[0]), -1, grid[1])  # whole rows first: they lie side by side


def block_means(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[…, rows, columns]``: the mean of ``values […, H, W]`` over each block."""
    return block_sums(values, grid) / areas(grid_of(values), grid, values.device).to(values.dtype)


def block_saliency(saliency: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[B, rows, columns]`` in float64, where the device has it, sum 1 per sample: what blocks hold of ``saliency [B, H, W]``.

    Even where the map is 0.
    """
    saliency = saliency.to(torch.promote_types(saliency.dtype, torch.float32))
    wide = widest_float(saliency.device)
    held = block_sums(saliency, grid).to(wide)
    # Finite maps may have sums that are too large for float32. An accelerator is not asked whether they are.
    if not can_inspect(held) or not bool(torch.isfinite(held).all()):
        saliency = saliency.to(wide)
        smaller = saliency / saliency.amax((1, 2), keepdim=True).clamp(min=torch.finfo(wide).tiny)
        held = torch.where(torch.isfinite(held).all(2).all(1)[:, None, None], held, block_sums(smaller, grid))
    total = held.flatten(1).sum(1)[:, None, None]
    return torch.where(total > 0, held / total.where(total > 0, 1.0), 1 / held[0].numel())


def areas(size: tuple[int, int], grid: tuple[int, int], device: torch.device = CPU) -> Tensor:
    """``[rows, columns]``: how many places each block has."""
    return _kept_areas(size, grid) if device.type == "cpu" else _areas(size, grid, device)


def _areas(size: tuple[int, int], grid: tuple[int, int], device: torch.device) -> Tensor:
    height, width = (borders_on(device, side, count).diff() for side, count in zip(size, grid, strict=True))
    return height.unsqueeze(1) * width


@lru_cache(maxsize=256)
def _kept_areas(size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    return _areas(size, grid, CPU)


def spread(values: Tensor, size: Sequence[int]) -> Tensor:
    """``[…, *size]``: every place gets the value ``[…, *grid]`` of its block."""
    for axis, side in enumerate(reversed(size), start=1):
        block = block_of(side, values.shape[-axis], values.device)
        if axis == len(size) and can_write_in_place(values):
            # Fresh memory for masks of a whole batch would take twice as long as filling it.
            shape = (*values.shape[:-axis], side, *values.shape[values.ndim - axis + 1 :])
            return torch.index_select(values, values.ndim - axis, block, out=pool.rows(shape, values.dtype))
        values = values.index_select(-axis, block)
    return values


def _sums(values: Tensor, axis: int, blocks: int) -> Tensor:
    """Sums over the blocks of an axis, -1 or -2; a product with a 0/1 matrix would round differently from batch to batch."""
    side, before = values.shape[axis], values.shape[:axis]
    after = values.shape[values.ndim + axis + 1 :]
    if side % blocks == 0:
        return values.reshape(*before, blocks, side // blocks, *after).sum(axis)
    edges, longest = borders_on(values.device, side, blocks), -(-side // blocks)
    place = edges[:-1, None] + torch.arange(longest, device=values.device)
    there = (place < edges[1:, None]).to(values.dtype)
    parts = values.index_select(axis, place.clamp(max=side - 1).flatten())
    parts = parts.reshape(*before, blocks, longest, *after)
    return (parts * (there if axis == -1 else there.unsqueeze(-1))).sum(axis)
