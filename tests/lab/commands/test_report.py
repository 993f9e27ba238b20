"""`multimix report`: a page per recipe, exhibits of the paper from finished runs, clear errors."""

import csv
import io
import json

import pytest

from multimix.lab.cli import main
from multimix.lab.evaluation.cache import Query, store_row
from multimix.lab.recipes import recipe
from multimix.lab.storage import append_row
from result_rows import result_row

CIFAR, RESNEXT, IMAGENET = recipe("cifar100_preact_resnet18"), recipe("cifar100_resnext29_4_24"), recipe("imagenet")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_run(out, own, arm, k, seed, scale="small", errors=None):
    errors = errors or [50.0, 40.0 - k + seed]
    row = result_row(own, arm, k, seed, errors, scale=scale, weights=f"{arm}{k}{seed}")
    folder = f"{own.name}/{scale}/{arm}-{k}-{seed}"
    del row["environment"]  # stored by append_row
    append_row(out / "results.jsonl", row | {"folder": folder})
    return out / folder


@pytest.fixture
def runs(here):
    for arm, k in (("none", 1), ("cutmix", 1), ("cutmix", 5), ("puzzlemix", 1), ("puzzlemix", 5)):
        for seed in range(2):
            place = add_run(here / "runs", RESNEXT, arm, k, seed)
            if (arm, k) == ("puzzlemix", 1):
                numbers = {"increase_1": 0.0, "increase_3": 90.0 + seed, "increase_5": 170.0 + seed}
                store_row(place, Query("training_time", "last", f"{arm}{k}{seed}", {}), numbers=numbers, result={"rows": []})
    return here / "runs"


def test_a_page_and_its_tables_and_figures_are_written(runs, here, capsys):
    assert main(["report", "runs"]) == 0
    name = "cifar100_resnext29_4_24-small"
    assert f"wrote multimix-report/{name}.html" in capsys.readouterr().out
    page = (here / "multimix-report" / f"{name}.html").read_text()
    for section in ("Results", "Findings", "Comparisons", "Beside the paper: Table I", "Curves", "Cost: equal steps", "Settings"):
        assert f"<h2>{section}</h2>" in page, section
    files = {path.name for path in (here / "multimix-report" / name).iterdir()}
    assert {"table.csv", "table.md", "dots.svg", "error.png", "cost-1.csv", "cost-cost.svg"} <= files
    rows = list(csv.DictReader(io.StringIO((here / "multimix-report" / name / "table.csv").read_text())))
    assert float(next(row for row in rows if (row["arm"], row["k"]) == ("cutmix", "5"))["last"]) == 35.5


@pytest.mark.parametrize(("number", "value"), [("6", "35.50"), ("7", "90.5"), ("8", "0.5")])
def test_a_figure_is_drawn_and_its_numbers_are_printed(runs, here, capsys, number, value):
    assert main(["report", "runs", "--only", f"fig{number}", "--out", "figures"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"Fig. {number}: what the paper claims" in captured.out
    assert value in captured.out
    names = [f"figure-{number}.{ending}" for ending in ("csv", "md", "svg")]
    assert sorted(path.name for path in (here / "figures").iterdir()) == names
    assert list(csv.DictReader(io.StringIO((here / "figures" / names[0]).read_text())))


def test_a_table_takes_evaluations_with_default_options_only(here, capsys):
    for seed in range(2):
        place = add_run(here / "runs", IMAGENET, "none", 1, seed)
    store_row(place, Query("calibration", "last", "none11", {}), numbers={"ece": 7.25}, result={})
    store_row(place, Query("calibration", "last", "none11", {"bins": 100}, "bins = 100"), numbers={"ece": 99.0}, result={})
    assert main(["report", "runs", "--only", "VIII", "--out", "tables"]) == 0
    assert "Table VIII: Expected calibration error" in capsys.readouterr().out
    first = next(csv.DictReader(io.StringIO((here / "tables" / "table-VIII.csv").read_text())))
    assert (first["label"], first["mean"], first["n"], first["seeds"]) == ("no mixup", "7.25", "1", "1")
    assert "| no mixup | 7.25 (n = 1) | 5.93 |" in (here / "tables" / "table-VIII.md").read_text()


def test_a_scale_and_a_single_run_can_be_chosen(here, capsys):
    place = [add_run(here / "runs", CIFAR, "none", 1, seed, errors=[90.0, 80.0 + seed]) for seed in range(2)][-1]
    assert main(["report", "runs", "--only", "I", "--scale", "paper"]) == 0
    assert "80.50" not in capsys.readouterr().out
    assert main(["report", "runs", "--only", "I"]) == 0
    assert "80.50" in capsys.readouterr().out
    place.mkdir(parents=True)
    (place / "settings.json").write_text(json.dumps({}))
    assert main(["report", str(place), "--only", "I"]) == 0
    assert "81.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--only", "fig1"], "fig1"),
        (["--only", "spirl"], "spirl"),
        (["--only", "fig3"], "look A B --figure 3"),
    ],
)
def test_unknown_exhibits_are_named(runs, capsys, arguments, name):
    assert main(["report", "runs", *arguments]) == 2
    assert name in capsys.readouterr().err


def test_what_is_missing_is_said(runs, capsys):
    assert main(["report", "runs", "--only", "fig5"]) == 0
    assert "no data for Fig. 5" in capsys.readouterr().err
    assert main(["report", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
