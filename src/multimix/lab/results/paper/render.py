"""A table of the paper beside ours: sheets for the terminal and for files, a record of every cell, a page; and a list of all."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..aggregate import WORDS, Rows
from ..sheet import NOTHING, Cell, Sheet, difference_cell, html, mean_cell, number
from .base import DEMO, Column, PaperTable
from .fill import Entry, Filled, filled, largest_scale

COLUMNS = 3  # measurements in one sheet: with the paper's number and the test beside each there is room for no more
NUMBERS = (
    "the numbers of tables are ours: the paper's are not known here, so its tables and figures are counted in the order in which "
    "its measurements are named"
)


def sheets(found: Filled, at_once: int = COLUMNS) -> list[Sheet]:
    """The table in sheets of up to ``at_once`` measurements, as many as fit on a terminal; notes are below the last."""
    count = len(found.table.columns)
    parts = math.ceil(count / at_once)
    # As equal as can be: four columns are two and two, not three and one.
    cuts = [part * count // parts for part in range(parts + 1)]
    made = []
    for first, end in pairwise(cuts):
        columns = [("method", [(row.label, "") for row in found.table.rows])]
        for place in range(first, end):
            columns += _columns(found, place)
        body = [[cells[i] for _, cells in columns] for i in range(len(found.table.rows))]
        words = f"{found.table.title} ({WORDS[found.scale]})" if first == 0 else "continued"
        heads = [head for head, _ in columns]
        made.append(Sheet(f"Table {found.table.number}: {words}", heads, body, notes(found) if end == count else []))
    return made


def _columns(found: Filled, place: int) -> list[tuple[str, list[Cell]]]:
    """One measurement: ours, the paper's, and the test where any row can be tested."""
    column, rows = found.table.columns[place], range(len(found.table.rows))
    entries = [found.cells[i, place] for i in rows]
    tests = [found.multi_mix_minus(i, place) for i in rows]
    columns = [
        (column.head, [_ours(entry, column) for entry in entries]),
        ("paper" if found.scale == "paper" else "paper (other scale)", [_papers(entry.paper) for entry in entries]),
    ]
    if any(tests):
        columns.append(("multi-mix (minus it)", [difference_cell(one, column.places) for one in tests]))
    return columns


def _ours(entry: Entry, column: Column) -> Cell:
    whole = entry.summary
    if whole is None:
        return entry.state, ""
    mean, half = mean_cell(whole, column.places)
    return mean, ", ".join(filter(None, (half, f"n = {whole.n}")))


def _papers(value: float | None) -> Cell:
    return (NOTHING if value is None else number(value)), ""


def notes(found: Filled) -> list[str]:
    """How to read the table, who is ahead, what is missing, and what to know about the paper's numbers."""
    table, cells = found.table, found.cells.values()
    said = [table.about, *_units(table)]
    if any(entry.values for entry in cells):
        said.append("ours: mean over n seeds ± half the 95 % t-interval, which one seed does not have")
    tests = sum(found.multi_mix_minus(*place) is not None for place in found.cells)
    if tests:
        said.append(
            f"multi-mix (minus it): {_label(table)} minus the row, paired over common seeds, with the p of the t-test, as in the "
            f"paper; {tests} comparison{'' if tests == 1 else 's'}, p is not corrected for their number"
        )
    said += _ahead(found)
    if found.scale != "paper" and any(entry.paper is not None for entry in cells):
        said.append(f"the paper's numbers are of its own scale and do not compare with those of this {found.scale} scale")
    if any(entry.paper is None for entry in cells):
        said.append(f"{NOTHING} beside ours: the paper's number is not known here")
    return [*said, *found.notes, *table.notes, NUMBERS]


def _label(table: PaperTable) -> str:
    return next(row.label for row in table.rows if row.key == table.against)


def _units(table: PaperTable) -> Iterator[str]:
    heads: dict[tuple[str, bool], list[str]] = {}
    for column in table.columns:
        heads.setdefault((column.unit, column.lower), []).append(column.head)
    for (unit, lower), named in heads.items():
        better = f", {'lower' if lower else 'higher'} is better" if unit == "per cent" else ""
        yield f"in {unit}{better}" + (f": {', '.join(named)}" if len(heads) > 1 else "")


def _ahead(found: Filled) -> Iterator[str]:
    """The best mean of every column, where at least two rows have one."""
    for place, column in enumerate(found.table.columns):
        entries = [(row.label, found.cells[i, place]) for i, row in enumerate(found.table.rows)]
        ours = [(label, entry.summary.mean) for label, entry in entries if entry.summary is not None]
        papers = [(label, entry.paper) for label, entry in entries if entry.paper is not None]
        best = [f"{whose} {_best(means, column)}" for whose, means in (("ours", ours), ("the paper's", papers)) if means[1:]]
        if ours[1:]:
            yield f"{'lowest' if column.lower else 'highest'} mean, {column.head}: {'; '.join(best)}"


def _best(means: Sequence[tuple[str, float]], column: Column) -> str:
    end = (min if column.lower else max)(mean for _, mean in means)
    names = " and ".join(label for label, mean in means if mean == end)
    return f"{names} with {number(end, column.places)} (of {len(means)} rows)"


def records(found: Filled) -> list[dict[str, object]]:
    """Every cell with all its numbers in full; None where there is none."""
    return [_record(found, i, j) for j in range(len(found.table.columns)) for i in range(len(found.table.rows))]


def _record(found: Filled, i: int, j: int) -> dict[str, object]:
    row, column, entry = found.table.rows[i], found.table.columns[j], found.cells[i, j]
    whole, test = entry.summary, found.multi_mix_minus(i, j)
    compares = "yes" if found.scale == "paper" else "no"
    field = column.value if column.recipe == DEMO else column.name(found.scale, row.k)
    return {
        "table": found.table.number,
        "name": found.table.name,
        "scale": found.scale,
        "recipe": column.recipe,
        "column": column.head,
        "field": field,
        "unit": column.unit,
        "arm": row.arm,
        "k": row.k,
        "label": row.label,
        "n": len(entry.values),
        "seeds": " ".join(map(str, entry.values)),
        "mean": whole and whole.mean,
        "half": whole.half if whole and math.isfinite(whole.half) else None,
        "state": entry.state,
        "paper": entry.paper,
        "paper_compares": "" if entry.paper is None else compares,
        "multimix_minus": test and test.mean,
        "multimix_minus_half": test and test.half,
        "multimix_minus_n": test and test.n,
        "multimix_minus_p": test and test.p_t,
    }


def page(found: Filled) -> str:
    """The table as a self-contained HTML page."""
    from ..html import document

    title = f"Table {found.table.number}: {found.table.title}"
    # One measurement at a time has room on a page without scrolling, and its name for a heading.
    parts = []
    for sheet, column in zip(sheets(found, 1), found.table.columns, strict=True):
        parts.append(html(sheet._replace(title=column.head, heads=[sheet.heads[0], "ours", *sheet.heads[2:]])))
    return document(title, f"The paper's numbers beside ours, {WORDS[found.scale]}.", parts)


def listing(tables: Sequence[PaperTable], rows: Rows, demo: Path) -> Table:
    """All tables for the terminal: number, name, title, what fills them, and how much there is of ours."""
    look = {"title_justify": "left", "caption_justify": "left", "box": SIMPLE_HEAD, "show_edge": False}
    title = Text("Tables and figures of the paper: multimix table NUMBER, or its name")
    shown = Table(title=title, caption=Text(NUMBERS), padding=(0, 1, 0, 0), **look)  # type: ignore[arg-type]  # words by name
    for head in ("table", "name", "title", "filled by multimix", "ours"):
        shown.add_column(head, overflow="fold", no_wrap=head in ("name", "filled by multimix"))
    for table in tables:
        words = (str(table.number), table.name, table.title, _filled_by(table), _state(table, rows, demo))
        shown.add_row(*map(Text, words))
    return shown


def _filled_by(table: PaperTable) -> str:
    trained = ["demo" if name == DEMO else f"train {name}" for name in table.recipes]
    return "\n".join([*trained, *(f"evaluate --on {name}" for name in table.evaluators)])


def _state(table: PaperTable, rows: Rows, demo: Path) -> str:
    scale = largest_scale(table, rows, demo)
    if scale is None:
        return "not run"
    cells = filled(table, scale, rows, demo).cells.values()
    return f"{sum(bool(entry.values) for entry in cells)} of {len(cells)} cells, {scale} scale"
