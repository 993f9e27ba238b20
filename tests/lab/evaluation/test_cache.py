"""Evaluations lie beside the run, and count only for the weights they were made of."""

import json
import shutil

import pytest

from multimix.lab.evaluation.cache import EVALUATIONS, Query, collect_runs, find_row, finished_runs, is_run, store_row
from multimix.lab.recipes.runs import BEST
from multimix.lab.storage import checkpoint_sum, read_rows


@pytest.fixture
def copied(out, tmp_path):
    return shutil.copytree(out, tmp_path / "results")


def question(on, weights, checkpoint="last", variant="", file=None, **options):
    return Query(on, checkpoint, weights, options, variant, file)


def put(run, on, weights, numbers, **more):
    store_row(run, question(on, weights, **more), numbers=numbers, result={"whole": numbers})


def test_the_newest_row_about_the_final_weights_counts(copied):
    rows = read_rows(copied / "results.jsonl")
    run = copied / rows[0]["folder"]
    put(run, "calibration", rows[0]["weights"], {"ece": 3.0})
    put(run, "calibration", rows[0]["weights"], {"ece": 4.0})
    put(run, "calibration", "weights of an earlier epoch", {"ece": 99.0})
    put(run, "calibration", rows[0]["weights"], {"ece": 50.0}, variant="bins = 100", bins=100)
    file = checkpoint_sum(run / BEST)
    put(run, "error", "those of the best epoch", {"error": 7.0}, checkpoint="best", file=file)
    put(run, "error", "those of an earlier best epoch", {"error": 99.0}, checkpoint="best", file="another")
    found = collect_runs([copied])
    assert [row["seed"] for row in found] == [row["seed"] for row in rows]
    assert found[0]["evaluations"]["calibration"]["numbers"] == {"ece": 4.0}
    assert found[0]["evaluations"]["error@best"]["numbers"] == {"error": 7.0}
    assert found[0]["evaluations"]["calibration[bins = 100]"]["numbers"] == {"ece": 50.0}
    assert set(found[0]["evaluations"]) == {"calibration", "calibration[bins = 100]", "error@best"}
    assert found[1]["evaluations"] == {}
    assert found[0]["place"] == str(run)


def test_what_is_kept_is_found_by_weights_and_options(copied):
    run = finished_runs(copied)[0]
    put(run, "calibration", "w", {"ece": 3.0}, bins=10)
    put(run, "calibration", "w", {"ece": 5.0}, bins=15)
    assert find_row(run, question("calibration", "w", bins=10))["numbers"] == {"ece": 3.0}
    assert find_row(run, question("calibration", "w", bins=12)) is None
    assert find_row(run, question("calibration", "other", bins=10)) is None
    assert find_row(run, question("calibration", "w", checkpoint="best", bins=10)) is None
    assert find_row(run, question("error", "w", bins=10)) is None


def test_a_single_run_and_a_run_named_twice(copied):
    run = finished_runs(copied)[2]
    assert is_run(run)
    assert not is_run(copied)
    (row,) = collect_runs([run])
    assert (row["arm"], row["seed"]) == ("mixup", 0)
    assert len(collect_runs([copied, run, copied])) == 4
    (copied / "results.jsonl").unlink()
    assert finished_runs(run) == [], "without its row it is not finished"


def test_damage_is_told_and_passed_over(copied):
    rows = read_rows(copied / "results.jsonl")
    run = copied / rows[0]["folder"]
    put(run, "calibration", rows[0]["weights"], {"ece": 3.0})
    text = (run / EVALUATIONS).read_text()
    (run / EVALUATIONS).write_text(text + text.replace("3.0", "2.0"))
    told = []
    assert collect_runs([copied], told.append)[0]["evaluations"]["calibration"]["numbers"] == {"ece": 3.0}
    assert told == [f"line 2 of {run / EVALUATIONS} is damaged and left out"]


def test_numbers_that_were_measured_in_two_ways_are_named(copied):
    rows = read_rows(copied / "results.jsonl")
    for row, bins in zip(rows, (10, 10, 15), strict=False):
        put(copied / row["folder"], "calibration", row["weights"], {"ece": 1.0}, bins=bins)
    told = []
    collect_runs([copied], told.append)
    assert told == ["calibration of trial at smoke scale was measured in 2 ways (options or samples), which do not compare"]


def test_folders_that_hold_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"it has neither settings.json nor results.jsonl"):
        collect_runs([tmp_path])
    with pytest.raises(ValueError, match="nowhere must be a folder"):
        collect_runs([tmp_path / "nowhere"])
    (tmp_path / "results.jsonl").write_text(json.dumps({"recipe": "x"}) + "\n")
    told = []
    assert collect_runs([tmp_path], told.append) == []
    assert len(told) == 1, "a row without a checksum"
