"""CIFAR-100's 20 superclasses at 16 px, few training images, a network that fits them all. It is not in the paper.

    multimix sweep superclasses --scale small --methods none mixup manifoldmix cutmix puzzlemix --ks 1 2 5 --seeds 0 1 2

This is the study of docs/study.md: where networks overfit, so that mixing can help, and small enough for many seeds on one CPU
core. ``small`` has 50 images of every superclass (1,000 in all) for training, all 10,000 test images, 3,200 updates of 50 images
and a network whose first convolution halves the image, found with three seeds on no mixing and K = 1 alone. There is no protocol
to follow and no number to compare with.
"""

from dataclasses import replace

from ...methods import NoMix
from .base import REDUCED, Recipe, Row, Scale
from .settings import Augmentation, Data, Knots, Network, Optimizer, Running, Settings

EPOCHS, SMOKE_EPOCHS = 160, 2
NORM = ("final_norm=True",)
SMALL_MAPS = (*NORM, "stem_stride=2")  # a quarter of the work
METHODS = ("mixup", "manifoldmix", "cutmix", "puzzlemix")


def one_cycle(epochs: int) -> Knots:
    """Up to a rate of 0.1 in a quarter of the epochs, then down to 0."""
    return Knots(((0, 0.01), (epochs / 4, 0.1), (epochs, 0.0)))


def settings(scale: Scale) -> Settings:
    """``small`` is the study; ``paper`` is only the largest scale here, all 50,000 images and the whole network."""
    small = Settings(
        data=Data("cifar100_superclasses", per_class=50),
        network=Network("preact_resnet18_small", SMALL_MAPS),
        method=NoMix(),
        schedule=one_cycle(EPOCHS),
        epochs=EPOCHS,
        batch=50,
        augment=Augmentation(flip=True, padding=2),
        optimizer=Optimizer(weight_decay=5e-4),
        mixed_precision="bf16",  # half the time on a CPU that computes in it
        channels_last=True,
        evaluate_every=40,
        running=REDUCED,
    )
    if scale == "small":
        return small
    if scale == "paper":
        return replace(small, data=Data("cifar100_superclasses"), network=Network("preact_resnet18", NORM), running=Running())
    data = Data("cifar100_superclasses", per_class=5, report_per_class=2)
    return replace(small, data=data, schedule=one_cycle(SMOKE_EPOCHS), epochs=SMOKE_EPOCHS, batch=20, evaluate_every=SMOKE_EPOCHS)


RECIPE = Recipe(
    name="superclasses",
    title="CIFAR-100 superclasses, 16 px (not in the paper)",
    about="Test error where 1,000 images are all there is to learn from.",
    settings=settings,
    rows=(Row("none"), *(Row(name, k) for name in METHODS for k in (1, 2, 5))),
    options={
        "mixup": {"alpha": 1.0},
        "manifoldmix": {"alpha": 2.0, "layers": ("stage1", "stage2")},
        "cutmix": {"alpha": 1.0},
        "puzzlemix": {"alpha": 1.0, "transport_size": 4},
    },
    metric="last",
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "40 s at K = 1, 70 s to 2 minutes at K = 5",
        "smoke": "seconds",
    },
)
