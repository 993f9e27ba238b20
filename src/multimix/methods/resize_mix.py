"""ResizeMix (Qin et al., 2020): the whole partner, made small, in K boxes around one point."""

from dataclasses import dataclass
from typing import Literal

from torch import Generator, Tensor

from ..checks import Range, between, check_spatial, checked_range
from ..geometry.boxes import Grid, random_boxes, random_center
from ..geometry.resized import Resize, ResizedPlan, roaming_boxes
from ..plan import PairPlan
from .base import PairMethod
from .registry import register

Place = Literal["anywhere", "shift", "clip"]


@register(
    "resizemix",
    published={"scope": "scale", "interpolate_mode": "resize"},
    shared="pair, place of the box that holds the whole partner",
    order="boxes nest",
    examples=(
        {},
        {"scale": None, "box": "clip", "grid": "integer"},
        {"box": "shift", "resize": "bilinear"},
        {"resize": "bilinear"},
    ),
    exceptions={"partner at 1": "clipped boxes lose what falls outside; the others give the end point"},
)
@dataclass(frozen=True, kw_only=True)
class ResizeMix(PairMethod):
    """x̂_k is all of x' resized into box k, and x outside; sides of the boxes are τ_k times the image's, areas λ_k = τ_k^d.

    The K scales τ_1 < … < τ_K are the path, stretched over ``scale``: uniform on it with α = 1, as published. With
    ``scale=None`` the path is that of the areas λ_k themselves, as in CutMix; a ``lam`` handed to ``plan`` always is.

    All boxes hold one uniformly drawn point. ``box="anywhere"`` makes every position inside the image equally likely; ``shift``
    and ``clip`` (the published code, with ``grid="integer"``) centre boxes there and slide them inside or cut them off, as in
    :class:`multimix.CutMix`. ``resize`` is nearest or bilinear. The target follows the realised area.
    """

    scale: Range | None = (0.1, 0.8)
    box: Place = "anywhere"
    grid: Grid = "continuous"
    resize: Resize = "nearest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            object.__setattr__(self, "scale", checked_range("scale", self.scale, 0, 1))

    def path(self, x: Tensor, generator: Generator) -> Tensor:
        path = super().path(x, generator)
        return path if self.scale is None else between(self.scale, path) ** (x.ndim - 2)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "ResizeMix")
        size = x.shape[2:]
        rows = self.rows(x, lam)
        if self.box == "anywhere":
            low, high = roaming_boxes(lam, random_center(rows, size, "continuous", generator), size)
        else:
            low, high = random_boxes(lam, rows, size, self.box, self.grid, generator)
        return ResizedPlan(partner=partner, low=low, high=high, size=size, resize=self.resize)
