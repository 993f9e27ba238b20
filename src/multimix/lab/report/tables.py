"""One table with four outputs: terminal (rich), HTML (by the page template), Markdown, and CSV."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import rich.table
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..terminal import printable
from .stats import Paired, Summary, half_shown

EMPTY = "–"
MIN_WIDTH = 80  # characters
NUMBER = re.compile(r"(?<!\S)(?:[+−±]|[np][=<])?\d[\d.e+-]*(?:…[+−]?\d[\d.e+-]*)?(?!\S)")
INTERVAL_NOTE = "±: 95 % t-interval over seeds; with two seeds: their range"

# Text of a cell, or text and a second part such as an interval, which a terminal shows below it.
Cell = str | tuple[str, str]


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        head: Head of the column. A column without a head is for CSV only.
        values: Text, numbers, :class:`Summary`, :class:`Paired`, formatted cells, or None.
        name: Name in CSV. A column without a name is not in the CSV.
        places: Decimal places; None for three digits, for numbers of any size.
        show: Function that formats a value; None for :func:`cell`.
    """

    head: str
    values: Sequence[Any]
    name: str = ""
    places: int | None = 2
    show: Callable[[Any], Cell] | None = None

    @property
    def cells(self) -> list[Cell]:
        """The formatted values."""
        show = self.show or (lambda value: cell(value, self.places))
        return [show(value) for value in self.values]


@dataclass(frozen=True)
class Table:
    """A title, columns of equal length, and notes.

    Args:
        title: Title. May be empty.
        columns: The columns. The first is the name of the row.
        notes: How to read the table.
        keys: Number of leading columns that a terminal repeats if not all columns fit side by side.
    """

    title: str
    columns: Sequence[Column]
    notes: Sequence[str] = ()
    keys: int = 1
    kind: ClassVar[str] = "table"

    @classmethod
    def of_rows(
        cls, title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = (), keys: int = 1
    ) -> "Table":
        """Build a table from rows of values.

        Args:
            title: Title.
            heads: Heads of the columns.
            rows: Values by row.
            notes: How to read the table.
            keys: Columns that a terminal repeats.
        """
        columns = [Column(head, [row[i] for row in rows], name=head) for i, head in enumerate(heads)]
        return cls(title, columns, notes, keys)

    @property
    def shown(self) -> list[Column]:
        """Columns with a head."""
        return [column for column in self.columns if column.head]

    @property
    def heads(self) -> list[str]:
        """Heads of the shown columns."""
        return [column.head for column in self.shown]

    @property
    def rows(self) -> list[list[str]]:
        """Rows of cells, each in one line."""
        return [list(map(joined, row)) for row in zip(*(column.cells for column in self.shown), strict=True)]

    def without_empty_columns(self) -> "Table":
        """Return the table without empty columns; the first column stays."""
        first, *others = self.shown
        filled = [column for column in others if any(cell not in ("", EMPTY) for cell in column.cells)]
        return Table(self.title, [first, *filled], self.notes, self.keys)

    def markdown(self) -> str:
        """Return a heading, the table, and the notes as a list."""
        sides = [":--", *["--:"] * (len(self.heads) - 1)]
        lines = [f"| {' | '.join(map(_escaped, cells))} |" for cells in (self.heads, sides, *self.rows)]
        notes = [f"- {_escaped(note)}" for note in self.notes]
        return "\n".join([f"## {_escaped(self.title)}", "", *lines, "", *notes]) + "\n"

    def csv(self) -> str:
        """Return named columns with all digits; intervals and p-values are separate columns."""
        named = [(column.name, column.values) for column in self.columns if column.name]
        records: list[dict[str, Any]] = [{} for _ in named[0][1]] if named else []
        for name, values in named:
            kind = next((type(value) for value in values if isinstance(value, Summary | Paired)), None)
            for record, value in zip(records, values, strict=True):
                record |= _csv_fields(name, value, kind)
        text = io.StringIO()
        heads = list(records[0]) if records else [name for name, _ in named]
        writer = csv.DictWriter(text, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return text.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table in parts; columns that do not fit side by side are in the next part."""
        cells = [column.cells for column in self.shown]
        heads = [head.replace(" (", "\n(") for head in self.heads]
        groups = self._fitted(heads, cells, options.max_width)
        for i, indices in enumerate(groups):
            style: dict[str, Any] = {"title_justify": "left", "caption_justify": "left", "padding": 0}
            style |= {"box": SIMPLE_HEAD, "show_edge": False, "min_width": MIN_WIDTH}
            notes = self.notes if i == len(groups) - 1 else ()
            title = _text(self.title if i == 0 else "")
            part = rich.table.Table(title=title, caption=_text("\n".join(notes)), **style)
            for index in indices:
                # Fold instead of truncating: a truncated number is another number.
                side: Any = "left" if index == 0 else "right"
                part.add_column(_text(heads[index]), justify=side, overflow="fold")
            for row in zip(*(cells[index] for index in indices), strict=True):
                part.add_row(*(_text(_stacked(cell)) for cell in row))
            yield part

    def _fitted(self, heads: Sequence[str], cells: Sequence[Sequence[Cell]], width: int) -> list[list[int]]:
        """Group column indices so that all numbers fit into ``width`` unbroken."""
        texts = [[head, *map(_stacked, column_cells)] for head, column_cells in zip(heads, cells, strict=True)]
        numbers = [len(match) for column in texts for text in column[1:] for match in NUMBER.findall(text)]
        longest = max(numbers, default=0)
        widths = [min(longest, max(len(line) for text in column for line in text.split("\n"))) for column in texts]
        keys = list(range(self.keys))
        groups: list[list[int]] = [keys[:]]
        for index in range(self.keys, len(texts)):
            fits = sum(widths[i] + 1 for i in [*groups[-1], index]) - 1 <= width
            if len(groups[-1]) > self.keys and not fits:
                groups.append(keys[:])
            groups[-1].append(index)
        return groups


def cell(value: Any, places: int | None = 2) -> Cell:
    """Format a value.

    Args:
        value: Text, a number, a :class:`Summary`, a :class:`Paired`, a formatted cell, or None.
        places: Decimal places; None for three digits.

    Examples:
        >>> cell(Summary(3, 23.5, 0.25, 23.5, 0.1)), cell(Summary(2, 23.5, 12.71, 23.5, 1.42))
        (('23.50', '± 0.25'), ('23.50', '22.50 … 24.50'))
    """
    if value is None:
        return EMPTY
    if isinstance(value, Summary):
        return _mean_cell(value, places)
    if isinstance(value, Paired):
        return _difference_cell(value, places)
    if isinstance(value, float):
        return number(value, places)
    return value if isinstance(value, str | tuple) else str(value)


def _mean_cell(mean: Summary, places: int | None) -> Cell:
    half = half_shown(mean)
    if mean.n == 2:
        low, high = number(mean.mean - half, places), number(mean.mean + half, places)
        return number(mean.mean, places), "both" if low == high else f"{low} … {high}"
    return number(mean.mean, places), f"± {number(half, places)}" if math.isfinite(half) else ""


def _difference_cell(test: Paired, places: int | None) -> Cell:
    mean = signed(test.mean, places)
    if not math.isfinite(test.half):
        return mean, "both" if test.n == 2 else f"all {test.n} equal" if test.n > 1 else ""
    half = half_shown(test)
    if test.n == 2:
        low, high = signed(test.mean - half, places), signed(test.mean + half, places)
        return mean, "both" if low == high else f"{low} … {high}"
    p = "p < 0.001" if test.p_t < 0.001 else f"p = {test.p_t:.3f}"
    return mean, f"± {number(half, places)}, {p}"


def number(value: float, places: int | None = 2) -> str:
    """Format a number.

    Args:
        value: The number.
        places: Decimal places; None for three digits.

    >>> number(23.456), number(0.012345, None), number(12345.6, None)
    ('23.46', '0.0123', '12346')
    """
    if places is not None:
        return f"{value:.{places}f}"
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def signed(value: float, places: int | None = 2) -> str:
    """Format a number with its sign; zero has no sign.

    Args:
        value: The number.
        places: Decimal places; None for three digits.

    >>> signed(-1.234), signed(-0.001)
    ('−1.23', '0.00')
    """
    size = number(abs(value), places)
    return f"{'' if float(size) == 0 else '+' if value > 0 else '−'}{size}"


def p_value(p: float | None) -> str:
    """Format a p-value.

    Args:
        p: The p-value; None for an empty cell.

    >>> p_value(0.0123), p_value(0.0001), p_value(None)
    ('0.012', '< 0.001', '–')
    """
    return EMPTY if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def short(count: float | None) -> str:
    """Format a number of samples, rows, or updates with three digits.

    Args:
        count: The number; None for an empty cell.

    >>> short(640), short(50_000), short(1_234_000), short(None)
    ('640', '50 k', '1.23 M', '–')
    """
    if count is None:
        return EMPTY
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if count >= size:
            return (f"{count / size:.0f}" if count >= 100 * size else f"{count / size:.3g}") + unit
    return f"{count:.0f}"


def joined(cell: Cell) -> str:
    """Join both parts of a cell.

    Args:
        cell: A text, or a text and its interval.

    >>> joined(("23.50", "± 0.25")), joined(("23.50", "22.50 … 24.50")), joined("–")
    ('23.50 ± 0.25', '23.50 (22.50 … 24.50)', '–')
    """
    first, second = (cell, "") if isinstance(cell, str) else cell
    return f"{first} {second}" if second.startswith("±") else f"{first} ({second})" if second else first


def _csv_fields(name: str, value: Any, kind: type | None) -> Mapping[str, Any]:
    if kind is None:
        return {name: value}
    half = value.half if value is not None and math.isfinite(value.half) else None
    record = {name: value and value.mean, f"{name}_half": half}
    if kind is Paired:
        record |= {f"{name}_n": value and value.n, f"{name}_p": value and value.p_t}
    return record


def _stacked(cell: Cell) -> str:
    first, second = (cell, "") if isinstance(cell, str) else cell
    return "\n".join([first, *second.replace(" ", "").split(",")]).rstrip()


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*<])", r"\\\1", text)


def _text(text: str) -> Text:
    return Text(printable(text))
