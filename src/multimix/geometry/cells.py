"""A grid of cells over signals, images and volumes: a side of ``s`` places in ``n`` cells has its borders at ⌊s·i/n⌋."""

import torch
from torch import Tensor

from .blocks import block_of


def cell_grid(size: torch.Size, cells: int) -> tuple[int, ...]:
    """Cells along each axis: ``cells``, or one per place along a side that is shorter."""
    return tuple(min(cells, side) for side in size)


def cell_means(values: Tensor, grid: tuple[int, ...]) -> Tensor:
    """``[B, *grid]``: the mean of ``values [B, *size]`` over each cell."""
    for axis, count in enumerate(grid, start=1):
        cell = block_of(values.shape[axis], count).to(values.device)
        shape = [*values.shape[:axis], count, *values.shape[axis + 1 :]]
        sums = torch.zeros(shape, dtype=values.dtype, device=values.device).index_add_(axis, cell, values)
        values = sums / torch.bincount(cell, minlength=count).reshape(-1, *[1] * (values.ndim - axis - 1))
    return values


def spread_cells(values: Tensor, size: torch.Size) -> Tensor:
    """``[…, *size]``: every place gets the value ``[…, *grid]`` of its cell."""
    for axis, side in enumerate(reversed(size), start=1):
        values = values.index_select(-axis, block_of(side, values.shape[-axis]).to(values.device))
    return values
