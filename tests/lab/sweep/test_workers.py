"""Runs in processes of their own, which are few here since each takes seconds to start: whatever one does, the others go on."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from multimix.lab.recipes.runs import RESULTS
from multimix.lab.storage import read_rows
from multimix.lab.sweep import workers
from multimix.lab.sweep.engines import End, Local
from multimix.lab.sweep.plan import plan_sweep
from multimix.lab.sweep.progress import epochs_done
from multimix.lab.sweep.workers import LOG, Failure, train_runs, unfinished
from multimix.lab.training.loop import Training
from multimix.lab.training.run import train
from trial import RECIPE

DATA = "."


def run_of(**options):
    options = {"scale": "smoke", "methods": ("mixup",), "ks": (3,), "seeds": (0,), **options}
    (one,) = plan_sweep(RECIPE, **options)
    return one.run


def broken(name):
    return run_of(changes={"network.name": f"lab.sweep.failing:{name}"})


def half_trained(run, out, monkeypatch):
    """Stopped after 4 of its updates, as a signal would."""
    with monkeypatch.context() as patch:
        plain = Training._between

        def between(self):
            if self.at.updates == 4:
                self.stop.requested = True
            plain(self)

        patch.setattr(Training, "_between", between)
        with pytest.raises(KeyboardInterrupt):
            train([run], data=DATA, out=out, note=lambda words: None)


def weights(out):
    return {row["folder"]: row["weights"] for row in read_rows(out / RESULTS)}


@pytest.mark.slow
def test_one_that_raises_exits_or_dies_is_listed_and_the_others_are_trained(tmp_path, monkeypatch):
    out, good, heard = tmp_path / "runs", run_of(), []
    half_trained(good, out, monkeypatch)
    runs = [broken("Raises"), broken("Exits"), broken("Dies"), good]
    failures = train_runs([*runs, good], data=DATA, out=out, engine=Local(3), note=heard.append)

    found = {failure.run.folder: failure for failure in failures}
    raises, exits, dies = (found.pop(run.folder) for run in runs[:3])
    assert not found
    assert raises.reason.endswith("[1, 8, 8], torch.float32: the network is broken")
    assert exits.reason == "its process exited with code 0 before its end"
    assert dies.reason == "its process was ended by SIGKILL, as the system does when memory runs out"
    assert all(failure.log == out / failure.run.folder / LOG and failure.log.exists() for failure in failures)
    assert "RuntimeError: the network" in raises.log.read_text()

    assert "resumes after update 4" in (out / good.folder / LOG).read_text()
    train([good], data=DATA, out=tmp_path / "whole", note=lambda words: None)
    assert weights(out) == weights(tmp_path / "whole"), "the same bits as in one go, in this process"
    assert sum(sentence.startswith("[") for sentence in heard) == 4, "one line for each"

    monkeypatch.setattr(Local, "start", None)  # starting one would raise
    assert train_runs([good], data=DATA, out=out, note=heard.append) == []
    assert heard[-1] == "1 of 1 runs are finished already"
    assert unfinished(runs, out) == runs[:3]


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: what is started in the background may inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_told_to_stop_it_writes_a_checkpoint_and_says_what_is_finished(tmp_path):
    out, heard = tmp_path / "runs", []
    run = run_of(changes={"epochs": "10000", "running.checkpoint_updates": "1000000"})

    def interrupt():
        while epochs_done(out / run.folder) == 0:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        train_runs([run], data=DATA, out=out, note=heard.append)
    thread.join()
    assert list((out / run.folder).glob("step-*.checkpoint"))
    assert heard == ["stopping: 1 running, each writes a checkpoint after its update", "0 of 1 runs are finished"]


class Ends:
    """In place of an engine: jobs end as it was told, one after the other."""

    at_once = 1

    def __init__(self, *ends):
        self.left = list(ends)

    def start(self, work, arguments, log):
        return self.left.pop(0)

    def has_ended(self, job):
        return True

    def end(self, job):
        return job


@pytest.mark.parametrize(("retry", "failed"), [(0, True), (1, True), (2, False)])
def test_a_failed_run_is_tried_again_so_many_times(tmp_path, retry, failed):
    engine = Ends(End("failed", "it fell"), End("failed", "it fell"), End("done", workers.Result(12.5)))
    failures = train_runs([run_of()], data=DATA, out=tmp_path, engine=engine, retry=retry, note=lambda words: None)
    assert failures == ([Failure(run_of(), "it fell", tmp_path / run_of().folder / LOG)] if failed else [])
    assert len(engine.left) == max(0, 2 - retry)


def test_a_diverged_run_says_where_and_is_not_tried_again(tmp_path):
    result = workers._train(broken("Diverges"), Path(DATA), tmp_path / "runs")
    assert result.error is None
    engine = Ends(End("done", result), End("done", workers.Result(1.0)))
    (failure,) = train_runs([run_of()], data=DATA, out=tmp_path, engine=engine, retry=3, note=lambda words: None)
    assert failure.reason.startswith("the loss became nan in epoch 1, update 1 ")


def test_what_cannot_be_sent_to_a_process_fails_alone(tmp_path):
    run = run_of()
    local = run._replace(recipe=run.recipe.__class__("local", "", "", lambda scale: None, ()))
    (failure,) = train_runs([local], data=DATA, out=tmp_path, note=lambda words: None)
    assert failure.reason.startswith("its process could not be started: ")


def test_retry_is_checked(tmp_path):
    with pytest.raises(ValueError, match=r"^retry must be at least 0, got -1$"):
        train_runs([], data=DATA, out=tmp_path, retry=-1)
