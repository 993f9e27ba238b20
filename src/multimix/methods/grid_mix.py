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
from .base import PairMethod
from .registry import register


class HoleGrid(NamedTuple):
    """A grid of holes inside a crop.

    Attributes:
        low: ``[rows, d]``, the crop's first place.
        side: ``[rows, d]``, its sides in places.
        cells: ``[rows, d]``, its number of cells.
        offset: ``[rows, d]``, where the grid begins, in cells.
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
    """Turn uniform numbers into grids of holes.

    Args:
        uniform: ``[rows, 4 + 2 d]`` in [0, 1].
        size: The image's sides.
        holes: Number of cells along the last axis, at most one per two places.
        hole_aspect: Height of a cell over its width. The number of cells along the other axes is
            rounded, so that no cell is cut off.
        crop: Share of the image that the crop has. All its positions are equally likely.
        crop_aspect: Height over width of the crop relative to the image, as far as it fits.

    Returns:
        The grids.
    """
    d = len(size)
    sides = torch.tensor(size, dtype=torch.float64)
    share = between(crop, uniform[:, 1]) ** (1 / d)
    stretch = torch.ones(len(uniform), d, dtype=torch.float64)
    if d > 1:
        tall = torch.minimum(
            torch.maximum(between(crop_aspect, uniform[:, 2]).sqrt(), share), 1 / share
        )
        stretch[:, -2], stretch[:, -1] = tall, 1 / tall
    side = (sides * share.unsqueeze(1) * stretch).round().clamp(min=1).minimum(sides)
    low = (uniform[:, 4 : 4 + d] * (sides - side + 1)).floor().minimum(sides - side)
    count = (holes[0] + uniform[:, 0] * (holes[1] - holes[0] + 1)).floor().clamp(max=holes[1])
    most = (side / 2).floor().clamp(min=1)
    across = torch.minimum(count, most[:, -1])
    pitch = (side[:, -1] / across * between(hole_aspect, uniform[:, 3])).unsqueeze(1)
    cells = (side / pitch).round().clamp(min=1).minimum(most)
    cells[:, -1] = across
    return HoleGrid(low, side, cells, uniform[:, 4 + d :])


def holes_along(lam: Tensor, grid: HoleGrid, size: tuple[int, ...]) -> list[Tensor]:
    """Compute the holes along each axis, whose sides are λ_k^(1/d) times their cell's.

    A place is in a hole if its center is. Holes grow from one corner, so the masks nest. A hole may
    extend over the crop's border to its other side.

    Returns:
        ``[K, rows, side]``, float32, for each axis: 1 where the axis runs through a hole.
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
        # The remainder of a tiny negative number is rounded to 1, hence the second condition.
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

    A hole has the share λ_k of its cell. Grid and crop are drawn uniformly and shared by the K
    steps. Each range may be a number. The target follows the realized share, about λ_k times that
    of the crop.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed.
        alpha: Parameter of Beta(α, α).
        sampler: How λ is drawn: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners without fixed points.
        holes: Number of holes across the crop.
        hole_aspect: Height of a cell over its width.
        crop: Share of the image that has holes; 1 makes the partner's share λ_k.
        crop_aspect: Height over width of the crop; 1 is the shape of the image.
        random_offset: Draw where the grid begins; else it begins in the crop's first corner, as
            published.
    """

    holes: int | tuple[int, int] = (2, 6)
    hole_aspect: float | Range = 1.0
    crop: float | Range = (0.5, 1.0)
    crop_aspect: float | Range = (0.5, 2.0)
    random_offset: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(end != int(end) for end in self._ranges()["holes"]):
            raise ValueError(f"holes must be an integer or a pair of integers, got {self.holes!r}")

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "GridMix")
        size = x.shape[2:]
        uniform = torch.rand(
            self.rows(x, lam), 4 + 2 * len(size), dtype=torch.float64, generator=generator
        )
        grid = cropped_grid(uniform, size, **self._ranges())
        if not self.random_offset:
            grid = grid._replace(offset=torch.zeros_like(grid.offset))
        partner, *along = uploaded(x.device, partner, *holes_along(lam, grid, size))
        return MaskPlan(partner=partner, share=outer_masks(along), size=size)

    def _ranges(self) -> dict[str, Range]:
        bounds = {
            "holes": (1, math.inf),
            "hole_aspect": (0.01, 100),
            "crop": (0, 1),
            "crop_aspect": (0.01, 100),
        }
        return {
            name: checked_range(name, getattr(self, name), *ends) for name, ends in bounds.items()
        }
