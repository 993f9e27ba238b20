"""What all CIFAR-100 recipes share: the protocol at three scales and the options of the methods.

paper: 300 epochs of SGD at 0.2, a tenth of it from epochs 100 and 200 on, batch 100, momentum 0.9 with Nesterov, decay 0.0001, flip
and a crop after padding by 2, softmax and binary cross-entropy. The paper gives epochs, rates and batch; the rest is what the code
of Puzzle Mix and Co-Mixup does, whose set-up it follows. They differ in this: the text speaks of cross-entropy, and that code trains
with binary cross-entropy of the softmax, whose gradient is about 1/100 of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...methods import NoMix
from ..training.schedule import Milestones
from ..training.settings import Augmentation, Data, Network, Settings
from .base import Scale

# Co-mixup is in the paper's tables too, but not yet a registered method: no recipe has its row.

MIX_LAYERS = (None, "stage1", "stage2")

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mixup": {"alpha": 1.0},
    "manifoldmix": {"alpha": 2.0, "layers": MIX_LAYERS},
    "cutout": {"length": 8},
    "cutmix": {"alpha": 1.0},
    "fmix": {"alpha": 1.0, "decay": 3.0},
    "puzzlemix": {"alpha": 1.0, "transport_size": 4},
}

EPOCHS, SMALL_EPOCHS, SMOKE_EPOCHS = 300, 10, 2
SCHEDULE = Milestones(0.2, (100, 200))


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
    )
    if scale == "paper":
        return paper
    reduced = replace(paper, network=Network(f"{network}_small"), loss="cross_entropy")
    schedule = replace(SCHEDULE, rate=0.05)
    if scale == "small":
        return replace(
            reduced,
            data=Data("cifar100", per_class=100),
            schedule=schedule.squeezed(SMALL_EPOCHS / EPOCHS),
            epochs=SMALL_EPOCHS,
            batch=50,
        )
    return replace(
        reduced,
        data=Data("cifar100", per_class=2, report_per_class=1),
        schedule=schedule.squeezed(SMOKE_EPOCHS / EPOCHS),
        epochs=SMOKE_EPOCHS,
        batch=20,
    )
