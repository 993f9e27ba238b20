"""The page and the findings of the variance study; the numbers come from a small study."""

import html
import io
import math
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from browser import in_browser, opened, sound
from multimix.lab.report.pages.variance import findings, k_table, select, variance_page
from multimix.lab.report.tables import joined


@in_browser
def test_the_page_opens_without_a_message(files, tmp_path):
    dom, console = opened(files[0], tmp_path / "profile")
    assert console == []
    assert "What the two propositions say, and when" in dom


@in_browser
def test_the_page_is_readable(files, frame, tmp_path):
    seen = sound(files[0], tmp_path)
    assert len(seen["drawings"]) == 3
    assert all(sentence in seen["text"] for sentence in findings(frame))


def test_propositions_are_stated_as_they_hold(files):
    text = html.unescape(files[0].read_text())
    for words in (
        "E‖g̃‖² − ‖E g̃‖²",
        "(V + (K−1)·V_pairs + (B−1)·V_λ) / (K·B)",
        "B ≥ B_0 = V_pairs / V_λ",
        "Both proofs assume independent pairs.",
        "Proposition 2 depends on the single shared λ.",
    ):
        assert words in text


def test_the_page_follows_from_the_rows_alone(files):
    assert variance_page(files[1]) == files[0].read_text()


def test_figures_have_descriptions(files):
    assert len(re.findall(r'<svg [^>]*aria-label="[^"]{20,}"', files[0].read_text())) == 3


def test_the_table_holds_the_measured_numbers(frame):
    table = k_table(frame)
    cells = dict(zip(table.heads, next(row for row in table.rows if row[:3] == ["spiral", "per pair", "5"]), strict=True))
    rows = select(frame, data="spiral", proposition=1, per_pair=True, sampler="iid", k=5)
    for head, columns in {
        "independent": {"kind": "variance", "source": "measured", "pairing": "independent"},
        "closed form": {"source": "closed form"},
        "ratio": {"kind": "ratio_to_closed_form"},
        "in training": {"kind": "variance", "source": "measured", "pairing": "permutation"},
        "exact": {"source": "exact"},
        "to K = 1": {"kind": "ratio_to_first_k", "pairing": "permutation"},
    }.items():
        (value,) = select(rows, **columns).value
        assert float(cells[head].split(" ±")[0]) == pytest.approx(value, rel=0.05)


def test_the_terminal_table_fits(frame):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(k_table(select(frame, per_pair=False, sampler="iid")))
    lines = console.export_text().splitlines()
    assert sum("spiral" in line for line in lines) == sum("digits" in line for line in lines) == 2
    assert max(map(cell_len, lines)) <= 80


def changed(frame, value, half=None, **columns):
    """The rows with another value where the columns match."""
    frame = frame.copy()
    rows = select(frame, **columns).index
    frame.loc[rows, ["value", "half"]] = (value, 0.01 if half is None else half)
    return frame


def test_findings_follow_the_numbers(frame):
    first = findings(changed(frame, 0.7, 0.02, kind="ratio_to_first_k", pairing="permutation", k=5))[0]
    assert "falls by 30.0 ± 2.0 % on the spiral and 30.0 ± 2.0 % on the digits." in first
    for value, count in ((1.0, 8), (1.5, 0)):
        closed = findings(changed(frame, value, kind="ratio_to_closed_form"))[1]
        assert f"{value:.2f} to {value:.2f} on the spiral" in closed
        assert f"{count} of 8 intervals" in closed
    per_pair = findings(changed(frame, 1.3, 0.04, kind="ratio_to_per_batch", pairing="permutation", k=1))[3]
    assert "by 1.300 ± 0.040 on the spiral" in per_pair
    stratified = findings(changed(frame, 0.8, kind="ratio_to_iid"))[4]
    assert "8 of 8 intervals are below 1 and 0 above" in stratified
    stratified = findings(changed(frame, 1.2, kind="ratio_to_iid"))[4]
    assert "0 of 8 intervals are below 1 and 8 above" in stratified


def test_the_predicted_side_of_b_0_is_counted(frame):
    side = {"kind": "ratio_to_large_batch"}
    low, high = select(frame, **side).batch
    for below, above, count in ((2.0, 0.5, 2), (0.5, 0.5, 1), (0.5, 2.0, 0), (1.0, 1.0, 0)):
        rows = changed(changed(frame, below, batch=low, **side), above, batch=high, **side)
        assert f"{count} of 2 ratios are on the predicted side" in findings(rows)[2]


def test_an_unbounded_b_0_is_written_as_infinity(frame):
    rows = frame.copy()
    rows.loc[(rows.kind == "B_0") & (rows.data == "digits"), ["value", "low", "high"]] = (853.4, 410.2, math.nan)
    assert "853 (410 … ∞) on the digits" in findings(rows)[2]


def test_one_data_set_is_enough(frame):
    spiral = select(frame, data="spiral")
    assert all("digits" not in sentence and "on the spiral" in sentence for sentence in findings(spiral))
    assert all(joined(row[0]) == "spiral" for row in k_table(spiral).rows)
