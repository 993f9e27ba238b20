"""A grid of blocks over an image, what it holds per block, and the plan that mixes by blocks and moves them.

A side of ``s`` places in ``n`` blocks has its borders at ⌊s·i/n⌋: sizes differ by at most one place. Cutting every block into m
gives the grid of n·m blocks, whose borders include the old ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from ..compiled import uses_numba
from ..mixing import can_write_in_place, into, memory_format, mix, mixed_batch, rows_like
from ..plan import PairPlan, check_size


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


def spread(values: Tensor, size: tuple[int, int]) -> Tensor:
    """``[…, H, W]``: every place gets the value ``[…, rows, columns]`` of its block."""
    down = block_of(size[0], values.shape[-2]).to(values.device)
    return values.index_select(-2, down).index_select(-1, block_of(size[1], values.shape[-1]).to(values.device))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlockPlan(PairPlan):
    """Block by block the partner's share ``levels / steps``: ``levels [K, B, rows, columns]`` in 0 … ``steps``, nested in k.

    ``source`` and ``source_pair [K, B, cells]`` say which cell of the sample and of the partner is shown at each cell of the
    ``cells`` grid, a refinement of the blocks; None leaves all in place. ``noise`` and ``noise_pair [B, …]`` are added to the
    samples in the first and in the second role before anything moves.
    """

    levels: Tensor
    steps: int
    cells: tuple[int, int]
    source: Tensor | None = None
    source_pair: Tensor | None = None
    noise: Tensor | None = None
    noise_pair: Tensor | None = None
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "noise", "noise_pair")

    @property
    def lam(self) -> Tensor:
        covered = (self.levels * areas(as_plane(self.size), grid_of(self.levels)).to(self.levels.device)).flatten(2).sum(2)
        return covered.to(torch.float64) / (self.steps * self.size.numel())

    @property
    def mask(self) -> Tensor:
        return spread(self.levels.float() / self.steps, as_plane(self.size)).reshape(*self.levels.shape[:2], 1, *self.size)

    def _mix_places(self, target: Tensor) -> Tensor:
        return replace(self, noise=None, noise_pair=None).mix(target)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        plane = z.reshape(*z.shape[:2], *as_plane(self.size))
        own = plane if self.noise is None else plane + self.noise.reshape(plane.shape).to(z.dtype)
        pair = plane if self.noise_pair is None else plane + self.noise_pair.reshape(plane.shape).to(z.dtype)
        out_plane = None if out is None else out.view(len(out), *plane.shape[1:])
        direct = out_plane is None or out_plane.is_contiguous(memory_format=memory_format(own))
        if can_write_in_place(z) and direct and uses_numba("auto"):
            mixed = self._mix_compiled(own, pair, out_plane)
        else:
            mixed = self._mix_in_torch(own, pair, out_plane)
        return mixed.view(len(mixed), *z.shape[1:]) if out is None else out

    def _mix_compiled(self, own: Tensor, pair: Tensor, out: Tensor | None) -> Tensor:
        from .blocks_kernel import mix_rows

        out = rows_like(own, self.k) if out is None else out
        mix_rows(own, pair, self.partner, self.levels, self.steps, self.cells, self.source, self.source_pair, out)
        return out

    def _mix_in_torch(self, own: Tensor, pair: Tensor, out: Tensor | None) -> Tensor:
        weight = self.levels.to(torch.float64 if own.dtype == torch.float64 else torch.float32) / self.steps
        if self.source is not None or self.source_pair is not None or own is not pair:
            mask = spread(weight, as_plane(self.size)).unsqueeze(2)
            steps = [
                mix(self._moved(own, self.source, k), self._moved(pair[self.partner], self.source_pair, k), mask[k])
                for k in range(self.k)
            ]
            return into(torch.cat(steps), own, out)
        rows, height = grid_of(self.levels)[0], as_plane(self.size)[0]
        if height % rows:
            return mixed_batch(own, self.partner, spread(weight, as_plane(self.size)).unsqueeze(2), out)
        # All rows of a block have one mask, so it is laid out along x only: [K, B, 1, rows, 1, W].
        across = weight.index_select(-1, block_of(as_plane(self.size)[1], grid_of(self.levels)[1]).to(weight.device))
        tall, tall_out = (None if z is None else z.view(*z.shape[:2], rows, -1, z.shape[3]) for z in (own, out))
        assert tall is not None
        mixed = mixed_batch(tall, self.partner, across[:, :, None, :, None], tall_out)
        return mixed.flatten(2, 3)

    def _moved(self, z: Tensor, source: Tensor | None, k: int) -> Tensor:
        """``z [B, C, H, W]`` with its cells moved as step k has them."""
        if source is None:
            return z
        place = moved_places(source[k], as_plane(self.size), self.cells)
        return z.flatten(2).gather(2, place.unsqueeze(1).expand(-1, z.shape[1], -1)).view(z.shape)


def moved_places(source: Tensor, size: tuple[int, int], cells: tuple[int, int]) -> Tensor:
    """``[…, H·W]``: the place whose value is shown at each place if cell j shows cell ``source[…, j]``.

    Cells are matched at their first corner; where the moved cell is a place too short, its last place is shown twice.
    """
    cell = spread(source.long().reshape(*source.shape[:-1], *cells), size)
    index = []
    for axis, (side, count) in enumerate(zip(size, cells, strict=True)):
        edges, here = torch.tensor(borders(side, count), device="cpu"), block_of(side, count)
        inside = (torch.arange(side, device="cpu") - edges[here]).to(source.device)
        edges = edges.to(source.device)
        there = cell // cells[1] if axis == 0 else cell % cells[1]
        index.append(torch.minimum(edges[there] + (inside[:, None] if axis == 0 else inside), edges[there + 1] - 1))
    return (index[0] * size[1] + index[1]).flatten(-2)


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
