"""The comparison of a sweep from made-up rows: its numbers by scipy and by hand, whatever the order of the rows."""

import csv
import io
import random
from dataclasses import replace

import pytest
from scipy import stats

from multimix.lab.recipes.settings import Milestones
from multimix.lab.report.budget_tables import budget_tables, relative_budget
from multimix.lab.report.comparison import at_equal_budgets, cut_short, longest_schedules, minus_baseline, minus_k1
from multimix.lab.report.study_figures import budget_figures
from multimix.lab.sweep.plan import plan_sweep
from result_rows import BASE, made_up_recipe, result_row

RECIPE = replace(made_up_recipe(metric="last"), settings=lambda scale: replace(BASE, epochs=6, schedule=Milestones(0.2, (3.0,))))
COSTS = {("none", 1): 1.0, ("mixup", 1): 1.0, ("mixup", 3): 2.0}
ERRORS = {("none", 1): (30.0, 32.0, 31.0), ("mixup", 1): (29.0, 30.5, 28.0), ("mixup", 3): (25.0, 28.0, 27.5)}


def plan(equal=("steps", "samples", "compute"), seeds=(0, 1, 2)):
    options = {"scale": "small", "methods": ("none", "mixup"), "ks": (1, 3), "seeds": seeds}
    return plan_sweep(RECIPE, equal=equal, costs=COSTS, **options)


def rows_made(planned):
    """Every epoch has rows and seconds as K would make them, and an error that falls to the one above."""
    unique = {one.run.folder: one.run for one in planned}
    rows = []
    for run in unique.values():
        last, epochs = ERRORS[run.arm, run.k][run.seed], run.settings.epochs
        changes = {"epochs": epochs, "schedule": run.settings.schedule}
        errors = [last + 10 * (epochs - 1 - i) for i in range(epochs)]
        row = result_row(RECIPE, run.arm, run.k, run.seed, errors, scale="small", changes=changes)
        assert row["digest"] == run.digest
        for epoch in row["epochs"]:
            epoch |= {"rows": 1000 * run.k, "cpu_seconds": 2.0 * COSTS[run.arm, run.k] + 0.01 * run.seed}
        rows.append(row)
    return rows


def compared(planned, rows):
    return at_equal_budgets(RECIPE, "small", rows, [one.entry for one in planned])


def by_arm(result, equal):
    return {(group.arm, group.k): group for group in result[equal].groups}


def test_means_and_paired_differences_are_scipys():
    planned = plan()
    groups = by_arm(compared(planned, rows_made(planned)), "steps")
    every = list(groups.values())
    none, one, three = (ERRORS[arm] for arm in ERRORS)
    error = groups["mixup", 3].summary("last")
    assert error.mean == pytest.approx(sum(three) / 3)
    low, high = stats.t.interval(0.95, 2, sum(three) / 3, stats.sem(three))
    assert (error.mean - error.half, error.mean + error.half) == pytest.approx((low, high))
    for minus, other in ((minus_k1, one), (minus_baseline, none)):
        test, expected = minus(groups["mixup", 3], every, "last"), stats.ttest_rel(three, other)
        assert test.n == 3
        assert test.p_t == pytest.approx(expected.pvalue)
        assert (test.mean - test.half, test.mean + test.half) == pytest.approx(tuple(expected.confidence_interval()))
    assert minus_k1(groups["mixup", 1], every, "last") is None
    assert minus_baseline(groups["none", 1], every, "last") is None


def test_what_every_line_has_spent():
    planned = plan()
    result = compared(planned, rows_made(planned))
    assert list(result) == ["steps", "samples", "compute"]
    spent = {}
    for equal, budget_study in result.items():
        for group in budget_study.groups:
            budget = relative_budget(group, budget_study.groups, equal)
            numbers = (group.mean("epochs"), group.mean("steps"), group.mean("samples"), budget)
            spent.setdefault(equal, {})[group.arm, group.k] = numbers
    assert spent["steps"]["mixup", 3] == (6, 60, 18000, 1.0)
    assert spent["samples"]["mixup", 3] == (2, 20, 6000, 1.0)
    assert spent["compute"]["mixup", 3] == (3, 30, 9000, pytest.approx(1.0, rel=0.01))
    assert spent["samples"]["none", 1] == spent["samples"]["mixup", 1] == (6, 60, 6000, 1.0)


def test_the_order_of_rows_and_rows_of_others_change_nothing():
    planned = plan()
    rows = rows_made(planned)
    expected = [sheet.markdown() for sheet in budget_tables(compared(planned, rows))]
    others = [result_row(RECIPE, "mixup", 3, 0, (1.0,), scale="small", changes={"batch": 50}), {**rows[0], "scale": "paper"}]
    for seed in range(5):
        mixed = [*rows, *others]
        random.Random(seed).shuffle(mixed)
        assert [sheet.markdown() for sheet in budget_tables(compared(planned, mixed))] == expected


def test_missing_runs_leave_gaps_and_only_common_seeds_are_paired():
    planned = plan(equal=("steps",))
    rows = [
        row for row in rows_made(planned) if (row["arm"], row["seed"]) != ("none", 1) and (row["arm"], row["k"]) != ("mixup", 1)
    ]
    groups = by_arm(compared(planned, rows), "steps")
    every = list(groups.values())
    assert not len(groups["mixup", 1].runs)
    assert minus_k1(groups["mixup", 3], every, "last") is None
    expected = stats.ttest_rel([ERRORS["mixup", 3][i] for i in (0, 2)], [ERRORS["none", 1][i] for i in (0, 2)])
    assert minus_baseline(groups["mixup", 3], every, "last").p_t == pytest.approx(expected.pvalue)
    assert "not run" in budget_tables(compared(planned, rows))[0].markdown()
    assert budget_tables(compared(planned, []))


def test_after_the_fact_all_groups_are_where_the_first_has_spent_all():
    planned = plan(equal=("steps",))
    result = compared(planned, rows_made(planned))
    longest = longest_schedules(result)
    budget, reached = cut_short(longest, "samples")
    at = {(group.arm, group.k): group for group in reached.groups}
    assert budget == 6000
    assert (at["mixup", 3].runs.epochs[0], at["mixup", 3].mean("samples")) == (2, 6000)
    assert at["mixup", 3].values("last") == {seed: error + 40 for seed, error in enumerate(ERRORS["mixup", 3])}
    assert at["none", 1].values("last") == dict(enumerate(ERRORS["none", 1]))
    budget, reached = cut_short(longest, "compute")
    assert budget == pytest.approx(12.0), "the quickest seed of no mixing"
    at = {(group.arm, group.k): group.values("last") for group in reached.groups}
    assert at["mixup", 1] == {0: 29.0, 1: 40.5, 2: 38.0}, "others have one epoch less by then"
    assert at["mixup", 3] == {0: 55.0, 1: 68.0, 2: 67.5}
    words = budget_tables(result)[-1].markdown()
    assert "cut short" in words
    assert "12 CPU s" in words


def test_an_accelerators_seconds_are_those_of_the_clock():
    planned = plan(equal=("steps",))
    rows = [{**row, "device": "cuda"} for row in rows_made(planned)]
    result = compared(planned, rows)
    assert result["steps"].timed == "s"
    assert by_arm(result, "steps")["mixup", 3].mean("compute") == pytest.approx(12.0), "6 epochs of 2 s"


def test_csv_has_every_number_in_full():
    planned = plan()
    table = budget_tables(compared(planned, rows_made(planned)))[0]
    three = next(row for row in csv.DictReader(io.StringIO(table.csv())) if (row["arm"], row["k"]) == ("mixup", "3"))
    assert float(three["minus_none_p"]) == stats.ttest_rel(ERRORS["mixup", 3], ERRORS["none", 1]).pvalue
    assert (three["equal"], three["budget"], three["n"]) == ("steps", "1.0", "3")


def test_figures_are_there_with_a_panel_for_every_budget_and_none_is_empty():
    planned = plan()
    result = compared(planned, rows_made(planned))
    files = budget_figures(result, "batch = 50")
    assert set(files) == {f"sweep-{name}" for name in ("k", "cost", "rows", "seconds")}
    assert all(set(drawn.files) == {f"{name}.png", f"{name}.svg"} for name, drawn in files.items())
    text = files["sweep-k"].svg.decode()
    assert all(f"equal {equal}" in text for equal in result)
    assert budget_figures(compared(planned, [])) == {}
