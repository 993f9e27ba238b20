"""The plan that mixes by blocks and moves them."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..devices import widest_float
from ..mixing import can_write_in_place, into, memory_format, mix, mixed_batch, rows_like
from ..plan import PairPlan, check_size
from .grid import areas, as_plane, block_of, borders_on, grid_of, spread


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
        covered = (self.levels * areas(as_plane(self.size), grid_of(self.levels), self.levels.device)).flatten(2).sum(2)
        return covered.to(widest_float(covered.device)) / (self.steps * self.size.numel())

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
        if can_write_in_place(z) and direct:
            from .blocks_kernel import mix_rows

            mixed = rows_like(own, self.k) if out_plane is None else out_plane
            mix_rows(own, pair, self.partner, self.levels, self.steps, self.cells, self.source, self.source_pair, mixed)
        else:
            mixed = self._mix_in_torch(own, pair, out_plane)
        return mixed.view(len(mixed), *z.shape[1:]) if out is None else out

    def _mix_in_torch(self, own: Tensor, pair: Tensor, out: Tensor | None) -> Tensor:
        weight = self.levels.to(torch.float64 if own.dtype == torch.float64 else torch.float32) / self.steps
        if self.source is not None or self.source_pair is not None or own is not pair:
            mask = spread(weight, as_plane(self.size)).unsqueeze(2)
            steps = [
                mix(self._moved(own, self.source, k), self._moved(pair[self.partner], self.source_pair, k), mask[k])
                for k in range(self.k)
            ]
            return into(torch.cat(steps), own, out)
        return mixed_batch(own, self.partner, spread(weight, as_plane(self.size)).unsqueeze(2), out)

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
        edges = borders_on(source.device, side, count)
        inside = torch.arange(side, device=source.device) - edges[block_of(side, count, source.device)]
        there = cell // cells[1] if axis == 0 else cell % cells[1]
        index.append(torch.minimum(edges[there] + (inside[:, None] if axis == 0 else inside), edges[there + 1] - 1))
    return (index[0] * size[1] + index[1]).flatten(-2)
