"""ImageNet with ResNet-50 in 100 epochs of three phases: Tables III, IV, V, VI and VIII, Fig. 5.

    torchrun --nproc-per-node 4 -m multimix.lab.cli train imagenet --method puzzlemix --k 5 --seeds 0 1 2

paper: images with a short side of 160 and crops of 128 for 15 epochs (batch 1,024), then 352 and 224 (batch 448); no Nesterov,
no decay of batch norm, blocks that start as their shortcuts, cross-entropy, 16-bit floats; the last epoch counts. This is the
fast protocol of the PuzzleMix and Co-Mixup code. The paper calls 160 and 352 the sizes of images (the network sees 128 and 224),
and lets the rate fall tenfold at epochs 65 and 90; with ``--follow code`` it reaches those values there by straight lines and
goes on to 0.00002, and Puzzle Mix has the clean loss with weight 1 in the first two phases, which the paper's loss has not. The
side of cutout, 112, is not verified. Hardware: several GPUs (days; not measured here). Expected: Table III.

small needs training images, which were not at hand: nothing was run or tuned. It has 10 images of every class, half the sides, a
fifth of the epochs, and a sixteenth of batches and rates. A folder with fewer classes makes it shorter, and more of a study. The
times follow from those of single updates, without reading files. smoke shows that everything runs, with the photos of
Tiny-ImageNet in place of ImageNet's.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...methods import NoMix
from .base import METHODS, REDUCED, Follow, Recipe, Scale
from .cifar100 import INPUT_TOO
from .settings import Augmentation, Data, Knots, Network, Optimizer, Phase, Running, Settings

EPOCHS, SMALL_EPOCHS, SMOKE_EPOCHS = 100, 20, 3
SMALLER = 16  # times smaller batches than the protocol's, and with them the rates
FIRST_PHASES = ((0, 0.5), (8, 1.0), (15, 0.125), (15, 0.2), (40, 0.02))
SCHEDULES: Mapping[Follow, Knots] = {
    "text": Knots((*FIRST_PHASES, (65, 0.02), (65, 0.002), (90, 0.002), (90, 0.0002))),
    "code": Knots((*FIRST_PHASES, (65, 0.002), (90, 0.0002), (100, 0.00002))),
}

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mixup": {"alpha": 0.2},
    "attentivemix": {"beta": 8.0},
    "manifoldmix": {"alpha": 0.2},
    "comixup": {"alpha": 1.0, "part": 16, "sweeps": 3, "stride": 8, "clean_weight": 1.0},
    "cutout": {"length": 112},
    "cutmix": {"alpha": 1.0},
    "fmix": {"alpha": 1.0, "decay": 3.0},
    "puzzlemix": {"alpha": 1.0, "beta": 1.5, "neighborhood": 2},
    "recursivemix": {"features": "stage4", "head": "head", "omega": 0.5},
    "sage": {"stay": False},
}


def settings(follow: Follow, scale: Scale) -> Settings:
    """The protocol; its third phase has the sizes of the second, but no clean loss."""
    schedule = SCHEDULES[follow]
    if scale == "paper":
        return _settings(
            schedule,
            (Phase(0, 1024, 128, 0.08, 160), Phase(15, 448, 224, 0.087, 352), Phase(40, 448, 224, 0.087, 352, clean_weight=0.0)),
            evaluate=(256, 224),
        )
    smaller = Knots(tuple((epoch, rate / SMALLER) for epoch, rate in schedule.points))
    if scale == "small":
        phases = (Phase(0, 64, 64, 0.08, 80), Phase(3, 28, 112, 0.087, 176), Phase(8, 28, 112, 0.087, 176, clean_weight=0.0))
        return replace(
            _settings(schedule, phases, evaluate=(128, 112)),
            data=Data("imagenet", report="validation", per_class=10, report_per_class=5),
            network=Network("resnet50_small", ("zero_init=True",)),
            schedule=smaller.squeezed(SMALL_EPOCHS / EPOCHS),
            epochs=SMALL_EPOCHS,
            mixed_precision="no",
            running=replace(REDUCED, workers=2),
        )
    phases = (Phase(0, 40, 32, 0.08, 40), Phase(1, 28, 48, 0.087, 64), Phase(2, 28, 48, 0.087, 64, clean_weight=0.0))
    return replace(
        _settings(schedule, phases, evaluate=(104, 96)),
        data=Data("tiny_imagenet", report="validation", per_class=1, report_per_class=1),
        network=Network("resnet50_small", ("zero_init=True",)),
        schedule=smaller.squeezed(SMOKE_EPOCHS / EPOCHS),
        epochs=SMOKE_EPOCHS,
        mixed_precision="no",
        running=replace(REDUCED, workers=2),
        evaluate_every=SMOKE_EPOCHS,
    )


def _settings(schedule: Knots, phases: tuple[Phase, ...], evaluate: tuple[int, int]) -> Settings:
    resize, crop = evaluate
    return Settings(
        data=Data("imagenet", report="validation"),
        network=Network("resnet50", ("zero_init=True",)),
        method=NoMix(),
        schedule=schedule,
        epochs=EPOCHS,
        batch=phases[0].batch,
        augment=Augmentation(
            flip=True, size=phases[0].size, smallest_crop=phases[0].smallest_crop, evaluate_resize=resize, evaluate_crop=crop
        ),
        optimizer=Optimizer(nesterov=False, norm_decay=False),
        phases=phases,
        mixed_precision="fp16",
        running=Running(workers=8),
    )


def recipes(follow: Follow) -> tuple[Recipe, ...]:
    """The one recipe."""
    own = {"puzzlemix": {**OPTIONS["puzzlemix"], "clean_weight": 1.0}, "manifoldmix": {"alpha": 0.2, "layers": INPUT_TOO}}
    return (
        Recipe(
            name="imagenet",
            title="ImageNet, ResNet-50",
            about="Top-1 error of the methods after 100 epochs in three phases of growing images.",
            settings=partial(settings, follow),
            rows=METHODS,
            options={**OPTIONS, **own} if follow == "code" else OPTIONS,
            metric="last",
            takes={
                "paper": "days on several GPUs, not measured here",
                "small": "half an hour without mixing, 3 hours at K = 5",
                "smoke": "a minute",
            },
        ),
    )
