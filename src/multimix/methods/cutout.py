"""Cutout (DeVries and Taylor, 2017) with K nested holes: a path from a sample to the same sample occluded."""

from dataclasses import dataclass
from functools import reduce
from operator import or_

import torch
from torch import Generator, Tensor

from ..checks import check_spatial, check_whole
from ..devices import widest_float
from ..geometry.boxes import inside, random_center, slices
from ..mixing import PAIR_BY_PAIR, by_step, can_write_in_place, into, rows_like
from ..plan import PairPlan, check_size
from .base import PathMethod
from .registry import Look, register


@register(
    "cutout",
    shared="hole centre",
    order="holes nest",
    examples=({"length": 5}, {"length": 6, "holes": 2, "fill": 0.7}),
    exceptions={"target is the pixel share": "what is removed belongs to nobody; the label stays"},
    # Published for 16 of 32 pixels; grey stands for the mean of the data, which is 0 once it is normalised.
    look=Look(lambda side: {"length": side // 2, "fill": 0.5}),
    small={"length": 4},
)
@dataclass(frozen=True, kw_only=True)
class Cutout(PathMethod):
    """Square holes in every sample, growing from step to step around one centre; the label stays.

    Each sample has ``holes`` of them, filled with ``fill``; at step k their side is ``length``·k/K, rounded. Centres are uniform
    over the places, holes are clipped at the border, and a hole reaches side // 2 to both sides, so an odd side loses one place
    (all as published). Fill after normalisation, where 0 is the mean of the data.
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
    """Holes ``low, high [K, B, holes, d]`` filled with one value. λ stays 0: there is no partner, ``mask`` is what is removed."""

    low: Tensor
    high: Tensor
    fill: float

    @property
    def lam(self) -> Tensor:
        return torch.zeros(self.k, len(self.partner), dtype=widest_float(self.partner.device), device=self.partner.device)

    @property
    def mask(self) -> Tensor:
        return self._removed().float()

    def _removed(self) -> Tensor:
        return reduce(or_, inside(self.low, self.high, self.size).unbind(2))

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        check_size(z, self.size)
        fill = z.new_full((), self.fill)
        if not can_write_in_place(z):
            return into(torch.where(self._removed(), fill, z).flatten(0, 1), z, out)
        out = rows_like(z, self.k) if out is None else out
        steps = by_step(out, self.k)
        if z[0].numel() < PAIR_BY_PAIR:
            torch.lerp(z, fill, self._removed().to(z.dtype), out=steps)
        else:
            self._punch(z, steps)
        return out

    def _punch(self, z: Tensor, steps: Tensor) -> None:
        """Hole by hole, without masks as large as the batch."""
        of_sample = steps.unbind(1)
        low, high = self.low.tolist(), self.high.tolist()
        for i, own in enumerate(z.unbind(0)):
            of_sample[i].copy_(own)
            for k, step in enumerate(of_sample[i].unbind(0)):
                for a, b in zip(low[k][i], high[k][i], strict=True):
                    step[slices(a, b)[1:]] = self.fill
