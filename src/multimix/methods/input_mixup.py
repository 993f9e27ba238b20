"""Input mixup (Zhang et al., 2018) at K points of one segment."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..plan import PairPlan, SharePlan
from .base import PairMethod
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
    """x̂_k = (1 − λ_k) x + λ_k x', for samples of any shape."""

    needs_shape_only = True

    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *, generator: Generator) -> PairPlan:
        return SharePlan(partner=partner, share=lam, size=x.shape[2:])
