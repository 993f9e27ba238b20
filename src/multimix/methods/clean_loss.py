"""The loss of the clean batch beside that of the mixed one, for methods that are published with both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ..batch import Batch, Criterion, Mixed
from ..checks import check_number
from ..saliency import CleanPass, clean_pass
from .base import PathMethod, Traits, check_needs

CleanScale = Literal["plain", "per_class", "loss"]


@dataclass(frozen=True, kw_only=True)
class CleanLossMethod(PathMethod):
    """loss(logits, target) + ``clean_weight`` · clean term, once for the batch and not K times.

    ``clean_scale`` is the clean term: ``plain`` CE(model(x), y), ``per_class`` 2/C of it, which is the right size beside a loss
    that is a mean over classes, such as :func:`multimix.softmax_bce`; ``loss`` the loss of the training itself, of the clean
    batch and its labels as they are trained on. Labels are smoothed for ``loss`` only.
    """

    clean_weight: float = 0.0
    clean_scale: CleanScale = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("clean_weight", self.clean_weight)

    @property
    def traits(self) -> Traits:
        own = f"adds a clean loss of weight {self.clean_weight:g}" if self.clean_weight > 0 else None
        return self._traits._replace(own_loss=own)

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        if self.clean_weight == 0:
            return super().inputs(batch)
        check_needs(self, ["saliency", *batch.given])
        clean = clean_pass(batch.model, batch.x, batch.y, training=True, output=batch.output)
        return {"saliency": clean.saliency, "clean": clean}

    def loss(self, batch: Batch, mixed: Mixed, criterion: Criterion) -> Tensor:
        value = super().loss(batch, mixed, criterion)
        if self.clean_weight == 0 or not mixed.first:
            return value
        clean: CleanPass = batch.given["clean"]
        classes = clean.logits.shape[1]
        if self.clean_scale == "loss":
            return value + self.clean_weight * criterion(clean.logits, batch.target_rows(classes))
        return value + self.clean_weight * (2 / classes if self.clean_scale == "per_class" else 1) * clean.loss
