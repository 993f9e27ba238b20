"""GridMix (Baek et al., 2021): a grid of holes through which the partner shows, of K sizes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..core.checks import Range, between, check_spatial, checked_range
from ..core.devices import uploaded
from ..core.plan import MaskPlan, PairPlan
from ..geometry.threshold import outer_masks
from .path import PairMethod
from .registry import register

BOUNDS = {
    "holes": (1, math.inf),
    "hole_aspect": (0.01, 100),
    "crop": (0, 1),
    "crop_aspect": (0.01, 100),
}


class HoleGrid(NamedTuple):
    """A grid of holes inside a crop.

    Attributes:
        low: ``[rows, d]``, first place of the crop.
        side: ``[rows, d]``, sides of the crop in places.
        cells: ``[rows, d]``, number of cells along each axis of the crop.
        offset: ``[rows, d]``, start of the grid relative to the crop, in cells.
    """

    low: Tensor
    side: Tensor
    cells: Tensor
    offset: Tensor


def cropped_grid(
    uniform: Tensor,
    size: tuple[int, ...],
    *,
    holes: Range,
    hole_aspect: Range,
    crop: Range,
    crop_aspect: Range,
) -> HoleGrid:
    """Compute grids of holes from uniform numbers.

    Args:
        uniform: ``[rows, 4 + 2 d]`` in [0, 1].
        size: The image's sides.
        holes: Range of the number of cells along the last axis, at most one per two places.
        hole_aspect: Range of a cell's height divided by its width. The number of cells along the
            other axes is rounded, so that the crop holds whole cells.
        crop: Range of the crop's share of the image. All positions of the crop are equally likely.
        crop_aspect: Range of the crop's height divided by its width, relative to the image. It is
            limited so that the crop fits into the image.

    Returns:
        One grid per row.
    """
    d = len(size)
    sides = torch.tensor(size, dtype=torch.float64)
    share = between(crop, uniform[:, 1]) ** (1 / d)
    stretch = torch.ones(len(uniform), d, dtype=torch.float64)
    if d > 1:
        aspect = torch.minimum(
            torch.maximum(between(crop_aspect, uniform[:, 2]).sqrt(), share), 1 / share
        )
        stretch[:, -2], stretch[:, -1] = aspect, 1 / aspect
    side = (sides * share.unsqueeze(1) * stretch).round().clamp(min=1).minimum(sides)
    low = (uniform[:, 4 : 4 + d] * (sides - side + 1)).floor().minimum(sides - side)
    count = (holes[0] + uniform[:, 0] * (holes[1] - holes[0] + 1)).floor().clamp(max=holes[1])
    max_cells = (side / 2).floor().clamp(min=1)
    columns = torch.minimum(count, max_cells[:, -1])
    pitch = (side[:, -1] / columns * between(hole_aspect, uniform[:, 3])).unsqueeze(1)
    cells = (side / pitch).round().clamp(min=1).minimum(max_cells)
    cells[:, -1] = columns
    return HoleGrid(low, side, cells, uniform[:, 4 + d :])


def holes_along(lam: Tensor, grid: HoleGrid, size: tuple[int, ...]) -> list[Tensor]:
    """Compute the holes along each axis, with sides of λ_k^(1/d) times those of their cells.

    A place belongs to a hole if its center does. Holes grow from one corner, so the masks nest. A
    hole that crosses the border of the crop continues on the opposite side.

    Args:
        lam: ``[K, 1 or rows]``.
        grid: Grids of holes.
        size: The image's sides.

    Returns:
        ``[K, rows, side]``, float32, for each axis: 1 inside holes, else 0.
    """
    reach = (lam ** (1 / len(size))).unsqueeze(-1)
    masks = []
    for axis, side in enumerate(size):
        place = torch.arange(side, dtype=torch.float64) + 0.5 - grid.low[:, axis, None]
        inside = (place > 0) & (place < grid.side[:, axis, None])
        position = (
            place * grid.cells[:, axis, None] / grid.side[:, axis, None]
            - grid.offset[:, axis, None]
        )
        # ``reach >= 1`` is needed because the remainder of a tiny negative number rounds to 1.
        masks.append((inside & ((position.remainder(1) < reach) | (reach >= 1))).float())
    return masks


@register(
    "gridmix",
    published={
        "n_holes": "holes",
        "hole_aspect_ratio": "hole_aspect",
        "cut_area_ratio": "crop",
        "cut_aspect_ratio": "crop_aspect",
    },
    shared="pair, crop and grid of holes",
    order="masks nest",
    examples=(
        {},
        {"crop": 1.0, "holes": 3},
        {"crop": 1, "hole_aspect": (0.5, 2.0), "random_offset": False},
    ),
    exceptions={
        "partner at 1": "a crop leaves the rest of the image as it is; crop=1 gives the end point"
    },
)
@dataclass(frozen=True, kw_only=True)
class GridMix(PairMethod):
    """GridMix: x̂_k shows x' in the holes of a grid inside a crop, x elsewhere.

    A hole fills the share λ_k of its cell. Grid and crop are drawn uniformly from ranges
    (low, high) and shared by the K steps; a single number fixes a value. The target follows the
    realized share, about λ_k times the crop's share of the image.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        holes: Number of holes along the width of the crop.
        hole_aspect: Height of a cell divided by its width.
        crop: Share of the image that has holes. With 1, the partner's share is λ_k.
        crop_aspect: Height of the crop divided by its width, relative to the image.
        random_offset: Draw the start of the grid. False starts it in the crop's first corner, as
            published.

    Example::

        mixed_forward(model, GridMix(k=5, crop=1.0), x, y).loss().backward()
    """

    holes: int | tuple[int, int] = (2, 6)
    hole_aspect: float | Range = (1.0, 1.0)
    crop: float | Range = (0.5, 1.0)
    crop_aspect: float | Range = (0.5, 2.0)
    random_offset: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, bounds in BOUNDS.items():
            object.__setattr__(self, name, checked_range(name, getattr(self, name), *bounds))
        if any(end != int(end) for end in self._ranges["holes"]):
            raise ValueError(f"holes must be an integer or a pair of integers, got {self.holes!r}")

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "GridMix")
        size = x.shape[2:]
        uniform = torch.rand(
            self.rows(x, lam), 4 + 2 * len(size), dtype=torch.float64, generator=generator
        )
        grid = cropped_grid(uniform, size, **self._ranges)
        if not self.random_offset:
            grid = grid._replace(offset=torch.zeros_like(grid.offset))
        partner, *along = uploaded(x.device, partner, *holes_along(lam, grid, size))
        return MaskPlan(partner=partner, share=outer_masks(along), size=size)

    @property
    def _ranges(self) -> dict[str, Range]:
        return {name: getattr(self, name) for name in BOUNDS}
