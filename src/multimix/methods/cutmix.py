"""CutMix (Yun et al., 2019) with K boxes around one center."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..core.checks import check_spatial
from ..core.plan import PairPlan
from ..geometry.boxes import BoxPlan, Fit, Grid, centered_boxes, random_center
from .base import PairMethod
from .registry import register


@register(
    "cutmix",
    shared="pair, box center",
    order='boxes nest; both ends with `box="shift"`',
    examples=({}, {"box": "shift"}, {"grid": "integer"}, {"box": "shift", "grid": "integer"}),
    exceptions={
        "partner at 1": "clipped boxes lose what falls outside; box='shift' gives the end point"
    },
)
@dataclass(frozen=True, kw_only=True)
class CutMix(PairMethod):
    """CutMix: x̂_k is x' inside box k and x outside.

    Boxes have sides λ_k^(1/d) of the image's and one uniformly drawn center. The target follows the
    realized area.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed.
        alpha: Parameter of Beta(α, α).
        sampler: How λ is drawn: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners without fixed points.
        box: ``clip`` (the paper) cuts boxes off at the border. ``shift`` moves them inside, so that
            the area is λ_k up to rounding and λ = 1 is all of x'.
        grid: ``continuous`` (the paper) or ``integer`` (the original code): see
            :func:`multimix.geometry.boxes.centered_boxes`.
    """

    box: Fit = "clip"
    grid: Grid = "continuous"

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "CutMix")
        center = random_center(self.rows(x, lam), x.shape[2:], self.grid, generator)
        low, high = centered_boxes(lam, center, x.shape[2:], self.box, self.grid)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])
