"""The effect of K: test error of Puzzle Mix with 1 to 9 interpolations.

PLACE
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

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
    options=OPTIONS,
)
