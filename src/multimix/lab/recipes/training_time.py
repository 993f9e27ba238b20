"""Training time against K: seconds per epoch of Puzzle Mix with 1 to 9 interpolations.

PLACE
"""

from dataclasses import replace

from ..training.settings import Settings
from . import cifar100
from .base import Recipe, Row, Scale

EPOCHS: dict[Scale, int] = {"paper": 5, "small": 3, "smoke": 2}


def settings(scale: Scale) -> Settings:
    """The first epochs of the protocol: they are all alike, so the median of a few will do."""
    protocol = cifar100.settings("preact_resnet18", scale)
    return replace(protocol, epochs=EPOCHS[scale], evaluate_every=EPOCHS[scale])


RECIPE = Recipe(
    name="training_time",
    title="Training time, CIFAR-100, PreActResNet18",
    about="Seconds per epoch of Puzzle Mix with K = 1, 3, 5, 7, 9 interpolations.",
    settings=settings,
    rows=tuple(Row("puzzlemix", k) for k in (1, 3, 5, 7, 9)),
    options=cifar100.OPTIONS,
    metric="seconds_per_epoch",
)
