"""A recipe's results beside the paper's numbers, from rows alone: for the terminal, as CSV and as Markdown."""

import math
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ..recipes.arms import counts_k
from ..recipes.base import Recipe, Scale
from ..statistics import Paired
from ..storage import make_folder, write_atomically
from ..training.log import LAST
from .aggregate import CHANGED, ERRORS, HEADS, WORDS, Gathered, Line, Rows, gathered, named
from .sheet import NOTHING, Cell, Sheet, difference_cell, markdown, mean_cell, records_csv, short, terminal

NOT_RUN = "not run"
ECE = "calibration.ece"


def recipe_table(recipe: Recipe, scale: Scale, rows: Rows) -> Table:
    """For the terminal: one line per arm, K and settings; the interval is below the mean, notes are below the table."""
    return terminal(recipe_sheet(recipe, scale, rows))


def recipe_markdown(recipe: Recipe, scale: Scale, rows: Rows) -> str:
    """The same as Markdown: a heading, the table, the notes as a list."""
    return markdown(recipe_sheet(recipe, scale, rows))


def recipe_csv(recipe: Recipe, scale: Scale, rows: Rows) -> str:
    """The same for a program: every number in full, the half-width of its interval beside it, empty where there is none.

    ``paper_compares`` is no at another scale and where settings are not the recipe's. Rows that were left out are not told.
    """
    found = gathered(recipe, scale, rows)
    return records_csv([_record(recipe, scale, found, line) for line in found.lines], ["recipe", "scale", "arm", "k"])


def written(recipe: Recipe, scale: Scale, rows: Rows, out: Path) -> list[Path]:
    """``table.csv``, ``table.md`` and the figures, in a folder of ``out`` for the recipe and the scale."""
    from .recipe_figures import recipe_figures

    texts = {"table.csv": recipe_csv(recipe, scale, rows), "table.md": recipe_markdown(recipe, scale, rows)}
    files = {name: text.encode() for name, text in texts.items()} | recipe_figures(recipe, scale, rows)
    folder = out / recipe.name / scale
    make_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def recipe_sheet(recipe: Recipe, scale: Scale, rows: Rows) -> Sheet:
    """Heads and cells, one line per arm, K and settings; columns that would be empty are left out."""
    found = gathered(recipe, scale, rows)
    lines = found.lines
    marks = settings_marks(lines)
    # Each column: its head, and its cell of every line.
    arms = [" ".join(filter(None, (line.arm, marks.get(line.differs), CHANGED if line.marked else ""))) for line in lines]
    columns: list[tuple[str, list[Cell]]] = [("arm", [(arm, "") for arm in arms])]
    columns.append(("K", [(str(line.k) if counts_k(line.arm) or line.k != 1 else NOTHING, "") for line in lines]))
    columns.append(("n", [(str(len(line.seeds)), "") for line in lines]))
    for field in _fields(recipe, scale):
        own = field == recipe.reported(scale)
        if own or any(line.values(field) for line in lines):
            cells = [mean_cell(line.summary(field), _places(field)) if line.runs or not own else (NOT_RUN, "") for line in lines]
            columns.append((HEADS.get(field, field) + ("*" if own else ""), cells))
        if own and any(line.paper is not None for line in lines):
            columns.append(("paper" if scale == "paper" else "paper (other scale)", [_paper(line, scale) for line in lines]))
        if own:
            columns += _compared(recipe, scale, found)
    columns.append(("images", [(short(line.images), "") for line in lines]))
    body = [[cells[i] for _, cells in columns] for i in range(len(lines))]
    notes = [
        *_notes(recipe, scale, found),
        *(f"{mark} {named(differs)}" for differs, mark in marks.items()),
        *found.notes,
    ]
    return Sheet(f"{recipe.title} ({WORDS[scale]})", [head for head, _ in columns], body, notes, keys=3)


def _compared(recipe: Recipe, scale: Scale, found: Gathered) -> list[tuple[str, list[Cell]]]:
    """The columns beside the reported number: its comparisons, and the calibration error where it was measured."""
    field = recipe.reported(scale)
    measured = [mean_cell(line.summary(ECE)) for line in found.lines] if any(line.values(ECE) for line in found.lines) else []
    columns = [
        ("vs none", _differences(_with_none(found, field), field)),
        ("vs K = 1", _differences(_with_one(found, field), field)),
        ("ECE", measured),
        ("ECE vs none", _differences(_with_none(found, ECE), ECE)),
    ]
    return [(head, cells) for head, cells in columns if cells]


def _differences(against: Sequence[Paired | None], field: str) -> list[Cell]:
    """The cells of a comparison, none where no line can be compared."""
    return [difference_cell(one, _places(field)) for one in against] if any(against) else []


def _with_none(found: Gathered, field: str) -> list[Paired | None]:
    return [found.with_none(line, field) for line in found.lines]


def _with_one(found: Gathered, field: str) -> list[Paired | None]:
    return [found.with_one(line, field) for line in found.lines]


def settings_marks(lines: Sequence[Line]) -> dict[tuple[str, ...], str]:
    """A sign for every way in which settings differ from those of most runs, explained below the table."""
    ways = dict.fromkeys(line.differs for line in lines if line.differs)
    return {differs: f"[{place}]" for place, differs in enumerate(ways, start=1)}


def _fields(recipe: Recipe, scale: Scale) -> list[str]:
    return list(HEADS) if recipe.reported(scale) in HEADS else [*HEADS, recipe.reported(scale)]


def _places(field: str) -> int | None:
    """Two places for what is in per cent; a gradient or a time may have any size."""
    return 2 if field in ERRORS or field == ECE else None


def _paper(line: Line, scale: Scale) -> tuple[str, str]:
    """The paper's number, in brackets where this line alone does not compare with it."""
    if line.paper is None:
        return NOTHING, ""
    return (f"({line.paper:.2f})" if scale == "paper" and line.changed else f"{line.paper:.2f}"), ""


def _notes(recipe: Recipe, scale: Scale, found: Gathered) -> list[str]:
    """How to read the table."""
    one = ", one seed has none" if any(len(line.seeds) == 1 for line in found.lines) else ""
    notes = [
        f"* is what the recipe reports; n: seeds; ±: 95 % t-interval of the mean over seeds{one}",
        f"errors in per cent; median: of the last {LAST} epochs; best: chosen by the samples it is measured on, so it flatters",
        "‖g‖²: mean over the updates of the last epoch; s/epoch: median over epochs; images: loaded in all epochs together",
    ]
    if any(line.values(ECE) for line in found.lines):
        notes.append("ECE: expected calibration error of the final weights in per cent, 10 bins")
    field = recipe.reported(scale)
    for words, against in (
        (f"vs none: {field} minus that without mixing", _with_none(found, field)),
        (f"vs K = 1: {field} minus that of the same arm with K = 1", _with_one(found, field)),
        ("ECE vs none: the same of the ECE", _with_none(found, ECE)),
    ):
        tests = sum(one is not None for one in against)
        if tests:
            many = f"; {tests} comparisons, p is not corrected for their number" if tests > 1 else ""
            notes.append(f"{words}, paired over common seeds, p of the t-test{many}")
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
        record |= _averaged(line, field)
    record["images"] = line.images
    compares = "yes" if scale == "paper" and not line.changed else "no"
    record |= {"metric": recipe.reported(scale), "paper": line.paper, "paper_compares": "" if line.paper is None else compares}
    field = recipe.reported(scale)
    record |= _tested("minus_none", found.with_none(line, field))
    if any(_with_one(found, field)):
        record |= _tested("minus_one", found.with_one(line, field))
    if any(other.values(ECE) for other in found.lines):
        record |= _averaged(line, ECE) | _tested(f"{ECE}_minus_none", found.with_none(line, ECE))
    return record | {"differs": "; ".join(line.differs), "not_of_recipe": "; ".join(line.changed)}


def _averaged(line: Line, field: str) -> dict[str, object]:
    whole = line.summary(field)
    return {field: whole and whole.mean, f"{field}_half": whole.half if whole and math.isfinite(whole.half) else None}


def _tested(name: str, against: Paired | None) -> dict[str, object]:
    ends = {"": "mean", "_half": "half", "_n": "n", "_p": "p_t"}
    return {name + end: None if against is None else getattr(against, value) for end, value in ends.items()}
