"""Checkpoints that are not damaged on disk but do not fit the training: set aside, and the one before serves."""

import shutil

import pytest
import torch

from multimix.lab.data import Images, Splits
from multimix.lab.recipes.runs import RESULTS, planned
from multimix.lab.storage import read_rows
from multimix.lab.training import run as module
from multimix.lab.training.checkpoint import Checkpoint, _write, checkpoints, load_run, read_checkpoint
from multimix.lab.training.run import train
from trial import RECIPE, splits

PLAN = {"scale": "smoke", "method": "mixup", "k": 2, "changes": {"epochs": "2", "running.checkpoint_updates": "1"}}


def without(name):
    return lambda tensors, values: (tensors, {key: inner for key, inner in values.items() if key != name})


def shrunk(part):
    """One number in place of the first matrix of ``part``, which torch would take for all weights of a layer."""

    def changed(tensors, values):
        name = next(key for key in tensors if key.startswith(part) and tensors[key].ndim > 1)
        return {**tensors, name: torch.zeros(1)}, values

    return changed


UNUSABLE = {
    "no network": (without("network"), "its network cannot be read"),
    "no position": (without("at"), "its state cannot be read"),
    "weights of another shape": (shrunk("network/"), "weight should be "),
    "a momentum of another shape": (shrunk("optimizer/"), "momentum should be "),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    (run,) = planned(RECIPE, **PLAN)
    train([run], data=".", out=out, note=lambda sentence: None)
    return out, run


@pytest.fixture
def begun(whole, tmp_path):
    """The run as it was before its row was written."""
    out, run = whole
    shutil.copytree(out, tmp_path / "runs")
    (tmp_path / "runs" / RESULTS).unlink()
    return tmp_path / "runs", run


@pytest.mark.parametrize("name", UNUSABLE)
def test_it_is_named_and_the_one_before_serves(whole, begun, name):
    (out, run), heard = begun, []
    change, sentence = UNUSABLE[name]
    path = checkpoints(out / run.folder)[-1]
    _write(path, Checkpoint(*change(*read_checkpoint(path))))
    train([run], data=".", out=out, note=heard.append)
    assert heard[0].startswith(f"{path} is damaged: ")
    assert sentence in heard[0]
    assert heard[0].endswith(f"; set aside as {path.name}.damaged")
    (row,), (expected,) = read_rows(out / RESULTS), read_rows(whole[0] / RESULTS)
    assert row["weights"] == expected["weights"], "the update before the last is done again, and ends with the same bits"


def test_a_network_is_not_made_of_it(begun):
    out, run = begun
    path = checkpoints(out / run.folder)[-1]
    _write(path, Checkpoint(*shrunk("network/")(*read_checkpoint(path))))
    with pytest.raises(ValueError, match=r"^the weights in .* do not fit the network trial:DropNet: "):
        load_run(out / run.folder)


def test_a_damaged_best_epoch_is_told_when_a_run_goes_on(begun):
    (out, run), heard = begun, []
    best = out / run.folder / "best.checkpoint"
    best.write_bytes(best.read_bytes()[:-1])
    train([run], data=".", out=out, note=heard.append)
    assert heard[0] == (
        f"{best} is damaged: its content does not have the checksum it was written with; set aside as best.checkpoint.damaged"
    )
    assert best.with_name("best.checkpoint.damaged").exists()
    assert not best.exists()


@pytest.mark.parametrize("part", ["train", "test"])
def test_pixels_that_changed_between_two_parts_of_a_run_are_told(begun, monkeypatch, part):
    out, run = begun
    parts = dict(splits().parts)
    old = parts[part]
    parts[part] = Images((old.pixels + 1) % 17 if old.pixels.dtype == torch.uint8 else old.pixels + 1, old.labels, old.classes)
    monkeypatch.setattr(module, "splits_of", lambda *given: Splits("trial", parts))
    with pytest.raises(ValueError, match="begun with other pixels than are in the data folder now; give it a folder of its own"):
        train([run], data=".", out=out, note=lambda sentence: None)
    assert len(checkpoints(out / run.folder)) == 2, "nothing is lost"
    monkeypatch.undo()
    train([run], data=".", out=out, note=lambda sentence: None)
