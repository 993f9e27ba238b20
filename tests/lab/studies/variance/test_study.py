"""The study on a small scale: stored pieces, resuming, and rows."""

import json

import pytest
import torch

from multimix.lab.report.pages.variance import select
from multimix.lab.storage import Store
from multimix.lab.studies.variance import study
from multimix.lab.studies.variance.cases import FULL, QUICK, train_weights, trained_case


def units_of(out):
    return {path.relative_to(out): path.read_bytes() for path in out.glob("variance-*/*.json")}


def rows_of(results, data):
    return [row for row in json.loads(results.read_text())["rows"] if row["data"] == data]


def value(frame, **columns):
    (number,) = select(frame, **columns).value
    return number


def test_rows_are_the_stored_measurements(files, frame):
    stored = json.loads(next(files[1].parent.glob("variance-spiral-*/permutation-pair-iid.json")).read_text())["result"]
    setup = {"data": "spiral", "source": "measured", "pairing": "permutation", "per_pair": True, "sampler": "iid"}
    for entry in stored["measured"]:
        for kind in ("variance", "squared_norm"):
            (row,) = select(frame, kind=kind, k=entry["k"], **setup).itertuples()
            assert [row.value, row.half] == entry[kind]
        assert value(frame, kind="printed", k=entry["k"], **setup) == entry["printed"]
        assert value(frame, kind="ratio_to_first_k", k=entry["k"], **setup) == entry["ratio"][0]


def test_formulas_follow_the_parts_of_the_variance(frame):
    spiral = select(frame, data="spiral")
    total, pairs, lam = (value(spiral, kind=kind, source="all pairs") for kind in ("V", "V_pairs", "V_λ"))
    b_0 = value(spiral, kind="B_0", source="all pairs")
    assert b_0 == pytest.approx(pairs / lam)
    formula = {"kind": "variance", "source": "closed form", "per_pair": False}
    assert value(spiral, proposition=1, k=5, **formula) == pytest.approx((total + 4 * pairs + 7 * lam) / 40)
    low, high = (round(factor * b_0) for factor in (0.25, 4))
    measured = select(spiral, proposition=2, kind="variance", source="measured")
    assert list(zip(measured.k, measured.batch, strict=True)) == [(5, low), (1, 5 * low), (5, high), (1, 5 * high)]
    assert value(spiral, proposition=2, k=1, batch=5 * high, **formula) == pytest.approx(
        (total + (5 * high - 1) * lam) / (5 * high)
    )
    assert set(select(frame, data="digits", kind="B_0").source) == {"sampled pairs"}
    assert not len(select(frame, data="digits", kind="ratio_to_large_batch"))


def test_ratios_are_those_of_the_variances(frame):
    setup = {"data": "digits", "kind": "variance", "source": "measured", "k": 5, "proposition": 1}
    measured = {(row.pairing, row.per_pair, row.sampler): row.value for row in select(frame, **setup).itertuples()}
    for row in frame[(frame.data == "digits") & (frame.k == 5)].itertuples():
        own = measured.get((row.pairing, row.per_pair, row.sampler))
        if row.kind == "ratio_to_iid":
            assert row.value == pytest.approx(own / measured[row.pairing, row.per_pair, "iid"])
        if row.kind == "ratio_to_per_batch":
            assert row.value == pytest.approx(own / measured[row.pairing, False, "iid"])
        if row.kind == "ratio_to_closed_form":
            formula = value(frame, **{**setup, "source": "closed form", "per_pair": row.per_pair})
            assert row.value == pytest.approx(own / formula)
    assert (frame.kind == "ratio_to_iid").sum() == 8
    assert (frame.kind == "ratio_to_per_batch").sum() == (frame.kind == "ratio_to_closed_form").sum() == 8


def test_resumes_where_it_was_stopped(tiny, files, tmp_path):
    def stopped(units):
        yield from units[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.variance(settings=tiny, on=("spiral",), out=tmp_path, progress=stopped)
    kept = units_of(tmp_path)
    assert len(kept) == 1 + 6  # the settings and six finished units
    _, results = study.variance(settings=tiny, on=("spiral",), out=tmp_path)
    assert {path: content for path, content in units_of(tmp_path).items() if path in kept} == kept
    assert rows_of(results, "spiral") == rows_of(files[1], "spiral")


def test_the_same_command_measures_nothing_again(tiny, files, monkeypatch):
    monkeypatch.setattr(study, "compute_piece", lambda *_: pytest.fail("everything is stored"))
    before = files[0].read_bytes()
    files[0].unlink()
    page, _ = study.variance(settings=tiny, out=files[0].parent)
    assert page.read_bytes() == before


def test_a_damaged_piece_is_computed_again(tiny, files, tmp_path):
    study.variance(settings=tiny, on=("spiral",), out=tmp_path)
    damaged = next(tmp_path.glob("variance-spiral-*/permutation-batch-iid.json"))
    damaged.write_text(damaged.read_text().replace('"k": 1', '"k": 2'))
    notes = []
    _, results = study.variance(settings=tiny, on=("spiral",), out=tmp_path, note=notes.append)
    assert len(notes) == 1
    assert "permutation-batch-iid.json is damaged" in notes[0]
    assert damaged.with_name(damaged.name + ".corrupt").exists()
    assert rows_of(results, "spiral") == rows_of(files[1], "spiral")


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        (FULL["spiral"], "variance-spiral-6d3e07b569"),
        (FULL["digits"], "variance-digits-969d70952d"),
        (QUICK["spiral"], "variance-spiral-207023a03f"),
        (QUICK["digits"], "variance-digits-84237b5d83"),
    ],
)
def test_folders_of_stored_pieces_keep_their_names(tmp_path, settings, folder):
    """Other names would measure everything again that an earlier version stored."""
    assert Store(tmp_path, f"variance-{settings.data}", settings).folder.name == folder


def test_pieces_of_earlier_versions_are_read():
    """The sampled piece had naive estimates beside the components; measurements are lists after JSON."""
    parts = {"total": 3.0, "pairs": 2.0, "lam": 0.5, "covariance": [[0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]]}
    pieces = {"sampled": {"components": parts, "plug_in": 0.6, "plug_in_group": 0.7, "pairs": 10, "group": 5}}
    enumeration, components = study.best_components(pieces)
    assert enumeration is None
    assert components.combined((0, 0, 1)).half == pytest.approx(1.959964 * 0.1**0.5)


def test_an_unresolved_crossover_has_no_side(tiny, monkeypatch):
    settings = tiny["digits"]
    parts = {"total": 3.0, "pairs": 2.0, "lam": -0.5, "covariance": [[0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]]}
    pieces = {"weights": train_weights(settings), "sampled": {"components": parts}}
    sides = {
        f"{side}-{kind}": study.compute_piece(f"{side}-{kind}", settings, pieces)
        for side in study.SIDES
        for kind in ("multi", "large")
    }
    assert all(piece == {"measured": None, "batch": None, "replicates": 0} for piece in sides.values())
    rows = list(study._crossover_rows(settings, pieces | sides))
    assert {row["batch"] for row in rows} == {settings.batch, settings.compared_k * settings.batch}


def test_no_data_set_raises(tmp_path):
    with pytest.raises(ValueError, match="on must name at least one data set"):
        study.variance(on=(), out=tmp_path)


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    with study.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("data", ["spiral", "digits"])
def test_weights_and_data_come_back_exactly(tiny, data):
    settings = tiny[data]
    kept = json.loads(json.dumps(train_weights(settings)))
    assert kept == train_weights(settings)
    model, _, x, y, *_ = trained_case(settings, kept["weights"])
    assert torch.nn.utils.parameters_to_vector(model.parameters()).tolist() == kept["weights"]
    assert len(x) == len(y) == settings.samples
    assert not model.training


def test_the_full_study_is_the_one_asked_for():
    assert all(settings.ks == (1, 3, 5, 7, 9) for settings in FULL.values())
    assert (FULL["spiral"].samples, FULL["spiral"].every_pair) == (400, True)
    assert FULL["spiral"].replicates >= 2000
