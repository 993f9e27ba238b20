"""Two gloo processes by torchrun, through the entry points, against one process that cuts the same batch into the same shares.

Whatever is drawn belongs to a share of the batch, so 2 processes × ``accumulate`` 1 are 1 process × ``accumulate`` 2: the loss,
the accuracy and ‖g‖² of every update are equal, and so are the learnt weights: bit for bit, or to rounding where ``k_chunk`` or
more shares make terms add up in another order. Without mixing and batch statistics they are equal to rounding for any number of
shares.

Not equal are the running statistics of batch norm: those of the first process, which sees its own shares only. So the errors
differ, and with them all that runs in evaluation mode: the saliency of puzzle mix, from the first update on, unless there is a
clean loss, whose pass runs in training mode and serves the saliency as well.
"""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import multimix as mm
from multimix.core.sampling import seeded
from multimix.lab import cli
from multimix.lab.recipes.runs import RESULTS, planned
from multimix.lab.storage import read_rows
from multimix.lab.training.checkpoint import checkpoints, latest_checkpoint
from multimix.lab.training.log import STEPS, read_epochs, read_steps
from multimix.lab.training.run import train
from multimix.lab.training.step import MIXING
from trial import RECIPE
from two_processes import PATIENCE, environment, two_processes

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("distributed_run.py")
PLAIN = {"network.name": "trial:PlainNet"}
LEARNS = {"network.name": "trial:ConvNet", "method.block.momentum": "0.8"}
# With chunks gradients are summed in another order. Weights that differ in their last bits will at some point swap two blocks of
# nearly equal saliency, and from there on the trainings differ. At a learning rate too small to change a bit the masks stay the
# same, and the momentum holds the gradients.
COINS = {"method.p": "0.6", "method.clean_weight": "0.5", "k_chunk": "2", "schedule.rate": "1e-30"}


def case(method, k=None, *, seeds=(0,), **changes):
    return {"method": method, "k": k, "seeds": seeds, "changes": {"epochs": "2", **changes}}


# Of no mixing and no statistics: equal to one process that does not cut the batch at all.
WHOLE = {
    "none": case("none", seeds=(0, 1), **PLAIN),
    "smoothing": case("smoothing", accumulate="2", **PLAIN),
    "batch_augmentation": case("batch_augmentation", 3, **PLAIN),
}
# Equal to one process that cuts it into as many shares.
CUT = {
    "mixup": case("mixup", 3),
    "cutmix": case("cutmix", 3),
    "manifoldmix": case("manifoldmix", 3),
    "four shares": case("mixup", 2, accumulate="2"),
    "puzzlemix, no statistics": case("puzzlemix", 3, **PLAIN),
    "puzzlemix, clean loss": case("puzzlemix", 3, **{"method.clean_weight": "0.5"}),
    "puzzlemix, coins and chunks": case("puzzlemix", 3, **COINS),
    "samix": case("samix", 2, **LEARNS),
    "samix, coins and chunks": case("samix", 2, **LEARNS, **{"method.p": "0.6", "k_chunk": "1"}),
    "bf16": case("manifoldmix", 3, mixed_precision="bf16"),
}
# What a checkpoint has to bring back for it: statistics for the saliency, momentum, dropout, the coins of either process.
LONG = case("puzzlemix", 3, **{"method.p": "0.8", "epochs": "3"})
KILLED_IN = 8  # of 15 updates; checkpoints are written after every second
WORDS = (
    "train cifar100_preact_resnet18 --scale smoke --method manifoldmix --k 2 --data.name digits --data.per_class 20 "
    "--data.report_per_class 5 --epochs 4 --running.threads 1"
)
COMMAND, UPDATES = WORDS.split(), 40


@contextmanager
def torchrun(*arguments):
    """The process that starts two others; whatever happens, they do not stay."""
    process = subprocess.Popen(
        two_processes(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # it kills those that do not listen after half a minute
            process.communicate(timeout=PATIENCE)


def until(process, out, reached):
    """Waits as long as something happens in ``out``; a machine may be slow."""
    before, since = -1, 0.0
    while not reached():
        assert process.poll() is None, process.stderr.read()[-3000:]
        done = sum(path.stat().st_size for path in out.rglob(STEPS))
        before, since = (before, since) if done == before else (done, time.monotonic())
        assert time.monotonic() - since < PATIENCE, "they wait for each other"
        time.sleep(0.02)


class Stopped(NamedTuple):
    """What a command left that was asked to end."""

    out: Path
    folder: Path
    error: str
    steps: list
    newest: list


class Started:
    """What two processes left in ``folder``, by the name of a case."""

    def __init__(self, folder):
        self.out, self.notes = folder / "two", folder / "notes"
        self.notes.mkdir()

    def run(self, cases):
        with torchrun(SCRIPT, self.out, self.notes, json.dumps(cases)) as process:
            out, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, error[-3000:]
        return out, error

    def noted(self, name):
        return [json.loads((self.notes / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]

    def rows(self, name):
        return read_rows(self.out / name / RESULTS)

    def folder(self, name):
        return self.out / name / self.rows(name)[0]["folder"]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """All cases, and at the end one that is killed inside an update."""
    found = Started(tmp_path_factory.mktemp("distributed"))
    cases = [{"name": name, **one} for name, one in {**WHOLE, **CUT, "long": LONG}.items()]
    cases.append({"name": "killed", "wait": KILLED_IN, **LONG})
    with torchrun(SCRIPT, found.out, found.notes, json.dumps(cases)) as process:
        until(process, found.out, lambda: all((found.notes / f"waiting-{rank}").exists() for rank in (0, 1)))
        time.sleep(0.1)  # the signs are written to the end
        process.kill()  # the one above them first, or it would be told, and end the others in its own way
        for rank in (0, 1):
            os.kill(int((found.notes / f"waiting-{rank}").read_text()), signal.SIGKILL)
        found.error = process.communicate(timeout=PATIENCE)[1]
    return found


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The command line by torchrun, asked to end when it has done a few updates, and the folder of its run."""
    out = tmp_path_factory.mktemp("stopped") / "two" / "command"
    with torchrun("-m", "multimix.lab.cli", *COMMAND, "--out", out) as process:
        until(process, out, lambda: any(len(path.read_bytes().splitlines()) > 4 for path in out.rglob(STEPS)))
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=PATIENCE)[1]
    (steps,) = out.rglob(STEPS)
    return Stopped(out, steps.parent, error, read_steps(steps.parent), checkpoints(steps.parent)[-1:])


@pytest.fixture(scope="module")
def resumed(started, stopped):
    """What was killed and what was stopped goes on; what is done is asked for again."""
    found = Started(stopped.out.parents[1])
    found.out.joinpath("killed").symlink_to(started.out / "killed")
    found.out.joinpath("mixup").symlink_to(started.out / "mixup")
    found.streams = found.run(
        [{"name": "killed", **LONG}, {"name": "mixup", **CUT["mixup"]}, {"name": "command", "command": COMMAND}]
    )
    return found


def alone(one, out, shares):
    """The same by one process."""
    changes = {**one["changes"], "accumulate": str(shares)}
    (run,) = planned(RECIPE, scale="smoke", method=one["method"], k=one["k"], changes=changes)
    train([run], data=".", out=out, note=lambda sentence: None)
    return out / run.folder


def learnt(folder):
    """The parameters and their momentum at the end, and the running statistics."""
    parts = ("network/", "optimizer/")
    tensors = {name: value for name, value in latest_checkpoint(folder).tensors.items() if name.startswith(parts)}
    running = {name: tensors.pop(name) for name in list(tensors) if "running_" in name or "num_batches" in name}
    return tensors, running


def assert_same_training(ours, theirs, relative=1e-6):
    for a, b in zip(read_steps(ours), read_steps(theirs), strict=True):
        assert (a.update, a.epoch, a.rate) == (b.update, b.epoch, b.rate)
        assert (a.loss, a.accuracy, a.squared_grad_norm) == pytest.approx(tuple(b[3:]), rel=relative, abs=1e-5)
    (found, _), (expected, _) = learnt(ours), learnt(theirs)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WHOLE)
def test_without_mixing_and_statistics_two_processes_train_as_one(started, tmp_path, name):
    ours, theirs = started.folder(name), alone(WHOLE[name], tmp_path, shares=1)
    assert_same_training(ours, theirs)
    for a, b in zip(read_epochs(ours), read_epochs(theirs), strict=True):
        assert (a.error, a.error_top5, a.images, a.rows) == (b.error, b.error_top5, b.images, b.rows)
        assert a.nll == pytest.approx(b.nll, rel=1e-5)


@pytest.mark.parametrize("name", CUT)
def test_two_processes_train_as_one_that_cuts_the_batch_alike(started, tmp_path, name):
    shares = 2 * int(CUT[name]["changes"].get("accumulate", 1))
    ours, theirs = started.folder(name), alone(CUT[name], tmp_path, shares)
    assert_same_training(ours, theirs)
    assert [epoch.rows for epoch in read_epochs(ours)] == [epoch.rows for epoch in read_epochs(theirs)]
    (_, found), (_, expected) = learnt(ours), learnt(theirs)
    for key in expected:
        assert not torch.allclose(found[key].double(), expected[key].double()), "these are not the same, as the module says"


def test_saliency_in_evaluation_mode_is_what_differs(started, tmp_path):
    ours, theirs = read_steps(started.folder("long")), read_steps(alone(LONG, tmp_path, shares=2))
    assert ours[0].loss == pytest.approx(theirs[0].loss, rel=0.05)
    assert ours[-1].loss == pytest.approx(theirs[-1].loss, rel=0.2)
    assert [step.loss for step in ours] != pytest.approx([step.loss for step in theirs], rel=1e-3)


@pytest.mark.parametrize("name", [*WHOLE, *CUT, "long"])
def test_all_processes_have_the_weights_of_the_row_and_the_first_writes(started, name):
    first, second = started.noted(name)
    rows = started.rows(name)
    assert [row["processes"] for row in rows] == [2] * len(rows)
    assert [row["weights"] for row in rows] == [run["weights"] for run in first["trained"]]
    assert first["trained"] == second["trained"], "weights, rows of all processes together"
    assert [run["alive"] for run in first["trained"]] == [0] * len(rows), "a network goes when its run is done"
    assert first["touched"]
    assert first["told"]
    assert (second["touched"], second["told"]) == ([], [])
    assert len(list(started.out.joinpath(name).rglob("results*"))) == 1


def test_the_processes_throw_coins_of_their_own():
    method = mm.PuzzleMix(p=0.6)
    thrown = {
        tuple(method.choose(generator=seeded(MIXING, 0, epoch, step, share)) is not None for share in (0, 1))
        for epoch in range(2)
        for step in range(5)
    }
    assert thrown >= {(True, False), (False, True)}, "or nobody would ever wait for passes that the other does not make"


def test_bf16_is_used(started):
    ours, plain = read_steps(started.folder("bf16")), read_steps(started.folder("manifoldmix"))
    assert ours[0].loss != plain[0].loss
    assert ours[0].loss == pytest.approx(plain[0].loss, rel=0.02)


def test_killed_inside_an_update_it_ends_with_the_same_bits(started, resumed):
    (row,), (expected,) = resumed.rows("killed"), started.rows("long")
    assert row["weights"] == expected["weights"]
    assert row["digest"] == expected["digest"]
    ours, theirs = started.folder("killed"), started.folder("long")
    assert ours.joinpath(STEPS).read_bytes() == theirs.joinpath(STEPS).read_bytes()
    first, second = resumed.noted("killed")
    assert first["trained"][0]["weights"] == second["trained"][0]["weights"] == row["weights"]
    assert second["touched"] == []


def test_what_is_done_is_not_trained_again_by_any_process(started, resumed):
    first, second = resumed.noted("mixup")
    assert (first["trained"], second["trained"]) == ([], [])
    assert len(first["told"]) == 1
    assert "done before" in first["told"][0]
    assert (second["told"], second["touched"]) == ([], [])
    assert len(started.rows("mixup")) == 1


def test_a_command_that_is_asked_to_end_writes_its_state_and_goes_on(stopped, resumed, tmp_path):
    done = len(stopped.steps)
    assert "stopped; what is finished is kept" in stopped.error, stopped.error[-3000:]
    assert 4 <= done < UPDATES
    assert [path.name for path in stopped.newest] == [f"step-{done:09d}.checkpoint"], (
        "of the last update, so nothing is done twice"
    )
    first, second = resumed.noted("command")
    assert first["told"] == second["told"] == [0]
    (row,) = read_rows(stopped.out / RESULTS)
    assert row["processes"] == 2
    assert row["device"].startswith("cpu"), "nobody said cpu"
    assert row["weights"] == first["trained"][0]["weights"] == second["trained"][0]["weights"]
    assert second["touched"] == []
    assert cli.main([*COMMAND, "--accumulate", "2", "--out", str(tmp_path)]) == 0
    assert_same_training(stopped.folder, tmp_path / read_rows(tmp_path / RESULTS)[0]["folder"])


def test_one_process_speaks_and_nothing_is_left_at_the_end(started, resumed):
    out, error = resumed.streams
    assert "warn" not in (started.error + error).lower(), "of any process"
    assert error.count("CIFAR-100, PreActResNet18, smoke scale: 1 run") == 1
    assert out.count("wrote ") == len(set(out.split("wrote "))) - 1
    assert [noted["group"] for noted in resumed.noted("mixup")] == [True, True]
    assert [noted["group"] for noted in resumed.noted("command")] == [False, False], "the command has ended its group"
