"""Two small trainings on the digits, and their results."""

import pytest

from multimix.lab.training.run import planned, train
from trial import RECIPE


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """none and mixup K = 3, seeds 0 and 1; nobody may change it."""
    folder = tmp_path_factory.mktemp("results")
    for method in ("none", "mixup"):
        runs = planned(RECIPE, scale="smoke", method=method, k=3, seeds=(0, 1))
        train(runs, data=".", out=folder, note=lambda sentence: None)
    return folder
