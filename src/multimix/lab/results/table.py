"""A table of results, the same in every form: on the terminal, as Markdown, as HTML; and numbers in full as CSV."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rich.table
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..statistics import Paired, Summary, half_shown
from ..terminal import printable
from . import page

NOTHING = page.NOTHING
WIDTH = 80
NUMBER = re.compile(r"(?<!\S)(?:[+−±]|[np][=<])?\d[\d.e+-]*(?:…[+−]?\d[\d.e+-]*)?(?!\S)")
SPREAD = "±: 95 % t-interval over seeds; of two seeds their range"

# What a cell says; or that and a second part that is set apart from it (the interval), often empty.
Cell = str | tuple[str, str]
Column = tuple[str, Sequence[Cell]]  # a head and the cells below it


@dataclass(frozen=True)
class Table:
    """A title, heads, lines of cells, and notes on how to read it. A rich console prints it as it is.

    The first ``keys`` columns say what a line is about; they are repeated where a terminal has no room for all others at once.
    """

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    keys: int = 1

    @classmethod
    def of_columns(cls, title: str, columns: Sequence[Column], notes: Sequence[str] = (), keys: int = 1) -> "Table":
        """From its columns, all of the same length."""
        return cls(title, [head for head, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)), notes, keys)

    def joined(self) -> list[list[str]]:
        """Lines of cells with both parts in one."""
        return [list(map(joined, line)) for line in self.lines]

    def markdown(self) -> str:
        """A heading, the table, the notes as a list."""
        sides = [":--" if place == 0 else "--:" for place in range(len(self.heads))]
        lines = [f"| {' | '.join(map(_escaped, cells))} |" for cells in (self.heads, sides, *self.joined())]
        notes = [f"- {_escaped(note)}" for note in self.notes]
        return "\n".join([f"## {_escaped(self.title)}", "", *lines, "", *notes]) + "\n"

    def html(self) -> list[str]:
        """Parts of a page, without the title: a table that scrolls by itself, and the notes as a list."""
        shown = page.table(self.heads, self.joined())
        return [shown, page.notes(self.notes)] if shown else []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The second part of a cell is below the first. Columns that have no room side by side follow below the others."""
        for part in self._fitted(options.max_width):
            yield part._for_terminal()

    def _for_terminal(self) -> rich.table.Table:
        look: dict[str, Any] = {"title_justify": "left", "caption_justify": "left", "box": SIMPLE_HEAD, "padding": 0}
        # A table of a few short columns would have its notes folded to its own width.
        look |= {"show_edge": False, "min_width": WIDTH}
        shown = rich.table.Table(title=_text(self.title), caption=_text("\n".join(self.notes)), **look)
        for place, head in enumerate(self.heads):
            # Where there is no room words are folded: a number that is cut off would be another number.
            shown.add_column(_text(_stacked_head(head)), justify="left" if place == 0 else "right", overflow="fold")
        for line in self.lines:
            shown.add_row(*(_text(_stacked(cell)) for cell in line))
        return shown

    def _fitted(self, width: int) -> list["Table"]:
        """The table cut between columns, so that no number must be broken to fit into ``width``."""
        needs = self._least_widths()
        keys = list(range(self.keys))
        groups: list[list[int]] = [[]]
        for place in range(self.keys, len(self.heads)):
            if groups[-1] and sum(needs[i] + 1 for i in [*keys, *groups[-1], place]) - 1 > width:
                groups.append([])
            groups[-1].append(place)
        pieces = []
        for i, group in enumerate(groups):
            places = [*keys, *group]
            lines = [[line[place] for place in places] for line in self.lines]
            notes = self.notes if i == len(groups) - 1 else ()
            pieces.append(Table(self.title if i == 0 else "", [self.heads[place] for place in places], lines, notes, self.keys))
        return pieces

    def _least_widths(self) -> list[int]:
        """Of every column. Where there is no room the widest are narrowed first: down to the longest number."""
        columns = [[_stacked_head(head), *(_stacked(line[i]) for line in self.lines)] for i, head in enumerate(self.heads)]
        longest = max((len(found) for column in columns for text in column[1:] for found in NUMBER.findall(text)), default=0)
        return [min(longest, max(len(line) for text in column for line in text.split("\n"))) for column in columns]


def csv_text(records: Sequence[Mapping[str, object]], heads: Sequence[str] = ()) -> str:
    """Numbers in full for a program, None as an empty cell; ``heads`` are needed only where there may be no records."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def csv_mean(name: str, whole: Summary | Paired | None) -> dict[str, object]:
    """A mean and half its interval as two columns of a record, None where there is none."""
    half = whole.half if whole is not None and math.isfinite(whole.half) else None
    return {name: None if whole is None else whole.mean, f"{name}_half": half}


def csv_difference(name: str, test: Paired | None) -> dict[str, object]:
    """A paired difference as four columns of a record."""
    return csv_mean(name, test) | {f"{name}_n": None if test is None else test.n, f"{name}_p": None if test is None else test.p_t}


def mean_cell(whole: Summary | None, places: int | None = 2) -> Cell:
    """Mean and half the interval; of two values both, of one nothing else.

    >>> mean_cell(Summary(3, 23.5, 0.25, 23.5, 0.1)), mean_cell(Summary(2, 23.5, 12.71, 23.5, 1.42))
    (('23.50', '± 0.25'), ('23.50', '22.50 … 24.50'))
    """
    if whole is None:
        return NOTHING
    half = half_shown(whole)
    if whole.n == 2:
        low, high = number(whole.mean - half, places), number(whole.mean + half, places)
        return number(whole.mean, places), "both" if low == high else f"{low} … {high}"
    return number(whole.mean, places), f"± {number(half, places)}" if math.isfinite(half) else ""


def difference_cell(test: Paired | None, places: int | None = 2) -> Cell:
    """Mean difference with its sign, and its interval with p; of two differences both."""
    if test is None:
        return NOTHING
    mean = _with_sign(test.mean, places)
    if not math.isfinite(test.half):
        return mean, "both" if test.n == 2 else f"all {test.n} equal" if test.n > 1 else ""
    half = half_shown(test)
    if test.n == 2:
        low, high = _with_sign(test.mean - half, places), _with_sign(test.mean + half, places)
        return mean, "both" if low == high else f"{low} … {high}"
    p = "p < 0.001" if test.p_t < 0.001 else f"p = {test.p_t:.3f}"
    return mean, f"± {number(half, places)}, {p}"


def _with_sign(value: float, places: int | None) -> str:
    size = number(abs(value), places)
    return f"{'' if float(size) == 0 else '+' if value > 0 else '−'}{size}"


def difference_column(head: str, tests: Sequence[Paired | None], places: int | None = 2) -> Column:
    """A column of differences."""
    return head, [difference_cell(test, places) for test in tests]


def signed(value: float) -> str:
    """Two places with a sign, and no minus before 0.

    >>> signed(-1.234), signed(-0.001)
    ('−1.23', '+0.00')
    """
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


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


def counted(count: int, thing: str, plural: str = "s") -> str:
    """A count with its thing in singular or plural.

    >>> counted(1, "run"), counted(3, "run"), counted(1200, "batch", "es")
    ('1 run', '3 runs', '1,200 batches')
    """
    return f"{count:,} {thing}{'' if count == 1 else plural}"


def parts(cell: Cell) -> tuple[str, str]:
    """What a cell says, and what is set apart from it."""
    return (cell, "") if isinstance(cell, str) else cell


def joined(cell: Cell) -> str:
    """Both parts of a cell in one line.

    >>> joined(("23.50", "± 0.25")), joined(("23.50", "22.50 … 24.50")), joined("–")
    ('23.50 ± 0.25', '23.50 (22.50 … 24.50)', '–')
    """
    first, second = parts(cell)
    return f"{first} {second}" if second.startswith("±") else f"{first} ({second})" if second else first


def _stacked(cell: Cell) -> str:
    """A cell with every part on a line of its own."""
    first, second = parts(cell)
    return "\n".join([first, *second.replace(" ", "").split(",")]).rstrip()


def _stacked_head(head: str) -> str:
    return head.replace(" (", "\n(")


def _escaped(words: str) -> str:
    """Words that Markdown does not take for markup."""
    return re.sub(r"([\\|*<])", r"\\\1", words)


def _text(words: str) -> Text:
    return Text(printable(words))
