import pytest
from scipy import stats

from multimix.lab.recipes import RECIPES, recipe
from multimix.lab.results.paper import exhibit
from multimix.lab.results.paper_table import fill, largest_scale
from result_rows import result_row

CIFAR, RESNEXT = RECIPES["cifar100_preact_resnet18"], RECIPES["cifar100_resnext29_4_24"]
ERRORS, SPIRAL, ECE = exhibit("table", "I"), exhibit("figure", "4"), exhibit("table", "VIII")
LAST = {("none", 1): [80.0, 82.0, 84.5], ("cutmix", 1): [79.0, 83.0, 81.0], ("puzzlemix", 5): [78.0, 79.5, 80.0, 70.0]}


def rows_of(last=LAST, recipe=CIFAR, scale="small", **more):
    return [
        result_row(recipe, arm, k, seed, [95.0, error], scale=scale, **more)
        for (arm, k), errors in last.items()
        for seed, error in enumerate(errors)
    ]


def cell(found, label, column=0):
    return found.cells[[row.label for row in found.paper.rows].index(label), column]


def minus(found, label, column=0):
    """The difference behind the claim that multi-mix is better than a row."""
    key = next(row.key for row in found.paper.rows if row.label == label)
    return next((one.test for one in found.judged if (one.claim.second, one.claim.column) == (key, column)), None)


def test_values_are_the_reported_errors_by_seed():
    found = fill(ERRORS, "small", rows_of(), {})
    assert cell(found, "no mixup").values == {0: 80.0, 1: 82.0, 2: 84.5}
    assert cell(found, "no mixup").summary.mean == pytest.approx(82.166666667)
    assert (cell(found, "no mixup").paper, cell(found, "no mixup").state) == ((23.53, 0.39), "")
    assert cell(found, "cutout").state == cell(found, "no mixup", 1).state == "not run at this scale"
    assert (cell(found, "co-mixup").state, cell(found, "co-mixup").paper) == ("not run at this scale", (19.89, 0.28))
    assert "not run at this scale: multimix reproduce --only I --scale small" in "\n".join(found.notes)
    # At paper scale the median of the last ten epochs is reported.
    found = fill(ERRORS, "paper", rows_of(scale="paper"), {})
    assert cell(found, "no mixup").values[0] == (95.0 + 80.0) / 2


def test_the_test_is_paired_over_common_seeds():
    found = fill(ERRORS, "small", rows_of(), {})
    test = minus(found, "no mixup")
    outside = stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5])
    assert (test.n, test.mean) == (3, pytest.approx(-3.0))
    assert test.p_t == pytest.approx(outside.pvalue)
    low, high = outside.confidence_interval()
    assert test.half == pytest.approx((high - low) / 2)
    assert minus(found, "multi-mix (puzzle, K = 5)") is None
    assert minus(found, "cutout") is minus(found, "no mixup", 1) is None
    one = fill(ERRORS, "small", rows_of({("none", 1): [80.0], ("puzzlemix", 5): [78.0, 79.0]}), {})
    assert minus(one, "no mixup") is None


def test_only_runs_with_the_recipes_settings_count_and_the_others_are_counted():
    changed = rows_of({("none", 1): [10.0, 11.0, 12.0, 13.0]}, general={"epochs": 7})
    others = rows_of({("cutmix", 5): [70.0]})
    found = fill(ERRORS, "small", [*changed, *rows_of(), *others], {})
    assert cell(found, "no mixup").values == {0: 80.0, 1: 82.0, 2: 84.5}
    notes = "\n".join(found.notes)
    assert "left out of cifar100_preact_resnet18, since settings are not the recipe's: 4 runs (none: epochs = 7, not " in notes
    assert "cifar100_preact_resnet18 has 1 run that the paper does not show (cutmix K = 5)" in notes
    found = fill(ERRORS, "small", changed, {})
    assert cell(found, "no mixup").state == "not run at this scale"


def test_runs_without_the_evaluation_are_not_evaluated_and_the_command_is_told():
    rows = rows_of(recipe=RECIPES["imagenet"])
    rows[0]["evaluations"] = {"calibration": {"numbers": {"ece": 12.5, "mce": None}}}
    found = fill(ECE, "small", rows, {})
    assert cell(found, "no mixup").values == {0: 12.5}
    assert (cell(found, "cutmix").state, cell(found, "FMix").state) == ("not evaluated", "not run at this scale")
    assert "not evaluated: multimix evaluate RUNS --on calibration" in found.notes
    assert not any("--on " in note for note in fill(ECE, "small", rows[:1], {}).notes)
    assert not any("--on " in note for note in fill(ERRORS, "small", rows, {}).notes)


def test_one_run_may_hold_the_numbers_of_all_k():
    rows = [result_row(RESNEXT, "puzzlemix", 1, seed, [90.0], scale="small") for seed in range(3)]
    for seed, row in enumerate(rows):
        numbers = {"increase_1": 0.0, "increase_3": 150.0 + seed, "increase_5": 450.0 + seed}
        row["evaluations"] = {"training_time": {"numbers": numbers}}
    found = fill(exhibit("figure", "7"), "small", rows, {})
    assert cell(found, "K = 5").values == {0: 450.0, 1: 451.0, 2: 452.0}
    assert cell(found, "K = 7").state == "not evaluated"
    assert [one.verdict for one in found.judged] == ["seen", "opposite", "not run", "not run"]


def test_a_recipe_that_follows_the_code_counts_the_runs_of_the_code():
    code = recipe("tiny_imagenet", "code")
    rows = [result_row(code, "puzzlemix", 5, seed, [95.0, 70.0], scale="small") for seed in range(2)]
    assert not cell(fill(ERRORS, "small", rows, {}), "multi-mix (puzzle, K = 5)", 3).values
    assert cell(fill(ERRORS, "small", rows, {}, "code"), "multi-mix (puzzle, K = 5)", 3).values == {0: 70.0, 1: 70.0}


def test_the_largest_scale_with_runs_is_taken():
    small, smoke = rows_of(), rows_of(scale="smoke")
    assert largest_scale(ERRORS, [*smoke, *small], {}) == "small"
    assert largest_scale(ERRORS, [*smoke, *rows_of(scale="paper")], {}) == "paper"
    assert largest_scale(ERRORS, smoke, {}) == "smoke"
    assert largest_scale(exhibit("table", "III"), smoke, {}) is None
    assert largest_scale(SPIRAL, smoke, {}) is None
    assert largest_scale(ERRORS, [], {}) is None
