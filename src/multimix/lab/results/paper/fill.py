"""Our numbers for a table of the paper, from the rows of finished runs and from the study of the spiral."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...recipes import SCALES, recipe
from ...recipes.arms import arm_names
from ...recipes.base import Scale
from ...recipes.spiral import COLLAPSED, SpiralSettings
from ...statistics import Paired, Summary, paired, summary
from ..aggregate import CHANGED, Gathered, Line, Rows, gathered, named
from .base import DEMO, Column, Key, PaperTable, TableRow

NOT_RUN = "not run at this scale"
NOT_EVALUATED = "not evaluated"
NOT_HERE = "not in this version"
# The study of the spiral has no small scale; a quick one shows that everything runs.
SPIRALS: Mapping[Scale, str] = {"paper": "spiral.json", "smoke": "spiral-quick.json"}


class Entry(NamedTuple):
    """Values by seed, or in ``state`` why there are none; and the paper's number, if it is known."""

    values: Mapping[int, float]
    state: str
    paper: float | None

    @property
    def summary(self) -> Summary | None:
        """Mean over the seeds with its interval."""
        return summary(list(self.values.values())) if self.values else None


@dataclass(frozen=True)
class Filled:
    """A table with our numbers at one scale: a cell for every row and column, by their places; and what to know about them."""

    table: PaperTable
    scale: Scale
    cells: Mapping[tuple[int, int], Entry]
    notes: tuple[str, ...]

    def multi_mix_minus(self, row: int, column: int) -> Paired | None:
        """The paper's test: multi-mix minus another row, paired over at least two common seeds."""
        own = next(i for i, entry in enumerate(self.table.rows) if entry.key == self.table.against)
        first, second = self.cells[own, column].values, self.cells[row, column].values
        common = sorted(set(first) & set(second))
        return paired([first[seed] for seed in common], [second[seed] for seed in common]) if row != own and common[1:] else None


def largest_scale(table: PaperTable, rows: Rows, demo: Path) -> Scale | None:
    """The largest scale at which there are runs for the table, if there are any."""
    for scale in SCALES:
        if any(row.get("recipe") in table.recipes and row.get("scale") == scale for row in rows):
            return scale
        if DEMO in table.recipes and scale in SPIRALS and (demo / SPIRALS[scale]).exists():
            return scale
    return None


def filled(table: PaperTable, scale: Scale, rows: Rows, demo: Path) -> Filled:
    """Our numbers: only runs with the recipe's own settings count, and how many others there are is noted."""
    if DEMO in table.recipes:
        return _spiral(table, scale, demo)
    found = {name: gathered(recipe(name), scale, rows) for name in table.recipes}
    cells = {
        (i, j): _cell(row, column, found[column.recipe], scale)
        for i, row in enumerate(table.rows)
        for j, column in enumerate(table.columns)
    }
    return Filled(table, scale, cells, tuple(_notes(table, scale, found, cells)))


def _cell(row: TableRow, column: Column, found: Gathered, scale: Scale) -> Entry:
    paper = column.number(row.key)
    line = _own(found, column.of or row.key)
    values = line.values(column.name(scale, row.k)) if line is not None else {}
    if values:
        return Entry(values, "", paper)
    if line is not None:
        return Entry({}, NOT_EVALUATED, paper)
    return Entry({}, NOT_RUN if row.arm in arm_names() else NOT_HERE, paper)


def _own(found: Gathered, key: Key) -> Line | None:
    """The runs of an arm and K with the recipe's own settings, if there are any."""
    return next((line for line in _alike(found) if (line.arm, line.k) == key), None)


def _alike(found: Gathered) -> list[Line]:
    """Lines with the recipe's own settings, all of as many processes as most runs had."""
    own = [line for line in found.lines if line.runs and not line.changed]
    counts: Counter[int] = Counter()
    for line in own:
        counts[line.processes] += len(line.seeds)
    return [line for line in own if line.processes == counts.most_common(1)[0][0]]


def _notes(
    table: PaperTable, scale: Scale, found: Mapping[str, Gathered], cells: Mapping[tuple[int, int], Entry]
) -> Iterator[str]:
    keys = {key for row in table.rows for key in (row.key, *(column.of for column in table.columns if column.of))}
    timed = any(column.unit != "per cent" for column in table.columns)
    for name, lines in found.items():
        alike = _alike(lines)
        others = [line for line in lines.lines if (line.arm, line.k) in keys and line.runs and not line.changed]
        dropped = [line for line in others if line not in alike]
        if dropped:
            count = _count(sum(len(line.seeds) for line in dropped))
            yield f"left out of {name}: {count} of another number of processes ({', '.join(line.label for line in dropped)})"
        changed = [line for line in lines.lines if (line.arm, line.k) in keys and line.runs and line.changed]
        if changed:
            count = _count(sum(len(line.seeds) for line in changed))
            labels = ", ".join(dict.fromkeys(line.label for line in changed))
            yield f"left out of {name}, since settings are not the recipe's: {count} ({labels}: {named(changed[0].changed, 2)})"
        others = [line for line in lines.lines if (line.arm, line.k) not in keys and line.runs]
        if others:
            count = _count(sum(len(line.seeds) for line in others))
            labels = ", ".join(dict.fromkeys(line.label for line in others))
            yield f"{name} has {count} that the paper's table has no row for ({labels}): multimix report shows them"
        told = [note for note in lines.notes if not note.startswith(CHANGED)]
        yield from (f"{name}: {note}" for note in told if timed or not note.startswith("seconds "))
    missing = {column.evaluator for (_, j), cell in cells.items() for column in [table.columns[j]] if cell.state == NOT_EVALUATED}
    for evaluator in table.evaluators:
        if evaluator in missing:
            yield f"{NOT_EVALUATED}: multimix evaluate RUNS --on {evaluator}"
    if any(cell.state == NOT_RUN for cell in cells.values()):
        runs = "; ".join(f"multimix train {name} --scale {scale}" for name in table.recipes)
        yield f"{NOT_RUN}: {runs}"


def _count(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"


def _spiral(table: PaperTable, scale: Scale, demo: Path) -> Filled:
    """The accuracies of ``multimix demo`` from the file that it writes."""
    notes = []
    content = _read(demo / SPIRALS[scale]) if scale in SPIRALS else None
    accuracy: Mapping[str, Sequence[float]] = {} if content is None else content["accuracy"]
    if content is not None and content["settings"] != asdict(_expected(scale, content["settings"]["epochs"])):
        notes.append(f"the runs in {demo} are left out, since their settings are not those of multimix demo")
        accuracy = {}
    cells = {}
    for i, row in enumerate(table.rows):
        for j, column in enumerate(table.columns):
            values = dict(zip(content["seeds"], accuracy[row.arm], strict=True)) if content and row.arm in accuracy else {}
            cells[i, j] = Entry(values, "" if values else NOT_RUN, column.number(row.key))
    fallen = {row.label: sum(value < COLLAPSED for value in accuracy.get(row.arm, ())) for row in table.rows}
    if any(fallen.values()):
        counts = ", ".join(f"{label}: {count}" for label, count in fallen.items() if count)
        notes.append(
            f"runs that collapsed, that is, ended below {COLLAPSED:.0f} % ({counts}): one moves a mean by a point or more"
        )
    if not accuracy:
        notes.append(f"{NOT_RUN}: multimix demo" + (" --quick" if scale == "smoke" else ""))
    return Filled(table, scale, cells, tuple(notes))


def _expected(scale: Scale, epochs: int) -> SpiralSettings:
    return SpiralSettings() if scale == "paper" else replace(SpiralSettings(), epochs=epochs)


def _read(path: Path) -> dict[str, Any] | None:
    """What the study wrote, None if it did not."""
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seeds = len(content["seeds"])
        sound = all(len(values) == seeds for values in content["accuracy"].values()) and "epochs" in content["settings"]
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{path} is damaged: multimix demo --rebuild --out {path.parent} makes it again")
    return content
