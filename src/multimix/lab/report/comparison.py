"""Comparisons of run groups over common seeds: with no mixing, with K = 1, at equal budgets."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..recipes.base import Recipe, Scale, counts_k
from ..sweep.plan import EQUALS, Entry, Equal, groups, read_plan
from ..terminal import note
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
    """A paired comparison of two groups.

    Args:
        group: Label of the group.
        other: Label of the group that is subtracted.
        paired: Difference over common seeds.
        p_holm: p-value, corrected by Holm over the tests of the column.
    """

    group: str
    other: str
    paired: Paired
    p_holm: float


class KComparison(NamedTuple):
    """A paired comparison of two groups with an equivalence test.

    Args:
        group: Label of the group.
        other: Label of the group that is subtracted.
        paired: Difference over common seeds.
        p: p-value, corrected by Holm over the family.
        same: The equivalence test.
    """

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
    """Effect of K over all methods with its equivalence test.

    Args:
        k: The larger K; the other is 1.
        methods: Number of methods.
        effect: The effect.
        same: The equivalence test.
    """

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
    baselines = [other for other in groups if other.arm == BASELINE and other.comparable == group.comparable]
    return _minus(group, baselines, column)


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
    identity = (group.arm, 1, group.changed, group.processes)
    references = [other for other in groups if (other.arm, other.k, other.changed, other.processes) == identity]
    return _minus(group, references, column)


def _minus(group: RunGroup, others: Sequence[RunGroup], column: str) -> Paired | None:
    tests = [paired_by_seed(group.values(column), other.values(column)) for other in others]
    return max((test for test in tests if test is not None), key=lambda test: test.n, default=None)


def comparisons(study: Study, column: str) -> list[Comparison]:
    """Compare every group with no mixing, and every K > 1 with K = 1 of the same method.

    Args:
        study: The study.
        column: Column of the run frame.
    """
    pairs = []
    for group in study.trained:
        tests = {
            BASELINE: minus_baseline(group, study.groups, column),
            f"{group.arm} K = 1": minus_k1(group, study.groups, column),
        }
        pairs += [(study.label(group), reference, test) for reference, test in tests.items() if test]
    corrected = holm([test.p_t for _, _, test in pairs])
    return [Comparison(*pair, p) for pair, p in zip(pairs, corrected, strict=True)]


def comparable_groups(study: Study) -> list[RunGroup]:
    """Return the largest set of groups that differ only by method and K, counted by runs.

    Args:
        study: The study.
    """
    sets: dict[tuple[str, ...], dict[tuple[str, int], RunGroup]] = {}
    for group in study.trained:
        sets.setdefault(group.comparable, {}).setdefault((group.arm, group.k), group)
    largest = max(sets.values(), key=lambda by_arm: sum(len(group.seeds) for group in by_arm.values()), default={})
    return list(largest.values())


def compare_with_k1(study: Study, column: str) -> list[KComparison]:
    """Compare the largest K of every method with K = 1.

    Args:
        study: The study.
        column: Column of the run frame.
    """
    pairs = ((study.label(group), f"K = {reference.k}", group, reference) for group, reference in _k_pairs(study))
    return _family(pairs, column)


def compare_at_equal_rows(study: Study, column: str) -> list[KComparison]:
    """Compare the largest K of every method with trainings on equally many rows.

    Args:
        study: The study.
        column: Column of the run frame.
    """
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
    values = {group.arm: (group.values(column), reference.values(column)) for group, reference in pairs}
    seeds = set.intersection(*(set(treated) & set(reference) for treated, reference in values.values()))
    if len(seeds) < MIN_SEEDS:
        return None
    balanced = {arm: {seed: (treated[seed], reference[seed]) for seed in seeds} for arm, (treated, reference) in values.items()}
    effect = effect_over_groups(balanced)
    equal = equivalence(effect.mean, effect.error, effect.freedom, MARGIN)
    return OverallEffect(pairs[0][0].k, len(pairs), effect, equal)


def _k_pairs(study: Study) -> list[tuple[RunGroup, RunGroup]]:
    """Return the groups of the largest K and of K = 1 of every method with enough common seeds."""
    groups = comparable_groups(study)
    pairs = []
    for arm in dict.fromkeys(group.arm for group in groups if counts_k(group.arm)):
        by_k = {group.k: group for group in groups if group.arm == arm}
        if 1 in by_k and len(by_k) > 1:
            treated, reference = by_k[max(by_k)], by_k[1]
            if len(set(reference.seeds) & set(treated.seeds)) >= MIN_SEEDS:
                pairs.append((treated, reference))
    return pairs


def _equal_rows(study: Study) -> Iterator[tuple[str, str, RunGroup, RunGroup]]:
    for group, _ in _k_pairs(study):
        rows = group.mean("samples") or math.nan
        for other in study.trained:
            ratio = (other.mean("samples") or math.nan) / rows
            same_method = other.rows[0]["settings"]["method"] == group.rows[0]["settings"]["method"]
            if other is not group and same_method and abs(ratio - 1) < SAME_ROWS_TOLERANCE:
                yield study.label(group), f"{study.label(other)}, as many rows", group, other


def _family(pairs: Iterable[tuple[str, str, RunGroup, RunGroup]], column: str) -> list[KComparison]:
    tests = {}
    for label, other_label, group, other in pairs:
        test = paired_by_seed(group.values(column), other.values(column))
        if test is not None and test.n >= MIN_SEEDS:
            tests[label, other_label] = test
    return family(tests, MARGIN)


def family(tests: Mapping[tuple[str, str], Paired], margin: float) -> list[KComparison]:
    """Correct a family of tests by Holm and test equivalence.

    Args:
        tests: Paired tests by both labels.
        margin: Margin of equivalence.
    """
    corrected = holm([test.p_t for test in tests.values()])
    return [
        KComparison(*labels, test, p, paired_equivalence(test, margin))
        for (labels, test), p in zip(tests.items(), corrected, strict=True)
    ]


def at_equal_budgets(recipe: Recipe, scale: Scale, rows: Rows, planned: Iterable[Entry]) -> dict[Equal, Study]:
    """Return the runs of a sweep plan by budget.

    Args:
        recipe: The recipe.
        scale: The scale.
        rows: Stored rows; rows of other runs are ignored.
        planned: The runs of the plan. A run without a row leaves a gap.
    """
    seeds: dict[tuple[Equal, str, int], dict[int, str]] = {}
    for entry in planned:
        seeds.setdefault((entry.equal, entry.arm, entry.k), {})[entry.seed] = entry.digest
    keys = {(arm, k, seed, digest) for (_, arm, k), digests in seeds.items() for seed, digest in digests.items()}
    names = ("arm", "k", "seed", "digest")
    full_study = study(recipe, scale, [row for row in rows if tuple(row.get(name) for name in names) in keys])
    groups_by_key = {group.key: group for group in full_study.groups}
    by_budget: dict[Equal, list[RunGroup]] = {equal: [] for equal in EQUALS}
    for (equal, arm, k), digests in seeds.items():
        *_, digest = digests.values()
        group = groups_by_key.get((arm, k, digest), RunGroup(arm, k, digest))
        # A budget changes the schedule on purpose, so these groups are comparable.
        runs = group.runs[group.runs.index.isin(list(digests))] if len(group.runs) else group.runs
        by_budget[equal].append(replace(group, runs=runs, differs=(), changed=()))
    notes = tuple(note for note in full_study.notes if not note.startswith(CHANGED))
    return {equal: Study(recipe, scale, tuple(groups), notes) for equal, groups in by_budget.items() if groups}


class SweepResult(NamedTuple):
    """What was swept of a recipe at a scale with the same changes.

    Args:
        stem: Beginning of the names of its files.
        changes: Changed fields with their values.
        changed: The same in words.
        budgets: Studies by budget.
    """

    stem: str
    changes: Mapping[str, str]
    changed: str
    budgets: dict[Equal, Study]


def sweep_results(folder: str | Path, recipe: Recipe, scale: Scale, rows: Rows) -> list[SweepResult]:
    """Return the sweeps of a recipe at a scale that were planned in a folder of results.

    Args:
        folder: The folder.
        recipe: The recipe.
        scale: The scale.
        rows: Stored rows.
    """
    results = []
    for sweep in groups(read_plan(folder, note)):
        if (sweep.recipe, sweep.scale) == (recipe.name, scale):
            changed = ", ".join(f"{field} = {value}" for field, value in sweep.changes.items())
            budgets = at_equal_budgets(recipe, scale, rows, sweep.runs)
            results.append(SweepResult(sweep.stem, sweep.changes, changed, budgets))
    return results


def longest_schedules(budgets: Mapping[Equal, Study]) -> Study:
    """Return the groups with runs at equal steps if there are any, otherwise of all budgets.

    Args:
        budgets: Studies by budget.
    """
    first = next(iter(budgets.values()))
    groups = budgets["steps"].trained if "steps" in budgets else []
    groups = groups or [group for budget_study in budgets.values() for group in budget_study.trained]
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
        # Tolerate rounding errors in sums of seconds.
        within = epochs[epochs[budget_column] <= budget * (1 + 1e-9)]
        final_epochs = within.groupby("seed").tail(1).set_index("seed").sort_index()
        if len(final_epochs):
            spent = {name: final_epochs[name] for name in ("steps", "samples", "compute")}
            runs = group.runs.loc[final_epochs.index].assign(last=final_epochs.error, epochs=final_epochs.number, **spent)
            groups.append(replace(group, runs=runs))
    return budget, study._replace(groups=tuple(groups))
