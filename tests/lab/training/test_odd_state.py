"""Checkpoints whose checksums are right and whose content is odd: told in one sentence, set aside, and nothing is lost."""

import json
import shutil

import pytest
import torch

from multimix.lab.data import Images, Splits
from multimix.lab.storage import read_rows
from multimix.lab.training import run as module
from multimix.lab.training.checkpoint import Checkpoint, _write, checkpoints, flatten, load_run, read_checkpoint, unflatten
from multimix.lab.training.run import RESULTS, planned, train
from multimix.lab.training.state import SUMS
from trial import RECIPE, splits

PLAN = {"scale": "smoke", "method": "mixup", "k": 2, "changes": {"epochs": "2", "running.checkpoint_updates": "1"}}
NESTED = json.loads("[" * 500 + "]" * 500)


def at(**changes):
    return lambda tensors, values: (tensors, {**values, "at": {**values["at"], **changes}})


def value(name, new):
    return lambda tensors, values: (tensors, {**values, name: new})


def without(name):
    return lambda tensors, values: (tensors, {key: inner for key, inner in values.items() if key != name})


def weights(new, part="network/", end="weight"):
    def changed(tensors, values):
        name = next(key for key in tensors if key.startswith(part) and key.endswith(end))
        return {**tensors, name: torch.full_like(tensors[name], new)}, values

    return changed


def cast(dtype, part="network/", end="weight"):
    def changed(tensors, values):
        name = next(key for key in tensors if key.startswith(part) and key.endswith(end))
        return {**tensors, name: tensors[name].to(dtype)}, values

    return changed


def shrunk(tensors, values):
    """A momentum of one number, which would be taken for all weights of its layer."""
    name = next(key for key in tensors if key.startswith("optimizer/") and tensors[key].ndim > 1)
    return {**tensors, name: torch.zeros(1)}, values


def optimizer(change):
    """``change`` is made to what :func:`unflatten` gives."""

    def changed(tensors, values):
        state = unflatten(Checkpoint(tensors, values), "optimizer")
        change(state)
        again = flatten({"optimizer": state}, {})
        others = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer/")}
        return {**others, **again.tensors}, {**values, **again.values}

    return changed


ODD = {
    "no network": (without("network"), "its network is missing"),
    "no optimiser": (without("optimizer"), "its optimizer is missing"),
    "no place": (without("at"), "its at must be a dict"),
    "no samples": (without("samples"), "its samples must be a str"),
    "a word for a network": (value("network", "word"), "its network is odd"),
    "a list for a network": (value("network", {"list": []}), "its network is odd"),
    "a network of tensors that are not there": (value("network", {"items": [["a", {"tensor": "b"}]]}), "its network is odd"),
    "a network with keys that are none": (value("network", {"items": [[[], {"value": 1}]]}), "its network is odd"),
    "lists deep inside lists": (value("network", {"list": [{"list": NESTED}]}), "its network is odd"),
    "an epoch before the first": (at(epoch=-1), "it is in epoch -1"),
    "a step before the first": (at(step=-1), "its sums are odd"),
    "an epoch beyond the last": (at(epoch=99), "it is in epoch 99"),
    "a step beyond the epoch": (at(step=999, sums=dict.fromkeys(SUMS, 1.0)), "where this training never is"),
    "another number of updates": (at(updates=3), "where this training never is"),
    "a word for a number": (at(epoch="1"), "its epoch must be a int"),
    "sums that are words": (at(step=1, sums={"loss": "a"}), "its sums are odd"),
    "a history of words": (at(history=["a"]), "its history is odd"),
    "a state of the method that is a number": (value("method_states", {"value": 3}), "'method_states' is malformed"),
    "NaN": (weights(float("nan")), "hold NaN"),
    "infinity": (weights(-float("inf")), "hold infinity"),
    "an optimiser with NaN": (weights(float("nan"), "optimizer/", "momentum_buffer"), "momentum_buffer holds NaN"),
    "complex weights": (cast(torch.complex64), "weight is complex64, the network's float32"),
    "weights of another precision": (cast(torch.float64), "weight is float64, the network's float32"),
    "statistics of another type": (cast(torch.int32, end="running_mean"), "running_mean is int32, the network's float32"),
    "a complex momentum": (cast(torch.complex64, "optimizer/", "momentum_buffer"), "is not like its weight, float32 ["),
    "a momentum of another shape": (shrunk, "is not like its weight, float32 ["),
    "a momentum that is a word": (optimizer(lambda state: state["state"][0].update(momentum_buffer="a")), "is not like its"),
    "a momentum of no weight": (optimizer(lambda state: state["state"].update({99: {}})), "state/99/momentum_buffer is odd"),
    "momenta in a list": (optimizer(lambda state: state.update(state=[])), "its optimizer is odd"),
    "no groups": (optimizer(lambda state: state.clear()), "its optimizer is odd"),
    "one group more": (optimizer(lambda state: state["param_groups"].append({})), "its optimizer is odd"),
    "a group that is a word": (optimizer(lambda state: state.update(param_groups=["a"])), "its optimizer has an odd momentum"),
    "another momentum factor": (
        optimizer(lambda state: state["param_groups"][0].update(momentum=0.1)),
        "its optimizer has an odd momentum",
    ),
    "another decay": (
        optimizer(lambda state: state["param_groups"][0].update(weight_decay=torch.ones(2))),
        "its optimizer has an odd weight_decay",
    ),
    "weights in another order": (
        optimizer(lambda state: state["param_groups"][0]["params"].reverse()),
        "its optimizer has an odd params",
    ),
    "a rate that is a word": (
        optimizer(lambda state: state["param_groups"][0].update(lr="a")),
        "its lr must be a float, it is str",
    ),
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


@pytest.mark.parametrize("name", ODD)
def test_it_is_named_and_the_one_before_serves(whole, begun, name):
    (out, run), heard = begun, []
    change, sentence = ODD[name]
    path = checkpoints(out / run.folder)[-1]
    _write(path, Checkpoint(*change(*read_checkpoint(path))))
    train([run], data=".", out=out, note=heard.append)
    assert heard[0].startswith(f"{path} is damaged: ")
    assert sentence in heard[0]
    assert heard[0].endswith(f"; set aside as {path.name}.damaged")
    (row,), (expected,) = read_rows(out / RESULTS), read_rows(whole[0] / RESULTS)
    assert row["weights"] == expected["weights"], "the update before the last is done again, and ends with the same bits"


def test_values_deep_inside_each_other_are_one_sentence(begun):
    (out, run), heard = begun, []
    path = checkpoints(out / run.folder)[-1]
    words, deep = json.dumps(read_checkpoint(path).values), "[" * 100_000 + "]" * 100_000
    _write_words(path, words[:-1] + f', "deep": {deep}' + "}")
    train([run], data=".", out=out, note=heard.append)
    assert heard[0].startswith(f"{path} is damaged: it is no checkpoint (ValueError); set aside")


def _write_words(path, words):
    class Words(dict):
        """What json would not write: too deep for it."""

    values = Words()
    with pytest.MonkeyPatch.context() as patch:
        plain = json.dumps
        patch.setattr(json, "dumps", lambda content, **how: words if content is values else plain(content, **how))
        _write(path, Checkpoint(read_checkpoint(path).tensors, values))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no network", "its network is missing"),
        ("NaN", "hold NaN"),
        ("a word for a network", "odd"),
        ("complex weights", "is complex64"),
    ],
)
def test_a_network_is_not_made_of_it(begun, name, sentence):
    out, run = begun
    path = checkpoints(out / run.folder)[-1]
    _write(path, Checkpoint(*ODD[name][0](*read_checkpoint(path))))
    with pytest.raises(ValueError, match=f"^the weights in .* do not fit the network trial:DropNet: .*{sentence}"):
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


def test_a_network_that_does_not_fit_is_one_sentence_and_stays(begun):
    """Its code may have changed since: whoever made it decides what becomes of the run."""
    out, run = begun
    for path in checkpoints(out / run.folder):
        tensors, values = read_checkpoint(path)
        name = next(key for key in tensors if key.startswith("network/") and tensors[key].ndim > 1)
        _write(path, Checkpoint({**tensors, name: torch.zeros(1)}, values))
    with pytest.raises(ValueError, match=r"^the state in the checkpoint does not fit this training: .*size mismatch for"):
        train([run], data=".", out=out, note=lambda sentence: None)
    assert len(checkpoints(out / run.folder)) == 2
