"""The plan that mixes block by block and may move blocks."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..core.devices import widest_float
from ..core.mixing import mix, mixed_batch, stacked
from ..core.plan import PairPlan
from .grid import areas, as_plane, block_of, borders_on, grid_of, spread


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlockPlan(PairPlan):
    """A share per block: ``levels / steps``, nested in k.

    Args:
        levels: ``[K, B, rows, columns]`` integers in 0 … ``steps``.
        steps: Number of levels above 0.
        cells: Rows and columns of the grid that moves, a refinement of the blocks.
        source: ``[K, B, cells]``, the cell of the sample shown at each cell. None moves nothing.
        source_pair: The same for the partner.
        noise: ``[B, …]`` added to the samples before anything moves.
        noise_pair: ``[B, …]`` added to the samples in the role of partner.
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
        area = areas(as_plane(self.size), grid_of(self.levels), self.levels.device)
        covered = (self.levels * area).flatten(2).sum(2)
        return covered.to(widest_float(covered.device)) / (self.steps * self.size.numel())

    @property
    def mask(self) -> Tensor:
        return self._planes().reshape(*self.levels.shape[:2], 1, *self.size)

    def _mix(self, z: Tensor) -> Tensor:
        plane = z.reshape(*z.shape[:2], *as_plane(self.size))
        base, pair = _noisy(plane, self.noise), _noisy(plane, self.noise_pair)
        mask = self._planes().unsqueeze(2)
        if self.source is None and self.source_pair is None and base is pair:
            return mixed_batch(base, self.partner, mask).view(-1, *z.shape[1:])
        pair = pair[self.partner]
        steps = [
            mix(self._moved(base, self.source, k), self._moved(pair, self.source_pair, k), mask[k])
            for k in range(self.k)
        ]
        return stacked(steps, plane).view(-1, *z.shape[1:])

    def _mix_places(self, target: Tensor) -> Tensor:
        return replace(self, noise=None, noise_pair=None)._mix(target)

    def _planes(self) -> Tensor:
        """``[K, B, H, W]``, float32: the partner's share."""
        return spread(self.levels.float() / self.steps, as_plane(self.size))

    def _moved(self, z: Tensor, source: Tensor | None, k: int) -> Tensor:
        """``z [B, C, H, W]`` with its cells moved as in step k."""
        if source is None:
            return z
        place = moved_places(source[k], as_plane(self.size), self.cells)
        return z.flatten(2).gather(2, place.unsqueeze(1).expand(-1, z.shape[1], -1)).view(z.shape)


def _noisy(z: Tensor, noise: Tensor | None) -> Tensor:
    return z if noise is None else z + noise.reshape(z.shape).to(z.dtype)


def moved_places(source: Tensor, size: tuple[int, int], cells: tuple[int, int]) -> Tensor:
    """``[…, H·W]``: the place shown at each place if cell j shows cell ``source[…, j]``.

    Cells are matched at their first corner. If the moved cell is one place too short, its last
    place is repeated.
    """
    cell = spread(source.long().reshape(*source.shape[:-1], *cells), size)
    index = []
    for axis, (side, count) in enumerate(zip(size, cells, strict=True)):
        edges = borders_on(source.device, side, count)
        offset = torch.arange(side, device=source.device)
        offset = offset - edges[block_of(side, count, source.device)]
        row = cell // cells[1] if axis == 0 else cell % cells[1]
        start = edges[row] + (offset[:, None] if axis == 0 else offset)
        index.append(torch.minimum(start, edges[row + 1] - 1))
    return (index[0] * size[1] + index[1]).flatten(-2)
