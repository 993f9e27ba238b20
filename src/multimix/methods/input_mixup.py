"""Input mixup (Zhang et al., 2018) at K points of one segment."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..core.plan import PairPlan, SharePlan
from .path import PairMethod
from .registry import register


@register(
    "mixup",
    aliases=("input", "input_mixup"),
    layout="any",
    shared="pair",
    order="one segment, both ends exact",
    exceptions={"geometry": "mixup has no geometry"},
)
@dataclass(frozen=True, kw_only=True)
class InputMixup(PairMethod):
    """Input mixup: x̂_k = (1 − λ_k) x + λ_k x', for samples of any shape.

    Args:
        k: Number of interpolations per pair.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        alpha: Parameter of Beta(α, α), the distribution of λ; 0 disables mixing.
        sampler: How the K values of λ are drawn, ``iid``, ``stratified``, ``antithetic`` or
            ``grid``: see :func:`multimix.random.sample_path`.
        per_pair: Draw a path for every pair instead of one for the batch.
        derange: Draw partners such that no sample is its own partner.

    Example::

        mixed_forward(model, InputMixup(k=5), x, y).loss().backward()
    """

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        return SharePlan(partner=partner, share=lam, size=x.shape[2:])
