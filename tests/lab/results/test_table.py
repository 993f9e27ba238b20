import csv
import io
import re

import pytest
from rich.console import Console

from multimix.lab.results.table import Table, csv_text, difference_cell, mean_cell, number
from multimix.lab.statistics import paired, summary

SHEET = Table(
    "A title (small)",
    ["arm", "error (%)", "vs none"],
    [[("none", ""), ("23.50", "± 0.25"), ("–", "")], [("a|b *<", ""), ("21.00", ""), ("−2.50", "± 0.10, p = 0.002")]],
    ["a note with | and *"],
)


def shown(sheet, width):
    console = Console(width=width, file=io.StringIO())
    console.print(sheet)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def wide_sheet(columns=8, keys=1):
    heads = ["arm", *(f"head{i}" for i in range(1, columns + 1))]
    return Table("wide", heads, [[("none", ""), *((f"{i}000.55", f"± {i}.25") for i in range(1, columns + 1))]], ["told"], keys)


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
    whole = "\n".join(shown(wide_sheet(keys=keys), 100))
    lines = shown(wide_sheet(keys=keys), 40)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 40
    # "none" needs 5 columns with its gap, a number 8: with one key four numbers fit into 40, with two it is three beside it.
    parts = {1: 2, 2: 3}[keys]
    assert (text.count("none"), text.count("wide"), text.count("told"), whole.count("none")) == (parts, 1, 1, 1)
    repeated = [1] if keys == 1 else [parts]
    assert [text.count(f"{i}000.55") for i in range(1, 9)] == repeated + [1] * 7
    assert [text.count(f"±{i}.25") for i in range(1, 9)] == repeated + [1] * 7
    assert text.index("wide") < text.index("1000.55") < text.index("8000.55") < text.index("told")


def test_markdown_has_both_parts_in_one_cell_and_no_markup_of_its_own():
    assert SHEET.markdown() == (
        "## A title (small)\n\n| arm | error (%) | vs none |\n| :-- | --: | --: |\n| none | 23.50 ± 0.25 | – |\n"
        "| a\\|b \\*\\< | 21.00 | −2.50 ± 0.10, p = 0.002 |\n\n- a note with \\| and \\*\n"
    )


def test_html_has_the_same_cells_and_the_notes():
    text = "\n".join(SHEET.html())
    assert re.findall(r"<th [^>]*>(.*?)</th>", text) == SHEET.heads
    assert re.findall(r"<td>(.*?)</td>", text) == ["none", "23.50 ± 0.25", "–", "a|b *&lt;", "21.00", "−2.50 ± 0.10, p = 0.002"]
    assert text.index("</table>") < text.index("<li>a note with | and *</li>")


def test_cells_of_means_and_differences():
    assert mean_cell(None) == difference_cell(None) == "–"
    assert mean_cell(summary([1.0])) == ("1.00", "")
    # 4.3027 is the 97.5 % quantile of t with two degrees of freedom, 1/√3 the standard error of 1, 2, 3.
    assert mean_cell(summary([1.0, 2.0, 3.0])) == ("2.00", f"± {4.302653 / 3**0.5:.2f}")
    assert difference_cell(paired([1.0, 2.0], [2.0, 4.0]))[0] == "−1.50"
    assert difference_cell(paired([3.0, 3.0], [1.0, 1.0])) == ("+2.00", "both")
    assert difference_cell(paired([1.001, 1.0], [1.0, 1.0]))[0] == "0.00"
    assert [number(value, None) for value in (0.00123456, 12.3456, 1234.5, 1e7)] == ["0.00123", "12.3", "1234", "1e+07"]


def test_records_are_in_full_and_none_is_empty():
    text = csv_text([{"a": 1 / 3, "b": None}, {"a": 2, "b": "x, y"}])
    assert list(csv.DictReader(io.StringIO(text))) == [{"a": repr(1 / 3), "b": ""}, {"a": "2", "b": "x, y"}]
    assert csv_text([], ["a", "b"]) == "a,b\n"
