"""CIFAR-100 with PreActResNet18, WRN16-8 and ResNeXt29-4-24: Table I; with the last network also Table II and Figs. 6 to 8.

    multimix train cifar100_preact_resnet18 --method puzzlemix --k 5 --seeds 0 1 2
    multimix train cifar100_wrn16_8 --method puzzlemix --k 5 --seeds 0 1 2 --scale small

Hardware: one GPU (hours; not measured here), or at small scale one CPU core. Expected: Table I. At small
scale: docs/results.md. Table II has four batch strategies in place of methods, Figs. 6 to 8 have K = 1, 3, 5, 7, 9.

paper: 300 epochs of SGD at 0.2, a tenth of it from epochs 100 and 200 on, batch 100, momentum 0.9 with Nesterov, decay 0.0001,
flip and a crop after padding by 2, softmax and binary cross-entropy. The paper gives epochs, rates and batch; the rest is what
the code of Puzzle Mix and Co-Mixup does, whose set-up it follows. The paper names no loss; that code trains with binary
cross-entropy of the softmax, whose gradient is about 1/100 of that of cross-entropy. Manifold mixup mixes at hidden layers only,
as the paper says (s > 0); its authors' code mixes a third of the batches at the input (``--follow code``). The α of the methods
and their other options are not in the paper either; they are those of the PuzzleMix repository (cutout, FMix and methods that it
does not have: of their authors), the same for every K. Masks and moves of Puzzle Mix are exact optima here, in the reference
code they are approximations (``--method.transport reference`` moves as that code does). The median of the last 10 epochs is
reported, as that code prints it.

small: 50 training and 20 test images of every class, a small sibling of the network, batch 50, the paper's schedule squeezed into
few epochs, so that seven methods with three seeds take an hour and a half on one core. Loss and rate were chosen without mixing,
with seed 1000 alone, on 100 images of every class: binary cross-entropy learns too slowly in 2,000 updates (accuracy 10 % at the
paper's rate of 0.2; 16 % at 1, 15 % at 4), so the loss is cross-entropy (23 % at 0.05, 22 % at 0.1). Nothing was tuned further:
it says how methods compare, not how good they can be. With twice the images and the rate falling at 1/2 and 3/4 of the epochs it
was 27 % (``--data.per_class 100 --schedule.at 5 7.5``).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...methods import NoMix
from ...methods.samix.block import NewBlock
from .base import METHODS, REDUCED, Follow, Recipe, Scale, reduced
from .settings import Augmentation, Data, Milestones, Network, Running, Settings

Options = Mapping[str, Mapping[str, Any]]

OPTIONS: Options = {
    "mixup": {"alpha": 1.0},
    "attentivemix": {"beta": 8.0},
    "comixup": {"alpha": 2.0, "clean_weight": 1.0},
    "cutout": {"length": 8},
    "cutmix": {"alpha": 1.0},
    "fmix": {"alpha": 1.0, "decay": 3.0},
    "puzzlemix": {"alpha": 1.0, "transport_size": 4},
}
INPUT_TOO = (None, "stage1", "stage2")  # where the code of manifold mixup mixes
# The consistency term of RecursiveMix is about the layer whose mean over places the head is given.
OF_NETWORK: Mapping[str, Options] = {
    "preact_resnet18": {
        "recursivemix": {"features": "stage4", "head": "head"},
        "sage": {"bound": 0.5, "update_ratio": 0.7, "stay": False},
    },
    "wrn16_8": {
        "recursivemix": {"features": "relu", "head": "head"},
        "sage": {"bound": 0.7, "update_ratio": 0.5, "stay": False},
        "samix": {"block": NewBlock("stage2")},
    },
    "resnext29_4_24": {
        "alignmixup": {"layers": ("stage2",)},
        "recursivemix": {"features": "stage3", "head": "head"},
        "sage": {"bound": 0.7, "update_ratio": 0.5, "stay": False},
        "samix": {"block": NewBlock("stage2")},
    },
}

EPOCHS, SMOKE_EPOCHS = 300, 2
# The smaller siblings take more time for a sample.
SMALL_EPOCHS: Mapping[str, int] = {"preact_resnet18": 10, "wrn16_8": 8, "resnext29_4_24": 6}
SCHEDULE = Milestones(0.2, (100, 200))
SMALL_SCHEDULE = replace(SCHEDULE, rate=0.05)


def options(network: str, follow: Follow) -> Options:
    """Those of the methods for one of the networks, by its name at paper scale; layers have the same names at all scales."""
    manifold = {"alpha": 2.0, "layers": INPUT_TOO} if follow == "code" else {"alpha": 2.0}
    return {**OPTIONS, "manifoldmix": manifold, **OF_NETWORK[network]}


def settings(network: str, scale: Scale) -> Settings:
    """The protocol for one of the networks, by its name at paper scale."""
    paper = Settings(
        data=Data("cifar100"),
        network=Network(network),
        method=NoMix(),
        schedule=SCHEDULE,
        epochs=EPOCHS,
        batch=100,
        augment=Augmentation(flip=True, padding=2),
        loss="softmax_bce",
        running=Running(workers=8),
    )
    if scale == "paper":
        return paper
    smaller = replace(paper, network=Network(f"{network}_small"), loss="cross_entropy", schedule=SMALL_SCHEDULE, running=REDUCED)
    if scale == "small":
        return reduced(smaller, epochs=SMALL_EPOCHS[network], batch=50, per_class=50, report_per_class=20)
    return reduced(smaller, epochs=SMOKE_EPOCHS, batch=20, per_class=2, report_per_class=1)


NAMES = {"preact_resnet18": "PreActResNet18", "wrn16_8": "WRN16-8", "resnext29_4_24": "ResNeXt29-4-24"}
SMALL_MINUTES = {"preact_resnet18": "1.5 minutes", "wrn16_8": "1.5 minutes", "resnext29_4_24": "1 minute"}


def recipes(follow: Follow) -> tuple[Recipe, ...]:
    """One for each network."""
    return tuple(
        Recipe(
            name=f"cifar100_{network}",
            title=f"CIFAR-100, {title}",
            about="Test error of the methods.",
            settings=partial(settings, network),
            rows=METHODS,
            options=options(network, follow),
            takes={
                "paper": "hours on a GPU, not measured here",
                "small": f"{SMALL_MINUTES[network]} without mixing, 7 at K = 5",
                "smoke": "seconds",
            },
        )
        for network, title in NAMES.items()
    )
