"""The plan that pastes what was mixed before: all of a history image in each box."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...geometry.resized import ResizedPlan
from ...mixing import mix


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

    @property
    def kept_steps(self) -> list[int]:
        return [int(step) for step in self.kept.nonzero().flatten()]

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        if z.shape != self.history_x.shape:
            raise ValueError(f"z has shape {list(z.shape)}, the history of the plan {list(self.history_x.shape)}")
        # Not rounded to z's precision before it is resized.
        return self._pasted(z, self.history_x.to(torch.promote_types(self.history_x.dtype, z.dtype)), out)

    def _mix_target(self, target: Tensor) -> Tensor:
        lam = self.lam.reshape(self.k, len(target), *[1] * (target.ndim - 1))
        return mix(target, self._past_of(target), lam).flatten(0, 1)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self._pasted(target, self._past_of(target), None)

    def _past_of(self, target: Tensor) -> Tensor:
        if target.shape != self.history_target.shape:
            raise ValueError(f"y makes a target {list(target.shape)}, history_target is {list(self.history_target.shape)}")
        return self.history_target.to(target.dtype)


def fitted(rows: Tensor, batch: int) -> Tensor:
    """The first ``batch`` of ``rows``, filled up with zeros where there are fewer."""
    if len(rows) >= batch:
        return rows[:batch]
    return torch.cat([rows, rows.new_zeros(batch - len(rows), *rows.shape[1:])])
