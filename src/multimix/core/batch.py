"""The batch of one training step, before and after mixing, as passed to methods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .logits import Output
from .plan import Plan
from .targets import are_indices, label_rows

HISTORY = ("history_x", "history_target", "history_logits")


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one training step, their labels, and the model.

    Args:
        model: The model being trained.
        x: ``[B, …]`` samples.
        y: Labels as the caller passed them.
        target: Target rows ``[B, C]``, smoothed if requested. Class indices ``[B]`` while the
            number of classes is unknown.
        generator: A CPU generator for all draws.
        given: Keywords for ``method.plan``, from the caller and from ``method.inputs``.
        output: Selects the logits in the model's result.
        smoothing: Label smoothing ε.
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
        """Convert ``target`` to rows.

        Args:
            classes: Number of classes, used if ``target`` holds class indices.

        Returns:
            ``[B, C]`` target rows.
        """
        if are_indices(self.target):
            return label_rows(self.target, classes, self.smoothing)
        return self.target


@dataclass(frozen=True, eq=False)
class MixedBatch:
    """The result of one forward pass, for :meth:`multimix.Method.loss`.

    Args:
        batch: The batch that was mixed.
        plan: The plan of this forward pass: all K steps, or the steps of one part.
        logits: ``[K·B, C]``.
        target: ``[K·B, C]``.
        share: Fraction of the K interpolations in this part.
        is_first: Whether this is the first part, which includes loss terms computed once per batch.
        features: Output of the layer named in ``traits.watches``, if any.
    """

    batch: Batch
    plan: Plan
    logits: Tensor
    target: Tensor
    share: float = 1.0
    is_first: bool = True
    features: Any = None

    def next_history(self) -> dict[str, Tensor]:
        """Compute the history for a method that mixes with the previous batch.

        Returns:
            Detached tensors by history keyword. Empty if another part computes the history.
        """
        steps, size = self.plan.history_steps, len(self.batch.x)
        if steps is None:  # a plan of another method keeps the stored history
            given = self.batch.given
            return {name: given[name] for name in HISTORY if given.get(name) is not None}
        if not steps:
            return {}
        rows = slice(steps[0] * size, (steps[0] + 1) * size)
        with torch.no_grad():
            past = (self.plan[steps[0]].mix(self.batch.x), self.target[rows], self.logits[rows])
        # Copies in float32 or better, so that half precision does not accumulate over batches.
        return {
            name: value.detach().to(
                torch.promote_types(value.dtype, torch.float32),
                copy=True,
                memory_format=torch.contiguous_format,
            )
            for name, value in zip(HISTORY, past, strict=True)
        }
