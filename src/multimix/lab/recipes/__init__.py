"""One file per table or figure of the paper: typed, frozen, with the paper's numbers in it, at three scales.

``paper`` is the protocol. ``small`` is a real but reduced study for two CPU cores: fewer samples, a small sibling of the
network, a short schedule. ``smoke`` takes seconds and shows that everything runs. Numbers of the last two do not compare with
the paper's.
"""

from collections.abc import Mapping

from ...checks import nearest
from . import (
    batch_strategies,
    cifar100_preact_resnet18,
    cifar100_resnext29_4_24,
    cifar100_wrn16_8,
    digits_smallnet,
    effect_of_k,
    gradient_norm,
    imagenet,
    shapes_pointnet,
    speech,
    tiny_imagenet,
    training_time,
)
from .base import SCALES, Recipe, Row, Scale

__all__ = ["RECIPES", "SCALES", "Recipe", "Row", "Scale", "recipe"]

RECIPES: Mapping[str, Recipe] = {
    entry.name: entry
    for entry in (
        cifar100_preact_resnet18.RECIPE,
        cifar100_wrn16_8.RECIPE,
        cifar100_resnext29_4_24.RECIPE,
        tiny_imagenet.RECIPE,
        imagenet.RECIPE,
        speech.RECIPE,
        batch_strategies.RECIPE,
        effect_of_k.RECIPE,
        training_time.RECIPE,
        gradient_norm.RECIPE,
        shapes_pointnet.RECIPE,
        digits_smallnet.RECIPE,
    )
}


def recipe(name: str) -> Recipe:
    """The recipe called ``name``, as its file is.

    >>> recipe("speech").metric
    'selected'
    """
    if name not in RECIPES:
        begins = [known for known in RECIPES if known.startswith(name)]
        meant = f" (did you mean {' or '.join(begins)}?)" if len(begins) > 1 else nearest(name, RECIPES)
        raise ValueError(f"no recipe {name!r}{meant}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
