"""What a sweep says, from rows alone: every arm at every K, at budgets that were made equal or that all of them reached."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from ..recipes.arms import counts_k
from ..recipes.base import Recipe, Scale
from ..statistics import Paired, Summary, paired_by_seed, summary
from ..sweep.plan import EQUALS, Entry, Equal
from ..training.log import Epoch
from .rows import BASELINE, CHANGED, ERRORS, Line, Rows, Run, aggregate

Spent = Callable[[Run, Epoch], float]


class Compared(NamedTuple):
    """One arm at one K. Numbers without an interval are means over its seeds; None where nothing was trained.

    ``seconds`` are those of the CPU, of the clock where an accelerator did the work. ``budget`` is what it really spent, as a
    multiple of no mixing (of the arm's own K = 1 where that was not trained): rounding to whole epochs leaves it beside 1.
    """

    line: Line
    epochs: float | None
    updates: float | None
    rows: float | None
    seconds: float | None
    budget: float | None
    error: Summary | None
    with_one: Paired | None
    with_none: Paired | None


class Comparison(NamedTuple):
    """For every budget that was made equal its lines, in the order of the plan; and what the reader must know of the runs.

    ``field`` is what is compared, one of the errors of an outcome.
    """

    recipe: Recipe
    scale: Scale
    field: str
    tables: Mapping[Equal, tuple[Compared, ...]]
    notes: tuple[str, ...]

    @property
    def timed(self) -> str:
        """How the seconds were taken."""
        runs = [run for lines in self.tables.values() for one in lines for run in one.line.runs.values()]
        return "CPU s" if all(_on_cpu(run) for run in runs) else "s"

    @property
    def lines(self) -> list[Line]:
        """Those with the longest schedules: at equal steps if there are any, else all there are."""
        found = self.tables.get("steps") or [one for lines in self.tables.values() for one in lines]
        unique = {(one.line.arm, one.line.k, one.line.digest): one.line for one in found if one.line.runs}
        return list(unique.values())


class Reached(NamedTuple):
    """A line at a budget: the mean epoch up to which it goes, what was spent by then, and the errors there by seed."""

    line: Line
    epoch: float
    spent: float
    errors: Mapping[int, float]


class Cut(NamedTuple):
    """The largest budget that all runs have spent, and where the lines were then."""

    budget: float
    lines: tuple[Reached, ...]


def comparison(recipe: Recipe, scale: Scale, rows: Rows, planned: Iterable[Entry]) -> Comparison:
    """The runs of a plan side by side; rows of other runs are passed over, and those that are missing leave gaps."""
    groups: dict[tuple[Equal, str, int], list[Entry]] = {}
    for entry in planned:
        groups.setdefault((entry.equal, entry.arm, entry.k), []).append(entry)
    wanted = {(entry.arm, entry.k, entry.seed, entry.digest) for group in groups.values() for entry in group}
    names = ("arm", "k", "seed", "digest")
    whole = aggregate(recipe, scale, [row for row in rows if tuple(row.get(name) for name in names) in wanted])
    lines = {(line.arm, line.k, line.digest): line for line in whole.lines}
    reported = recipe.reported(scale)
    field = reported if reported in ERRORS else "last"
    tables: dict[Equal, tuple[Compared, ...]] = {}
    for equal in EQUALS:
        own = [_line(lines, arm, k, group) for (name, arm, k), group in groups.items() if name == equal]
        if own:
            tables[equal] = tuple(_compared(line, own, equal, field) for line in own)
    # A shorter schedule than the recipe's is the point here, and said by the table.
    notes = tuple(note for note in whole.notes if not note.startswith(CHANGED))
    return Comparison(recipe, scale, field, tables, notes)


def cut(lines: Sequence[Line], spent: Spent) -> Cut | None:
    """Every line at the largest budget that all runs of all lines have spent, by what ``spent`` says of an epoch.

    The error is that of the last evaluated epoch within it; a line whose seeds were never evaluated before is left out.
    """
    courses = {i: {seed: course(run, spent) for seed, run in line.runs.items()} for i, line in enumerate(lines)}
    ends = [points[-1].spent for runs in courses.values() for points in runs.values() if points]
    if not ends:
        return None
    budget = min(ends)
    found = []
    for i, line in enumerate(lines):
        # Sums of seconds are not exact.
        within = {seed: [one for one in points if one.spent <= budget * (1 + 1e-9)] for seed, points in courses[i].items()}
        last = {seed: points[-1] for seed, points in within.items() if points}
        if last:
            epoch, sums = (fmean(values) for values in zip(*((one.epoch, one.spent) for one in last.values()), strict=True))
            found.append(Reached(line, epoch, sums, {seed: one.error for seed, one in last.items()}))
    return Cut(budget, tuple(found))


class Spot(NamedTuple):
    """An evaluated epoch: what the run had spent by its end, and its error."""

    epoch: int
    spent: float
    error: float


def course(run: Run, spent: Spent) -> list[Spot]:
    """The evaluated epochs of a run."""
    total, spots = 0.0, []
    for epoch in run.epochs:
        total += spent(run, epoch)
        if epoch.error is not None:
            spots.append(Spot(epoch.number, total, epoch.error))
    return spots


def rows_of(run: Run, epoch: Epoch) -> float:
    """Rows through the network in an epoch."""
    return float(epoch.rows)


def seconds_of(run: Run, epoch: Epoch) -> float:
    """CPU seconds of an epoch; those of the clock where an accelerator did the work."""
    return epoch.cpu_seconds if _on_cpu(run) else epoch.seconds


def beside(line: Line, lines: Iterable[Line]) -> tuple[Line | None, Line | None]:
    """The arm's own K = 1 and no mixing, among ``lines``; None where it is the line itself."""
    found = list(lines)
    one = next((other for other in found if other.arm == line.arm and other.k == 1 and line.k != 1 and counts_k(line.arm)), None)
    none = next((other for other in found if other.arm == BASELINE and line.arm != BASELINE), None)
    return one, none


def _on_cpu(run: Run) -> bool:
    return run.machine.startswith("cpu")


def _line(lines: Mapping[tuple[str, int, str], Line], arm: str, k: int, group: Sequence[Entry]) -> Line:
    """The runs of a line that belong to the plan."""
    line = lines.get((arm, k, group[-1].digest))
    if line is None:
        return Line(arm, k, None, group[-1].digest)
    seeds = {entry.seed for entry in group}
    return replace(line, runs={seed: run for seed, run in line.runs.items() if seed in seeds})


def _compared(line: Line, lines: Sequence[Line], equal: Equal, field: str) -> Compared:
    values = line.values(field)
    one, none = beside(line, lines)
    own = line.arm == BASELINE or (line.k == 1 and none is None)
    reference = line if own else none or one
    spent = _spent(line, equal)
    base = None if reference is None else _spent(reference, equal)
    return Compared(
        line=line,
        epochs=_mean(line, lambda run: len(run.epochs)),
        updates=_spent(line, "steps"),
        rows=_spent(line, "samples"),
        seconds=_spent(line, "compute"),
        budget=spent / base if spent is not None and base else None,
        error=summary(list(values.values())) if values else None,
        with_one=None if one is None else paired_by_seed(values, one.values(field)),
        with_none=None if none is None else paired_by_seed(values, none.values(field)),
    )


def _spent(line: Line, equal: Equal) -> float | None:
    """Of what is made equal, the mean over the seeds."""
    if equal == "steps":
        return _mean(line, lambda run: run.epochs[-1].updates)
    spent = rows_of if equal == "samples" else seconds_of
    return _mean(line, lambda run: sum(spent(run, epoch) for epoch in run.epochs))


def _mean(line: Line, value: Callable[[Run], float]) -> float | None:
    return fmean(value(run) for run in line.runs.values()) if line.runs else None
