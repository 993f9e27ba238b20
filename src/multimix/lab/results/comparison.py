"""Lines compared over common seeds: with no mixing and with K = 1, at the recipe's budget or at budgets that were made equal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..recipes import RECIPES
from ..recipes.base import SCALES, Recipe, Scale
from ..statistics import Paired, holm, paired_by_seed
from ..sweep.plan import EQUALS, Entry, Equal
from .rows import BASELINE, CHANGED, Aggregate, Line, Rows, aggregate


def studies(rows: Rows, recipes: Mapping[str, Recipe] = RECIPES) -> list[Aggregate]:
    """One for every recipe and scale that has rows, in the order of the recipes; rows of unknown recipes are refused."""
    names = {row.get("recipe") for row in rows}
    for name in sorted(map(str, names - set(recipes))):
        raise ValueError(f"the runs are of recipe {name!r}, which this version does not have; it has {', '.join(recipes)}")
    every = [aggregate(recipes[name], scale, rows) for name in recipes if name in names for scale in SCALES]
    return [whole for whole in every if whole.trained]


def minus_none(line: Line, lines: Sequence[Line], field: str) -> Paired | None:
    """``line`` minus no mixing over at least two common seeds, if one of ``lines`` differs by nothing but the arm."""
    others = [other for other in lines if other.arm == BASELINE and other.comparable == line.comparable]
    return None if line.arm == BASELINE else _minus(line, others, field)


def minus_one(line: Line, lines: Sequence[Line], field: str) -> Paired | None:
    """``line`` minus its own arm at K = 1 over at least two common seeds, if one of ``lines`` differs by K alone."""
    same = (line.arm, 1, line.changed, line.processes)
    others = [other for other in lines if (other.arm, other.k, other.changed, other.processes) == same]
    return None if line.k == 1 else _minus(line, others, field)


def _minus(line: Line, others: Sequence[Line], field: str) -> Paired | None:
    """``line`` minus the one of ``others`` with which it has most seeds in common, if those are at least two."""
    tests = [paired_by_seed(line.values(field), other.values(field)) for other in others]
    return max((test for test in tests if test is not None), key=lambda test: test.n, default=None)


class Compared(NamedTuple):
    """``line`` minus ``other``, both by name, over common seeds; ``p_holm`` is corrected for all comparisons of the field."""

    line: str
    other: str
    paired: Paired
    p_holm: float


def compare(whole: Aggregate, field: str) -> list[Compared]:
    """Every line against no mixing, and every K > 1 against K = 1 of the same method; p corrected over all of them."""
    found = []
    for line in whole.trained:
        tests = {BASELINE: minus_none(line, whole.lines, field), f"{line.arm} K = 1": minus_one(line, whole.lines, field)}
        found += [(whole.label(line), other, test) for other, test in tests.items() if test is not None]
    corrected = holm([test.p_t for _, _, test in found])
    return [Compared(*one, p) for one, p in zip(found, corrected, strict=True)]


def comparable_lines(whole: Aggregate) -> list[Line]:
    """Lines that differ by nothing but method and K; of several such groups that of most runs."""
    groups: dict[tuple[str, ...], dict[tuple[str, int], Line]] = {}
    for line in whole.trained:
        groups.setdefault(line.comparable, {}).setdefault((line.arm, line.k), line)
    most = max(groups.values(), key=lambda lines: sum(len(line.seeds) for line in lines.values()))
    return list(most.values())


def at_equal_budgets(recipe: Recipe, scale: Scale, rows: Rows, planned: Iterable[Entry]) -> dict[Equal, Aggregate]:
    """The runs of a plan for every budget that was made equal; rows of other runs are passed over, missing ones leave gaps."""
    groups: dict[tuple[Equal, str, int], dict[int, str]] = {}
    for entry in planned:
        groups.setdefault((entry.equal, entry.arm, entry.k), {})[entry.seed] = entry.digest
    wanted = {(arm, k, seed, digest) for (_, arm, k), runs in groups.items() for seed, digest in runs.items()}
    names = ("arm", "k", "seed", "digest")
    whole = aggregate(recipe, scale, [row for row in rows if tuple(row.get(name) for name in names) in wanted])
    known = {(line.arm, line.k, line.digest): line for line in whole.lines}
    tables: dict[Equal, list[Line]] = {equal: [] for equal in EQUALS}
    for (equal, arm, k), seeds in groups.items():
        *_, digest = seeds.values()
        line = known.get((arm, k, digest), Line(arm, k, None, digest))
        # A schedule that is not the recipe's is the point here, and said by the table: these lines do compare.
        runs = {seed: run for seed, run in line.runs.items() if seed in seeds}
        tables[equal].append(replace(line, runs=runs, differs=(), changed=()))
    notes = tuple(note for note in whole.notes if not note.startswith(CHANGED))
    return {equal: Aggregate(recipe, scale, tuple(lines), notes) for equal, lines in tables.items() if lines}


def longest_schedules(tables: Mapping[Equal, Aggregate]) -> Aggregate:
    """The lines with runs at equal steps if there are any, else of all budgets."""
    first = next(iter(tables.values()))
    every = tables["steps"].trained if "steps" in tables else []
    every = every or [line for whole in tables.values() for line in whole.trained]
    return first._replace(lines=tuple({(line.arm, line.k, line.digest): line for line in every}.values()))


def cut_short(whole: Aggregate, what: Equal) -> tuple[float, Aggregate]:
    """The largest budget that all runs have spent, and every run up to its last evaluated epoch within it.

    Runs that were not evaluated before are left out, and lines without any other.
    """
    budget = min(run.spent(what) for line in whole.trained for run in line.runs.values())
    lines = []
    for line in whole.trained:
        runs = {}
        for seed, run in line.runs.items():
            evaluated = [count for count, epoch in enumerate(run.epochs, start=1) if epoch.error is not None]
            # Sums of seconds are not exact.
            within = [count for count in evaluated if run.spent(what, count) <= budget * (1 + 1e-9)]
            if within:
                runs[seed] = run.until(within[-1])
        if runs:
            lines.append(replace(line, runs=runs))
    return budget, whole._replace(lines=tuple(lines))
