"""Trainings that are killed or stopped, in real processes: they go on and end with the same bits."""

import importlib.util
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from killing import CUT, DONE, FAILED, KILLED, the_server
from leftovers import folder_of, kept, names, until, whole
from multimix.lab.training.checkpoint import read_checkpoint
from multimix.lab.training.log import read_steps
from tree import make_tree

pytestmark = pytest.mark.slow

PLANS = [
    {"method": "none"},
    {"method": "mixup", "k": 3},
    {"method": "cutmix", "k": 3, "changes": {"accumulate": "2", "evaluate_every": "2"}},
    {"method": "manifoldmix", "k": 3, "changes": {"k_chunk": "2"}},
    {"method": "puzzlemix", "k": 3},
    {"method": "batch_augmentation", "k": 2},
    {"method": "large_batch", "k": 2, "changes": {"epochs": "6"}},
    {"method": "batch_augmentation_mixup", "k": 2, "changes": {"loss": "softmax_bce", "optimizer.weight_decay": "0.01"}},
    {
        "method": "recursivemix",
        "k": 3,
        "changes": {
            "network.name": "recursive_oracle:PooledNet",
            "method.features": "stage2",
            "method.head": "head",
            "method.keep": "random",
            "accumulate": "2",
        },
    },
]
NONE = PLANS[0]
CUTMIX = PLANS[2]
RECURSIVE = PLANS[-1]


@pytest.fixture(scope="module")
def server():
    return the_server()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


def test_a_whole_run_leaves_what_is_compared():
    kept = whole(NONE).kept
    assert len(kept["row"]["weights"]) == 64
    assert [line.split(",")[0] for line in kept["steps"].splitlines()] == ["update", *map(str, range(1, 16))]
    assert [epoch["number"] for epoch in kept["epochs"]] == ["1", "2", "3"]
    assert [epoch["number"] for epoch in kept["epoch lines"]] == [1, 2, 3]
    assert kept["checkpoints"] == ["step-000000014.checkpoint", "step-000000015.checkpoint"], "the last two"
    assert len({whole(plan).kept["row"]["weights"] for plan in PLANS}) == len(PLANS)


@pytest.mark.parametrize("number", range(24))
def test_killed_at_any_moment_it_goes_on_to_the_same_bits(number, server, out):
    plan, draw = PLANS[number % len(PLANS)], random.Random(number)
    expected, seconds = whole(plan)
    while not _killed(server, out, plan, draw.uniform(0.1, 1) * seconds):
        shutil.rmtree(out)
        seconds *= 0.8  # it was done before
    for _ in range(number % 3):  # again and again
        _killed(server, out, plan, draw.uniform(0.1, 1) * seconds)
    assert server.train(out, plan).code == DONE
    assert kept(out) == expected


def _killed(server, out, plan, seconds):
    child = server.start(out, plan)
    time.sleep(seconds)
    child.send(signal.SIGKILL)
    code = child.wait().code
    assert code in (KILLED, DONE)
    return code == KILLED and not (out / "results.jsonl").exists()


@pytest.mark.parametrize("number", range(6))
def test_killed_before_any_change_of_a_file_it_goes_on_to_the_same_bits(number, server, out):
    plan, draw = PLANS[-1 - number], random.Random(number)
    codes = [server.train(out, plan, fault=["on_any_file", draw.randrange(1, 60)]).code for _ in range(4)]
    assert KILLED in codes
    assert server.train(out, plan).code == DONE
    assert kept(out) == whole(plan).kept


POINTS = {
    "half of the weights have an update": ["on_optimizer", 4],
    "the gradient is half way back": ["on_backward", 6, "die"],
    "a checkpoint is about to be written": ["on_file", "open", r"/\.step-0+4\.", "die"],
    "half of a checkpoint is written": ["on_file", "open", r"/\.step-0+4\.", "cut", 9000],
    "a checkpoint is written, not in place": ["on_file", "os.rename", "/step-0+4", "die"],
    "a checkpoint is in place, older ones still there": ["on_file", "os.remove", "/step-", "die"],
    "half of the best weights are written": ["on_file", "open", r"/\.best", "cut", 5000],
    "the best weights are written, not in place": ["on_file", "os.rename", "/best", "die"],
    "the first of two logs of epochs is written": ["on_file", "os.rename", "/epochs.jsonl", "die", {"number": 2}],
    "half of a line of steps.csv is written": ["on_line", 5, "cut"],
    "the last checkpoint is there, no row": ["on_file", "open", "/results.jsonl$", "die"],
    "half of a row is written": ["on_row"],
}


@pytest.mark.parametrize("name", POINTS)
def test_killed_at_a_point_it_goes_on_to_the_same_bits(name, server, out):
    fault, plan = POINTS[name], PLANS[list(POINTS).index(name) % len(PLANS)]
    assert server.train(out, plan, fault=fault).code == (CUT if "cut" in fault else KILLED)
    _check_traces(name, out)
    ended = server.train(out, plan)
    assert ended.code == DONE
    assert any("line 1 of" in note and "damaged" in note for note in ended.notes) == (name == "half of a row is written")
    assert kept(out) == whole(plan).kept


@pytest.mark.parametrize(("update", "before"), [(4, 2), (7, 6)])
def test_killed_with_a_history_it_goes_on_to_the_same_bits(update, before, server, out):
    """What the method remembers of both shares is in the checkpoint; an epoch has five updates and begins without."""
    assert server.train(out, RECURSIVE, fault=["on_optimizer", update]).code == KILLED
    last = read_checkpoint(folder_of(out) / names(out)[-1])
    assert last.values["at"]["updates"] == before
    assert len([name for name in last.tensors if name.startswith("method_states/")]) == 2 * 3
    assert server.train(out, RECURSIVE).code == DONE
    assert kept(out) == whole(RECURSIVE).kept


def _check_traces(name, out):
    """That it was killed where it should be."""
    folder = folder_of(out)
    steps = [path for path in names(out) if path.startswith("step-")]
    if name == "half of a checkpoint is written":
        (half,) = folder.glob(".step-*")
        assert half.stat().st_size == 9000
        assert steps == ["step-000000002.checkpoint"]
    if name == "a checkpoint is in place, older ones still there":
        assert len(steps) == 3
    if name == "half of a line of steps.csv is written":
        assert not (folder / "steps.csv").read_bytes().endswith(b"\n")
    if name == "the last checkpoint is there, no row":
        assert len(read_steps(folder)) == read_checkpoint(folder / steps[-1]).values["at"]["updates"]
        assert not (out / "results.jsonl").exists()
    if name == "half of a row is written":
        assert not (out / "results.jsonl").read_bytes().endswith(b"\n")


def test_killed_while_it_takes_up_its_work_it_goes_on_to_the_same_bits(server, out):
    faults = [
        ["on_line", 7, "cut"],
        ["on_file", "os.rename", "/settings.json$", "die"],
        ["on_file", "os.rename", "/epochs.csv$", "die"],
        ["on_file", "os.rename", "/steps.csv$", "die"],
    ]
    if importlib.util.find_spec("tensorboard"):
        faults.append(["on_file", "open", r"/events\.out", "die"])
    assert [server.train(out, CUTMIX, fault=fault).code for fault in faults] == [CUT, *[KILLED] * (len(faults) - 1)]
    assert server.train(out, CUTMIX).code == DONE
    assert kept(out) == whole(CUTMIX).kept


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_while_workers_decode_files_it_goes_on_at_once(workers, server, tmp_path):
    data, plan = make_tree(tmp_path / "data"), {"method": "mixup", "k": 2}
    assert server.train(tmp_path / "whole", plan, module="tree", data=data).code == DONE
    out, plan = tmp_path / "runs", {**plan, "changes": {"running.workers": str(workers)}}
    for number in (3, 6):
        assert server.train(out, plan, module="tree", data=data, fault=["on_line", number, "die"]).code == KILLED
    assert server.train(out, plan, module="tree", data=data).error is None
    ours, expected = kept(out), kept(tmp_path / "whole")
    assert ours["row"]["weights"] == expected["row"]["weights"]
    assert ours["steps"] == expected["steps"]
    assert len(read_steps(folder_of(out))) == 6 + 4, "a batch of 4 of 24 samples, then of 6"


CODE = """
import sys
import torch
torch.set_num_threads(1)
from multimix.lab.training.run import train
from multimix.lab.recipes.runs import planned
from trial import RECIPE
train(planned(RECIPE, scale="smoke", method="none"), data=".", out=sys.argv[1])
"""


def test_an_interpreter_of_its_own_killed_from_outside(server, out):
    process = subprocess.Popen([sys.executable, "-c", CODE, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not list(out.glob("*/*/*/step-*6.checkpoint")):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == KILLED
    assert not (out / "results.jsonl").exists()
    assert server.train(out, NONE).code == DONE
    assert kept(out) == whole(NONE).kept


@pytest.mark.parametrize("names_of_signals", [("SIGTERM",), ("SIGINT",), ("SIGTERM", "SIGINT")])
def test_a_signal_lets_the_update_end_and_the_second_does_not(names_of_signals, server, out):
    ended = server.train(out, NONE, fault=["on_backward", 7, "raise_signals", *names_of_signals])
    assert (ended.code, ended.error) == (FAILED, "KeyboardInterrupt: ")
    done = 7 if len(names_of_signals) == 1 else 6
    assert names(out)[-1] == f"step-{done:09d}.checkpoint"
    assert len(read_steps(folder_of(out))) == done
    assert server.train(out, NONE).code == DONE
    assert kept(out) == whole(NONE).kept


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside_needs_no_checkpoint_before(number, server, tmp_path, out):
    flag = tmp_path / "here"
    plan = {**NONE, "changes": {"running.checkpoint_updates": "none"}}
    child = server.start(out, plan, fault=["on_line", 4, "wait", str(flag)])
    until(flag.exists)
    child.send(number)
    flag.unlink()
    assert child.wait()[:2] == (FAILED, "KeyboardInterrupt: ")
    assert names(out) == ["step-000000004.checkpoint"], "the only one"
    assert server.train(out, plan).code == DONE
    assert kept(out)["row"]["weights"] == whole(NONE).kept["row"]["weights"]
    assert kept(out)["steps"] == whole(NONE).kept["steps"]


def test_a_signal_at_the_end_of_an_epoch_keeps_the_epoch(server, out):
    fault = ["on_file", "os.rename", "/epochs.csv$", "raise_signals", "SIGTERM", {"number": 2}]
    assert server.train(out, NONE, fault=fault)[:2] == (FAILED, "KeyboardInterrupt: ")
    assert read_checkpoint(folder_of(out) / "step-000000005.checkpoint").values["at"]["epoch"] == 1
    assert server.train(out, NONE).code == DONE
    assert kept(out) == whole(NONE).kept


def test_half_files_of_a_killed_process_are_cleared_away(server, out):
    assert server.train(out, NONE, fault=["on_file", "os.rename", "/step-0+4", "die"]).code == KILLED
    assert server.train(out, NONE).code == DONE
    assert not [path.name for path in folder_of(out).iterdir() if path.name.startswith(".step")]
