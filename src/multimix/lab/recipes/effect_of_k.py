"""Puzzle Mix with 1 to 9 interpolations on CIFAR-100, PreActResNet18: three figures of the paper.

    multimix train effect_of_k --seeds 0 1 2
    multimix train gradient_norm --seeds 0 1 2 --scale small
    multimix train training_time --scale small

``effect_of_k`` reports the test error, ``gradient_norm`` the squared norm of the gradient, ``training_time`` seconds per epoch;
otherwise the protocol is that of ``cifar100.py``. Hardware: one GPU (hours; not measured here), or at small scale one CPU core.

Of the paper's values only two errors are known here: at K = 1 and 5 they are those of the table. Theory says that the norm falls
with K; the paper says that seconds grow more slowly than K. The norm is that of the gradient of all parameters, without weight
decay, before the update, squared and averaged over the updates of an epoch; the paper does not say whether decay counts.

``training_time`` is cut off after a few epochs and evaluated once, after the last. Run it on a machine with nothing else to do,
all K in one go: only ratios of one run compare.
"""

from dataclasses import replace
from functools import partial

from . import cifar100
from .base import Recipe, Row, Scale
from .settings import Settings

NETWORK = "preact_resnet18"
KS = (1, 3, 5, 7, 9)
ERRORS = {1: 20.61, 5: 19.19}
EPOCHS: dict[Scale, int] = {"paper": 5, "small": 3, "smoke": 2}
TAKES: dict[Scale, str] = {
    "paper": "hours on a GPU, not measured here",
    "small": "2.5 minutes at K = 1, 7 at K = 5, about 11 at K = 9",
    "smoke": "seconds",
}


def first_epochs(scale: Scale) -> Settings:
    """The first epochs of the protocol: they are all alike, so the median of a few is enough."""
    return replace(cifar100.settings(NETWORK, scale), epochs=EPOCHS[scale], evaluate_every=EPOCHS[scale])


RECIPES = (
    Recipe(
        name="effect_of_k",
        title="Effect of K, CIFAR-100, PreActResNet18",
        about="Test error of Puzzle Mix with K = 1, 3, 5, 7, 9 interpolations.",
        settings=partial(cifar100.settings, NETWORK),
        rows=tuple(Row("puzzlemix", k, paper=ERRORS.get(k)) for k in KS),
        options=cifar100.options(NETWORK),
        takes=TAKES,
    ),
    Recipe(
        name="training_time",
        title="Training time, CIFAR-100, PreActResNet18",
        about="Seconds per epoch of Puzzle Mix with K = 1, 3, 5, 7, 9 interpolations.",
        settings=first_epochs,
        rows=tuple(Row("puzzlemix", k) for k in KS),
        options=cifar100.options(NETWORK),
        metric="seconds_per_epoch",
        takes={
            "paper": "minutes on a GPU, not measured here",
            "small": "half a minute at K = 1, 2 at K = 5, about 4 at K = 9",
            "smoke": "seconds",
        },
    ),
    Recipe(
        name="gradient_norm",
        title="Gradient norm, CIFAR-100, PreActResNet18",
        about="Mean squared norm of the gradient in every epoch, Puzzle Mix with K = 1, 3, 5, 7, 9; the table has the last one.",
        settings=partial(cifar100.settings, NETWORK),
        rows=tuple(Row("puzzlemix", k) for k in KS),
        options=cifar100.options(NETWORK),
        metric="squared_grad_norm",
        takes=TAKES,
    ),
)
