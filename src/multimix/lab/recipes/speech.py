"""Google Speech Commands with VGG-11: test error at the epoch with the least validation error.

    multimix train speech --method puzzlemix --k 5 --seeds 0 1 2
    multimix train speech --method puzzlemix --k 5 --scale small

PLACE
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...methods import NoMix
from ..training.schedule import Milestones
from ..training.settings import Data, Network, Settings
from .base import Recipe, Row, Scale
from .cifar100 import MIX_LAYERS

EPOCHS, SMALL_EPOCHS, SMOKE_EPOCHS = 30, 24, 2
SCHEDULE = Milestones(0.003, (10, 20))

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mixup": {"alpha": 0.2},
    "manifoldmix": {"alpha": 0.2, "layers": MIX_LAYERS},
    "cutout": {"length": 40},
    "cutmix": {"alpha": 1.0},
    "fmix": {"alpha": 1.0, "decay": 3.0},
    # Spectrograms have no bounds, so a weight of the energy may come out negative; it is raised to 0 (2 in 10,000 on 16×16 blocks).
    "puzzlemix": {"alpha": 1.0, "out_of_range": "clamp"},
}


def settings(scale: Scale) -> Settings:
    """The protocol; the test error of the epoch with the least validation error is reported."""
    paper = Settings(
        data=Data("speech_commands_v1", report="test", select="validation"),
        network=Network("vgg11"),
        method=NoMix(),
        schedule=SCHEDULE,
        epochs=EPOCHS,
        batch=100,
    )
    if scale == "paper":
        return paper
    reduced = replace(paper, network=Network("vgg11_small"))
    schedule = replace(SCHEDULE, rate=0.03)
    if scale == "small":
        return replace(
            reduced,
            data=replace(paper.data, per_class=200, report_per_class=50),
            schedule=schedule.squeezed(SMALL_EPOCHS / EPOCHS),
            epochs=SMALL_EPOCHS,
            batch=50,
        )
    return replace(
        reduced,
        data=replace(paper.data, per_class=4, report_per_class=2),
        schedule=schedule.squeezed(SMOKE_EPOCHS / EPOCHS),
        epochs=SMOKE_EPOCHS,
        batch=8,
    )


RECIPE = Recipe(
    name="speech",
    title="Speech Commands, VGG-11",
    about="Test error of the methods on spectrograms, at the epoch with the least validation error.",
    settings=settings,
    # The paper has these numbers in a figure that could not be read; none is invented here.
    rows=(
        Row("none"),
        Row("mixup"),
        Row("manifoldmix"),
        Row("cutout"),
        Row("cutmix"),
        Row("fmix"),
        Row("puzzlemix"),
        Row("smoothing"),
        Row("puzzlemix", 5),
    ),
    options=OPTIONS,
    metric="selected",
)
