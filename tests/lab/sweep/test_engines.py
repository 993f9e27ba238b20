"""The same runs on every engine: the same rows and weights, whatever was stopped where."""

import os
import signal
import sys
import threading
import time

import pytest

from multimix.lab.recipes.runs import RESULTS
from multimix.lab.storage import read_rows
from multimix.lab.sweep.engines import OPTIONS, Local, Ray, Slurm, make_engine
from multimix.lab.sweep.plan import plan_sweep
from multimix.lab.sweep.workers import LOG, train_runs
from trial import RECIPE


def runs_of(**changes):
    return [one.run for one in plan_sweep(RECIPE, scale="smoke", methods=("none", "mixup"), ks=(3,), seeds=(0,), changes=changes)]


def rows_of(out):
    """What decides a row: not its times."""
    return {row["folder"]: (row["weights"], row["settings"], row["outcome"]["last"]) for row in read_rows(out / RESULTS)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    out = tmp_path_factory.mktemp("local")
    assert train_runs(runs_of(), data=".", out=out, engine=Local(2), note=lambda words: None) == []
    return rows_of(out)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each."""
    utilities = pytest.importorskip("ray.cluster_utils")
    nodes = utilities.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes.address
    nodes.shutdown()


@pytest.fixture(params=["ray", "slurm"])
def engine(request, tmp_path):
    if request.param == "ray":
        made = Ray(request.getfixturevalue("cluster"))
    else:
        pytest.importorskip("submitit")
        made = Slurm(tmp_path, cluster="local", hours=0.1)
    yield made
    made.close()


@pytest.mark.slow
def test_runs_rows_and_failures_are_the_same_as_on_this_machine(engine, expected, tmp_path):
    heard = []
    broken = [runs_of(**{"network.name": f"lab.sweep.failing:{name}"})[0] for name in ("Raises", "Dies")]
    failures = train_runs([*broken, *runs_of()], data=".", out=tmp_path, engine=engine, note=heard.append)
    assert rows_of(tmp_path) == expected
    reasons = {failure.run.folder: failure.reason for failure in failures}
    assert reasons.pop(broken[0].folder).endswith("[1, 8, 8], torch.float32: the network is broken")
    assert " ended without a result" in reasons.pop(broken[1].folder)
    assert not reasons
    assert "RuntimeError: the network" in (tmp_path / broken[0].folder / LOG).read_text()


@pytest.mark.slow
def test_stopped_here_a_run_resumes_elsewhere_bit_exactly(engine, tmp_path):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    out = tmp_path / "stopped"
    # Not so short that it ends before it is stopped. The checkpoint is the one that is written on the way out, except with Slurm:
    # submitit's local executor, unlike Slurm itself, kills a run one second after it was asked to stop, which may be too soon.
    killed = isinstance(engine, Slurm)
    (run,) = runs_of(epochs="60", **{"running.checkpoint_updates": "2" if killed else "1000000"})[1:]

    def interrupt():
        while not (out / run.folder / "epochs.jsonl").exists() or not (out / run.folder / "epochs.jsonl").read_bytes():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            train_runs([run], data=".", out=out, engine=engine, note=lambda words: None)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert rows_of(out) == {}
    assert list((out / run.folder).glob("step-*.checkpoint")), "it was written when it was stopped"
    assert train_runs([run], data=".", out=out, engine=Local(), note=lambda words: None) == []
    assert "after update" in (out / run.folder / LOG).read_text()
    train_runs([run], data=".", out=tmp_path / "whole", engine=Local(), note=lambda words: None)
    assert rows_of(out) == rows_of(tmp_path / "whole")


def test_options_of_another_engine_and_impossible_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="partition"):
        make_engine("local", tmp_path, partition="long")
    with pytest.raises(ValueError, match="address"):
        make_engine("slurm", tmp_path, address="auto")
    with pytest.raises(ValueError, match=r"^jobs must be at least 1, got 0$"):
        make_engine("local", tmp_path, jobs=0)
    made = make_engine("local", tmp_path, jobs=2, **dict.fromkeys(OPTIONS["ray"][1:]))
    assert made.at_once == 2
    assert made.threads >= 1


@pytest.mark.slow
def test_more_than_a_node_has_is_refused(cluster):
    with pytest.raises(ValueError, match="gpus"):
        Ray(cluster, gpus=1)


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_without_its_package_an_engine_says_what_to_install(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"^the engine {name} needs the extra \[{name}\]"):
        make_engine(name, tmp_path)


def test_without_slurm_jobs_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=r"^jobs of Slurm cannot be submitted here: .*srun"):
        make_engine("slurm", tmp_path)
