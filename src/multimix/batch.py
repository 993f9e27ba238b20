"""One batch on its way through a training step, as mixing methods see it: what came in, and the same mixed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .hooks import hidden_forward, run
from .logits import Output, logits_of
from .plan import Plan
from .target import soft_target

HISTORY = ("history_x", "history_target", "history_logits")
Criterion = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples ``x [B, …]`` with labels ``y`` as they came, and the ``model`` that they are for.

    ``target`` is ``y`` as it is trained on: rows, smoothed if asked for; or the class indices, as long as their number is not
    known. ``given`` holds the caller's keywords for ``plan`` and then also what :meth:`multimix.Method.inputs` returned.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    target: Tensor
    generator: Generator
    given: Mapping[str, Any]
    output: Output | None = None
    smoothing: float = 0.0

    def target_rows(self, classes: int) -> Tensor:
        """``target`` as rows, those of class indices one-hot and smoothed."""
        return soft_target(self.target, classes, self.smoothing) if are_indices(self.target) else self.target


@dataclass(frozen=True, eq=False)
class Mixed:
    """A batch mixed by ``plan``. The model runs when ``logits`` or ``target`` is first read, and only then.

    Where :func:`multimix.mixed_terms` cuts the K steps into parts, ``share`` says how much of K is in this one; what belongs to
    the batch as a whole, such as a clean loss, counts in the ``first``.
    """

    batch: Batch
    plan: Plan
    share: float = 1.0
    first: bool = True

    @cached_property
    def logits(self) -> Tensor:
        """``[K·B, C]``, with their graph."""
        logits = mixed_forward(self.batch.model, self.plan, self.batch.x, output=self.batch.output)
        if are_indices(self.batch.target) and (logits.ndim != 2 or logits.shape[1] < 2):
            raise ValueError(
                f"class indices need logits [N, C] with at least 2 classes, got {list(logits.shape)}: "
                "pass y.float() for real values, y.float().unsqueeze(1) for one logit"
            )
        return logits

    @cached_property
    def target(self) -> Tensor:
        """``[K·B, C]``: the labels mixed as the samples are."""
        logits = self.logits
        target = self.plan.mix_target(self.batch.target_rows(logits.shape[-1]))
        if logits.shape != target.shape:
            raise ValueError(
                f"logits and target must have one shape, got {list(logits.shape)} and {list(target.shape)}; "
                "for a loss of another form use mixed_forward and plan.mix_target"
            )
        return target

    def next_history(self) -> dict[str, Tensor]:
        """What a method that mixes with the batch before is given with the next one, without gradients.

        The step that the plan keeps, if it is among these; a plan of another method leaves the history as it was.
        """
        kept, size = self.plan.kept_steps, len(self.batch.x)
        if kept is None:
            return {name: self.batch.given[name] for name in HISTORY if self.batch.given.get(name) is not None}
        if not kept:
            return {}
        rows = slice(kept[0] * size, (kept[0] + 1) * size)
        with torch.no_grad():
            past = (self.plan[kept[0]].mix(self.batch.x), self.target[rows], self.logits[rows])
        # Copies in float32 or better, so that half precision does not add up over recursions, in one memory order.
        return {
            name: value.detach().to(
                torch.promote_types(value.dtype, torch.float32), copy=True, memory_format=torch.contiguous_format
            )
            for name, value in zip(HISTORY, past, strict=True)
        }


def mixed_forward(model: nn.Module, plan: Plan, x: Tensor, *, output: Output | None = None) -> Tensor:
    """``[K·B, …]``: what the model says about the batch mixed as planned; layers up to the mixing layer run once."""
    if plan.layer is None:
        result = run(model, plan.mix(x), f"{plan.k} × {len(x)} mixed samples")
    else:
        result = hidden_forward(model, plan, x)
    logits = logits_of(result, output)
    if logits.ndim == 0 or len(logits) != plan.k * len(x):
        raise ValueError(
            f"{plan.k} interpolations of {len(x)} samples must come out as {plan.k * len(x)} rows, "
            f"got shape {list(logits.shape)}" + (f" after mixing at layer {plan.layer!r}" if plan.layer else "")
        )
    return logits


def are_indices(y: Tensor) -> bool:
    """Whether ``y`` holds class indices ``[B]``, which need the number of classes to become rows."""
    return y.ndim == 1 and not y.is_floating_point()
