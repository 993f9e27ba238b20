"""The squared norm of the gradient, epoch by epoch, with 1 to 9 interpolations.

PLACE
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

RECIPE = Recipe(
    name="gradient_norm",
    title="Gradient norm, CIFAR-100, PreActResNet18",
    about="Mean squared norm of the gradient in every epoch, Puzzle Mix with K = 1, 3, 5, 7, 9; the table has the last epoch.",
    settings=partial(settings, "preact_resnet18"),
    rows=tuple(Row("puzzlemix", k) for k in (1, 3, 5, 7, 9)),
    options=OPTIONS,
    metric="squared_grad_norm",
)
