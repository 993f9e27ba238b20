"""The command in this process: what it plans is kept, trained, compared and written, and what failed is told at the end."""

from pathlib import Path

import pytest

from multimix.lab.cli import main
from multimix.lab.commands.sweep import sweep as command
from multimix.lab.recipes import RECIPES, recipe
from multimix.lab.recipes.runs import RESULTS
from multimix.lab.storage import read_rows
from multimix.lab.sweep import costs, workers
from multimix.lab.sweep.costs import Measured
from multimix.lab.sweep.plan import Stored, groups, plan_sweep, read_plan, store_plan, trainable_arms
from multimix.lab.sweep.workers import Failure
from multimix.lab.training.run import train
from multimix.methods.registry import entries
from trial import RECIPE


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
        costs, "measure_costs", lambda base, runs, **how: Measured({(run.arm, run.k): run.k * 1.5 for run in runs}, {})
    )
    return fails


def sweep(out, **options):
    given = {"methods": ("none", "mixup"), "ks": (1, 3), "seeds": (0, 1), "scale": "smoke", "data": Path(), "out": out, **options}
    command("trial", **given)


def test_tables_are_printed_and_the_plan_is_stored(out, here, capsys):
    sweep(out, equal=("steps", "samples"), seeds=(0,))
    rows = read_rows(out / RESULTS)
    assert len(rows) == 4, "3 arms at equal steps, one more at equal samples"
    (plan,) = read_plan(out)
    assert {(run.arm, run.k, run.seed, run.digest) for run in plan.runs} == {
        tuple(row[n] for n in ("arm", "k", "seed", "digest")) for row in rows
    }
    captured = capsys.readouterr()
    assert "Trial, smoke scale: 4 runs, at equal steps, samples" in captured.err
    assert f"multimix report {out}" in captured.err
    assert "equal samples" in captured.out
    assert not list(out.glob("**/*.md")), "files are written by the report"


def test_what_failed_is_listed_after_tables_of_the_rest_and_tried_again(out, here, capsys):
    here.append("mixup")
    with pytest.raises(ValueError, match=r"^2 runs failed"):
        sweep(out, ks=(3,), set_=("epochs=1",))
    captured = capsys.readouterr()
    assert captured.err.count("failed: mixup, K = 3, seed ") == 2
    assert "it fell" in captured.err
    assert "not run" in captured.out
    here.clear()
    sweep(out, ks=(3,), set_=("epochs=1",))
    assert "not run" not in capsys.readouterr().out
    assert len(read_plan(out)) == 1, "the same arguments are one plan"


def test_an_arm_that_cannot_be_measured_has_failed_and_the_others_are_compared(out, here, monkeypatch, capsys):
    monkeypatch.setattr(costs, "measure_costs", lambda base, runs, **how: Measured({("none", 1): 1.0}, {("mixup", 3): "it fell"}))
    with pytest.raises(ValueError, match=r"^1 run failed"):
        sweep(out, ks=(3,), equal=("compute",), seeds=(0,), set_=("epochs=1",))
    assert "could not be measured: it fell" in capsys.readouterr().err
    assert [row["arm"] for row in read_rows(out / RESULTS)] == ["none"]


def test_only_tables_of_these_changes_are_printed(out, here, capsys):
    sweep(out, ks=(3,), seeds=(0,), set_=("epochs=1",))
    assert "; epochs = 1)" in capsys.readouterr().out
    sweep(out, ks=(3,), seeds=(0,))
    assert "; epochs = 1)" not in capsys.readouterr().out


def test_all_stands_for_every_method_that_can_be_trained(capsys):
    names = trainable_arms(recipe("digits"), "smoke", (1, 5))
    expected = {entry.name for entry in entries() if entry.layout != "points"} | {"smoothing"}
    assert set(names) == expected
    assert names[0] == "none"
    assert {"samix", "stylemix", "stylecutmix"} <= set(names)
    assert capsys.readouterr().err == ""
    assert "sagemix" in trainable_arms(recipe("points"), "smoke", (1,))


@pytest.mark.slow
def test_every_method_is_trained_on_digits_in_this_process(tmp_path, capsys):
    arguments = ["sweep", "digits", "--scale", "smoke", "--methods", "all", "--ks", "2", "--seeds", "0", "--out", str(tmp_path)]
    assert main(arguments) == 0
    arms = {row["arm"] for row in read_rows(tmp_path / RESULTS)}
    assert arms == {entry.name for entry in entries() if entry.layout != "points"} | {"smoothing"}
    assert "failed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--methods", "mixap"], "mixap"),
        (["--methods", "sagemix"], "sagemix"),
        (["--cluster", "gpus=one"], "gpus"),
        (["--cluster", "gpus"], "cluster"),
        (["--engine", "local", "--cluster", "partition=x"], "partition"),
        (["--engine", "slurm", "--cluster", "gpu=1"], "gpu"),
    ],
)
def test_wrong_options_are_named(tmp_path, capsys, arguments, name):
    assert main(["sweep", "digits", "--scale", "small", "--out", str(tmp_path), *arguments]) == 2
    captured = capsys.readouterr()
    assert name in captured.err
    assert captured.err.count("\n") == 1


def test_processes_of_torchrun_are_refused(out, here, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"^WORLD_SIZE must be 1"):
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
