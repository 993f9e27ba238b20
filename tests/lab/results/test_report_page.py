"""The page of real trainings on the digits: everything in it, nothing loaded, whole at every width."""

import re
import shutil

import pytest

from browser import in_browser, opened, sound
from multimix.lab.cli import main
from multimix.lab.evaluation.cache import finished_runs
from multimix.lab.results.report import write_reports
from multimix.lab.training.run import planned, train
from trial import RECIPE

pytestmark = pytest.mark.slow

RECIPES = {"trial": RECIPE}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for method, k in (("none", 1), ("mixup", 1), ("mixup", 3), ("manifoldmix", 2), ("recursivemix", 2)):
        train(planned(RECIPE, scale="smoke", method=method, k=k, seeds=(0, 1)), data=".", out=folder, note=lambda _: None)
    assert main(["evaluate", str(folder), "--data", "."]) == 0
    words = ["--on", "gradient_norm", "corruption", "--set", "ks=1,2", "batches=2", "corruptions=blur"]
    assert main(["evaluate", str(folder), "--data", ".", *words]) == 0
    return folder


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    (found,) = write_reports([results], out=tmp_path_factory.mktemp("report"), data=".", recipes=RECIPES)
    return found


def test_all_parts_are_there(written):
    page = written.page.read_text()
    sections = ("What shows", "Results", "Comparisons", "Curves", "Calibration", "Classes", "Gradient norm", "Corruption")
    for section in (*sections, "Mixed samples of these runs", "Runs", "Settings", "How it was made", "Cost: equal steps"):
        assert f">{section}" in page, section
    assert "mixup K = 3, seed 0, first update" in page
    assert re.search(r"recursivemix K = 2, seed 0, second update: [^<]* its partner, of the update before", page)
    assert 'id="settings"' in page
    assert "schedule.rate" in page


def test_figures_are_files_too(written):
    names = {path.name for path in written.figures}
    assert {"error.png", "error.svg", "reliability.png", "reliability.svg", "samples-1.svg"} <= names
    for path in written.figures:
        assert path.stat().st_size > 1000


@in_browser
def test_the_browser_has_nothing_to_complain_about(written, tmp_path):
    dom, console = opened(written.page, tmp_path / "profile")
    assert console == []
    assert "What shows and what does not" in dom


@in_browser
def test_the_page_is_worth_showing(written, tmp_path):
    seen = sound(written.page, tmp_path)
    assert len(seen["drawings"]) >= 10
    assert seen["heights"][0] <= 3_000


@in_browser
def test_a_report_of_three_runs_is_short(results, tmp_path):
    runs = finished_runs(results)[:3]
    (found,) = write_reports(runs, out=tmp_path, data=".", recipes=RECIPES)
    folded, whole = sound(found.page, tmp_path)["heights"]
    assert folded <= 2_000
    assert whole <= 7_000


def test_single_runs_without_samples(results, tmp_path):
    runs = finished_runs(results)[:2]
    (found,) = write_reports(runs, out=tmp_path, data=None, recipes=RECIPES)
    page = found.page.read_text()
    assert "Mixed samples" not in page
    assert "2 runs: 1 way of training, seeds 0, 1" in page


def test_other_schedules_and_other_evaluations_are_not_mixed_up(tmp_path):
    out = tmp_path / "results"
    for method, changes in (("none", {}), ("mixup", {}), ("mixup", {"epochs": "1", "schedule.at": ""})):
        runs = planned(RECIPE, scale="smoke", method=method, k=1, seeds=(0, 1), changes=changes)
        train(runs, data=".", out=out, note=lambda _: None)
    for words in (["--on", "calibration"], ["--on", "calibration", "--set", "bins=3"], ["--on", "error", "--checkpoint", "best"]):
        assert main(["evaluate", str(out), "--data", ".", *words]) == 0
    (found,) = write_reports([out], out=tmp_path / "report", data=None, recipes=RECIPES)
    page = found.page.read_text()
    costs = page.partition(">Cost: equal steps</h2>")[2].partition("<h2")[0]
    assert "left out, since more than method and K differ: mixup K = 1 [1]" in costs
    assert costs.count("<td>3</td>") == 2, "both lines have the three epochs of the recipe"
    assert "mixup K = 1 [1]" in page.partition(">Calibration</h2>")[2].partition("<h2")[0]
    assert ">Calibration (bins = 3)</h2>" in page
    assert "What [1] mean stands below the table of results." not in page, "one of them means"
    assert "What [1] means stands below the table of results." in page
    assert ">Error (best epoch)</h2>" in page


def test_data_that_are_not_there_leave_samples_out(results, tmp_path, capsys, monkeypatch):
    def gone(*given):
        raise ValueError("data must be or hold a folder, it does not exist")

    monkeypatch.setattr("multimix.lab.evaluation.subject.splits_of", gone)
    (found,) = write_reports([results], out=tmp_path, data="nowhere", recipes=RECIPES)
    assert "Mixed samples" not in found.page.read_text()
    assert (
        "no mixed samples of none, mixup K = 1, mixup K = 3, manifoldmix K = 2, recursivemix K = 2: data must be"
        in capsys.readouterr().err
    )


def test_runs_without_weights_are_told_in_one_line(results, tmp_path, capsys):
    copied = shutil.copytree(results, tmp_path / "copy")
    for path in copied.rglob("*.checkpoint"):
        path.unlink()
    write_reports([copied], out=tmp_path / "report", data=".", recipes=RECIPES)
    told = [line for line in capsys.readouterr().err.splitlines() if "no mixed samples" in line]
    names = "none, mixup K = 1, mixup K = 3, manifoldmix K = 2, recursivemix K = 2"
    assert len(told) == 1
    assert told[0].startswith(f"no mixed samples of {names}: its folder has no last checkpoint")


def test_what_is_no_study(results, tmp_path, capsys):
    assert main(["report", str(results), "--out", str(tmp_path)]) == 2
    assert "recipe 'trial', which this version does not have" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "results.jsonl").write_text("")
    assert main(["report", str(empty), "--out", str(tmp_path)]) == 2
    assert "there are no finished runs in" in capsys.readouterr().err
    copied = shutil.copytree(results, tmp_path / "copy")
    assert list(tmp_path.glob("*.html")) == []
    assert write_reports([copied], out=tmp_path / "again", data=None, recipes=RECIPES)
