"""Full disks and damaged checkpoints: one sentence, nothing sound is lost, and training ends with the same bits all the same."""

import hashlib
import json
import os
import pickle
import re

import pytest

from killing import DONE, FAILED, KILLED, the_server
from leftovers import folder_of, kept, names, whole
from multimix.lab.training.checkpoint import read_checkpoint
from multimix.lab.training.log import read_steps

pytestmark = pytest.mark.slow

NONE = {"method": "none"}
CUTMIX = {"method": "cutmix", "k": 3, "changes": {"accumulate": "2", "evaluate_every": "2"}}


@pytest.fixture(scope="module")
def server():
    return the_server()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


FULL = {
    "a checkpoint, on the way to the disk": (
        ["on_fsync", r"/\.step-0+4\."],
        "step-000000004.checkpoint",
        "No space left on device",
    ),
    "a checkpoint, half written": (
        ["on_file", "open", r"/\.step-0+4\.", "limit", 9000],
        "step-000000004.checkpoint",
        "File too large",
    ),
    "the best weights": (["on_file", "open", r"/\.best", "limit", 5000], "best.checkpoint", "File too large"),
    "a line of steps.csv": (["on_line", 5, "limit"], "steps.csv", "File too large"),
    "the log of epochs": (["on_file", "open", r"/\.epochs.jsonl", "full"], "epochs.jsonl", "No space left on device"),
    "the row": (["on_file", "open", "/results.jsonl$", "full"], "results.jsonl", "No space left on device"),
}


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_is_one_sentence_and_what_was_there_is_kept(name, server, out):
    fault, file, reason = FULL[name]
    ended = server.train(out, CUTMIX, fault=fault)
    assert ended.code == FAILED
    assert re.fullmatch(
        rf"OSError: cannot write '\S*{re.escape(file)}': {reason}(; the checkpoints before it are kept)?", ended.error
    )
    assert not [path for path in folder_of(out).iterdir() if path.name.startswith((".step", ".best", ".epochs"))], "nothing half"
    if "step" in file:
        read_checkpoint(folder_of(out) / "step-000000002.checkpoint")
    assert server.train(out, CUTMIX).code == DONE
    assert kept(out) == whole(CUTMIX).kept


def test_a_disk_that_is_really_full(server, tmp_path):
    ended = server.train(tmp_path / "disk", NONE, mounted=True)
    if ended.error is not None and ended.error.startswith("PermissionError"):
        pytest.skip(ended.error)
    assert ended.error is None
    assert len(ended.notes) >= 5, "there was more and more room"
    for error in ended.notes:
        assert re.fullmatch(r"OSError: cannot write '\S*': No space left on device(; the checkpoints before it are kept)?", error)
    assert kept(tmp_path / "disk.copy") == whole(NONE).kept


class Runs:
    """Would run code, were it unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def _flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _with_head(content):
    head = {"format": "multimix checkpoint 1", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return json.dumps(head).encode() + b"\n" + content


DAMAGES = {
    "a bit of the weights": lambda content, evil: _flipped(content, len(content) - 999),
    "a pickle": lambda content, evil: evil,
    "a pickle with a sound first line": lambda content, evil: _with_head(evil),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_serves(name, server, tmp_path, out):
    _stopped_after_8(server, out)
    path, ran = folder_of(out) / "step-000000008.checkpoint", tmp_path / "ran"
    damaged = DAMAGES[name](path.read_bytes(), pickle.dumps(Runs(str(ran))))
    path.write_bytes(damaged)
    ended = server.train(out, NONE)
    assert ended.code == DONE
    assert re.fullmatch(rf"{re.escape(str(path))} is .*; set aside as step-000000008.checkpoint.damaged", ended.notes[0])
    assert path.with_name(path.name + ".damaged").read_bytes() == damaged
    assert not ran.exists()
    assert kept(out) == whole(NONE).kept


def test_without_any_sound_checkpoint_it_starts_again(server, out):
    _stopped_after_8(server, out)
    for path in folder_of(out).glob("*.checkpoint"):
        path.write_bytes(b"")
    ended = server.train(out, NONE)
    assert [
        sum(word in note for note in ended.notes) for word in ("000008.checkpoint is damaged", "000006.checkpoint is damaged")
    ] == [1, 1]
    assert kept(out) == whole(NONE).kept


def test_an_older_state_serves_however_far_the_log_had_got(server, out):
    _stopped_after_8(server, out)
    (folder_of(out) / "step-000000008.checkpoint").unlink()
    assert len(read_steps(folder_of(out))) == 8
    assert server.train(out, NONE).code == DONE
    assert kept(out) == whole(NONE).kept


def _stopped_after_8(server, out):
    assert server.train(out, NONE, fault=["on_line", 9, "die"]).code == KILLED
    assert [name for name in names(out) if name.startswith("step")] == [f"step-{step:09d}.checkpoint" for step in (6, 8)]


def test_a_full_disk_is_one_sentence_for_the_settings_too(server, out):
    error = server.train(out, NONE, fault=["on_fsync", r"/\.settings"]).error
    assert re.fullmatch(r"OSError: cannot write '\S*settings.json': No space left on device", error)


def test_a_row_that_is_cut_off_by_a_full_disk_is_one_sentence(server, out):
    error = server.train(out, NONE, fault=["on_file", "open", "/results.jsonl$", "limit", 500]).error
    assert error is not None
    assert re.fullmatch(r"OSError: cannot write '\S*results.jsonl': .*", error)
