"""Settings come back from their description, through JSON, with the same digest."""

import json
from dataclasses import replace

import pytest

from multimix.lab.recipes import RECIPES, SCALES
from multimix.lab.recipes.arms import arm_names, arm_settings
from multimix.lab.recipes.rebuilt import rebuilt
from multimix.lab.recipes.settings import described


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_and_arm(name, scale):
    recipe = RECIPES[name]
    arms = arm_names(recipe.settings(scale).data.entry().layout)
    if name in ("speech", "digits_smallnet"):  # whose images are not augmented
        arms = [arm for arm in arms if not arm.startswith("batch_augmentation")]
    for arm in arms:
        settings = arm_settings(recipe, recipe.settings(scale), arm, 3)
        again = rebuilt(json.loads(json.dumps(described(settings))))
        assert again == settings
        assert again.digest() == settings.digest()


def test_older_and_newer_descriptions():
    settings = RECIPES["imagenet"].settings("paper")
    given = described(settings)
    del given["compile"]
    assert rebuilt(given) == replace(settings, compile=False)
    with pytest.raises(ValueError, match=r"has the setting phases\.1\.colour, which this version does not have"):
        rebuilt({**given, "phases.1.colour": 3})
    with pytest.raises(ValueError, match="made with method 'hypermix', which this version does not have"):
        rebuilt({**given, "method": "hypermix"})
