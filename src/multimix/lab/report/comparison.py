"""Comparisons of run groups over common seeds: with no mixing, with K = 1, at equal budgets."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..recipes.base import Recipe, Scale, counts_k
from ..sweep.plan import EQUALS, Entry, Equal
from .frame import BASELINE, CHANGED, Rows, RunGroup, Study, study
from .stats import (
    Effect,
    Equivalence,
    Paired,
    difference_verdict,
    effect_over_groups,
    equivalence,
    holm,
    paired_by_seed,
    paired_equivalence,
)

MARGIN = 0.5  # points of error
MIN_SEEDS = 3
SAME_ROWS_TOLERANCE = 0.02  # relative difference of the rows through the network


class Comparison(NamedTuple):
    """``group`` minus ``other``, both by label; ``p_holm`` is corrected over the column's tests."""

    group: str
    other: str
    paired: Paired
    p_holm: float


class KComparison(NamedTuple):
    """A comparison with an equivalence test; ``p`` is corrected by Holm over its family."""

    group: str
    other: str
    paired: Paired
    p: float
    same: Equivalence

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return difference_verdict(self.paired.mean, self.p, self.same)


class OverallEffect(NamedTuple):
    """Effect of K over all methods with its equivalence test."""

    k: int
    methods: int
    effect: Effect
    same: Equivalence

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return difference_verdict(self.effect.mean, self.effect.p, self.same)


def minus_baseline(group: RunGroup, groups: Sequence[RunGroup], column: str) -> Paired | None:
    """Compare a group with no mixing trained with the same settings.

    Args:
        group: The group.
        groups: Where to look for no mixing.
        column: Column of the run frame.

    Returns:
        The comparison with most common seeds, or None without two common seeds.
    """
    if group.arm == BASELINE:
        return None
    same = [one for one in groups if one.arm == BASELINE and one.comparable == group.comparable]
    return _minus(group, same, column)


def minus_k1(group: RunGroup, groups: Sequence[RunGroup], column: str) -> Paired | None:
    """Compare a group with K = 1 of the same method and settings.

    Args:
        group: The group.
        groups: Where to look for K = 1.
        column: Column of the run frame.

    Returns:
        The comparison with most common seeds, or None without two common seeds.
    """
    if group.k == 1:
        return None
    wanted = (group.arm, 1, group.changed, group.processes)
    same = [one for one in groups if (one.arm, one.k, one.changed, one.processes) == wanted]
    return _minus(group, same, column)


def _minus(group: RunGroup, others: Sequence[RunGroup], column: str) -> Paired | None:
    tests = [paired_by_seed(group.values(column), other.values(column)) for other in others]
    return max((test for test in tests if test is not None), key=lambda test: test.n, default=None)


def comparisons(study: Study, column: str) -> list[Comparison]:
    """Compare every group with no mixing, and every K > 1 with K = 1 of the same method.

    Args:
        study: The study.
        column: Column of the run frame.
    """
    found = []
    for group in study.trained:
        tests = {
            BASELINE: minus_baseline(group, study.groups, column),
            f"{group.arm} K = 1": minus_k1(group, study.groups, column),
        }
        found += [(study.label(group), other, test) for other, test in tests.items() if test]
    corrected = holm([test.p_t for _, _, test in found])
    return [Comparison(*one, p) for one, p in zip(found, corrected, strict=True)]


def comparable_groups(study: Study) -> list[RunGroup]:
    """Return groups that differ by method and K alone; of several such sets that with most runs."""
    sets: dict[tuple[str, ...], dict[tuple[str, int], RunGroup]] = {}
    for group in study.trained:
        sets.setdefault(group.comparable, {}).setdefault((group.arm, group.k), group)
    largest = max(sets.values(), key=lambda own: sum(len(group.seeds) for group in own.values()), default={})
    return list(largest.values())


def compare_with_k1(study: Study, column: str) -> list[KComparison]:
    """Compare the largest K of every method with K = 1."""
    pairs = ((study.label(group), f"K = {one.k}", group, one) for group, one in _k_pairs(study))
    return _family(pairs, column)


def compare_at_equal_rows(study: Study, column: str) -> list[KComparison]:
    """Compare the largest K of every method with trainings that passed as many rows."""
    return _family(_equal_rows(study), column)


def overall_effect(study: Study, column: str) -> OverallEffect | None:
    """Return the effect of K over all methods.

    Args:
        study: The study.
        column: Column of the run frame.

    Returns:
        None without two methods with the same largest K and three common seeds.
    """
    pairs = _k_pairs(study)
    if len(pairs) < 2 or len({group.k for group, _ in pairs}) > 1:
        return None
    values = {group.arm: (group.values(column), one.values(column)) for group, one in pairs}
    seeds = set.intersection(*(set(many) & set(one) for many, one in values.values()))
    if len(seeds) < MIN_SEEDS:
        return None
    balanced = {arm: {seed: (many[seed], one[seed]) for seed in seeds} for arm, (many, one) in values.items()}
    effect = effect_over_groups(balanced)
    same = equivalence(effect.mean, effect.error, effect.freedom, MARGIN)
    return OverallEffect(pairs[0][0].k, len(pairs), effect, same)


def _k_pairs(study: Study) -> list[tuple[RunGroup, RunGroup]]:
    """Return the groups of the largest K and of K = 1 of every method with enough common seeds."""
    groups = comparable_groups(study)
    found = []
    for arm in dict.fromkeys(group.arm for group in groups if counts_k(group.arm)):
        by_k = {group.k: group for group in groups if group.arm == arm}
        if 1 in by_k and len(by_k) > 1:
            many, one = by_k[max(by_k)], by_k[1]
            if len(set(one.seeds) & set(many.seeds)) >= MIN_SEEDS:
                found.append((many, one))
    return found


def _equal_rows(study: Study) -> Iterator[tuple[str, str, RunGroup, RunGroup]]:
    for group, _ in _k_pairs(study):
        rows = group.mean("samples") or math.nan
        for other in study.trained:
            ratio = (other.mean("samples") or math.nan) / rows
            same_method = other.rows[0]["settings"]["method"] == group.rows[0]["settings"]["method"]
            if other is not group and same_method and abs(ratio - 1) < SAME_ROWS_TOLERANCE:
                yield study.label(group), f"{study.label(other)}, as many rows", group, other


def _family(pairs: Iterable[tuple[str, str, RunGroup, RunGroup]], column: str) -> list[KComparison]:
    found = []
    for label, other_label, group, other in pairs:
        test = paired_by_seed(group.values(column), other.values(column))
        if test is not None and test.n >= MIN_SEEDS:
            found.append((label, other_label, test))
    corrected = holm([test.p_t for _, _, test in found])
    return [KComparison(*one, p, paired_equivalence(one[-1], MARGIN)) for one, p in zip(found, corrected, strict=True)]


def at_equal_budgets(recipe: Recipe, scale: Scale, rows: Rows, planned: Iterable[Entry]) -> dict[Equal, Study]:
    """Return the runs of a sweep plan by budget.

    Args:
        recipe: The recipe.
        scale: The scale.
        rows: Stored rows; those of other runs are ignored.
        planned: The runs of the plan. Missing ones leave gaps.
    """
    seeds: dict[tuple[Equal, str, int], dict[int, str]] = {}
    for entry in planned:
        seeds.setdefault((entry.equal, entry.arm, entry.k), {})[entry.seed] = entry.digest
    wanted = {(arm, k, seed, digest) for (_, arm, k), own in seeds.items() for seed, digest in own.items()}
    names = ("arm", "k", "seed", "digest")
    every = study(recipe, scale, [row for row in rows if tuple(row.get(name) for name in names) in wanted])
    known = {group.key: group for group in every.groups}
    by_budget: dict[Equal, list[RunGroup]] = {equal: [] for equal in EQUALS}
    for (equal, arm, k), own in seeds.items():
        *_, digest = own.values()
        group = known.get((arm, k, digest), RunGroup(arm, k, digest))
        # The schedule is not the recipe's on purpose, and the table says so: these groups compare.
        runs = group.runs[group.runs.index.isin(list(own))] if len(group.runs) else group.runs
        by_budget[equal].append(replace(group, runs=runs, differs=(), changed=()))
    notes = tuple(note for note in every.notes if not note.startswith(CHANGED))
    return {equal: Study(recipe, scale, tuple(own), notes) for equal, own in by_budget.items() if own}


def longest_schedules(budgets: Mapping[Equal, Study]) -> Study:
    """Return the groups with runs at equal steps if there are any, else of all budgets."""
    first = next(iter(budgets.values()))
    groups = budgets["steps"].trained if "steps" in budgets else []
    groups = groups or [group for own in budgets.values() for group in own.trained]
    return first._replace(groups=tuple({group.key: group for group in groups}.values()))


def cut_short(study: Study, budget_column: str) -> tuple[float, Study]:
    """Return the largest budget that all runs have spent, and the runs cut at it.

    Every run ends at its last evaluated epoch within the budget. Runs and groups without such an
    epoch are left out.

    Args:
        study: The study.
        budget_column: ``samples`` or ``compute``.
    """
    budget = min(float(group.runs[budget_column].min()) for group in study.trained)
    groups = []
    for group in study.trained:
        epochs = group.epochs[group.epochs.seed.isin(group.seeds) & group.epochs.error.notna()]
        # Sums of seconds are not exact.
        within = epochs[epochs[budget_column] <= budget * (1 + 1e-9)]
        ends = within.groupby("seed").tail(1).set_index("seed").sort_index()
        if len(ends):
            spent = {name: ends[name] for name in ("steps", "samples", "compute")}
            runs = group.runs.loc[ends.index].assign(last=ends.error, epochs=ends.number, **spent)
            groups.append(replace(group, runs=runs))
    return budget, study._replace(groups=tuple(groups))
