"""No mixing, behind the same interface, so that loops and comparisons need no ``if``."""

from dataclasses import dataclass

from torch import Generator, Tensor

from ..plan import PairPlan
from ..sampling import check_path_options
from .base import Method, Traits, unmixed_plan
from .registry import register


@register("none", layout="any", summary="no mixing")
@dataclass(frozen=True, kw_only=True)
class NoMix(Method):
    """The batch as it is, B rows for every ``k``: K equal copies would have the same mean loss at K times the cost."""

    k: int = 1

    def __post_init__(self) -> None:
        check_path_options(self.k, 0, "iid")

    @property
    def traits(self) -> Traits:
        return Traits(mixes_at=())

    def draw(self, x: Tensor, *, generator: Generator) -> PairPlan:
        return unmixed_plan(x)
