"""A loss of the clean batch added to that of the mixed batch, as some papers do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ..core.batch import Batch, MixedBatch
from ..core.checks import check_number
from ..core.losses import Criterion
from ..core.saliency import CleanPass, clean_pass
from .base import PathMethod, Traits, check_needs

CleanScale = Literal["plain", "per_class", "loss"]


@dataclass(frozen=True, kw_only=True)
class CleanLossMethod(PathMethod):
    """Base class of methods that add ``clean_weight`` times a clean loss, once per batch.

    Args:
        k: Number of interpolations per sample.
        p: Probability that a batch is mixed; otherwise its B rows stay as they are.
        clean_weight: Weight of the clean loss; 0 omits it.
        clean_scale: ``plain`` is CE(model(x), y). ``per_class`` is CE · 2/C, which matches a
            criterion that averages over classes, such as ``softmax_bce``. ``loss`` is the training
            criterion on the clean batch, with smoothed labels.
    """

    clean_weight: float = 0.0
    clean_scale: CleanScale = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("clean_weight", self.clean_weight)

    @property
    def traits(self) -> Traits:
        term = (
            f"adds a clean loss of weight {self.clean_weight:g}" if self.clean_weight > 0 else None
        )
        return self._traits._replace(own_loss=term)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if self.clean_weight == 0:
            return super().inputs(batch)
        check_needs(self, self.traits.needs, ["saliency", *batch.given])
        clean = clean_pass(batch.model, batch.x, batch.y, training=True, output=batch.output)
        return {"saliency": clean.saliency, "clean": clean}

    def loss(self, mixed: MixedBatch, criterion: Criterion) -> Tensor:
        value = super().loss(mixed, criterion)
        if self.clean_weight == 0 or not mixed.is_first:
            return value
        clean: CleanPass = mixed.batch.given["clean"]
        classes = clean.logits.shape[1]
        if self.clean_scale == "loss":
            clean_loss = criterion(clean.logits, mixed.batch.target_rows(classes))
        elif self.clean_scale == "per_class":
            clean_loss = clean.loss * 2 / classes
        else:
            clean_loss = clean.loss
        return value + self.clean_weight * clean_loss
