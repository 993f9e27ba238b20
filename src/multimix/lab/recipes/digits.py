"""scikit-learn's 8×8 digits with a small network: every method on real images in minutes. It is not in the paper.

    multimix sweep digits --scale small --methods all --seeds 0 1 2 3 4
    multimix train digits --scale small --method cutmix --k 5

There is no protocol to follow and no number to compare with. ``paper`` is only the largest scale here: all 1,433 training images.
``small`` has 25 images of every class, so that the test is not solved by everybody: 500
updates of 50 images, a cosine schedule from 0.05 on. This was chosen before any test error was seen: the rate is the middle one
of three (0.02, 0.05, 0.1) with which no mixing and mixup all fitted the training images of a split that is not used here. No
method was tuned: options are the library's defaults except where they cannot fit 8×8 images or have no default. Training images
and test images are the same for all seeds.
"""

from dataclasses import replace

from ...methods import NoMix
from .base import REDUCED, Recipe, Row, Scale
from .settings import Cosine, Data, Network, Settings

RATE, EPOCHS, SMOKE_EPOCHS = 0.05, 100, 8


def settings(scale: Scale) -> Settings:
    """The same network at all scales; images are not augmented."""
    whole = Settings(
        data=Data("digits"),
        network=Network("multimix.lab.nets.smallnet:SmallNet"),
        method=NoMix(),
        schedule=Cosine(RATE, EPOCHS),
        epochs=EPOCHS,
        batch=50,
        channels_last=False,
        evaluate_every=10,
        running=REDUCED,
    )
    if scale == "paper":
        return whole
    small = replace(whole, data=replace(whole.data, per_class=25))
    if scale == "small":
        return small
    return replace(small, schedule=Cosine(RATE, SMOKE_EPOCHS), epochs=SMOKE_EPOCHS, evaluate_every=4)


RECIPE = Recipe(
    name="digits",
    title="Digits, a small network (not in the paper)",
    about="Test error on scikit-learn's 8×8 digits; no table of the paper.",
    settings=settings,
    rows=(Row("none"), Row("smoothing"), Row("mixup"), Row("mixup", 5), Row("cutmix"), Row("cutmix", 5)),
    small_images=True,
    in_process=True,
    metric="last",
    takes={"paper": "15 seconds without mixing", "small": "3 seconds without mixing, 5 at K = 5", "smoke": "seconds"},
)
