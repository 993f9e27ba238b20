"""The command in this process: what it plans is kept, trained, compared and written, and what failed is told at the end."""

import csv
from pathlib import Path

import pytest

from multimix.lab.commands.sweep import sweep as command
from multimix.lab.recipes import RECIPES
from multimix.lab.results.figures import recipe as figures
from multimix.lab.results.sweep_tables import sweeps
from multimix.lab.storage import read_rows
from multimix.lab.sweep import costs, workers
from multimix.lab.sweep.costs import Measured
from multimix.lab.sweep.plan import Stored, groups, plan_sweep, read_plan, store_plan
from multimix.lab.sweep.workers import Failure
from multimix.lab.training.run import RESULTS, train
from trial import RECIPE

TRIAL = {RECIPE.name: RECIPE}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def here(monkeypatch):
    """Trainings in this process; arms that are named in the list fail."""
    fails = []
    monkeypatch.setitem(RECIPES, "trial", RECIPE)

    def trained(runs, *, data, out, engine, retry, note):
        unique = list({run.folder: run for run in runs}.values())
        train([run for run in unique if run.arm not in fails], data=data, out=out, note=lambda words: None)
        return [Failure(run, "it fell", out / run.folder / "sweep.log") for run in unique if run.arm in fails]

    monkeypatch.setattr(workers, "train_runs", trained)
    monkeypatch.setattr(
        figures, "budget_figures", lambda found, words, stem: {f"{stem}-k.png": words.encode()}
    )  # which takes seconds
    monkeypatch.setattr(
        costs, "measure_costs", lambda base, runs, **how: Measured({(run.arm, run.k): run.k * 1.5 for run in runs}, {})
    )
    return fails


def sweep(out, **options):
    given = {"methods": ("none", "mixup"), "ks": (1, 3), "seeds": (0, 1), "scale": "smoke", "data": Path(), "out": out, **options}
    command("trial", **given)


def test_tables_figures_and_the_plan_are_written(out, here, capsys):
    sweep(out, equal=("steps", "samples"), seeds=(0,))
    folder = out / "trial" / "smoke"
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {"sweep.md", "sweep.csv", "sweep-k.png"}
    rows = read_rows(out / RESULTS)
    assert len(rows) == 4, "3 arms at equal steps, one more at equal samples"
    (plan,) = read_plan(out)
    assert {(run.arm, run.k, run.seed, run.digest) for run in plan.runs} == {
        tuple(row[n] for n in ("arm", "k", "seed", "digest")) for row in rows
    }
    records = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    assert [(one["equal"], one["arm"], one["k"], one["epochs"]) for one in records] == [
        ("steps", "none", "1", "3.0"), ("steps", "mixup", "1", "3.0"), ("steps", "mixup", "3", "3.0"),
        ("samples", "none", "1", "3.0"), ("samples", "mixup", "1", "3.0"), ("samples", "mixup", "3", "1.0"),
    ]  # fmt: skip
    told = capsys.readouterr()
    assert "Trial, smoke scale: 4 runs, at equal steps, samples" in told.err
    assert "equal samples" in told.out
    assert f"wrote {folder / 'sweep.md'}" in told.out.replace("\n", "")


def test_what_failed_is_listed_after_tables_of_the_rest_and_tried_again(out, here, capsys):
    here.append("mixup")
    with pytest.raises(ValueError, match=r"^2 runs failed, as listed above; the same command tries again$"):
        sweep(out, ks=(3,), set_=("epochs=1",))
    told = capsys.readouterr()
    assert told.err.count("failed: mixup, K = 3, seed ") == 2
    assert "it fell" in told.err
    assert "not run" in told.out
    here.clear()
    sweep(out, ks=(3,), set_=("epochs=1",))
    assert "not run" not in capsys.readouterr().out
    assert len(read_plan(out)) == 1, "the same arguments are one plan"


def test_an_arm_that_cannot_be_measured_has_failed_and_the_others_are_compared(out, here, monkeypatch, capsys):
    monkeypatch.setattr(costs, "measure_costs", lambda base, runs, **how: Measured({("none", 1): 1.0}, {("mixup", 3): "it fell"}))
    with pytest.raises(ValueError, match=r"^1 run failed"):
        sweep(out, ks=(3,), equal=("compute",), seeds=(0,), set_=("epochs=1",))
    assert "what an update costs could not be measured: it fell" in capsys.readouterr().err
    assert [row["arm"] for row in read_rows(out / RESULTS)] == ["none"]


def test_rebuilt_without_training_and_found_by_the_report(out, here, monkeypatch, capsys):
    sweep(out, ks=(3,), set_=("epochs=1",))
    monkeypatch.setattr(workers, "train_runs", None)
    (made,) = (path for path in (out / "trial" / "smoke").glob("sweep-*.md"))
    before = made.read_bytes()
    made.unlink()
    sweep(out, rebuild=True)
    assert made.read_bytes() == before
    rows = read_rows(out / RESULTS)
    (found,) = sweeps(out, TRIAL["trial"], "smoke", rows)
    assert (
        found.sheets()[0].title
        == "Trial, equal steps (smoke scale: shows that everything runs, not the paper's setting; epochs = 1)"
    )
    assert found.figures() == {f"{made.stem}-k.png": b"epochs = 1"}
    assert sweeps(out, TRIAL["trial"], "small", rows) == [], "a scale that was not swept"
    with pytest.raises(ValueError, match=r"has no sweep of trial at small scale$"):
        sweep(out, rebuild=True, scale="small")


def test_processes_of_torchrun_are_refused(out, here, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"^multimix sweep starts its processes by itself"):
        sweep(out)


def stored(**options):
    planned = plan_sweep(
        RECIPE, scale="smoke", methods=("none", "mixup"), ks=(3,), seeds=options.get("seeds", (0,)), equal=("steps",)
    )
    runs = tuple(one.entry for one in planned)
    given = {"methods": ("none", "mixup"), "ks": (3,), "seeds": (0,), "equal": ("steps",), "changes": {}, "runs": runs, **options}
    return Stored("trial", "smoke", **given)


def test_plans_come_back_as_they_were_and_a_damaged_file_is_told(tmp_path):
    heard = []
    assert read_plan(tmp_path) == []
    store_plan(tmp_path, stored())
    store_plan(tmp_path, stored(seeds=(1,)))
    store_plan(tmp_path, stored())
    assert read_plan(tmp_path) == [stored(seeds=(1,)), stored()]
    (tmp_path / "sweep.jsonl").write_text("{}\n")
    assert read_plan(tmp_path, heard.append) == []
    assert "is damaged" in heard[0]


def test_plans_of_other_seeds_are_one_group_and_of_other_changes_are_not():
    own, other = groups([stored(), stored(seeds=(1,)), stored(changes={"epochs": "1"})])
    assert {run.seed for run in own.runs} == {0, 1}
    assert own.stem == "sweep"
    assert other.stem.startswith("sweep-")
    newer = stored(runs=tuple(run._replace(digest="another") for run in stored().runs if run.arm == "mixup"))
    (both,) = groups([stored(), newer])
    assert {(run.arm, run.digest == "another") for run in both.runs} == {("none", False), ("mixup", True)}
