"""The page of real trainings on the digits: every section, nothing loaded, whole at every width."""

import re
import shutil

import pytest

from browser import in_browser, opened, sound
from multimix.lab.cli import main
from multimix.lab.evaluation.cache import finished_runs
from multimix.lab.images import SAMPLES
from multimix.lab.recipes.runs import planned
from multimix.lab.report.pages.recipe import write_recipe_pages
from multimix.lab.training.run import train
from trial import RECIPE

pytestmark = pytest.mark.slow

RECIPES = {"trial": RECIPE}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for method, k in (("none", 1), ("mixup", 1), ("mixup", 3), ("manifoldmix", 2), ("recursivemix", 2)):
        train(planned(RECIPE, scale="smoke", method=method, k=k, seeds=(0, 1)), data=".", out=folder, note=lambda _: None)
    assert main(["evaluate", str(folder), "--data", "."]) == 0
    options = ["--on", "gradient_norm", "corruption", "--set", "ks=1,2", "batches=2", "corruptions=blur"]
    assert main(["evaluate", str(folder), "--data", ".", *options]) == 0
    return folder


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    (report,) = write_recipe_pages([results], out=tmp_path_factory.mktemp("report"), recipes=RECIPES)
    return report


def test_all_sections_are_there(written):
    page = written.page.read_text()
    sections = ("Findings", "Results", "Comparisons", "Curves", "Calibration", "Classes", "Gradient norm", "Corruption")
    for section in (*sections, "Mixed samples", "Runs", "Settings", "How it was made", "Cost: equal steps"):
        assert f">{section}" in page, section
    assert "mixup K = 3, seed 0: update 1: " in page
    assert re.search(r"recursivemix K = 2, seed 0: update 2: [^<]* its partner from the previous update", page)
    assert 'id="settings"' in page
    assert "schedule.rate" in page


def test_figures_and_tables_are_files(written):
    names = {path.name for path in written.files}
    assert {"error.png", "error.svg", "reliability.svg", "samples-1.svg", "table.csv", "table.md", "cost-1.csv"} <= names
    assert all(path.stat().st_size > 300 for path in written.files)


@in_browser
def test_the_page_is_sound_in_a_browser(written, tmp_path):
    dom, console = opened(written.page, tmp_path / "profile")
    assert console == []
    assert "Findings" in dom
    seen = sound(written.page, tmp_path)
    assert len(seen["drawings"]) >= 10
    assert seen["heights"][0] <= 3_000


def test_single_runs_without_samples(results, tmp_path):
    copied = shutil.copytree(results, tmp_path / "copy")
    for path in copied.rglob(SAMPLES):
        path.unlink()
    (report,) = write_recipe_pages(finished_runs(copied)[:2], out=tmp_path, recipes=RECIPES)
    page = report.page.read_text()
    assert "Mixed samples" not in page
    assert "2 runs: 1 way of training, seeds 0, 1" in page


def test_other_schedules_and_other_evaluations_are_separate(tmp_path):
    out = tmp_path / "results"
    for method, changes in (("none", {}), ("mixup", {}), ("mixup", {"epochs": "1", "schedule.at": ""})):
        runs = planned(RECIPE, scale="smoke", method=method, k=1, seeds=(0, 1), changes=changes)
        train(runs, data=".", out=out, note=lambda _: None)
    for options in (["calibration"], ["calibration", "--set", "bins=3"], ["error", "--checkpoint", "best"]):
        assert main(["evaluate", str(out), "--data", ".", "--on", *options]) == 0
    (report,) = write_recipe_pages([out], out=tmp_path / "report", recipes=RECIPES)
    page = report.page.read_text()
    costs = page.partition(">Cost: equal steps</h2>")[2].partition("<h2")[0]
    assert "since more than method and K differ: mixup K = 1 [1]" in costs
    assert costs.count("<td>3</td>") == 2, "both groups have the three epochs of the recipe"
    assert "mixup K = 1 [1]" in page.partition(">Calibration</h2>")[2].partition("<h2")[0]
    assert ">Calibration (bins = 3)</h2>" in page
    assert ">Error (best epoch)</h2>" in page


def test_unknown_recipes_and_empty_folders(results, tmp_path, capsys):
    assert main(["report", str(results), "--out", str(tmp_path)]) == 2
    assert "recipe 'trial'" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "results.jsonl").write_text("")
    assert main(["report", str(empty), "--out", str(tmp_path)]) == 2
    assert str(empty) in capsys.readouterr().err
    assert list(tmp_path.glob("*.html")) == []
