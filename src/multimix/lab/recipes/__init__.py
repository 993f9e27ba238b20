"""The tables and figures of the paper as recipes: typed, frozen, with the paper's numbers in them, at three scales.

``paper`` is the protocol. ``small`` is a real but reduced study for two CPU cores: fewer samples, a small sibling of the
network, a short schedule. ``smoke`` takes seconds and shows that everything runs. Numbers of the last two do not compare with
the paper's.
"""

from collections.abc import Mapping

from ...checks import nearest
from . import (
    batch_strategies,
    cifar100,
    digits_smallnet,
    effect_of_k,
    imagenet,
    shapes_pointnet,
    speech,
    superclasses,
    tiny_imagenet,
)
from .base import SCALES, Recipe, Row, Scale

__all__ = ["RECIPES", "SCALES", "Recipe", "Row", "Scale", "recipe"]

RECIPES: Mapping[str, Recipe] = {
    entry.name: entry
    for entry in (
        *cifar100.RECIPES,
        tiny_imagenet.RECIPE,
        imagenet.RECIPE,
        speech.RECIPE,
        batch_strategies.RECIPE,
        *effect_of_k.RECIPES,
        shapes_pointnet.RECIPE,
        digits_smallnet.RECIPE,
        superclasses.RECIPE,
    )
}


def recipe(name: str) -> Recipe:
    """The recipe called ``name``.

    >>> recipe("speech").metric
    'selected'
    """
    if name not in RECIPES:
        begins = [known for known in RECIPES if known.startswith(name)]
        meant = f" (did you mean {' or '.join(begins)}?)" if len(begins) > 1 else nearest(name, RECIPES)
        raise ValueError(f"no recipe {name!r}{meant}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
