"""The plan that pastes what was mixed before: all of a history image in each box."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..mixing import by_step, into, memory_format, mix, writes_pay
from ..plan import check_size
from .boxes import inside, slices
from .resized import ResizedPlan


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PastedPlan(ResizedPlan):
    """In box ``[low, high)`` all of the history image of the same row, made smaller; outside the sample.

    ``history_x [B, C, *size]`` and ``history_target [B, …]`` are of an earlier batch, ``history_logits`` what the model said
    about it; the partner of a row is the history's row of the same number. ``kept [K]`` marks the step that is to be the next
    history.
    """

    history_x: Tensor
    history_target: Tensor
    history_logits: Tensor | None = None
    kept: Tensor
    shared: ClassVar[tuple[str, ...]] = ("partner", "history_x", "history_target", "history_logits")

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        if z.shape != self.history_x.shape:
            raise ValueError(f"z has shape {list(z.shape)}, the history of the plan {list(self.history_x.shape)}")
        return self._pasted(z, self.history_x, out)

    def _mix_target(self, target: Tensor) -> Tensor:
        lam = self.lam.reshape(self.k, len(target), *[1] * (target.ndim - 1))
        return mix(target, self._past_of(target), lam).flatten(0, 1)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self._pasted(target, self._past_of(target), None)

    def _pasted(self, z: Tensor, past: Tensor, out: Tensor | None) -> Tensor:
        """The past with itself made smaller in its boxes, and all outside of them put back to ``z``."""
        check_size(z, self.size)
        if not writes_pay(z):
            small = by_step(super()._mix(past, None), self.k).to(z.dtype)
            return into(torch.where(inside(self.low, self.high, self.size), small, z).flatten(0, 1), z, out)
        out = super()._mix(past.to(z.dtype).contiguous(memory_format=memory_format(z)), out)
        steps = by_step(out, self.k)
        if self.low.shape[1] > 1:
            torch.where(inside(self.low, self.high, self.size), steps, z, out=steps)
        else:
            for step, low, high in zip(steps.unbind(0), self.low[:, 0].tolist(), self.high[:, 0].tolist(), strict=True):
                _put_back(step, z, slices(low, high))
        return out

    def _past_of(self, target: Tensor) -> Tensor:
        if target.shape != self.history_target.shape:
            raise ValueError(f"y makes a target {list(target.shape)}, history_target is {list(self.history_target.shape)}")
        return self.history_target.to(target.dtype)


def _put_back(step: Tensor, z: Tensor, box: tuple[slice, ...]) -> None:
    """Everything outside the box as in ``z``: slabs before and after it along each axis, those of later axes between them."""
    for axis in range(2, z.ndim):
        for beside in (slice(0, box[axis].start), slice(box[axis].stop, None)):
            slab = (*box[:axis], beside)
            step[slab].copy_(z[slab])


def fitted(rows: Tensor, batch: int) -> Tensor:
    """The first ``batch`` of ``rows``, filled up with zeros where there are fewer."""
    if len(rows) >= batch:
        return rows[:batch]
    return torch.cat([rows, rows.new_zeros(batch - len(rows), *rows.shape[1:])])
