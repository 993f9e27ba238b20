"""Synthetic bodies with a small PointNet: methods on clouds of points, where SageMix can be trained. It is not in the paper.

    multimix sweep points --scale small --methods none sagemix --ks 1 5 --seeds 0 1 2 3 4
    multimix train points --scale small --method sagemix --k 5

There is no protocol to follow and no number to compare with. ``paper`` is only the largest scale here: all 500 bodies of the
training part. SGD as in all recipes, 200 epochs at 0.03, a tenth of it from epochs 100 and 150 on, batch 20; the mixing of the
hidden layer is after the maximum over all points, and σ of SageMix is that published for PointNet.

small: 20 bodies of every kind. Rate and epochs were chosen without mixing, with seed 1000 alone: error 20.4 %. 100 epochs had
36 % at 0.02, 37 % at 0.05, learnt nothing at 0.1 and diverged at 0.2; 200 or 300 epochs at 0.02 to 0.05 after a warm-up had 19.3
to 21.2 %. On one CPU core; results: docs/training.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...methods import NoMix
from .base import REDUCED, Recipe, Row, Scale
from .settings import Data, Milestones, Network, Settings

EPOCHS, SMOKE_EPOCHS = 200, 8
SCHEDULE = Milestones(0.03, (100, 150))

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mixup": {"alpha": 1.0},
    # After the maximum over all points: before it, numbers of the same index in two clouds have nothing to do with each other.
    "manifoldmix": {"alpha": 2.0, "layers": ("head.0",)},
    "sagemix": {"sigma": 2.0},
}


def settings(scale: Scale) -> Settings:
    """The same network at all scales; clouds are not augmented."""
    whole = Settings(
        data=Data("shapes"),
        network=Network("pointnet"),
        method=NoMix(),
        schedule=SCHEDULE,
        epochs=EPOCHS,
        batch=20,
        evaluate_every=10,
        running=REDUCED,
    )
    if scale == "paper":
        return whole
    if scale == "small":
        return replace(whole, data=replace(whole.data, per_class=20))
    return replace(
        whole,
        data=replace(whole.data, per_class=10),
        schedule=SCHEDULE.squeezed(SMOKE_EPOCHS / EPOCHS),
        epochs=SMOKE_EPOCHS,
        batch=10,
        evaluate_every=4,
    )


RECIPE = Recipe(
    name="points",
    title="Synthetic bodies, PointNet (not in the paper)",
    about="Test error on clouds of points; no table of the paper.",
    settings=settings,
    rows=(Row("none"), Row("mixup"), Row("manifoldmix"), Row("sagemix"), Row("smoothing"), Row("sagemix", 5)),
    options=OPTIONS,
    in_process=True,
    metric="last",
    takes={
        "paper": "half a minute without mixing, 2 minutes at K = 5",
        "small": "15 seconds without mixing, 40 at K = 5",
        "smoke": "seconds",
    },
)
