"""Several processes that train at once into one folder of results."""

import signal

import pytest

from killing import DONE, KILLED, the_server
from leftovers import until
from multimix.lab.storage import read_rows
from multimix.lab.training.run import RESULTS, planned, train
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


def test_the_lock_is_gone_with_its_process(server, out, tmp_path):
    flag = tmp_path / "here"
    child = server.start(out, TWO, fault=["on_line", 3, "wait", str(flag)])
    until(flag.exists)
    child.send(signal.SIGKILL)
    assert child.wait().code == KILLED
    assert server.train(out, TWO).code == DONE
