"""GridMix (Baek et al., 2021): a grid of holes through which the partner shows, of K sizes."""

import math
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Generator, Tensor

from ..checks import check_spatial
from ..geometry.grid import cropped_grid, hole_masks
from ..options import Range, checked_range
from ..plan import MaskPlan, PairPlan
from .pair import PairMethod


@dataclass(frozen=True, kw_only=True)
class GridMix(PairMethod):
    """x̂_k shows x' in the holes of a grid inside a crop, x elsewhere; a hole has the share λ_k of its cell.

    Drawn uniformly and shared by the K steps: the number of ``holes`` across the crop, how tall a cell is for its width
    (``hole_aspect``), the share of the image that is the ``crop``, how tall that is (``crop_aspect``, 1 is the shape of the
    image), where it lies, and where in it the grid begins (``random_offset``; else in its first corner, as published). Each range
    may be a number. The target follows the realised share, about λ_k times that of the crop; ``crop=1`` makes it λ_k.
    """

    name = "gridmix"
    published = MappingProxyType(
        {"n_holes": "holes", "hole_aspect_ratio": "hole_aspect", "cut_area_ratio": "crop", "cut_aspect_ratio": "crop_aspect"}
    )
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
        return MaskPlan(partner=partner, share=hole_masks(lam, grid, size), size=size)

    def _ranges(self) -> dict[str, Range]:
        bounds = {"holes": (1, math.inf), "hole_aspect": (0.01, 100), "crop": (0, 1), "crop_aspect": (0.01, 100)}
        return {name: checked_range(name, getattr(self, name), *ends) for name, ends in bounds.items()}
