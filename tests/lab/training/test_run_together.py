"""Several processes that train at once into one folder of results."""

import shutil
import signal
from types import SimpleNamespace

import pytest

from killing import DONE, KILLED, the_server
from leftovers import folder_of, kept, until, whole
from multimix.lab import storage
from multimix.lab.recipes.runs import RESULTS, planned
from multimix.lab.storage import read_rows
from multimix.lab.sweep import workers
from multimix.lab.sweep.workers import unfinished
from multimix.lab.training.run import LOCK, train
from trial import RECIPE

QUICK = {"epochs": "1"}
NONE = {"method": "none", "changes": QUICK}
TWO = {"method": "mixup", "k": 2, "changes": QUICK}


@pytest.fixture(scope="module")
def server():
    return the_server()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


def rows(out):
    """All rows; a damaged one is an error."""

    def damaged(sentence):
        raise AssertionError(sentence)

    return read_rows(out / RESULTS, damaged)


def test_processes_that_train_other_runs_at_once_leave_sound_rows(server, out):
    plans = [{**TWO, "seeds": [seed]} for seed in range(3)] + [{**NONE, "seeds": [0, 1]}]
    children = [server.start(out, plan) for plan in plans]
    assert [child.wait().error for child in children] == [None] * 4
    assert sorted((row["arm"], row["seed"]) for row in rows(out)) == [
        ("mixup", 0),
        ("mixup", 1),
        ("mixup", 2),
        ("none", 0),
        ("none", 1),
    ]
    alone = out.with_name("alone")
    assert server.train(alone, plans[1]).code == DONE
    assert rows(alone)[0]["weights"] in {row["weights"] for row in rows(out)}


def test_a_run_that_another_process_trains_is_refused(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    (run,) = planned(RECIPE, scale="smoke", **TWO)
    with pytest.raises(ValueError, match=f"^{out / run.folder} is being trained by another process \\(pid {child.pid}\\)$"):
        train([run], data=".", out=out, note=lambda sentence: None)
    flag.unlink()
    assert child.wait().code == DONE, "the other is not disturbed"
    assert len(rows(out)) == 1


def test_a_run_that_another_process_has_just_finished_gets_no_second_row(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_file", "open", r"/\.lock$", "wait", str(flag)])
    until(flag.exists)
    assert server.train(out, TWO).code == DONE
    flag.unlink()
    assert child.wait().code == DONE
    assert len(rows(out)) == 1


def test_a_run_that_another_process_trains_is_waited_for(server, out, tmp_path):
    """As after a sweep that was killed, whose runs end with their update."""
    flag, heard = tmp_path / "here", []
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    (run,) = planned(RECIPE, scale="smoke", **TWO)

    def note(sentence):
        heard.append(sentence)
        flag.unlink(missing_ok=True)  # now that we wait, it may go on

    train([run], data=".", out=out, note=note, wait=60)
    assert heard[0] == f"{out / run.folder} is still being trained by another process (pid {child.pid}): waiting for it"
    assert child.wait().code == DONE
    assert len(rows(out)) == 1


def test_whose_lock_is_deleted_stops_before_it_writes_anything_else(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    (folder_of(out) / LOCK).unlink()
    assert server.train(out, TWO).code == DONE, "another process can come in now"
    before = kept(out)
    flag.unlink()
    ended = child.wait()
    assert ended.error.startswith(f"OSError: {folder_of(out)} or the .lock in it was deleted while it was trained")
    assert kept(out) == before == whole(TWO).kept


def test_a_folder_that_is_deleted_while_it_is_trained_is_an_error(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    folder = folder_of(out)
    shutil.rmtree(folder)
    flag.unlink()
    ended = child.wait()
    assert ended.error == f"OSError: {folder} or the .lock in it was deleted while it was trained: nothing more is written there"
    assert not folder.exists()
    assert rows(out) == []


def test_rows_are_read_once_however_many_runs_are_finished(server, out, monkeypatch):
    plan = {**NONE, "seeds": [0, 1, 2, 3]}
    assert server.train(out, plan).code == DONE
    parsed, plain = [], storage._row
    monkeypatch.setattr(storage, "_row", lambda line: parsed.append(line) or plain(line))
    runs = planned(RECIPE, scale="smoke", **plan)
    train(runs, data=".", out=out, note=lambda sentence: None)
    assert len(parsed) == len(runs)
    assert unfinished(runs, out) == []
    assert len(parsed) == 2 * len(runs)


def test_a_sweep_waits_for_runs_of_an_earlier_one(monkeypatch, out):
    seen = []
    monkeypatch.setattr(workers, "train", lambda runs, **how: seen.append(how) or [SimpleNamespace(last=1.0)])
    (run,) = planned(RECIPE, scale="smoke", **TWO)
    assert workers._train(run, out, out).error == 1.0
    assert seen[0]["wait"] >= 60


def test_the_lock_is_gone_with_its_process(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    child.send(signal.SIGKILL)
    assert child.wait().code == KILLED
    assert server.train(out, TWO).code == DONE
