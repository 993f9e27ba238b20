"""The page opened in a real browser, its words and the terminal's table; the numbers come from a small study."""

import html
import io
import json
import re

import pytest
from rich.console import Console

from browser import in_browser, opened, sound


@in_browser
def test_the_page_opens_without_a_message(files, tmp_path):
    dom, console = opened(files.page, tmp_path / "profile")
    assert console == []
    assert "What the two propositions say, and when" in dom


@in_browser
def test_the_page_is_worth_showing(files, tmp_path):
    seen = sound(files.page, tmp_path)
    assert len(seen["drawings"]) == 7  # beside the headline, and three for each data set
    assert all(sentence.partition(": ")[2] in seen["text"] for sentence in files.findings)


def test_the_propositions_are_stated_as_they_hold(files):
    text = html.unescape(files.page.read_text())
    for words in (
        "E‖g̃‖² − ‖E g̃‖²",
        "(V + (K−1)·V_pairs + (B−1)·V_λ) / (K·B)",
        "B ≥ B_0 = V_pairs / V_λ",
        "Both proofs need independent pairs.",
        "Proposition 2 rests on the single shared λ.",
    ):
        assert words in text


def test_figures_are_files_and_have_words(files):
    assert len(files.figures) == 6
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files.figures)
    assert len(re.findall(r'<svg [^>]*aria-label="[^"]{20,}"', files.page.read_text())) == 7


def test_the_tables_hold_the_measured_numbers(files):
    data = json.loads(files.results.read_text())["data"]["spiral"]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", files.page.read_text(), re.S)]
    cells = next(row for row in rows if row and row[0] == "λ per pair, K = 5")
    free, bound = (data["measured"][f"{pairing}-pair-iid"][1]["variance"] for pairing in ("independent", "permutation"))
    formula = next(row for row in data["closed_form"] if row["k"] == 5 and row["per_pair"])
    for cell, value in ((1, free["value"]), (2, formula["value"]), (4, bound["value"]), (5, formula["permutation"])):
        assert float(cells[cell].split(" ±")[0].replace(",", "")) == pytest.approx(value, rel=0.05)
    assert float(cells[3]) == pytest.approx(free["value"] / formula["value"], abs=5e-4)


def test_the_terminal_table_fits_and_has_a_line_per_k(files):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(files.table)
    lines = console.export_text().splitlines()
    assert sum("spiral" in line for line in lines) == sum("digits" in line for line in lines) == 2
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
