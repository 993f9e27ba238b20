"""A table of results in several forms: for the terminal, as Markdown, as HTML; and its numbers in full as CSV."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ..statistics import Paired, Summary

NOTHING = "–"
WIDTH = 80
NUMBER = re.compile(r"(?<!\S)(?:[+−±]|[np][=<])?\d[\d.e+-]*(?!\S)")

# What a cell says, and a second part that is set apart from it (the interval), often empty.
Cell = tuple[str, str]


class Sheet(NamedTuple):
    """What all forms show: a title, heads, lines of cells of which some have a second part, and notes.

    The first ``keys`` columns say what a line is about; they are repeated where a terminal has no room for all others at once.
    """

    title: str
    heads: list[str]
    lines: list[list[Cell]]
    notes: list[str]
    keys: int = 1


def terminal(sheet: Sheet) -> Table:
    """For the terminal: the second part of a cell is below the first, notes are below the table.

    Where not even the numbers of all columns have room side by side, the others follow below.
    """
    look: dict[str, Any] = {
        "title_justify": "left",
        "caption_justify": "left",
        "box": SIMPLE_HEAD,
        "padding": 0,
        "show_edge": False,
    }
    # A table of a few short columns would have its notes folded to its own width.
    shown = _Fitted(title=Text(sheet.title), caption=Text("\n".join(sheet.notes)), min_width=WIDTH, **look)
    for place, head in enumerate(sheet.heads):
        # Where there is no room words are folded: a number that is cut off would be another number.
        shown.add_column(Text(_stacked_head(head)), justify="left" if place == 0 else "right", overflow="fold")
    for line in sheet.lines:
        shown.add_row(*(Text(_stacked(cell)) for cell in line))
    shown.sheet = sheet
    return shown


def markdown(sheet: Sheet) -> str:
    """The same as Markdown: a heading, the table, the notes as a list."""
    sides = [":--" if place == 0 else "--:" for place in range(len(sheet.heads))]
    lines = [f"| {' | '.join(_escaped(cell) for cell in cells)} |" for cells in (sheet.heads, sides, *whole_cells(sheet))]
    notes = [f"- {_escaped(note)}" for note in sheet.notes]
    return "\n".join([f"## {_escaped(sheet.title)}", "", *lines, "", *notes]) + "\n"


def html(sheet: Sheet) -> str:
    """The same as a part of a page: a heading, a table that scrolls by itself, the notes as a list."""
    from . import html as report

    return "\n".join([report.heading(sheet.title), report.table(sheet.heads, whole_cells(sheet)), report.notes(sheet.notes)])


def records_csv(records: Sequence[Mapping[str, object]], heads: Sequence[str] = ()) -> str:
    """Numbers in full for a program, None as an empty cell; ``heads`` are needed only where there may be no records."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def mean_cell(whole: Summary | None, places: int | None = 2) -> Cell:
    """Mean and half the interval, which one value does not have.

    >>> mean_cell(Summary(3, 23.5, 0.25, 23.5, 0.1))
    ('23.50', '± 0.25')
    """
    if whole is None:
        return NOTHING, ""
    return number(whole.mean, places), f"± {number(whole.half, places)}" if math.isfinite(whole.half) else ""


def difference_cell(against: Paired | None, places: int | None = 2) -> Cell:
    """Mean difference with its sign, and its interval with p."""
    if against is None:
        return NOTHING, ""
    size = number(abs(against.mean), places)
    sign = "" if float(size) == 0 else "+" if against.mean > 0 else "−"
    if not math.isfinite(against.half):
        return f"{sign}{size}", f"all {against.n} equal" if against.n > 1 else ""
    p = "p < 0.001" if against.p_t < 0.001 else f"p = {against.p_t:.3f}"
    return f"{sign}{size}", f"± {number(against.half, places)}, {p}"


def number(value: float, places: int | None = 2) -> str:
    """So many places; with None three digits, for what may have any size.

    >>> number(23.456), number(0.012345, None), number(12345.6, None)
    ('23.46', '0.0123', '12346')
    """
    if places is not None:
        return f"{value:.{places}f}"
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def short(count: float | None) -> str:
    """A number of samples, rows or updates with three digits.

    >>> short(640), short(50_000), short(1_234_000), short(None)
    ('640', '50 k', '1.23 M', '–')
    """
    if count is None:
        return NOTHING
    for sign, size in ((" M", 1e6), (" k", 1e3)):
        if count >= size:
            return (f"{count / size:.0f}" if count >= 100 * size else f"{count / size:.3g}") + sign
    return f"{count:.0f}"


class _Fitted(Table):
    """A table that becomes several, one below the other, where it is too wide for the console."""

    sheet: Sheet

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = _parts(self.sheet, options.max_width)
        if len(parts) == 1:
            yield from super().__rich_console__(console, options)
        else:
            yield from map(terminal, parts)


def _stacked(cell: Cell) -> str:
    """A cell with every part on a line of its own."""
    first, second = cell
    return "\n".join([first, *second.replace(" ", "").split(",")]).rstrip()


def _stacked_head(head: str) -> str:
    return head.replace(" (", "\n(")


def _parts(sheet: Sheet, width: int) -> list[Sheet]:
    """The sheet cut between columns, so that no number must be broken to fit into ``width``."""
    needs = _needs(sheet)
    keys = list(range(sheet.keys))
    groups: list[list[int]] = [[]]
    for place in range(sheet.keys, len(sheet.heads)):
        if groups[-1] and sum(needs[i] + 1 for i in [*keys, *groups[-1], place]) - 1 > width:
            groups.append([])
        groups[-1].append(place)
    parts = []
    for i, group in enumerate(groups):
        places = [*keys, *group]
        lines = [[line[place] for place in places] for line in sheet.lines]
        notes = sheet.notes if i == len(groups) - 1 else []
        heads = [sheet.heads[place] for place in places]
        parts.append(Sheet(sheet.title if i == 0 else "", heads, lines, notes, sheet.keys))
    return parts


def _needs(sheet: Sheet) -> list[int]:
    """The least widths of the columns. Where there is no room the widest are narrowed first: down to the longest number."""
    stacks = [[_stacked_head(sheet.heads[i]), *(_stacked(line[i]) for line in sheet.lines)] for i in range(len(sheet.heads))]
    longest = max((len(found) for stack in stacks for text in stack[1:] for found in NUMBER.findall(text)), default=0)
    return [min(longest, max(len(line) for text in stack for line in text.split("\n"))) for stack in stacks]


def whole_cells(sheet: Sheet) -> list[list[str]]:
    """Lines of cells with both parts in one."""
    return [[" ".join(part for part in cell if part) for cell in line] for line in sheet.lines]


def _escaped(words: str) -> str:
    """Words that Markdown does not take for markup."""
    for sign in ("\\", "|", "*", "<"):
        words = words.replace(sign, f"\\{sign}")
    return words
