"""The real data, where they are: set MULTIMIX_DATA to their folder."""

import pytest

from multimix.lab.recipes import recipe
from multimix.lab.recipes.base import arm_names
from multimix.lab.recipes.runs import planned
from multimix.lab.storage import read_rows
from multimix.lab.training.run import train
from real_data import real_folder

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("arm", arm_names("images"))
def test_cifar100_smoke_trains_with_every_method(arm, tmp_path):
    runs = planned(recipe("cifar100_preact_resnet18"), scale="smoke", method=arm, k=2, changes={"running.device": "cpu"})
    (found,) = train(runs, data=real_folder("cifar100"), out=tmp_path, note=lambda sentence: None)
    (row,) = read_rows(tmp_path / "results.jsonl")
    assert row["arm"] == arm
    assert 0 <= found.last <= 100
    assert all(epoch["loss"] > 0 for epoch in row["epochs"])
    assert row["scale"] == "smoke"


@pytest.mark.parametrize(("name", "data"), [("tiny_imagenet", "tiny_imagenet"), ("speech", "speech_commands_v1")])
def test_other_sets_smoke(name, data, tmp_path):
    runs = planned(recipe(name), scale="smoke", method="puzzlemix", k=2, changes={"running.device": "cpu"})
    (found,) = train(runs, data=real_folder(data), out=tmp_path, note=lambda sentence: None)
    assert found is not None
    assert (found.selected is not None) == (name == "speech")


def test_speech_is_learnt(tmp_path):
    """A part of the small recipe: three epochs on half of the clips, far below the 90 % of chance among 10 words."""
    changes = {"running.device": "cpu", "data.per_class": "100", "data.report_per_class": "20", "epochs": "3"}
    runs = planned(recipe("speech"), scale="small", method="none", changes={**changes, "schedule.at": "2"})
    (found,) = train(runs, data=real_folder("speech_commands_v1"), out=tmp_path, note=lambda sentence: None)
    assert found.last < 70
