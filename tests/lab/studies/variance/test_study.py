"""The study on a small scale: what it keeps, how it goes on, what it writes."""

import json

import pytest
import torch

from multimix.lab.studies import variance
from multimix.lab.studies.variance import study
from multimix.lab.studies.variance.cases import FULL, train_weights, trained_case


def units_of(out):
    return {path.relative_to(out): path.read_bytes() for path in out.glob("variance-*/*.json")}


def test_every_number_is_written_as_json(files):
    content = json.loads(files.results.read_text())
    assert list(content["data"]) == ["spiral", "digits"]
    spiral = content["data"]["spiral"]
    assert len(spiral["measured"]) == 8
    assert [row["k"] for row in spiral["measured"]["permutation-pair-iid"]] == [1, 5]
    assert [row["k"] for row in spiral["measured"]["independent-batch-stratified"]] == [5]
    parts, b_0 = spiral["components"], spiral["crossover"]["value"]
    assert b_0 == pytest.approx(parts["pairs"] / parts["lam"])
    assert spiral["sides"]["low"]["batch"] == pytest.approx(b_0 / 4, abs=0.51)
    assert spiral["sides"]["high"]["batch"] == pytest.approx(4 * b_0, abs=0.51)
    formula = next(row for row in spiral["closed_form"] if row["k"] == 5 and not row["per_pair"])
    assert formula["value"] == pytest.approx((parts["total"] + 4 * parts["pairs"] + 7 * parts["lam"]) / 40)
    assert content["data"]["digits"]["enumeration"] is None
    assert list(files.findings) == [f"{data}: {sentence}" for data, each in content["findings"].items() for sentence in each]


def test_it_goes_on_where_it_was_stopped(tiny, files, tmp_path):
    def stopped(units):
        yield from units[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        variance.variance(settings=tiny, on=("spiral",), out=tmp_path, progress=stopped)
    kept = units_of(tmp_path)
    assert len(kept) == 1 + 6  # the settings and six finished units
    again = variance.variance(settings=tiny, on=("spiral",), out=tmp_path)
    assert {path: content for path, content in units_of(tmp_path).items() if path in kept} == kept
    whole, resumed = (json.loads(one.results.read_text())["data"]["spiral"] for one in (files, again))
    assert resumed == whole


def test_a_damaged_piece_is_named_and_computed_again(tiny, files, tmp_path):
    variance.variance(settings=tiny, on=("spiral",), out=tmp_path)
    damaged = next(tmp_path.glob("variance-spiral-*/permutation-batch-iid.json"))
    damaged.write_text(damaged.read_text().replace('"k": 1', '"k": 2'))
    notes = []
    again = variance.variance(settings=tiny, on=("spiral",), out=tmp_path, note=notes.append)
    assert len(notes) == 1
    assert "permutation-batch-iid.json is damaged" in notes[0]
    assert damaged.with_name(damaged.name + ".corrupt").exists()
    assert json.loads(again.results.read_text())["data"]["spiral"] == json.loads(files.results.read_text())["data"]["spiral"]


def test_rebuild_computes_nothing(tiny, files, monkeypatch):
    monkeypatch.setattr(study, "compute_piece", lambda *_: pytest.fail("rebuild must not compute"))
    before = files.page.read_bytes()
    files.page.unlink()
    again = variance.variance(settings=tiny, out=files.page.parent, rebuild=True)
    assert again.findings == files.findings
    assert again.page.read_bytes() == before


def test_a_progress_that_stops_early_is_told_as_missing_pieces(tiny, tmp_path):
    notes = []
    with pytest.raises(ValueError, match="holds no finished data set"):
        variance.variance(settings=tiny, on=("digits",), out=tmp_path, progress=lambda units: units[:1], note=notes.append)
    assert notes == ["digits is left out: 13 of 14 pieces are missing, the first is sampled"]


def test_rebuild_says_what_is_missing(tiny, files, tmp_path):
    notes = []
    with pytest.raises(ValueError, match="holds no finished data set; leave out rebuild to compute it"):
        variance.variance(settings=tiny, on=("digits",), out=tmp_path, rebuild=True, note=notes.append)
    assert notes == ["digits is left out: 14 of 14 pieces are missing, the first is weights"]


def test_data_sets_are_checked(tmp_path):
    with pytest.raises(ValueError, match="data set must be one of .*'cifar'"):
        variance.variance(on=("cifar",), out=tmp_path)
    with pytest.raises(ValueError, match="on must name at least one data set; there are spiral, digits"):
        variance.variance(on=(), out=tmp_path)


def test_the_number_of_threads_is_given_back(files):
    before = torch.get_num_threads()
    with study.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("data", ["spiral", "digits"])
def test_weights_and_data_come_back_exactly(tiny, data):
    settings = tiny[data]
    kept = json.loads(json.dumps(train_weights(settings)))
    assert kept == train_weights(settings)
    case = trained_case(settings, kept["weights"])
    assert torch.nn.utils.parameters_to_vector(case.model.parameters()).tolist() == kept["weights"]
    assert len(case.x) == len(case.y) == settings.samples
    assert not case.model.training


def test_the_full_study_is_the_one_asked_for():
    assert all(settings.ks == (1, 3, 5, 7, 9) for settings in FULL.values())
    assert (FULL["spiral"].samples, FULL["spiral"].every_pair) == (400, True)
    assert FULL["spiral"].replicates >= 2000
