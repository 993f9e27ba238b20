"""Rows of made-up results, in the layout that a finished training appends."""

import json
from dataclasses import asdict, replace

from multimix import NoMix
from multimix.lab.recipes.base import Recipe, Row, arm_settings
from multimix.lab.recipes.serialise import describe
from multimix.lab.recipes.settings import Augmentation, Data, Milestones, Network, Settings
from multimix.lab.training.log import Epoch, outcome

BASE = Settings(
    Data("cifar100"),
    Network("preact_resnet18"),
    NoMix(),
    Milestones(0.2, (100.0,)),
    epochs=3,
    batch=100,
    augment=Augmentation(flip=True),
)
ROWS = (("none", 1, 23.53), ("mixup", 1, 22.49), ("mixup", 5), ("puzzlemix", 5, 19.19))
PAPER = {}  # what a made-up paper reports, by recipe, arm and K; tests/lab/report/conftest.py shows it to the tests
ENVIRONMENT = {"commit": "abc1234", "torch": "2.13.0", "threads": "2"}


def made_up_recipe(rows=ROWS, name="made_up", **options):
    """Rows are arm, K and, if the paper has one, its number."""
    PAPER.update({(name, arm, k): number for arm, k, *numbers in rows for number in numbers})
    return Recipe(name, "A made-up table", "", lambda scale: BASE, tuple(Row(arm, k) for arm, k, *_ in rows), **options)


def epochs_of(errors, seconds=2.0, norms=None, selection=None):
    """One epoch per error, None where it was not evaluated."""
    norms = norms or [1.0 / (i + 1) for i in range(len(errors))]
    selection = selection or [None] * len(errors)
    return [
        Epoch(i + 1, 10 * (i + 1), 0.2, 4.0 - i, 50.0, norms[i], 1000, 5000, seconds, seconds, error, selection_error=chosen)
        for i, (error, chosen) in enumerate(zip(errors, selection, strict=True))
    ]


def result_row(recipe, arm="none", k=1, seed=0, errors=(60.0, 40.0, 30.0), *, scale="paper", changes=None, general=None, **more):
    """``changes`` are fields of the finished settings, ``general`` those before the arm, as --field on the command line."""
    known = {"seconds", "norms", "selection"}
    history = epochs_of(errors, **{name: value for name, value in more.items() if name in known})
    settings = arm_settings(recipe, replace(recipe.settings(scale), **(general or {})), arm, k)
    settings = replace(settings, **(changes or {}))
    row = {
        "recipe": recipe.name,
        "scale": scale,
        "arm": arm,
        "k": k,
        "seed": seed,
        "digest": settings.digest(),
        "settings": describe(settings),
        "outcome": asdict(outcome(history)),
        "epochs": [asdict(epoch) for epoch in history],
        "device": "cpu",
        "processes": 1,
        "skipped": 0,
        "environment": ENVIRONMENT,
    }
    return json.loads(json.dumps(row | {name: value for name, value in more.items() if name not in known}))
