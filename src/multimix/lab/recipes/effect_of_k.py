"""The effect of K: test error of Puzzle Mix with 1 to 9 interpolations.

    multimix train effect_of_k --seeds 0 1 2
    multimix train effect_of_k --seeds 0 1 2 --scale small

Everything but K is as in ``cifar100_preact_resnet18.py``, and so is where the paper and the reference code differ:
``cifar100.py``. Hardware: one GPU (hours; not measured here), or at small scale one CPU core. Expected at paper scale: the
errors in the rows below, means over 3 seeds; the other values of the figure are not known here.
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import options, settings

RECIPE = Recipe(
    name="effect_of_k",
    title="Effect of K, CIFAR-100, PreActResNet18",
    about="Test error of Puzzle Mix with K = 1, 3, 5, 7, 9 interpolations.",
    settings=partial(settings, "preact_resnet18"),
    # The figure's own values are not known here; at 1 and 5 they are those of the table.
    rows=(
        Row("puzzlemix", 1, paper=20.61),
        Row("puzzlemix", 3),
        Row("puzzlemix", 5, paper=19.19),
        Row("puzzlemix", 7),
        Row("puzzlemix", 9),
    ),
    options=options("preact_resnet18"),
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "2.5 minutes at K = 1, 7 at K = 5, about 11 at K = 9",
        "smoke": "seconds",
    },
)
