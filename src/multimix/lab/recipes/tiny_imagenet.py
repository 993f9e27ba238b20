"""Tiny-ImageNet with PreActResNet18: test error of the methods.

    multimix train tiny_imagenet --method puzzlemix --k 5 --seeds 0 1 2
    multimix train tiny_imagenet --method puzzlemix --k 5 --scale small

paper: 1,200 epochs of SGD at 0.2, a tenth of it from epochs 600 and 900 on, a stem of stride 2, padding 4; the rest as on
CIFAR-100, and so is where the paper and the reference code differ (``cifar100.py`` beside this file). With ``--follow code``
Puzzle Mix adds the clean loss, as its code does on this set (weight 1, times 2/C beside binary cross-entropy); the paper's loss
has no such term. The side of cutout is a choice. Hardware: one GPU (days; not measured here). Expected: Table I.

small: 50 images of every class, 10 of every class for the error, with batch, loss and rate found on CIFAR-100
(``cifar100.py``) and the protocol's own milestones; nothing was tuned here. The first three epochs without mixing, with seed
1000, brought the error from 99.5, which is chance, to 94.8; the whole was not run. Beside cross-entropy the clean loss has
weight 1. On one CPU core; the times follow from those of single updates.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...methods import NoMix
from ...methods.samix.block import NewBlock
from .base import METHODS, REDUCED, Follow, Recipe, Scale, reduced
from .cifar100 import INPUT_TOO
from .settings import Augmentation, Data, Milestones, Network, Running, Settings

EPOCHS, SMALL_EPOCHS, SMOKE_EPOCHS = 1200, 8, 2
SCHEDULE = Milestones(0.2, (600, 900))
SMALL_SCHEDULE = Milestones(0.05, (600, 900))
STEM = ("stem_stride=2",)

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mixup": {"alpha": 0.2},
    "attentivemix": {"beta": 8.0},
    "manifoldmix": {"alpha": 0.2},
    "comixup": {"alpha": 2.0, "clean_weight": 1.0},
    "cutout": {"length": 16},
    "cutmix": {"alpha": 0.2},
    "fmix": {"alpha": 1.0, "decay": 3.0},
    "puzzlemix": {"alpha": 1.0, "transport_size": None},
    "recursivemix": {"features": "stage4", "head": "head"},
    "sage": {"stay": False},
    "samix": {"block": NewBlock("stage3", kappa=None), "rescale_p": 0.0},
}


def settings(scale: Scale) -> Settings:
    """The protocol; what the paper calls the test set is the validation part, the only other one with labels."""
    paper = Settings(
        data=Data("tiny_imagenet", report="validation"),
        network=Network("preact_resnet18", STEM),
        method=NoMix(),
        schedule=SCHEDULE,
        epochs=EPOCHS,
        batch=100,
        augment=Augmentation(flip=True, padding=4),
        loss="softmax_bce",
        running=Running(workers=8),
    )
    if scale == "paper":
        return paper
    network = Network("preact_resnet18_small", STEM)
    smaller = replace(paper, network=network, loss="cross_entropy", schedule=SMALL_SCHEDULE, running=REDUCED)
    if scale == "small":
        return reduced(smaller, epochs=SMALL_EPOCHS, batch=50, per_class=50, report_per_class=10)
    return reduced(smaller, epochs=SMOKE_EPOCHS, batch=20, per_class=1, report_per_class=1)


def recipes(follow: Follow) -> tuple[Recipe, ...]:
    """The one recipe."""
    own = {"puzzlemix": {**OPTIONS["puzzlemix"], "clean_weight": 1.0}, "manifoldmix": {"alpha": 0.2, "layers": INPUT_TOO}}
    return (
        Recipe(
            name="tiny_imagenet",
            title="Tiny-ImageNet, PreActResNet18",
            about="Test error of the methods; the network halves the 64×64 images in its first convolution.",
            settings=settings,
            rows=METHODS,
            options={**OPTIONS, **own} if follow == "code" else OPTIONS,
            takes={
                "paper": "days on a GPU, not measured here",
                "small": "3 minutes without mixing, 15 at K = 5",
                "smoke": "seconds",
            },
        ),
    )
