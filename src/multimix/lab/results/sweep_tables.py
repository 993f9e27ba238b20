"""The tables of sweeps: one for every budget that was made equal, two for budgets after the fact; CSV and figures as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..recipes.base import Recipe, Scale
from ..statistics import Paired
from ..storage import write_files
from ..sweep.plan import Equal, Group, groups, read_plan
from ..terminal import note
from .comparison import at_equal_budgets, cut_short, longest_schedules, minus_none, minus_one
from .recipe_table import k_column, line_record, not_corrected
from .rows import BASELINE, SCALE_WORDS, Aggregate, Line, Rows
from .table import NOTHING, SPREAD, Column, Table, csv_difference, csv_mean, csv_text, difference_column, mean_cell, number, short

MEANING: dict[Equal, str] = {
    "steps": "equal steps: the recipe's own schedule, as many epochs for all; budget is in updates",
    "samples": "equal samples: as many rows through the network as K = 1 has, in whole epochs; budget is in rows",
    "compute": "equal compute: epochs divided by the measured cost of an update; budget is in seconds",
}
ROUNDING: dict[Equal, str] = {
    "steps": "",
    "samples": ", since epochs are whole",
    "compute": ", since epochs are whole and costs were measured ahead",
}


class Sweep:
    """Everything that was swept of a recipe at a scale with the same changed fields, compared."""

    def __init__(self, group: Group, recipe: Recipe, rows: Rows) -> None:
        self.group = group
        self.changed = ", ".join(f"{field} = {value}" for field, value in group.changes.items())
        self.tables = at_equal_budgets(recipe, group.scale, rows, group.runs)

    def sheets(self) -> list[Table]:
        """The tables."""
        return budget_tables(self.tables, self.changed)

    def figures(self) -> dict[str, bytes]:
        """PNG and SVG by file name."""
        from .figures.recipe import budget_figures

        return budget_figures(self.tables, self.changed, self.group.stem)

    def write(self, out: Path) -> list[Path]:
        """``sweep.md``, ``sweep.csv`` and the figures, in a folder of ``out`` for the recipe and the scale."""
        texts = {".md": "\n".join(sheet.markdown() for sheet in self.sheets()), ".csv": csv_text(budget_records(self.tables))}
        files = {self.group.stem + ending: text.encode() for ending, text in texts.items()}
        return write_files(out / self.group.recipe / self.group.scale, files | self.figures())


def sweeps(out: Path, recipe: Recipe, scale: Scale, rows: Rows) -> list[Sweep]:
    """The sweeps of a recipe at a scale in a folder of results: one for each choice of changed fields."""
    found = groups(read_plan(out, note))
    return [Sweep(group, recipe, rows) for group in found if (group.recipe, group.scale) == (recipe.name, scale)]


def budget_tables(tables: Mapping[Equal, Aggregate], changed: str = "") -> list[Table]:
    """The tables; ``changed`` says in words which fields were changed for all of them."""
    made = [_equal(whole, equal, changed) for equal, whole in tables.items()]
    longest = longest_schedules(tables)
    if len(longest.lines) > 1:
        for what in ("samples", "compute"):
            budget, reached = cut_short(longest, what)
            if budget > 0:
                made.append(_after(longest, reached, budget, what, changed))
    return made


def budget_records(tables: Mapping[Equal, Aggregate]) -> list[dict[str, object]]:
    """Lines of a CSV file: every number in full, None where there is none."""
    return [_record(whole, equal, line) for equal, whole in tables.items() for line in whole.lines]


def relative_budget(line: Line, lines: Sequence[Line], equal: Equal) -> float | None:
    """What a line really spent, as a multiple of no mixing; of the arm's own K = 1 where that was not planned.

    Rounding to whole epochs leaves it beside 1.
    """
    one = next((other for other in lines if (other.arm, other.k) == (line.arm, 1)), None)
    reference = next((other for other in lines if other.arm == BASELINE), one)
    spent, base = line.spent(equal), None if reference is None else reference.spent(equal)
    return spent / base if spent is not None and base else None


def _equal(whole: Aggregate, equal: Equal, changed: str) -> Table:
    lines = whole.lines
    budgets = [relative_budget(line, lines, equal) for line in lines]
    comparisons, count = _differences(whole, whole.error)
    columns: list[Column] = [
        *_names(lines),
        ("epochs", [_number(_epochs(line)) for line in lines]),
        ("updates", [short(line.spent("steps")) for line in lines]),
        ("rows", [short(line.spent("samples")) for line in lines]),
        (whole.timed, [_number(line.spent("compute")) for line in lines]),
        ("budget", [NOTHING if budget is None else f"{budget:.2f}" for budget in budgets]),
        (f"{whole.error} error", [mean_cell(line.summary(whole.error)) for line in lines]),
        *comparisons,
    ]
    reference = "no mixing" if any(line.arm == BASELINE for line in lines) else "the method's own K = 1"
    known = [budget for budget in budgets if budget is not None]
    close = not known or (max(known) < 1.005 and min(known) > 0.995)
    rounding = "" if close else f" (here {min(known):.2f} to {max(known):.2f}{ROUNDING[equal]})"
    notes = [
        MEANING[equal],
        f"budget: what was spent, as a multiple of {reference}{rounding}; rows: samples and mixtures that passed the network, "
        "without the pass for saliency; n: seeds",
        f"errors in per cent; {SPREAD}; differences paired over common seeds, p of the t-test" + not_corrected(count),
        *whole.notes,
    ]
    return Table.of_columns(_title(whole, f"equal {equal}", changed), columns, notes)


def _after(longest: Aggregate, reached: Aggregate, budget: float, what: Equal, changed: str) -> Table:
    """Where all lines were when the first had no more to spend."""
    shown, unit = (short, "rows") if what == "samples" else (_number, longest.timed)
    lines = reached.lines
    comparisons, count = _differences(reached, "last")
    columns: list[Column] = [
        *_names(lines),
        ("epoch", [_number(_epochs(line)) for line in lines]),
        (unit, [shown(line.spent(what)) for line in lines]),
        ("error", [mean_cell(line.summary("last")) for line in lines]),
        *comparisons,
    ]
    notes = [
        f"after the fact: the error at the last evaluated epoch within {shown(budget)} {unit}, the most that all runs have spent",
        "most schedules are cut short here: their learning rate had not fallen yet, so this is not what a whole training with "
        "this budget would reach",
        f"errors in per cent; {SPREAD}; differences paired over common seeds{not_corrected(count)}",
    ]
    there = {(line.arm, line.k, line.digest) for line in lines}
    missing = [line.label for line in longest.lines if (line.arm, line.k, line.digest) not in there]
    if missing:
        notes.append(f"left out, since its first evaluated epoch costs more: {', '.join(missing)}")
    return Table.of_columns(_title(longest, f"at {shown(budget)} {unit}", changed), columns, notes)


def _names(lines: Sequence[Line]) -> list[Column]:
    seeds = [str(len(line.seeds)) if line.seeds else "not run" for line in lines]
    return [("method", [line.arm for line in lines]), k_column(lines), ("n", seeds)]


def _differences(whole: Aggregate, field: str) -> tuple[list[Column], int]:
    """The two columns of comparisons, and how many there are."""
    tests: dict[str, list[Paired | None]] = {
        "vs K = 1": [minus_one(line, whole.lines, field) for line in whole.lines],
        "vs none": [minus_none(line, whole.lines, field) for line in whole.lines],
    }
    count = sum(test is not None for own in tests.values() for test in own)
    return [difference_column(head, own) for head, own in tests.items()], count


def _epochs(line: Line) -> float | None:
    return line.mean(lambda run: len(run.epochs))


def _title(whole: Aggregate, words: str, changed: str) -> str:
    return f"{whole.recipe.title}, {words} ({SCALE_WORDS[whole.scale]}{'; ' + changed if changed else ''})"


def _number(value: float | None) -> str:
    return NOTHING if value is None else number(value, None)


def _record(whole: Aggregate, equal: Equal, line: Line) -> dict[str, object]:
    record = line_record(whole, line, equal=equal) | {"epochs": _epochs(line), "updates": line.spent("steps")}
    record |= {"rows": line.spent("samples"), "seconds": line.spent("compute")}
    record |= {"budget": relative_budget(line, whole.lines, equal), "timed": whole.timed, "metric": whole.error}
    record |= csv_mean("error", line.summary(whole.error))
    record |= csv_difference("minus_one", minus_one(line, whole.lines, whole.error))
    return record | csv_difference("minus_none", minus_none(line, whole.lines, whole.error))
