"""A folder of your own pictures, one folder per class. It is not in the paper.

    multimix compare FOLDER
    multimix train folder --data FOLDER --scale small --method cutmix --k 5
    multimix sweep folder --data FOLDER --scale small --data.side 96 --epochs 60

multimix compare fits epochs, batch, side and network to the folder and to a time budget; here they are fixed. Sounds are trained
with --data.name sound_folder --augment.flip false --augment.padding 0. There is no protocol to follow and no number to compare
with.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...methods import NoMix
from .base import REDUCED, Recipe, Row, Scale
from .settings import Augmentation, Data, Network, Optimizer, Running, Settings
from .superclasses import NORM, one_cycle

EPOCHS: Mapping[Scale, int] = {"paper": 100, "small": 30, "smoke": 2}


def settings(scale: Scale) -> Settings:
    """``paper`` is only the largest scale here: the whole network on squares of 128 pixels."""
    epochs = EPOCHS[scale]
    small = Settings(
        data=Data("folder", side=64, skip_bad=True),
        network=Network("preact_resnet18_small", (*NORM, "stem_stride=2")),
        method=NoMix(),
        schedule=one_cycle(epochs),
        epochs=epochs,
        batch=32,
        augment=Augmentation(flip=True, padding=8),
        optimizer=Optimizer(weight_decay=5e-4),
        channels_last=False,
        evaluate_every=max(1, epochs // 5),
        running=REDUCED,
    )
    if scale == "paper":
        network = Network("preact_resnet18", small.network.options)
        return replace(small, data=replace(small.data, side=128), network=network, channels_last=True, running=Running(workers=8))
    if scale == "smoke":
        return replace(small, data=replace(small.data, side=32, most=5), batch=8)
    return small


RECIPE = Recipe(
    name="folder",
    title="Your own pictures (not in the paper)",
    about="Test error of the methods on a folder of your own.",
    settings=settings,
    rows=(Row("none"), *(Row(name, k) for name in ("mixup", "cutmix", "puzzlemix") for k in (1, 5))),
    metric="last",
    takes=dict.fromkeys(EPOCHS, "by the size of the folder"),
)
