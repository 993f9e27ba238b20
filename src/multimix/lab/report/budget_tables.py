"""Tables of trainings at equal budgets: updates, rows through the network, or seconds."""

from collections.abc import Mapping, Sequence

from ..sweep.plan import Equal
from .comparison import cut_short, longest_schedules, minus_baseline, minus_k1
from .frame import BASELINE, SCALE_LABELS, RunGroup, Study
from .study_tables import identity_columns, uncorrected_note
from .tables import INTERVAL_NOTE, Column, Table, number, short

BUDGET_NOTES: Mapping[Equal, str] = {
    "steps": "equal steps: the recipe's schedule, the same number of epochs for all; budget is in updates",
    "samples": "equal samples: as many rows through the network as K = 1, in whole epochs; budget is in rows",
    "compute": "equal compute: epochs divided by the measured cost of an update; budget is in seconds",
}
BUDGET_ROUNDING: Mapping[Equal, str] = {
    "steps": "",
    "samples": ", since epochs are whole",
    "compute": ", since epochs are whole and costs were measured before",
}


def budget_tables(budgets: Mapping[Equal, Study], changed: str = "") -> list[Table]:
    """Return a table per planned budget, and two tables for budgets computed from finished runs.

    Args:
        budgets: Studies by budget (:func:`multimix.lab.report.comparison.at_equal_budgets`).
        changed: Changed fields of the settings, in words.
    """
    tables = [_budget_table(study, equal, changed) for equal, study in budgets.items()]
    longest = longest_schedules(budgets)
    if len(longest.trained) > 1:
        for name in ("samples", "compute"):
            budget, reached = cut_short(longest, name)
            if budget > 0:
                tables.append(_cut_table(longest, reached, budget, name, changed))
    return tables


def relative_budget(group: RunGroup, groups: Sequence[RunGroup], equal: Equal) -> float | None:
    """Return what a group spent as a multiple of no mixing, or else of K = 1 of its method.

    Args:
        group: The group.
        groups: All groups of the budget.
        equal: The budget.
    """
    k1 = next((other for other in groups if (other.arm, other.k) == (group.arm, 1)), None)
    reference = next((other for other in groups if other.arm == BASELINE), k1)
    spent, base = group.mean(equal), None if reference is None else reference.mean(equal)
    return spent / base if spent is not None and base else None


def _budget_table(study: Study, equal: Equal, changed: str) -> Table:
    groups = study.groups
    budgets = [relative_budget(group, groups, equal) for group in groups]
    differences, count = _difference_columns(study, study.error)
    columns = [
        *_names(study),
        Column("epochs", [group.mean("epochs") for group in groups], "epochs", places=None),
        Column("updates", [group.mean("steps") for group in groups], "updates", show=short),
        Column("rows", [group.mean("samples") for group in groups], "rows", show=short),
        Column(study.timed if study.trained else "s", [group.mean("compute") for group in groups], "seconds", places=None),
        Column("budget", budgets, "budget"),
        Column(f"{study.error} error", [group.summary(study.error) for group in groups], "error"),
        *differences,
        Column("", [equal] * len(groups), "equal"),
    ]
    reference = "no mixing" if any(group.arm == BASELINE for group in groups) else "the method's own K = 1"
    finite_budgets = [budget for budget in budgets if budget is not None]
    close = not finite_budgets or (max(finite_budgets) < 1.005 and min(finite_budgets) > 0.995)
    rounding = "" if close else f" (here {min(finite_budgets):.2f} to {max(finite_budgets):.2f}{BUDGET_ROUNDING[equal]})"
    notes = [
        BUDGET_NOTES[equal],
        f"budget: what was spent, as a multiple of {reference}{rounding}; rows: samples and mixtures that passed the network, "
        "without the pass for saliency; n: seeds",
        f"errors in per cent; {INTERVAL_NOTE}; differences paired over common seeds, p of the t-test{uncorrected_note(count)}",
        *study.notes,
    ]
    return Table(_budget_title(study, f"equal {equal}", changed), columns, notes)


def _cut_table(longest: Study, reached: Study, budget: float, name: str, changed: str) -> Table:
    """Return the errors of all groups at the largest budget that all runs have spent."""
    unit = "rows" if name == "samples" else longest.timed
    budget_text = short(budget) if name == "samples" else number(budget, None)
    groups = reached.groups
    differences, count = _difference_columns(reached, "last")
    spent = [group.mean(name) for group in groups]
    columns = [
        *_names(reached),
        Column("epoch", [group.mean("epochs") for group in groups], "epoch", places=None),
        Column(unit, spent, unit, places=None, show=short if name == "samples" else None),
        Column("error", [group.summary("last") for group in groups], "error"),
        *differences,
    ]
    notes = [
        f"after the fact: the error at the last evaluated epoch within {budget_text} {unit}, the most that all runs have spent",
        "most schedules are cut short here: their learning rate had not fallen yet, so this is not what a whole training with "
        "this budget would reach",
        f"errors in per cent; {INTERVAL_NOTE}; differences paired over common seeds{uncorrected_note(count)}",
    ]
    reached_keys = {group.key for group in groups}
    missing = [group.label for group in longest.groups if group.key not in reached_keys]
    if missing:
        notes.append(f"left out, since its first evaluated epoch costs more: {', '.join(missing)}")
    return Table(_budget_title(longest, f"at {budget_text} {unit}", changed), columns, notes)


def _names(study: Study) -> list[Column]:
    names = identity_columns(study, [group.arm for group in study.groups])
    return [*names, Column("n", [len(group.seeds) or "not run" for group in study.groups], "n")]


def _difference_columns(study: Study, column: str) -> tuple[list[Column], int]:
    tests = {
        ("vs K = 1", "minus_one"): [minus_k1(group, study.groups, column) for group in study.groups],
        ("vs none", "minus_none"): [minus_baseline(group, study.groups, column) for group in study.groups],
    }
    count = sum(test is not None for column_tests in tests.values() for test in column_tests)
    return [Column(head, column_tests, name) for (head, name), column_tests in tests.items()], count


def _budget_title(study: Study, text: str, changed: str) -> str:
    return f"{study.recipe.title}, {text} ({SCALE_LABELS[study.scale]}{'; ' + changed if changed else ''})"
