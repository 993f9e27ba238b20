"""The table builder: terminal, Markdown, CSV and the page show the same cells."""

import csv
import io
import re

import pytest
from rich.console import Console

from multimix.lab.report.page import Notes, render_page
from multimix.lab.report.stats import paired, summary
from multimix.lab.report.tables import Column, Table, cell, number

SHEET = Table.of_rows(
    "A title (small)",
    ["arm", "error (%)", "vs none"],
    [["none", ("23.50", "± 0.25"), None], ["a|b *<", "21.00", ("−2.50", "± 0.10, p = 0.002")]],
    ["a note with | and *"],
)


def shown(sheet, width):
    console = Console(width=width, file=io.StringIO())
    console.print(sheet)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def wide_sheet(columns=8, keys=1):
    heads = ["arm", *(f"head{i}" for i in range(1, columns + 1))]
    row = ["none", *((f"{i}000.55", f"± {i}.25") for i in range(1, columns + 1))]
    return Table.of_rows("wide", heads, [row], ["told"], keys)


def test_the_terminal_puts_the_second_part_below_the_first():
    lines = shown(SHEET, 100)
    assert lines[0] == "A title (small)"
    assert [line.split() for line in lines[1:]] == [
        ["error"],
        ["arm", "(%)", "vs", "none"],
        ["─" * 80],
        ["none", "23.50", "–"],
        ["±0.25"],
        ["a|b", "*<", "21.00", "−2.50"],
        ["±0.10"],
        ["p=0.002"],
        ["a", "note", "with", "|", "and", "*"],
    ]


@pytest.mark.parametrize("keys", [1, 2])
def test_a_table_that_is_too_wide_is_cut_between_columns_and_no_number_is_broken(keys):
    full = "\n".join(shown(wide_sheet(keys=keys), 100))
    lines = shown(wide_sheet(keys=keys), 40)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 40
    # "none" needs 5 columns with its gap, a number 8: four numbers fit into 40 with one key, three with two keys.
    parts = {1: 2, 2: 3}[keys]
    assert (text.count("none"), text.count("wide"), text.count("told"), full.count("none")) == (parts, 1, 1, 1)
    repeated = [1] if keys == 1 else [parts]
    assert [text.count(f"{i}000.55") for i in range(1, 9)] == repeated + [1] * 7
    assert [text.count(f"±{i}.25") for i in range(1, 9)] == repeated + [1] * 7
    assert text.index("wide") < text.index("1000.55") < text.index("8000.55") < text.index("told")


def test_markdown_has_both_parts_in_one_cell_and_no_markup_of_its_own():
    assert SHEET.markdown() == (
        "## A title (small)\n\n| arm | error (%) | vs none |\n| :-- | --: | --: |\n| none | 23.50 ± 0.25 | – |\n"
        "| a\\|b \\*\\< | 21.00 | −2.50 ± 0.10, p = 0.002 |\n\n- a note with \\| and \\*\n"
    )


def test_a_page_has_the_same_cells_and_the_notes_once():
    text = render_page("t", "lead", [SHEET])
    assert re.findall(r"<th [^>]*>(.*?)</th>", text) == SHEET.heads
    assert re.findall(r"<td>(.*?)</td>", text) == ["none", "23.50 ± 0.25", "–", "a|b *&lt;", "21.00", "−2.50 ± 0.10, p = 0.002"]
    assert text.count("<li>a note with | and *</li>") == 1


def test_a_page_leaves_out_empty_columns_and_shows_one_row_as_facts():
    sheet = Table.of_rows("", ["name", "x", "y"], [["a", None, 1], ["b", "", 2]])
    text = render_page("t", "lead", [sheet])
    assert ">x<" not in text
    assert ">y<" in text
    text = render_page("t", "lead", [Table.of_rows("", ["name", "x", "y"], [["a", "–", 1]])])
    assert "<table" not in text
    assert "<dt>name</dt><dd>a</dd>" in text
    assert "<dt>y</dt><dd>1</dd>" in text
    assert "<table" not in render_page("t", "lead", [Table.of_rows("", ["name", "x"], []), Notes([])])


def test_cells_of_means_and_differences():
    assert cell(None) == "–"
    assert cell(summary([1.0])) == ("1.00", "")
    # 4.3027 is the 97.5 % quantile of t with two degrees of freedom, 1/√3 the standard error of 1, 2, 3.
    assert cell(summary([1.0, 2.0, 3.0])) == ("2.00", f"± {4.302653 / 3**0.5:.2f}")
    assert cell(paired([1.0, 2.0], [2.0, 4.0]))[0] == "−1.50"
    assert cell(paired([3.0, 3.0], [1.0, 1.0])) == ("+2.00", "both")
    assert cell(paired([1.001, 1.0], [1.0, 1.0]))[0] == "0.00"
    assert [number(value, None) for value in (0.00123456, 12.3456, 1234.5, 1e7)] == ["0.00123", "12.3", "1234", "1e+07"]


def test_csv_has_all_digits_and_intervals_as_columns_of_their_own():
    mean, test = summary([1.0, 2.0, 4.0]), paired([1.0, 2.0, 4.0], [1.5, 1.0, 1.0])
    columns = [
        Column("shown", ["x, y", "b"]),
        Column("", [1 / 3, None], "third"),
        Column("mean", [None, mean], "mean"),
        Column("difference", [test, None], "difference"),
    ]
    first, second = csv.DictReader(io.StringIO(Table("", columns).csv()))
    assert first == {
        **{"third": repr(1 / 3), "mean": "", "mean_half": "", "difference": repr(test.mean)},
        **{"difference_half": repr(test.half), "difference_n": "3", "difference_p": repr(test.p_t)},
    }
    assert (second["mean"], second["mean_half"], second["difference_p"]) == (repr(mean.mean), repr(mean.half), "")
    assert Table("", [Column("", [], "a"), Column("", [], "b")]).csv() == "a,b\n"
