import errno
import math
import os
import pickle

import pytest
import torch
from torch import nn

from multimix.lab.training import checkpoint as module
from multimix.lab.training.checkpoint import (
    Checkpoint,
    checkpoints,
    flatten,
    latest_checkpoint,
    read_checkpoint,
    unflatten,
    write_checkpoint,
)


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def trained(momentum=0.9, kind=torch.optim.SGD):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = (
        torch.optim.SGD(model.parameters(), 0.1, momentum=momentum) if kind is torch.optim.SGD else kind(model.parameters())
    )
    for _ in range(3):
        model(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_model_and_optimiser_come_back_bit_for_bit(tmp_path, kind):
    model, optimizer = trained(kind=kind)
    values = {"step": 7, "loss": 0.1 + 0.2, "smallest": 5e-324, "history": [1, [2.5, None]], "name": "λ"}
    whole = flatten({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, values)
    found = read_checkpoint(write_checkpoint(tmp_path, 7, whole))
    assert {key: found.values[key] for key in values} == values
    assert same(unflatten(found, "model"), model.state_dict())
    fresh, other = trained(kind=kind)
    other.load_state_dict(unflatten(found, "optimizer"))
    fresh.load_state_dict(unflatten(found, "model"))
    for one, two in zip(optimizer.state.values(), other.state.values(), strict=True):
        assert one.keys() == two.keys()
        for key in one:
            assert torch.equal(torch.as_tensor(one[key]), torch.as_tensor(two[key]))
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_the_last_two_are_kept(tmp_path):
    for step in (1, 2, 30, 400):
        write_checkpoint(tmp_path, step, Checkpoint({"x": torch.full((2,), float(step))}, {"step": step}))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000030.checkpoint", "step-000000400.checkpoint"]
    assert latest_checkpoint(tmp_path).values == {"step": 400}
    assert len(os.listdir(tmp_path)) == 2, "nothing temporary stays"


@pytest.mark.parametrize("spoil", ["cut", "flip", "empty", "text", "head"])
def test_a_damaged_one_is_named_and_the_one_before_serves(tmp_path, spoil):
    for step in (1, 2):
        last = write_checkpoint(tmp_path, step, Checkpoint({"x": torch.arange(50.0)}, {"step": step}))
    content = bytearray(last.read_bytes())
    if spoil == "flip":
        content[-10] ^= 1
    content = {"cut": content[:-20], "flip": content, "empty": b"", "text": b"nothing\nof the kind", "head": b'{"a": 1}\n'}[spoil]
    last.write_bytes(bytes(content))
    notes = []
    assert latest_checkpoint(tmp_path, notes.append).values == {"step": 1}
    assert len(notes) == 1
    assert str(last) in notes[0]
    assert "is damaged" in notes[0]
    assert last.with_name(last.name + ".damaged").exists()
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_no_code_runs_when_a_checkpoint_is_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'pwned'}",)

    (tmp_path / "step-000000001.checkpoint").write_bytes(pickle.dumps(Evil()))
    notes = []
    assert latest_checkpoint(tmp_path, notes.append) is None
    assert not (tmp_path / "pwned").exists()
    assert "is damaged" in notes[0]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, 1, Checkpoint({"x": torch.ones(2)}, {"step": 1}))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(
        OSError, match="cannot write .*step-000000002.checkpoint': No space left on device; the checkpoints before"
    ):
        write_checkpoint(tmp_path, 2, Checkpoint({"x": torch.ones(2)}, {"step": 2}))
    assert latest_checkpoint(tmp_path).values == {"step": 1}


def test_tensors_that_share_memory_and_odd_ones(tmp_path):
    weight = torch.randn(3, 4)
    tensors = {
        "a": weight,
        "b": weight,
        "t": weight.t(),
        "scalar": torch.tensor(3),
        "bf16": weight.bfloat16(),
        "none": weight[:0],
    }
    found = read_checkpoint(write_checkpoint(tmp_path, 0, Checkpoint(tensors, {})))
    assert same(found.tensors, tensors)
    assert found.tensors["bf16"].dtype == torch.bfloat16
    with pytest.raises(ValueError, match="Out of range float"):
        write_checkpoint(tmp_path, 1, Checkpoint({}, {"loss": math.nan}))
