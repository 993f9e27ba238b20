"""ResizeMix (Qin et al., 2020): the whole partner, made small, in K boxes around one point."""

from dataclasses import dataclass
from typing import Literal

from torch import Generator, Tensor

from ..core.checks import Range, between, check_spatial, checked_range
from ..core.plan import PairPlan
from ..geometry.boxes import Grid, centered_boxes, random_center
from ..geometry.resized import Resize, ResizedPlan, uniform_boxes
from .path import PairMethod
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
    exceptions={
        "partner at 1": "clipped boxes lose what falls outside; the others give the end point"
    },
)
@dataclass(frozen=True, kw_only=True)
class ResizeMix(PairMethod):
    """ResizeMix: x̂_k is all of x' resized into box k, and x outside.

    The sides of box k are τ_k times those of the image, its area is λ_k = τ_k^d. All boxes contain
    one uniformly drawn point. The target follows the realized area.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        scale: Range (low, high) of the scales τ_k, to which the drawn path is mapped linearly. With
            α = 1 scales are uniform, as published. None uses the path as areas λ_k, as in CutMix.
            A ``lam`` passed to ``plan`` always holds areas.
        box: ``anywhere`` makes all positions inside the image equally likely. ``shift`` and
            ``clip`` center boxes at the point. ``shift`` moves them inside, ``clip`` clips them at
            the border (the published code, with ``grid="integer"``).
        grid: ``continuous`` or ``integer`` centers and sides of boxes: see
            :class:`multimix.CutMix`.
        resize: Interpolation of the partner, ``nearest`` or ``bilinear``.

    Example::

        mixed_forward(model, ResizeMix(k=5), x, y).loss().backward()
    """

    scale: Range | None = (0.1, 0.8)
    box: Place = "anywhere"
    grid: Grid = "continuous"
    resize: Resize = "nearest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            object.__setattr__(self, "scale", checked_range("scale", self.scale, 0, 1))

    def draw_path(self, x: Tensor, generator: Generator) -> Tensor:
        path = super().draw_path(x, generator)
        return path if self.scale is None else between(self.scale, path) ** (x.ndim - 2)

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "ResizeMix")
        size = x.shape[2:]
        rows = self.rows(x, lam)
        if self.box == "anywhere":
            point = random_center(rows, size, "continuous", generator)
            low, high = uniform_boxes(lam, point, size)
        else:
            center = random_center(rows, size, self.grid, generator)
            low, high = centered_boxes(lam, center, size, self.box, self.grid)
        return ResizedPlan(partner=partner, low=low, high=high, size=size, resize=self.resize)
