"""CutMix (Yun et al., 2019) with K boxes around one centre."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..checks import check_spatial
from ..geometry.boxes import BoxPlan, Fit, Grid, random_boxes
from ..plan import PairPlan
from .base import PairMethod
from .registry import register


@register(
    "cutmix",
    shared="pair, box centre",
    order='boxes nest; both ends with `box="shift"`',
    examples=({}, {"box": "shift"}, {"grid": "integer"}, {"box": "shift", "grid": "integer"}),
    exceptions={"partner at 1": "clipped boxes lose what falls outside; box='shift' gives the end point"},
)
@dataclass(frozen=True, kw_only=True)
class CutMix(PairMethod):
    """x̂_k is x' inside box k and x outside; the boxes have sides λ_k^(1/d) of the image's and one uniformly drawn centre.

    ``box="clip"`` (the paper) cuts boxes off at the border; ``box="shift"`` slides them inside, so that the area is λ_k up to
    rounding and λ = 1 is all of x'. ``grid`` is continuous (the paper) or integer (the original code): see
    :func:`multimix.geometry.boxes.centered_boxes`. The target always follows the realised area.
    """

    box: Fit = "clip"
    grid: Grid = "continuous"
    needs_shape_only = True

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "CutMix")
        low, high = random_boxes(lam, self.rows(x, lam), x.shape[2:], self.box, self.grid, generator)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])
