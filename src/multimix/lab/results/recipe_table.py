"""A recipe's results beside the paper's numbers, from rows alone: as a table, as CSV, and as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..recipes.arms import counts_k
from ..recipes.base import Recipe, Scale
from ..statistics import Paired
from ..storage import make_folder, write_atomically
from ..training.log import LAST
from .rows import CHANGED, ECE, ERRORS, SCALE_WORDS, Aggregate, Line, Rows, aggregate, join_settings
from .table import NOTHING, Cell, Table, csv_difference, csv_mean, csv_text, difference_cell, mean_cell, short

# Fields of an outcome that are shown, with their heads.
HEADS: Mapping[str, str] = {
    "last": "last",
    "median": "median",
    "best": "best",
    "selected": "selected",
    "squared_grad_norm": "‖g‖²",
    "seconds_per_epoch": "s/epoch",
}


def recipe_table(recipe: Recipe, scale: Scale, rows: Rows) -> Table:
    """One line per arm, K and settings; columns that would be empty are left out."""
    whole, reported = aggregate(recipe, scale, rows), recipe.reported(scale)
    lines, marks = whole.lines, settings_marks(whole.lines)
    arms = [" ".join(filter(None, (line.arm, marks.get(line.differs), CHANGED if line.marked else ""))) for line in lines]
    columns: list[tuple[str, Sequence[Cell]]] = [
        ("arm", arms),
        ("K", [str(line.k) if counts_k(line.arm) or line.k != 1 else NOTHING for line in lines]),
        ("n", [str(len(line.seeds)) for line in lines]),
    ]
    for name in _fields(reported):
        means = [mean_cell(line.summary(name), _places(name)) for line in lines]
        if name == reported:
            cells = [cell if line.runs else "not run" for line, cell in zip(lines, means, strict=True)]
            columns.append((f"{HEADS.get(name, name)}*", cells))
            if any(line.paper is not None for line in lines):
                head = "paper" if scale == "paper" else "paper (other scale)"
                columns.append((head, [_paper(line, scale) for line in lines]))
            columns += _comparisons(whole, reported)
        elif any(line.values(name) for line in lines):
            columns.append((HEADS[name], means))
    columns.append(("images", [short(line.images) for line in lines]))
    notes = [*_notes(whole, scale, reported), *(f"{mark} {join_settings(differs)}" for differs, mark in marks.items())]
    return Table.of_columns(f"{recipe.title} ({SCALE_WORDS[scale]})", columns, [*notes, *whole.notes], keys=3)


def recipe_csv(recipe: Recipe, scale: Scale, rows: Rows) -> str:
    """The same for a program: every number in full, the half-width of its interval beside it, empty where there is none.

    ``paper_compares`` is no at another scale and where settings are not the recipe's. Rows that were left out are not mentioned.
    """
    whole = aggregate(recipe, scale, rows)
    return csv_text([_record(recipe, scale, whole, line) for line in whole.lines], ["recipe", "scale", "arm", "k"])


def write_recipe_results(recipe: Recipe, scale: Scale, rows: Rows, out: Path) -> list[Path]:
    """``table.csv``, ``table.md`` and the figures, in a folder of ``out`` for the recipe and the scale."""
    from .figures.recipe import recipe_figures

    texts = {"table.csv": recipe_csv(recipe, scale, rows), "table.md": recipe_table(recipe, scale, rows).markdown()}
    files = {name: text.encode() for name, text in texts.items()} | recipe_figures(recipe, scale, rows)
    folder = out / recipe.name / scale
    make_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def settings_marks(lines: Sequence[Line]) -> dict[tuple[str, ...], str]:
    """A sign for every way in which settings differ from those of most runs, explained below the table."""
    ways = dict.fromkeys(line.differs for line in lines if line.differs)
    return {differs: f"[{place}]" for place, differs in enumerate(ways, start=1)}


def _comparisons(whole: Aggregate, reported: str) -> list[tuple[str, Sequence[Cell]]]:
    """The columns beside the reported number: its comparisons, and the calibration error where it was measured."""
    columns: list[tuple[str, Sequence[Cell]]] = []
    tests = _tests(whole, reported)
    columns += [(head, [difference_cell(test, _places(reported)) for test in tests[head]]) for head in ("vs none", "vs K = 1")]
    columns.append(("ECE", [mean_cell(line.summary(ECE)) for line in whole.lines]))
    columns.append(("ECE vs none", [difference_cell(test) for test in tests["ECE vs none"]]))
    return [(head, cells) for head, cells in columns if set(cells) - {NOTHING}]


def _tests(whole: Aggregate, reported: str) -> dict[str, list[Paired | None]]:
    """The paired differences of every line by the head of their column."""
    return {
        "vs none": [whole.minus_none(line, reported) for line in whole.lines],
        "vs K = 1": [whole.minus_one(line, reported) for line in whole.lines],
        "ECE vs none": [whole.minus_none(line, ECE) for line in whole.lines],
    }


def _fields(reported: str) -> list[str]:
    return list(dict.fromkeys([*HEADS, reported]))


def _places(name: str) -> int | None:
    """Two places for what is in per cent; a gradient or a time may have any size."""
    return 2 if name in ERRORS or name == ECE else None


def _paper(line: Line, scale: Scale) -> str:
    """The paper's number, in brackets where this line alone does not compare with it."""
    if line.paper is None:
        return NOTHING
    return f"({line.paper:.2f})" if scale == "paper" and line.changed else f"{line.paper:.2f}"


def _notes(whole: Aggregate, scale: Scale, reported: str) -> list[str]:
    """How to read the table."""
    one = ", one seed has none" if any(len(line.seeds) == 1 for line in whole.lines) else ""
    notes = [
        f"* is what the recipe reports; n: seeds; ±: 95 % t-interval of the mean over seeds{one}",
        f"errors in per cent; median: of the last {LAST} epochs; best: chosen by the samples it is measured on, so it flatters",
        "‖g‖²: mean over the updates of the last epoch; s/epoch: median over epochs; images: loaded in all epochs together",
    ]
    if any(line.values(ECE) for line in whole.lines):
        notes.append("ECE: expected calibration error of the final weights in per cent, 10 bins")
    meanings = {
        "vs none": f"{reported} minus that without mixing",
        "vs K = 1": f"{reported} minus that of the same arm with K = 1",
        "ECE vs none": "the same of the ECE",
    }
    for head, tests in _tests(whole, reported).items():
        count = sum(test is not None for test in tests)
        if count:
            many = f"; {count} comparisons, p is not corrected for their number" if count > 1 else ""
            notes.append(f"{head}: {meanings[head]}, paired over common seeds, p of the t-test{many}")
    if any(line.paper is not None for line in whole.lines) and scale != "paper":
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {scale} scale")
    elif any(line.paper is not None and line.changed for line in whole.lines):
        notes.append("(in brackets) the paper's number does not compare, since these settings are not the recipe's")
    return notes


def _record(recipe: Recipe, scale: Scale, whole: Aggregate, line: Line) -> dict[str, object]:
    """One line of the CSV file; None becomes an empty cell."""
    reported = recipe.reported(scale)
    record: dict[str, object] = {"recipe": recipe.name, "scale": scale, "arm": line.arm, "k": line.k, "digest": line.digest}
    record |= {"n": len(line.seeds), "seeds": " ".join(map(str, line.seeds))}
    for name in _fields(reported):
        record |= csv_mean(name, line.summary(name))
    record["images"] = line.images
    compares = "yes" if scale == "paper" and not line.changed else "no"
    record |= {"metric": reported, "paper": line.paper, "paper_compares": "" if line.paper is None else compares}
    record |= csv_difference("minus_none", whole.minus_none(line, reported))
    if any(whole.minus_one(other, reported) for other in whole.lines):
        record |= csv_difference("minus_one", whole.minus_one(line, reported))
    if any(other.values(ECE) for other in whole.lines):
        record |= csv_mean(ECE, line.summary(ECE)) | csv_difference(f"{ECE}_minus_none", whole.minus_none(line, ECE))
    return record | {"differs": "; ".join(line.differs), "not_of_recipe": "; ".join(line.changed)}
