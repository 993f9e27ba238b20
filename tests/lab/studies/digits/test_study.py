"""The whole study with very few steps: what is kept, what is done again, what is written."""

import json
from dataclasses import replace

import pytest
import torch

import multimix.lab.studies.digits.study as study_module
from made_up import Dummy, add_methods
from multimix import METHODS
from multimix.lab.studies.digits import Settings, digits
from multimix.lab.studies.digits.train import outcome
from multimix.methods import registry

TINY = Settings(steps=2)
FEW = {"methods": ("mixup", "smoothing"), "ks": (1, 2), "seeds": 2, "settings": TINY}
UNITS = [f"{arm}-seed{seed}" for seed in (0, 1) for arm in ("none-k1", "smoothing-k1", "mixup-k1", "mixup-k2")]


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


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch):
    """Figures take a second each time; test_page looks at real ones."""
    monkeypatch.setattr(study_module, "strip_figure", lambda results, metric: metric.field.encode())
    monkeypatch.setattr(study_module, "cost_figure", lambda results, metric: b"cost")


def unit_file(out, unit):
    (found,) = out.glob(f"digits-*/{unit}.json")
    return found


def test_everything_is_trained_once_and_written(tmp_path, trained, notes):
    written = digits(**FEW, out=tmp_path, note=notes.append)
    assert trained == UNITS
    content = json.loads(written.results.read_text())
    assert [(run["name"], run["k"], run["seed"]) for run in content["runs"]] == [
        (name, k, seed) for name, k in (("none", None), ("smoothing", None), ("mixup", 1), ("mixup", 2)) for seed in (0, 1)
    ]
    assert content["settings"]["steps"] == 2
    assert content["findings"] == list(written.findings)
    assert [(c["first"], c["second"]) for c in content["comparisons"] if c["metric"] == "ece"] == [
        ("smoothing", "none"),
        ("mixup, K = 1", "none"),
        ("mixup, K = 2", "none"),
        ("mixup, K = 2", "mixup, K = 1"),
    ]
    assert [path.name for path in written.figures] == ["digits-error.png", "digits-ece.png", "digits-cost.png"]
    assert [path.read_bytes() for path in written.figures] == [b"error", b"ece", b"cost"]
    assert written.table.row_count == 4
    assert notes == []
    digits(**FEW, out=tmp_path, note=notes.append)
    assert trained == UNITS


def test_a_stopped_study_goes_on_where_it_was(tmp_path, trained, notes):
    def stopped(runs):
        for number, run in enumerate(runs):
            if number == 5:
                raise KeyboardInterrupt
            yield run

    with pytest.raises(KeyboardInterrupt):
        digits(**FEW, out=tmp_path, progress=stopped, note=notes.append)
    assert trained == UNITS[:5]
    assert not (tmp_path / "digits.html").exists()
    written = digits(**FEW, out=tmp_path, rebuild=True, note=notes.append)
    assert trained == UNITS[:5]
    assert len(json.loads(written.results.read_text())["runs"]) == 5
    assert notes == ["3 of 8 runs are missing, the first is smoothing-k1-seed1"]
    digits(**FEW, out=tmp_path, note=notes.append)
    assert trained == UNITS
    digits(**{**FEW, "seeds": 3}, out=tmp_path, note=notes.append)
    assert [name[-5:] for name in trained[8:]] == ["seed2"] * 4


def test_interrupted_in_the_middle_of_training_nothing_half_is_kept(tmp_path, monkeypatch, notes):
    def killed(arm, seed, settings):
        if arm.name == "mixup":
            raise KeyboardInterrupt
        return outcome(arm, seed, settings)

    monkeypatch.setattr(study_module, "outcome", killed)
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            digits(**FEW, out=tmp_path, note=notes.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert sorted(path.stem for path in tmp_path.glob("digits-*/*-seed*")) == ["none-k1-seed0", "smoothing-k1-seed0"]


def test_a_damaged_file_is_set_aside_and_done_again(tmp_path, trained, notes):
    digits(**FEW, out=tmp_path, note=notes.append)
    damaged = unit_file(tmp_path, "mixup-k2-seed1")
    first = json.loads(damaged.read_text())["result"]
    damaged.write_text(damaged.read_text().replace(f'"error": {first["error"]}', '"error": 0.0'))
    del trained[:]
    digits(**FEW, out=tmp_path, note=notes.append)
    assert trained == ["mixup-k2-seed1"]
    assert len(notes) == 1
    assert "is damaged: set aside" in notes[0]
    again = json.loads(unit_file(tmp_path, "mixup-k2-seed1").read_text())["result"]
    assert {**again, "cpu_seconds": 0} == {**first, "cpu_seconds": 0}


def test_a_result_of_other_options_does_not_count(tmp_path, trained, notes, monkeypatch):
    digits(**FEW, out=tmp_path, note=notes.append)
    monkeypatch.setitem(registry._entries, "mixup", replace(registry.entry("mixup"), small={"alpha": 0.2}))
    del trained[:]
    digits(**FEW, out=tmp_path, note=notes.append)
    assert trained == [unit for unit in UNITS if unit.startswith("mixup")]
    assert notes[0] == "mixup-k1-seed0 was obtained with other options of the method and does not count"


def test_a_new_method_is_trained_and_written_up_by_itself(tmp_path, monkeypatch, notes):
    add_methods(monkeypatch, Dummy)
    written = digits(seeds=1, settings=TINY, out=tmp_path, note=notes.append)
    assert "dummy, K = 5 − none" in written.page.read_text()
    runs = json.loads(written.results.read_text())["runs"]
    assert {run["name"] for run in runs} == {
        "smoothing",
        "dummy",
        *(kind.name for kind in METHODS if kind.layout != "points"),
    }
    rows = {(run["name"], run["k"]): run["rows"] for run in runs}
    assert rows["dummy", 5] == 5 * rows["dummy", 1] == 5 * rows["none", None]


def test_other_settings_are_another_study(tmp_path, trained, notes):
    digits(methods=("none",), seeds=1, settings=TINY, out=tmp_path, note=notes.append)
    digits(methods=("none",), seeds=1, settings=Settings(steps=3), out=tmp_path, note=notes.append)
    assert trained == ["none-k1-seed0"] * 2


def test_quick_is_short_has_names_of_its_own_and_says_what_it_is(tmp_path, trained, notes):
    written = digits(methods=("none",), quick=True, out=tmp_path, note=notes.append)
    assert trained == ["none-k1-seed0", "none-k1-seed1"]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        *("digits-quick.html", "digits-quick.json"),
        *("digits-quick-error.png", "digits-quick-ece.png", "digits-quick-cost.png"),
    }
    assert json.loads(written.results.read_text())["settings"]["steps"] == 40
    assert "its numbers are no results" in written.findings[0]


def test_rebuild_writes_the_same_page_without_training(tmp_path, trained, notes):
    page = digits(**FEW, out=tmp_path, note=notes.append).page
    before = page.read_bytes()
    page.unlink()
    del trained[:]
    assert digits(**FEW, out=tmp_path, rebuild=True, note=notes.append).page.read_bytes() == before
    assert trained == notes == []


def test_there_must_be_something_to_rebuild(tmp_path, notes):
    with pytest.raises(ValueError, match="holds no finished run without mixing to compare with"):
        digits(**FEW, out=tmp_path, rebuild=True, note=notes.append)


def test_runs_that_are_no_pair_are_not_compared(tmp_path, monkeypatch, notes):
    def moved(arm, seed, settings):
        return outcome(arm, seed + (arm.k == 2), settings)

    monkeypatch.setattr(study_module, "outcome", moved)
    with pytest.raises(ValueError, match="mixup-k2-seed0 was trained on another split or start than none-k1-seed0"):
        digits(**FEW, out=tmp_path, note=notes.append)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"ks": ()}, r"ks must be one or more whole numbers, at least 1, got \(\)"),
        ({"ks": (0, 5)}, r"ks must be one or more whole numbers, at least 1, got \(0, 5\)"),
        ({"methods": ("cutmx",)}, r"no method 'cutmx' \(did you mean 'cutmix'\?\); there are none, "),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(tmp_path, options, sentence, notes):
    with pytest.raises(ValueError, match=sentence):
        digits(**options, out=tmp_path / "new", note=notes.append)
    assert not (tmp_path / "new").exists()
