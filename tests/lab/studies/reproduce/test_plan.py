"""What `multimix reproduce` plans: every training once, whoever asks for it, and what is missing."""

import re

import pytest

from multimix.lab.cli import main
from multimix.lab.report.paper import EXHIBITS, exhibit
from multimix.lab.studies.reproduce import plan as planning
from multimix.lab.studies.reproduce.plan import choose, cost_table, make_plan


@pytest.fixture
def data_are_there(monkeypatch):
    monkeypatch.setattr(planning, "_missing_data", lambda settings, data, cache: None)
    monkeypatch.setattr(planning, "read_cub200", lambda data: None)


def planned(tmp_path, *only, scale="smoke", follow="text", seeds=(0,)):
    return make_plan(choose(only), scale=scale, follow=follow, seeds=seeds, data=tmp_path, cache=tmp_path / "cache")


def test_everything_is_shown_in_the_papers_order():
    labels = [one.label for one in choose(())]
    assert sorted(labels) == sorted(one.label for one in EXHIBITS)
    assert labels[:4] == ["Fig. 2", "Fig. 3", "Fig. 4", "Table I"]
    assert [one.label for one in choose(["fig6", "V", "I", "v"])] == ["Table I", "Table V", "Fig. 6"]
    with pytest.raises(ValueError, match="'XI'"):
        choose(["XI"])


@pytest.mark.usefixtures("data_are_there")
def test_a_run_that_several_ask_for_is_planned_once(tmp_path):
    whole = planned(tmp_path, seeds=(0, 1))
    keys = [(run.recipe.name, run.arm, run.k, run.seed) for run in whole.runs]
    assert len(set(keys)) == len(keys) == len({run.folder for run in whole.runs})
    expected = {(*training, seed) for one in EXHIBITS for training in one.trainings for seed in (0, 1)}
    assert set(keys) == expected
    asked = [training for one in EXHIBITS for training in one.trainings]
    assert len(asked) > len(set(asked))
    # Seed by seed, so that what is there when it is stopped compares.
    assert [run.seed for run in whole.runs] == sorted(run.seed for run in whole.runs)


@pytest.mark.usefixtures("data_are_there")
def test_evaluators_measure_the_runs_of_their_tables(tmp_path):
    measures = planned(tmp_path).measures()
    assert set(measures) == {"localization", "background", "transfer", "calibration", "training_time"}
    for name in ("localization", "background", "transfer", "calibration"):
        assert len(measures[name]) == 10
        assert {run.recipe.name for run in measures[name]} == {"imagenet"}
    assert [(run.arm, run.k) for run in measures["training_time"]] == [("puzzlemix", 1)]
    assert set(planned(tmp_path, "fig5").measures()) == {"transfer"}
    assert planned(tmp_path, "II").measures() == {}


@pytest.mark.usefixtures("data_are_there")
def test_the_plan_says_what_it_costs(tmp_path):
    heard = []
    table = cost_table(planned(tmp_path, "II", "fig8"), [], heard.append)
    assert heard == ["measuring a step of cifar100_resnext29_4_24"]
    columns = {column.header: list(column.cells) for column in table.columns}
    assert (columns["recipe"], columns["runs"]) == (["cifar100_resnext29_4_24", "all"], ["9", "9"])
    assert re.fullmatch(r"\d+ (s|min)", columns["about"][0])
    assert "9 runs for 10 entries" in table.caption


@pytest.mark.usefixtures("data_are_there")
def test_a_longer_training_costs_more(tmp_path):
    small, smoke = (planned(tmp_path, "II", scale=scale).runs for scale in ("small", "smoke"))
    assert planning._cost(small)[0] > 10 * planning._cost(smoke)[0]


def test_missing_data_are_named_with_the_command_that_fetches_them(tmp_path, capsys):
    found = planned(tmp_path)
    assert found.runs == ()
    assert set(found.missing) == {"cifar100", "tiny_imagenet", "speech_commands_v1", "cub200"}
    words = ["reproduce", "--scale", "smoke", "--only", "VII", "fig3", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    heard = capsys.readouterr()
    assert f"multimix data fetch speech_commands_v1 --folder {tmp_path}" in heard.err
    text = (tmp_path / "out" / "paper-smoke-fig3-VII.html").read_text()
    assert "Of 9 claims of the paper: 9 not run." in text
    assert "What is missing" in text
    assert text.count("<svg ") == 1


def test_bad_words_are_one_sentence(tmp_path, capsys):
    assert main(["reproduce", "--only", "table9", "--out", str(tmp_path)]) == 2
    assert "'table9'" in capsys.readouterr().err
    assert main(["reproduce", "--jobs", "0", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "jobs must be at least 1, got 0\n"


def test_every_exhibit_has_a_word():
    assert {exhibit(name) for name in planning.EXHIBIT_ORDER} == set(EXHIBITS)
