"""No mixing, behind the same interface, so that loops and comparisons need no ``if``."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..core.checks import check_whole
from ..core.plan import PairPlan, unmixed_plan
from .base import Method, Traits
from .registry import register


@register("none", layout="any", summary="no mixing")
@dataclass(frozen=True, kw_only=True)
class NoMix(Method):
    """No mixing: the batch stays as it is, with B rows for every ``k``.

    Args:
        k: Has no effect: K equal copies would give the same mean loss at K times the cost.
    """

    k: int = 1

    def __post_init__(self) -> None:
        check_whole("k", self.k)

    @property
    def traits(self) -> Traits:
        return Traits(mixes_at=())

    def draw(self, x: Tensor, *, generator: Generator) -> PairPlan:
        return unmixed_plan(x)
