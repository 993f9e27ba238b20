"""Cutout (DeVries and Taylor, 2017) with K nested holes."""

from dataclasses import dataclass
from functools import reduce
from operator import or_

import torch
from torch import Generator, Tensor

from ..core.checks import check_spatial, check_whole
from ..core.mixing import like
from ..core.plan import PairPlan, no_share
from ..geometry.boxes import inside, random_center
from .path import PathMethod
from .registry import register


@register(
    "cutout",
    shared="hole center",
    order="holes nest",
    examples=({"length": 5}, {"length": 6, "holes": 2, "fill": 0.7}),
    exceptions={"target is the pixel share": "the label stays, whatever is removed"},
)
@dataclass(frozen=True, kw_only=True)
class Cutout(PathMethod):
    """Cutout: square holes in every sample, growing around one center; the label stays.

    As published, centers are uniform over the places, holes are clipped at the border, and a hole
    extends side // 2 places in both directions, so an odd side is one place shorter.

    Args:
        k: Number of hole sizes; each sample is cut once with every size.
        p: Probability that a batch is cut; otherwise its B rows stay as they are.
        clean_weight: Weight of the loss of the unmixed batch; 0 omits it.
        length: Side of the largest hole in places. The side at step k is ``length``·k/K, rounded.
        holes: Number of holes per sample.
        fill: Value inside the holes. For normalized data, 0 is the mean.
    """

    length: int = 16
    holes: int = 1
    fill: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("length", self.length)
        check_whole("holes", self.holes)

    def draw(self, x: Tensor, *, generator: Generator) -> PairPlan:
        check_spatial(x, "Cutout")
        size = x.shape[2:]
        center = random_center(len(x) * self.holes, size, "integer", generator).long()
        side = torch.tensor([int(self.length * (k + 1) / self.k + 0.5) for k in range(self.k)])
        reach = (side // 2).reshape(-1, 1, 1, 1)
        center = center.reshape(len(x), self.holes, len(size))
        edge = torch.tensor(size)
        low = torch.minimum((center - reach).clamp(min=0), edge)
        high = torch.minimum(center + reach, edge)
        return HolePlan(partner=torch.arange(len(x)), size=size, low=low, high=high, fill=self.fill)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HolePlan(PairPlan):
    """Holes filled with one value. There is no partner: λ is 0, and ``mask`` is 1 in the holes.

    Args:
        low: ``[K, B, holes, d]`` first places.
        high: ``[K, B, holes, d]`` one past the last places.
        fill: Value inside the holes.
    """

    low: Tensor
    high: Tensor
    fill: float
    has_places = True

    @property
    def lam(self) -> Tensor:
        return no_share(self.k, self.partner)

    @property
    def mask(self) -> Tensor:
        return self._removed().float()

    def _removed(self) -> Tensor:
        return reduce(or_, inside(self.low, self.high, self.size).unbind(2))

    def _mix(self, z: Tensor) -> Tensor:
        return like(torch.where(self._removed(), self.fill, z).flatten(0, 1), z)

    def _mix_places(self, target: Tensor) -> Tensor:
        return target.repeat(self.k, *[1] * (target.ndim - 1))
