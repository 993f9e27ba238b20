"""A recipe's results beside the paper's numbers: as a table, as CSV, and as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..recipes.base import counts_k
from ..storage import write_files
from ..training.log import LAST
from .comparison import minus_none, minus_one
from .rows import CHANGED, ECE, ERRORS, SCALE_WORDS, Aggregate, Line, join_settings
from .table import NOTHING, SPREAD, Column, Table, csv_difference, csv_mean, csv_text, difference_column, mean_cell, short

# Fields of an outcome that are shown, with their heads.
HEADS: Mapping[str, str] = {
    "last": "last",
    "median": "median",
    "best": "best",
    "selected": "selected",
    "squared_grad_norm": "‖g‖²",
    "seconds_per_epoch": "s/epoch",
}


def recipe_table(whole: Aggregate) -> Table:
    """One line per arm, K and settings; columns that would be empty are left out."""
    lines, marks, reported = whole.lines, whole.marks(), whole.recipe.reported(whole.scale)
    arms = [" ".join(filter(None, (line.arm, marks.get(line.differs), CHANGED if line.marked else ""))) for line in lines]
    columns: list[Column] = [("arm", arms), k_column(lines), ("n", [str(len(line.seeds)) for line in lines])]
    for name in _fields(reported):
        means = [mean_cell(line.summary(name), _places(name)) for line in lines]
        if name == reported:
            cells = [cell if line.runs else "not run" for line, cell in zip(lines, means, strict=True)]
            columns += [(f"{HEADS.get(name, name)}*", cells), *_beside_reported(whole, reported)]
        elif any(line.values(name) for line in lines):
            columns.append((HEADS[name], means))
    columns.append(("images", [short(_images(line)) for line in lines]))
    notes = [*_notes(whole, reported), *(f"{mark} {join_settings(differs)}" for differs, mark in marks.items()), *whole.notes]
    return Table.of_columns(f"{whole.recipe.title} ({SCALE_WORDS[whole.scale]})", columns, notes, keys=3)


def recipe_csv(whole: Aggregate) -> str:
    """The same for a program: every number in full, the half-width of its interval beside it, empty where there is none.

    ``paper_compares`` is no at another scale and where settings are not the recipe's. Rows that were left out are not mentioned.
    """
    return csv_text([_record(whole, line) for line in whole.lines], ["recipe", "scale", "arm", "k"])


def write_recipe_results(whole: Aggregate, out: Path) -> list[Path]:
    """``table.csv``, ``table.md`` and the figures, in a folder of ``out`` for the recipe and the scale."""
    from .figures.recipe import recipe_figures

    texts = {"table.csv": recipe_csv(whole), "table.md": recipe_table(whole).markdown()}
    files = {name: text.encode() for name, text in texts.items()} | recipe_figures(whole)
    return write_files(out / whole.recipe.name / whole.scale, files)


def k_column(lines: Sequence[Line]) -> Column:
    """The K of lines, where it means something."""
    return "K", [str(line.k) if counts_k(line.arm) or line.k != 1 else NOTHING for line in lines]


def line_record(whole: Aggregate, line: Line, **more: object) -> dict[str, object]:
    """What tells a line from others, the beginning of its record."""
    record = {"recipe": whole.recipe.name, "scale": whole.scale, **more, "arm": line.arm, "k": line.k, "digest": line.digest}
    return record | {"n": len(line.seeds), "seeds": " ".join(map(str, line.seeds))}


def _beside_reported(whole: Aggregate, reported: str) -> list[Column]:
    """The paper's number, comparisons, and the calibration error, as far as there are any."""
    lines, scale = whole.lines, whole.scale
    # In brackets where this line alone does not compare with the paper; at another scale none does, which the head says.
    signs = ["({:.2f})" if scale == "paper" and line.changed else "{:.2f}" for line in lines]
    papers = [NOTHING if line.paper is None else sign.format(line.paper) for line, sign in zip(lines, signs, strict=True)]
    columns: list[Column] = [
        ("paper" if scale == "paper" else "paper (other scale)", papers),
        difference_column("vs none", [minus_none(line, lines, reported) for line in lines], _places(reported)),
        difference_column("vs K = 1", [minus_one(line, lines, reported) for line in lines], _places(reported)),
        ("ECE", [mean_cell(line.summary(ECE)) for line in lines]),
        difference_column("ECE vs none", [minus_none(line, lines, ECE) for line in lines]),
    ]
    return [(head, cells) for head, cells in columns if set(cells) - {NOTHING}]


def _fields(reported: str) -> list[str]:
    return list(dict.fromkeys([*HEADS, reported]))


def _places(name: str) -> int | None:
    """Two places for what is in per cent; a gradient or a time may have any size."""
    return 2 if name in ERRORS or name == ECE else None


def _images(line: Line) -> float | None:
    """Samples loaded in all epochs together."""
    return line.mean(lambda run: sum(epoch.images for epoch in run.epochs))


def _notes(whole: Aggregate, reported: str) -> list[str]:
    """How to read the table."""
    lines, scale = whole.lines, whole.scale
    notes = [
        f"* is what the recipe reports; n: seeds; {SPREAD}",
        f"errors in per cent; median: of the last {LAST} epochs; best: chosen by the samples it is measured on, so it flatters",
        "‖g‖²: mean over the updates of the last epoch; s/epoch: median over epochs; images: loaded in all epochs together",
    ]
    if any(line.values(ECE) for line in lines):
        notes.append("ECE: expected calibration error of the final weights in per cent, 10 bins")
    for words, minus, field in (
        (f"vs none: {reported} minus that without mixing", minus_none, reported),
        (f"vs K = 1: {reported} minus that of the same arm with K = 1", minus_one, reported),
        ("ECE vs none: the same of the ECE", minus_none, ECE),
    ):
        count = sum(minus(line, lines, field) is not None for line in lines)
        if count:
            notes.append(f"{words}, paired over common seeds, p of the t-test{not_corrected(count)}")
    if any(line.paper is not None for line in lines) and scale != "paper":
        notes.append(f"the paper's numbers are of its own scale and do not compare with those of this {scale} scale")
    elif any(line.paper is not None and line.changed for line in lines):
        notes.append("(in brackets) the paper's number does not compare, since these settings are not the recipe's")
    return notes


def not_corrected(count: int) -> str:
    """A warning below a table of several comparisons."""
    return f"; {count} comparisons, p is not corrected for their number" if count > 1 else ""


def _record(whole: Aggregate, line: Line) -> dict[str, object]:
    """One line of the CSV file; None becomes an empty cell."""
    lines, reported = whole.lines, whole.recipe.reported(whole.scale)
    record = line_record(whole, line)
    for name in _fields(reported):
        record |= csv_mean(name, line.summary(name))
    compares = "yes" if whole.scale == "paper" and not line.changed else "no"
    record |= {"images": _images(line), "metric": reported}
    record |= {"paper": line.paper, "paper_compares": "" if line.paper is None else compares}
    record |= csv_difference("minus_none", minus_none(line, lines, reported))
    if any(minus_one(other, lines, reported) for other in lines):
        record |= csv_difference("minus_one", minus_one(line, lines, reported))
    if any(other.values(ECE) for other in lines):
        record |= csv_mean(ECE, line.summary(ECE)) | csv_difference(f"{ECE}_minus_none", minus_none(line, lines, ECE))
    return record | {"differs": "; ".join(line.differs), "not_of_recipe": "; ".join(line.changed)}
