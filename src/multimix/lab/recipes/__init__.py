"""The paper's trainings as recipes: typed, frozen, at three scales.

``paper`` is the protocol. ``small`` is a real but reduced study for two CPU cores: fewer samples, a small sibling of the
network, a short schedule. ``smoke`` takes seconds and shows that everything runs. Numbers of the last two do not compare with
the paper's.
"""

from collections.abc import Mapping

from ...core.checks import nearest
from . import cifar100, digits, folder, imagenet, points, speech, superclasses, tiny_imagenet
from .base import SCALES, Follow, Recipe, Row, Scale

__all__ = ["RECIPES", "SCALES", "Follow", "Recipe", "Row", "Scale", "recipe"]


def _recipes(follow: Follow) -> dict[str, Recipe]:
    own = (*cifar100.recipes(follow), *tiny_imagenet.recipes(follow), *imagenet.recipes(follow))
    others = (speech.RECIPE, points.RECIPE, digits.RECIPE, superclasses.RECIPE, folder.RECIPE)
    return {entry.name: entry for entry in (*own, *others)}


RECIPES: Mapping[str, Recipe] = _recipes("text")
FOLLOWING_CODE: Mapping[str, Recipe] = _recipes("code")


def recipe(name: str, follow: Follow = "text") -> Recipe:
    """The recipe called ``name``; where the paper's text and its authors' code differ, ``follow`` chooses.

    >>> recipe("speech").metric
    'selected'
    """
    if name not in RECIPES:
        begins = [known for known in RECIPES if known.startswith(name)]
        meant = f" (did you mean {' or '.join(begins)}?)" if len(begins) > 1 else nearest(name, RECIPES)
        raise ValueError(f"no recipe {name!r}{meant}; there are {', '.join(RECIPES)}")
    return (FOLLOWING_CODE if follow == "code" else RECIPES)[name]
