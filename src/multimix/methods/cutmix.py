"""CutMix (Yun et al., 2019) with K boxes around one center."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..core.checks import check_spatial
from ..core.plan import PairPlan
from ..geometry.boxes import BoxPlan, Fit, Grid, centered_boxes, random_center
from .path import PairMethod
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

    The sides of box k are λ_k^(1/d) times those of the image. All K boxes share one uniformly drawn
    center. The target follows the realized area.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path and a geometry for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.
        box: ``clip`` (the paper) clips boxes at the border. ``shift`` moves them inside, so that
            the area is λ_k up to rounding and λ = 1 shows all of x'.
        grid: ``continuous`` (the paper) or ``integer`` (the original code): see
            :func:`multimix.geometry.boxes.centered_boxes`.

    Example::

        mixed_forward(model, CutMix(k=5), x, y).loss().backward()
    """

    box: Fit = "clip"
    grid: Grid = "continuous"

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "CutMix")
        center = random_center(self.rows(x, lam), x.shape[2:], self.grid, generator)
        low, high = centered_boxes(lam, center, x.shape[2:], self.box, self.grid)
        return BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])
