import csv
import json

import pytest

from multimix.lab.commands.table import table
from multimix.lab.evaluation.cache import Query, store_row
from multimix.lab.recipes import RECIPES
from multimix.lab.storage import append_row
from result_rows import result_row

CIFAR, IMAGENET = RECIPES["cifar100_preact_resnet18"], RECIPES["imagenet"]


@pytest.fixture(params=[CIFAR, IMAGENET], ids=lambda recipe: recipe.name)
def recipe(request):
    return request.param


@pytest.fixture
def results(tmp_path, recipe):
    """A folder of two finished runs of one arm, the second with its calibration measured."""
    out = tmp_path / "runs"
    for seed in range(2):
        row = result_row(recipe, "none", 1, seed, [90.0, 80.0 + seed], scale="small", weights=f"sha{seed}")
        folder = f"{recipe.name}/small/none-{seed}"
        del row["environment"]
        append_row(out / "results.jsonl", row | {"folder": folder})
    store_row(out / folder, Query("calibration", "last", "sha1", {}), numbers={"ece": 7.25}, result={})
    unusual = Query("calibration", "last", "sha1", {"bins": 100}, "bins = 100")
    store_row(out / folder, unusual, numbers={"ece": 99.0}, result={})  # which no table may show
    return out


@pytest.mark.parametrize("recipe", [IMAGENET], indirect=True)
def test_a_table_is_printed_and_written_in_three_forms(results, tmp_path, capsys):
    out = tmp_path / "deep" / "tables"
    table("VIII", runs=(results,), scale=None, out=out)
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("Table VIII: Expected calibration error (ECE) on ImageNet, ResNet-50")
    assert [line for line in said.out.splitlines() if line.startswith("wrote")] == [
        f"wrote {out / name}" for name in ("table-VIII.md", "table-VIII.csv", "table-VIII.html")
    ]
    assert sorted(path.name for path in out.iterdir()) == ["table-VIII.csv", "table-VIII.html", "table-VIII.md"]
    first = next(csv.DictReader((out / "table-VIII.csv").read_text().splitlines()))
    assert (first["label"], first["mean"], first["n"], first["seeds"]) == ("no mixup", "7.25", "1", "1")
    assert "| no mixup | 7.25 (n = 1) | 5.93 |" in (out / "table-VIII.md").read_text()
    assert "<td>7.25 (n = 1)</td>" in (out / "table-VIII.html").read_text()


def test_without_results_the_papers_table_is_shown_at_its_scale(tmp_path, capsys):
    table("I", runs=(), scale=None, out=None)
    said = capsys.readouterr()
    assert said.err == ""
    with pytest.raises(ValueError, match="there is no folder"):  # what was named must be there
        table("I", runs=(tmp_path / "nowhere",), scale=None, out=None)
    assert "(paper scale)" in said.out
    assert "18.23" in said.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", [CIFAR], indirect=True)
def test_a_scale_that_is_asked_for_is_shown(results, tmp_path, capsys):
    table("I", runs=(results,), scale="paper", out=None)
    assert "80.50" not in capsys.readouterr().out
    table("I", runs=(results,), scale=None, out=None)
    assert "80.50" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", [CIFAR], indirect=True)
def test_a_single_run_is_a_place_too(results, tmp_path, capsys):
    folder = results / CIFAR.name / "small" / "none-1"
    (folder / "settings.json").write_text(json.dumps({}))
    table("I", runs=(folder,), scale=None, out=None)
    assert "81.00" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", [CIFAR], indirect=True)
def test_without_a_number_all_are_listed(results, tmp_path, capsys):
    table(None, runs=(results,), scale=None, out=None)
    said = capsys.readouterr().out
    assert said.startswith("The paper's tables and figures")
    assert "gradient-norm" in said


def test_an_unknown_number_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="no table '99'.*; there are I errors, II batch-strategies, "):
        table("99", runs=(), scale=None, out=None)
