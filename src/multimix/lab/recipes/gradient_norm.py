"""The squared norm of the gradient, epoch by epoch, with 1 to 9 interpolations.

    multimix train gradient_norm --seeds 0 1 2
    multimix train gradient_norm --seeds 0 1 2 --scale small

Everything but what is reported is as in ``effect_of_k.py``. The norm is that of the gradient of all parameters, without weight
decay, before the update, squared and averaged over the updates of an epoch; the paper does not say whether decay counts.
Hardware: one GPU (hours; not measured here), or at small scale one CPU core. The paper's values are not known here; theory says
they fall with K.
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import options, settings

RECIPE = Recipe(
    name="gradient_norm",
    title="Gradient norm, CIFAR-100, PreActResNet18",
    about="Mean squared norm of the gradient in every epoch, Puzzle Mix with K = 1, 3, 5, 7, 9; the table has the last epoch.",
    settings=partial(settings, "preact_resnet18"),
    rows=tuple(Row("puzzlemix", k) for k in (1, 3, 5, 7, 9)),
    options=options("preact_resnet18"),
    metric="squared_grad_norm",
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "2.5 minutes at K = 1, 7 at K = 5, about 11 at K = 9",
        "smoke": "seconds",
    },
)
