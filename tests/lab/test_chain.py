"""The whole chain on real images, by the commands a user types: train, evaluate, report."""

import re

import pytest

from browser import CHROMIUM, opened, sound
from multimix.lab.cli import main
from multimix.lab.evaluation.cache import collect_runs
from real_data import real_folder

pytestmark = pytest.mark.slow


def commanded(*words):
    assert main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    data, out = real_folder("tiny_imagenet"), tmp_path_factory.mktemp("runs")
    real_folder("cub200")
    for words in (["none"], ["cutmix", "--k", "3"]):
        where = ["--data", data, "--out", out, "--running.device", "cpu"]
        commanded("train", "tiny_imagenet", "--scale", "smoke", "--method", *words, *where)
    given = ["--data", data, "--device", "cpu"]
    commanded("evaluate", out, "--on", "error", "calibration", "localization", "background", *given)
    commanded("evaluate", out, "--on", "transfer", "--set", "unit=step", "count=2", "per_class=2", "batch=10", *given)
    return data, out


def test_every_evaluation_has_its_numbers(runs):
    rows = collect_runs([runs[1]])
    assert [(row["arm"], row["k"]) for row in rows] == [("none", 1), ("cutmix", 3)]
    for row in rows:
        found = {key.partition("[")[0]: evaluation for key, evaluation in row["evaluations"].items()}
        assert set(found) == {"error", "calibration", "localization", "background", "transfer"}
        assert found["error"]["numbers"]["error"] == pytest.approx(row["outcome"]["last"])
        assert found["localization"]["numbers"]["error"] == pytest.approx(row["outcome"]["last"])
        assert found["background"]["numbers"]["clean"] == pytest.approx(row["outcome"]["last"])
        assert found["localization"]["numbers"]["n"] == row["report_samples"] == 200
        # Where the class is asked for as well, nearly nothing can be found after two epochs; without it, much.
        assert found["localization"]["numbers"]["reference"] < 10 < found["localization"]["numbers"]["paper_text"]
        assert {"error_1", "accuracy_2", "transfer_text_2", "transfer_reference_2"} <= set(found["transfer"]["numbers"])
        assert found["transfer"]["result"]["classes"] == 20
        assert len(found["transfer"]["result"]["examples"]) == 8


def test_a_table_and_a_report_of_it(runs, tmp_path, capsys):
    _, out = runs
    commanded("report", out, "--only", "errors", "--out", tmp_path)
    shown = capsys.readouterr().out
    assert "smoke scale" in shown
    assert "not run at" in shown
    commanded("report", out, "--out", tmp_path)
    page = tmp_path / "tiny_imagenet-smoke.html"
    text = page.read_text()
    for section in ("Calibration", "Localization", "Background", "Transfer to birds", "Mixed samples"):
        assert re.search(rf">{section}[^<]*</h2>", text), section
    if CHROMIUM is None:
        pytest.skip("no browser to open the page in")
    _, console = opened(page, tmp_path / "profile")
    assert console == []
    sound(page, tmp_path)
