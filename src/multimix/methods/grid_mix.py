"""GridMix (Baek et al., 2021): a grid of holes through which the partner shows, of K sizes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import Range, between, check_spatial, checked_range
from ..devices import uploaded
from ..geometry.axes import outer_masks
from ..plan import MaskPlan, PairPlan
from .base import PairMethod
from .registry import register


class HoleGrid(NamedTuple):
    """``low`` and ``side [rows, d]``: the crop, in places; ``cells`` how many it has along each axis; ``offset`` in cells."""

    low: Tensor
    side: Tensor
    cells: Tensor
    offset: Tensor


def cropped_grid(
    uniform: Tensor, size: tuple[int, ...], *, holes: Range, hole_aspect: Range, crop: Range, crop_aspect: Range
) -> HoleGrid:
    """The grids that ``uniform [rows, 4 + 2 d]`` in 0 … 1 stand for.

    A crop has the share ``crop`` of the image and is ``crop_aspect`` times as tall for its width as the image, as far as it fits;
    all its positions are equally likely. It has ``holes`` cells along the last axis, at most every second place one, and so
    many along the others that they are ``hole_aspect`` times as tall as wide: a whole number, so that no cell is cut off.
    """
    d = len(size)
    sides = torch.tensor(size, dtype=torch.float64)
    share = between(crop, uniform[:, 1]) ** (1 / d)
    stretch = torch.ones(len(uniform), d, dtype=torch.float64)
    if d > 1:
        tall = torch.minimum(torch.maximum(between(crop_aspect, uniform[:, 2]).sqrt(), share), 1 / share)
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


def hole_masks(lam: Tensor, grid: HoleGrid, size: tuple[int, ...]) -> Tensor:
    """``[K, rows, 1, *size]``, float32: 1 in the holes, whose sides are λ_k^(1/d) times their cell's.

    A place belongs to a hole if its middle does: with the hole's corner at 0 and the cell's length 1, if it lies below λ_k^(1/d).
    So holes grow from one corner, the masks nest, and a hole may reach over the crop's border to its other side.
    """
    return outer_masks(holes_along(lam, grid, size))


def holes_along(lam: Tensor, grid: HoleGrid, size: tuple[int, ...]) -> list[Tensor]:
    """``[K, rows, side]``, float32, for each axis: 1 where the axis runs through a hole."""
    reach = (lam ** (1 / len(size))).unsqueeze(-1)
    found = []
    for axis, side in enumerate(size):
        place = torch.arange(side, dtype=torch.float64) + 0.5 - grid.low[:, axis, None]
        inside = (place > 0) & (place < grid.side[:, axis, None])
        where = place * grid.cells[:, axis, None] / grid.side[:, axis, None] - grid.offset[:, axis, None]
        # The remainder of a sliver below 0 is rounded to 1: a hole as large as its cell takes it all the same.
        found.append((inside & ((where.remainder(1) < reach) | (reach >= 1))).float())
    return found


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
    examples=({}, {"crop": 1.0, "holes": 3}, {"crop": 1, "hole_aspect": (0.5, 2.0), "random_offset": False}),
    exceptions={"partner at 1": "a crop leaves the rest of the image as it is; crop=1 gives the end point"},
)
@dataclass(frozen=True, kw_only=True)
class GridMix(PairMethod):
    """x̂_k shows x' in the holes of a grid inside a crop, x elsewhere; a hole has the share λ_k of its cell.

    Drawn uniformly and shared by the K steps: the number of ``holes`` across the crop, how tall a cell is for its width
    (``hole_aspect``), the share of the image that is the ``crop``, how tall that is (``crop_aspect``, 1 is the shape of the
    image), where it lies, and where in it the grid begins (``random_offset``; else in its first corner, as published). Each range
    may be a number. The target follows the realised share, about λ_k times that of the crop; ``crop=1`` makes it λ_k.
    """

    holes: int | tuple[int, int] = (2, 6)
    hole_aspect: float | Range = 1.0
    crop: float | Range = (0.5, 1.0)
    crop_aspect: float | Range = (0.5, 2.0)
    random_offset: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(end != int(end) for end in self._ranges()["holes"]):
            raise ValueError(f"holes must be a whole number or a pair of them, got {self.holes!r}")

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "GridMix")
        size = x.shape[2:]
        uniform = torch.rand(self.rows(x, lam), 4 + 2 * len(size), dtype=torch.float64, generator=generator)
        grid = cropped_grid(uniform, size, **self._ranges())
        if not self.random_offset:
            grid = grid._replace(offset=torch.zeros_like(grid.offset))
        partner, *along = uploaded(x.device, partner, *holes_along(lam, grid, size))
        return MaskPlan(partner=partner, share=outer_masks(along), size=size)

    def _ranges(self) -> dict[str, Range]:
        bounds = {"holes": (1, math.inf), "hole_aspect": (0.01, 100), "crop": (0, 1), "crop_aspect": (0.01, 100)}
        return {name: checked_range(name, getattr(self, name), *ends) for name, ends in bounds.items()}
