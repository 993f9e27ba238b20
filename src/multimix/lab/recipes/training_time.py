"""Training time against K: seconds per epoch of Puzzle Mix with 1 to 9 interpolations.

    multimix train training_time
    multimix train training_time --scale small

The protocol is that of ``cifar100_preact_resnet18.py``, cut off after a few epochs and evaluated once, after the last. Run it
on a machine with nothing else to do, all K in one go: only ratios of one run compare. Hardware: one GPU (not measured here), or
at small scale one CPU core. The paper's seconds are not known here; it says that they grow more slowly than K.
"""

from dataclasses import replace

from . import cifar100
from .base import Recipe, Row, Scale
from .settings import Settings

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
    options=cifar100.options("preact_resnet18"),
    metric="seconds_per_epoch",
    takes={
        "paper": "minutes on a GPU, not measured here",
        "small": "half a minute at K = 1, 2 at K = 5, about 4 at K = 9",
        "smoke": "seconds",
    },
)
