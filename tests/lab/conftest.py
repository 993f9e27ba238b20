"""Two small trainings on the digits with their results, for all rooms of the lab."""

import os
from pathlib import Path

import pytest

# Child processes find ``trial`` by its name, too: the networks of these tests are given by import path.
TESTS = str(Path(__file__).parents[1])
before = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([TESTS, *before]))


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """none and mixup K = 3, seeds 0 and 1; nobody may change it."""
    from multimix.lab.recipes.runs import planned
    from multimix.lab.training.run import train
    from trial import RECIPE

    folder = tmp_path_factory.mktemp("results")
    for method in ("none", "mixup"):
        runs = planned(RECIPE, scale="smoke", method=method, k=3, seeds=(0, 1))
        train(runs, data=".", out=folder, note=lambda sentence: None)
    return folder
