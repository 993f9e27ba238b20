"""The whole study with very few steps: what is kept, what is done again, what is written; its page in a real browser."""

import base64
import io
import json
import re

import pytest
from rich.console import Console

import multimix.lab.studies.points.study as study_module
from browser import in_browser, in_frame, opened
from multimix.lab.studies.digits.train import Outcome
from multimix.lab.studies.points.figures import cloud_figure
from multimix.lab.studies.points.study import points, written
from multimix.lab.studies.points.train import PointSettings, arms, outcome

TINY = PointSettings(per_kind=2, test_per_kind=2, points=8, batch=5, steps=2)
FEW = {"ks": (1, 2), "seeds": 2, "settings": TINY}
UNITS = [f"{arm}-seed{seed}" for seed in (0, 1) for arm in ("none-k1", "sagemix-k1", "sagemix-k2")]


@pytest.fixture
def trained(monkeypatch):
    """The names of the runs that were really trained."""
    names = []

    def spied(arm, seed, settings):
        names.append(arm.unit(seed))
        return outcome(arm, seed, settings)

    monkeypatch.setattr(study_module, "outcome", spied)
    return names


@pytest.fixture
def notes():
    return []


@pytest.fixture
def _no_drawing(monkeypatch):
    """Figures take a second each time."""
    monkeypatch.setattr(study_module, "strip_figure", lambda results, metric: metric.field.encode())
    monkeypatch.setattr(study_module, "cloud_figure", lambda settings, k: f"clouds {k}".encode())


@pytest.mark.usefixtures("_no_drawing")
def test_everything_is_trained_once_and_written(tmp_path, trained, notes):
    result = points(**FEW, out=tmp_path, note=notes.append)
    assert trained == UNITS
    content = json.loads(result.results.read_text())
    expected = [(name, k, seed) for name, k in (("none", None), ("sagemix", 1), ("sagemix", 2)) for seed in (0, 1)]
    assert [(run["name"], run["k"], run["seed"]) for run in content["runs"]] == expected
    assert content["settings"]["steps"] == 2
    assert content["findings"] == list(result.findings)
    assert [(c["first"], c["second"]) for c in content["comparisons"] if c["metric"] == "error"] == [
        ("sagemix, K = 1", "none"),
        ("sagemix, K = 2", "none"),
        ("sagemix, K = 2", "sagemix, K = 1"),
    ]
    assert [path.name for path in result.figures] == ["points-clouds.png", "points-error.png", "points-ece.png"]
    assert [path.read_bytes() for path in result.figures] == [b"clouds 2", b"error", b"ece"]
    assert result.table.row_count == 3
    points(**FEW, out=tmp_path, note=notes.append)
    assert trained == UNITS
    assert notes == []


@pytest.mark.usefixtures("_no_drawing")
def test_a_stopped_study_goes_on_where_it_was(tmp_path, trained, notes):
    def stopped(runs):
        for number, run in enumerate(runs):
            if number == 4:
                raise KeyboardInterrupt
            yield run

    with pytest.raises(KeyboardInterrupt):
        points(**FEW, out=tmp_path, progress=stopped, note=notes.append)
    assert trained == UNITS[:4]
    assert not (tmp_path / "points.html").exists()
    rebuilt = points(**FEW, out=tmp_path, rebuild=True, note=notes.append)
    assert trained == UNITS[:4]
    assert len(json.loads(rebuilt.results.read_text())["runs"]) == 4
    assert notes == ["2 of 6 runs are missing, the first is sagemix-k1-seed1"]
    points(**FEW | {"seeds": 3}, out=tmp_path, note=notes.append)
    assert trained == [*UNITS, "none-k1-seed2", "sagemix-k1-seed2", "sagemix-k2-seed2"]


@pytest.mark.usefixtures("_no_drawing")
def test_a_result_of_other_options_does_not_count(tmp_path, trained, notes, monkeypatch):
    points(**FEW, out=tmp_path, note=notes.append)
    other = PointSettings(sigma=0.3)
    monkeypatch.setattr(study_module, "arms", lambda ks, settings: arms(ks, other))
    del trained[:]
    points(**FEW, out=tmp_path, note=notes.append)
    assert trained == [unit for unit in UNITS if unit.startswith("sagemix")]
    assert notes[0] == "sagemix-k1-seed0 was obtained with other options of the method and does not count"


@pytest.mark.usefixtures("_no_drawing")
def test_quick_is_short_has_names_of_its_own_and_says_what_it_is(tmp_path, trained, notes):
    result = points(quick=True, ks=(1,), settings=PointSettings(points=8), out=tmp_path, note=notes.append)
    assert trained == ["none-k1-seed0", "sagemix-k1-seed0", "none-k1-seed1", "sagemix-k1-seed1"]
    assert json.loads(result.results.read_text())["settings"]["steps"] == 40
    assert "its numbers are no results" in result.findings[0]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        *("points-quick.html", "points-quick.json"),
        *("points-quick-clouds.png", "points-quick-error.png", "points-quick-ece.png"),
    }


@pytest.mark.usefixtures("_no_drawing")
def test_runs_that_are_no_pair_are_not_compared(tmp_path, monkeypatch, notes):
    monkeypatch.setattr(study_module, "outcome", lambda arm, seed, settings: outcome(arm, seed + (arm.k == 2), settings))
    with pytest.raises(ValueError, match="sagemix-k2-seed0 was trained on another split or start than none-k1-seed0"):
        points(**FEW, out=tmp_path, note=notes.append)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"ks": ()}, r"ks must be one or more whole numbers, at least 1, got \(\)"),
        ({"ks": (0, 5)}, r"ks must be one or more whole numbers, at least 1, got \(0, 5\)"),
        ({"rebuild": True}, "holds no finished run without mixing to compare with; leave out rebuild to train"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(tmp_path, notes, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        points(**FEW | options, out=tmp_path, note=notes.append)


def made_up(arm, place, seed):
    return Outcome(20 + seed - place, 5 + place, 0.1, 0.5, 80.0, 0.0, 1.5 * (arm.k or 1), 400, "arm", "bodies", "start")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    found = {arm: {seed: made_up(arm, i, seed) for seed in range(3)} for i, arm in enumerate(arms((1, 5), PointSettings()))}
    return written(found, PointSettings(), tmp_path_factory.mktemp("points"))


def test_one_arm_and_one_seed_make_a_page_too(tmp_path):
    none = arms((), PointSettings())[0]
    alone = written({none: {0: made_up(none, 0, 0)}}, PointSettings(), tmp_path)
    assert json.loads(alone.results.read_text())["comparisons"] == []


def test_the_table_names_what_was_measured_and_how_often(files):
    console = Console(width=100, file=io.StringIO())
    console.print(files.table)
    said = " ".join(console.file.getvalue().split())
    assert "Clouds of points, 3 seeds: mean ± 95 %" in said
    assert "Digits" not in said
    assert "sagemix, K = 5" in said


@in_browser
def test_the_page_opens_without_a_message(files, tmp_path):
    dom, console = opened(files.page, tmp_path / "profile")
    assert console == []
    assert "SageMix on clouds of points" in dom
    assert "Digits" not in dom
    embedded = [base64.b64decode(found) for found in re.findall(r'src="data:image/png;base64,([^"]+)"', files.page.read_text())]
    assert embedded == [path.read_bytes() for path in files.figures]


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_requested_broken_or_cut_off(files, tmp_path, width):
    seen = in_frame(files.page, width, tmp_path)
    assert seen["requests"] == []
    assert seen["widths"] == [width, width]
    assert len(seen["pictures"]) == 3
    assert min(seen["pictures"]) > 1000
    assert all(sentence in seen["text"] for sentence in files.findings)


def test_the_clouds_are_the_same_every_time_and_k_is_seen():
    assert cloud_figure(TINY, 2) == cloud_figure(TINY, 2) != cloud_figure(TINY, 3)
