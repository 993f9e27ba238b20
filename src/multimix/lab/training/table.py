"""A recipe's results beside the paper's numbers, from rows alone: for the terminal, as CSV and as Markdown."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..recipes.arms import counts_k
from ..recipes.base import Recipe, Scale
from ..results import make_folder, write_atomically
from ..statistics import Paired, Summary
from .gathered import CHANGED, ERRORS, HEADS, WORDS, Gathered, Line, Rows, gathered, named
from .history import LAST

NOTHING, NOT_RUN = "–", "not run"
WIDTH = 80


class _Sheet(NamedTuple):
    """What all three forms show: a title, heads, lines of cells of which some have a second part (the interval), and notes."""

    title: str
    heads: list[str]
    lines: list[list[tuple[str, str]]]
    notes: list[str]


def recipe_table(recipe: Recipe, scale: Scale, rows: Rows) -> Table:
    """For the terminal: one line per arm, K and settings; the interval is below the mean, notes are below the table."""
    sheet = _sheet(recipe, scale, gathered(recipe, scale, rows))
    look: dict[str, Any] = {
        "title_justify": "left",
        "caption_justify": "left",
        "box": SIMPLE_HEAD,
        "padding": 0,
        "show_edge": False,
    }
    # A table of a few short columns would have its notes folded to its own width.
    shown = Table(title=Text(sheet.title), caption=Text("\n".join(sheet.notes)), min_width=WIDTH, **look)
    for place, head in enumerate(sheet.heads):
        # Where there is no room words are folded: a number that is cut off would be another number.
        shown.add_column(Text(head.replace(" (", "\n(")), justify="left" if place == 0 else "right", overflow="fold")
    for line in sheet.lines:
        shown.add_row(*(Text("\n".join([first, *second.replace(" ", "").split(",")]).rstrip()) for first, second in line))
    return shown


def recipe_markdown(recipe: Recipe, scale: Scale, rows: Rows) -> str:
    """The same as Markdown: a heading, the table, the notes as a list."""
    sheet = _sheet(recipe, scale, gathered(recipe, scale, rows))
    sides = [":--" if place == 0 else "--:" for place in range(len(sheet.heads))]
    body = [[" ".join(part for part in cell if part) for cell in line] for line in sheet.lines]
    lines = [f"| {' | '.join(_escaped(cell) for cell in cells)} |" for cells in (sheet.heads, sides, *body)]
    notes = [f"- {_escaped(note)}" for note in sheet.notes]
    return "\n".join([f"## {_escaped(sheet.title)}", "", *lines, "", *notes]) + "\n"


def recipe_csv(recipe: Recipe, scale: Scale, rows: Rows) -> str:
    """The same for a program: every number in full, the half-width of its interval beside it, empty where there is none.

    ``paper_compares`` is no at another scale and where settings are not the recipe's. Rows that were left out are not told.
    """
    found = gathered(recipe, scale, rows)
    text = io.StringIO()
    lines = [_record(recipe, scale, found, line) for line in found.lines]
    heads = list(lines[0]) if lines else ["recipe", "scale", "arm", "k"]
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def written(recipe: Recipe, scale: Scale, rows: Rows, out: Path) -> list[Path]:
    """``table.csv``, ``table.md`` and the figures, in a folder of ``out`` for the recipe and the scale."""
    from .figures import recipe_figures  # matplotlib is slow to import, and a table does not need it

    texts = {"table.csv": recipe_csv(recipe, scale, rows), "table.md": recipe_markdown(recipe, scale, rows)}
    files = {name: text.encode() for name, text in texts.items()} | recipe_figures(recipe, scale, rows)
    folder = out / recipe.name / scale
    make_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def _sheet(recipe: Recipe, scale: Scale, found: Gathered) -> _Sheet:
    """Heads and cells; columns that would be empty are left out."""
    lines = found.lines
    against = [found.with_none(line, recipe.reported(scale)) for line in lines]
    marks = _marks(lines)
    # Each column: its head, and its cell of every line.
    arms = [" ".join(filter(None, (line.arm, marks.get(line.differs), CHANGED if line.marked else ""))) for line in lines]
    columns = [("arm", [(arm, "") for arm in arms])]
    columns.append(("K", [(str(line.k) if counts_k(line.arm) or line.k != 1 else NOTHING, "") for line in lines]))
    columns.append(("n", [(str(len(line.seeds)), "") for line in lines]))
    for field in _fields(recipe, scale):
        own = field == recipe.reported(scale)
        if own or any(line.values(field) for line in lines):
            cells = [_mean(line.summary(field), field) if line.runs or not own else (NOT_RUN, "") for line in lines]
            columns.append((HEADS.get(field, field) + ("*" if own else ""), cells))
        if own and any(line.paper is not None for line in lines):
            columns.append(("paper" if scale == "paper" else "paper (other scale)", [_paper(line, scale) for line in lines]))
        if own and any(against):
            columns.append(("vs none", [_difference(one, field) for one in against]))
    columns.append(("images", [(NOTHING if line.images is None else _count(line.images), "") for line in lines]))
    body = [[cells[i] for _, cells in columns] for i in range(len(lines))]
    notes = [
        *_notes(recipe, scale, found, against),
        *(f"{mark} {named(differs)}" for differs, mark in marks.items()),
        *found.notes,
    ]
    return _Sheet(f"{recipe.title} ({WORDS[scale]})", [head for head, _ in columns], body, notes)


def _marks(lines: Sequence[Line]) -> dict[tuple[str, ...], str]:
    """A sign for every way in which settings differ from those of most runs, explained below the table."""
    ways = dict.fromkeys(line.differs for line in lines if line.differs)
    return {differs: f"[{place}]" for place, differs in enumerate(ways, start=1)}


def _fields(recipe: Recipe, scale: Scale) -> list[str]:
    return list(HEADS) if recipe.reported(scale) in HEADS else [*HEADS, recipe.reported(scale)]


def _mean(whole: Summary | None, field: str) -> tuple[str, str]:
    """Mean and half the interval, which one value does not have."""
    if whole is None:
        return NOTHING, ""
    return _number(whole.mean, field), f"± {_number(whole.half, field)}" if math.isfinite(whole.half) else ""


def _difference(against: Paired | None, field: str) -> tuple[str, str]:
    """Mean difference, and its interval with p."""
    if against is None:
        return NOTHING, ""
    size = _number(abs(against.mean), field)
    sign = "" if float(size) == 0 else "+" if against.mean > 0 else "−"
    p = "p < 0.001" if against.p_t < 0.001 else f"p = {against.p_t:.3f}"
    return f"{sign}{size}", f"± {_number(against.half, field)}, {p}"


def _number(value: float, field: str) -> str:
    """Two places for an error in per cent; a gradient or a time may have any size."""
    if field in ERRORS:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def _count(count: float) -> str:
    """A number of samples with three digits.

    >>> _count(640), _count(50_000), _count(15_000_000), _count(1_234_000)
    ('640', '50 k', '15 M', '1.23 M')
    """
    for sign, size in ((" M", 1e6), (" k", 1e3)):
        if count >= size:
            return (f"{count / size:.0f}" if count >= 100 * size else f"{count / size:.3g}") + sign
    return f"{count:.0f}"


def _paper(line: Line, scale: Scale) -> tuple[str, str]:
    """The paper's number, in brackets where this line alone does not compare with it."""
    if line.paper is None:
        return NOTHING, ""
    return (f"({line.paper:.2f})" if scale == "paper" and line.changed else f"{line.paper:.2f}"), ""


def _notes(recipe: Recipe, scale: Scale, found: Gathered, against: Sequence[Paired | None]) -> list[str]:
    """How to read the table."""
    one = ", one seed has none" if any(len(line.seeds) == 1 for line in found.lines) else ""
    notes = [
        f"* is what the recipe reports; n: seeds; ±: 95 % t-interval of the mean over seeds{one}",
        f"errors in per cent; median: of the last {LAST} epochs; best: chosen by the samples it is measured on, so it flatters",
        "‖g‖²: mean over the updates of the last epoch; s/epoch: median over epochs; images: loaded in all epochs together",
    ]
    tests = sum(one is not None for one in against)
    if tests:
        many = f"; {tests} comparisons, p is not corrected for their number" if tests > 1 else ""
        notes.append(
            f"vs none: {recipe.reported(scale)} minus that without mixing, paired over common seeds, p of the t-test{many}"
        )
    if any(line.paper is not None for line in found.lines) and scale != "paper":
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {scale} scale")
    elif any(line.paper is not None and line.changed for line in found.lines):
        notes.append("(in brackets) the paper's number does not compare, since these settings are not the recipe's")
    return notes


def _record(recipe: Recipe, scale: Scale, found: Gathered, line: Line) -> dict[str, object]:
    """One line of the CSV file; None becomes an empty cell."""
    record: dict[str, object] = {"recipe": recipe.name, "scale": scale, "arm": line.arm, "k": line.k, "digest": line.digest}
    record |= {"n": len(line.seeds), "seeds": " ".join(map(str, line.seeds))}
    for field in _fields(recipe, scale):
        whole = line.summary(field)
        record[field] = whole and whole.mean
        record[f"{field}_half"] = whole.half if whole and math.isfinite(whole.half) else None
    record["images"] = line.images
    compares = "yes" if scale == "paper" and not line.changed else "no"
    record |= {"metric": recipe.reported(scale), "paper": line.paper, "paper_compares": "" if line.paper is None else compares}
    against = found.with_none(line, recipe.reported(scale))
    for name, value in (("minus_none", "mean"), ("minus_none_half", "half"), ("minus_none_n", "n"), ("minus_none_p", "p_t")):
        record[name] = None if against is None else getattr(against, value)
    return record | {"differs": "; ".join(line.differs), "not_of_recipe": "; ".join(line.changed)}


def _escaped(words: str) -> str:
    """Words that Markdown does not take for markup."""
    for sign in ("\\", "|", "*", "<"):
        words = words.replace(sign, f"\\{sign}")
    return words
