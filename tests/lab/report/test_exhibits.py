import csv
import io
import re

import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from multimix.lab.recipes import RECIPES, recipe
from multimix.lab.report.exhibit_figures import exhibit_figure
from multimix.lab.report.exhibits import exhibit_notes, exhibit_records, exhibit_table, fill, largest_scale
from multimix.lab.report.pages.paper import paper_page
from multimix.lab.report.paper import EXHIBITS, exhibit
from result_rows import result_row

CIFAR, RESNEXT = RECIPES["cifar100_preact_resnet18"], RECIPES["cifar100_resnext29_4_24"]
ERRORS, ECE = exhibit("I"), exhibit("VIII")
LAST = {("none", 1): [80.0, 82.0, 84.5], ("cutmix", 1): [79.0, 83.0, 81.0], ("puzzlemix", 5): [78.0, 79.5, 80.0, 70.0]}


def rows_of(last=LAST, recipe=CIFAR, scale="small", **more):
    return [
        result_row(recipe, arm, k, seed, [95.0, error], scale=scale, **more)
        for (arm, k), errors in last.items()
        for seed, error in enumerate(errors)
    ]


def cell(filled_exhibit, label, column=0):
    return filled_exhibit.cells[[row.label for row in filled_exhibit.paper.rows].index(label), column]


def minus(filled_exhibit, label, column=0):
    """The difference behind the claim that multi-mix is better than a row."""
    key = next(row.key for row in filled_exhibit.paper.rows if row.label == label)
    return next((one.test for one in filled_exhibit.judged if (one.claim.second, one.claim.column) == (key, column)), None)


def test_values_are_the_reported_errors_by_seed():
    filled_exhibit = fill(ERRORS, "small", rows_of(), {})
    assert cell(filled_exhibit, "no mixup").values == {0: 80.0, 1: 82.0, 2: 84.5}
    assert cell(filled_exhibit, "no mixup").summary.mean == pytest.approx(82.166666667)
    assert (cell(filled_exhibit, "no mixup").paper, cell(filled_exhibit, "no mixup").state) == ((23.53, 0.39), "")
    assert cell(filled_exhibit, "cutout").state == cell(filled_exhibit, "no mixup", 1).state == "not run at this scale"
    assert (cell(filled_exhibit, "co-mixup").state, cell(filled_exhibit, "co-mixup").paper) == (
        "not run at this scale",
        (19.89, 0.28),
    )
    assert "not run at this scale: multimix reproduce --only I --scale small" in "\n".join(filled_exhibit.notes)
    # At paper scale the median of the last ten epochs is reported.
    filled_exhibit = fill(ERRORS, "paper", rows_of(scale="paper"), {})
    assert cell(filled_exhibit, "no mixup").values[0] == (95.0 + 80.0) / 2


def test_the_test_is_paired_over_common_seeds():
    filled_exhibit = fill(ERRORS, "small", rows_of(), {})
    test = minus(filled_exhibit, "no mixup")
    outside = stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5])
    assert (test.n, test.mean) == (3, pytest.approx(-3.0))
    assert test.p_t == pytest.approx(outside.pvalue)
    low, high = outside.confidence_interval()
    assert test.half == pytest.approx((high - low) / 2)
    assert minus(filled_exhibit, "multi-mix (puzzle, K = 5)") is None
    assert minus(filled_exhibit, "cutout") is minus(filled_exhibit, "no mixup", 1) is None
    one = fill(ERRORS, "small", rows_of({("none", 1): [80.0], ("puzzlemix", 5): [78.0, 79.0]}), {})
    assert minus(one, "no mixup") is None


def test_only_runs_with_the_recipes_settings_count_and_the_others_are_counted():
    changed = rows_of({("none", 1): [10.0, 11.0, 12.0, 13.0]}, general={"epochs": 7})
    others = rows_of({("cutmix", 5): [70.0]})
    filled_exhibit = fill(ERRORS, "small", [*changed, *rows_of(), *others], {})
    assert cell(filled_exhibit, "no mixup").values == {0: 80.0, 1: 82.0, 2: 84.5}
    notes = "\n".join(filled_exhibit.notes)
    assert "cifar100_preact_resnet18, since settings are not the recipe's: 4 runs (none: epochs = 7, not " in notes
    assert "cifar100_preact_resnet18 has 1 run that the paper does not show (cutmix K = 5)" in notes
    filled_exhibit = fill(ERRORS, "small", changed, {})
    assert cell(filled_exhibit, "no mixup").state == "not run at this scale"


def test_runs_without_the_evaluation_are_not_evaluated_and_the_command_is_told():
    rows = rows_of(recipe=RECIPES["imagenet"])
    rows[0]["evaluations"] = {"calibration": {"numbers": {"ece": 12.5, "mce": None}}}
    filled_exhibit = fill(ECE, "small", rows, {})
    assert cell(filled_exhibit, "no mixup").values == {0: 12.5}
    assert (cell(filled_exhibit, "cutmix").state, cell(filled_exhibit, "FMix").state) == (
        "not evaluated",
        "not run at this scale",
    )
    assert "not evaluated: multimix evaluate RUNS --on calibration" in filled_exhibit.notes
    assert not any("--on " in note for note in fill(ECE, "small", rows[:1], {}).notes)
    assert not any("--on " in note for note in fill(ERRORS, "small", rows, {}).notes)


def test_one_run_may_hold_the_numbers_of_all_k():
    rows = [result_row(RESNEXT, "puzzlemix", 1, seed, [90.0], scale="small") for seed in range(3)]
    for seed, row in enumerate(rows):
        numbers = {"increase_1": 0.0, "increase_3": 150.0 + seed, "increase_5": 450.0 + seed}
        row["evaluations"] = {"training_time": {"numbers": numbers}}
    filled_exhibit = fill(exhibit("fig7"), "small", rows, {})
    assert cell(filled_exhibit, "K = 5").values == {0: 450.0, 1: 451.0, 2: 452.0}
    assert cell(filled_exhibit, "K = 7").state == "not evaluated"
    assert [one.verdict for one in filled_exhibit.judged] == ["seen", "opposite", "not run", "not run"]


def test_a_recipe_that_follows_the_code_counts_the_runs_of_the_code():
    code = recipe("tiny_imagenet", "code")
    rows = [result_row(code, "puzzlemix", 5, seed, [95.0, 70.0], scale="small") for seed in range(2)]
    assert not cell(fill(ERRORS, "small", rows, {}), "multi-mix (puzzle, K = 5)", 3).values
    assert cell(fill(ERRORS, "small", rows, {}, "code"), "multi-mix (puzzle, K = 5)", 3).values == {0: 70.0, 1: 70.0}


def test_the_spiral_is_filled_from_the_demos_frame():
    accuracy = {"none": [88.0, 60.0, 89.0], "manifold-k1": [95.0, 96.0, 97.0], "multimix-k5": [96.0, 96.0, 98.0]}
    runs = [(arm, seed, value) for arm, values in accuracy.items() for seed, value in enumerate(values)]
    demo = {"small": pd.DataFrame(runs, columns=["arm", "seed", "accuracy"])}
    filled_exhibit = fill(exhibit("fig4"), "small", [], demo)
    assert cell(filled_exhibit, "no mixup").values == {0: 88.0, 1: 60.0, 2: 89.0}
    assert minus(filled_exhibit, "manifold mixup").mean == pytest.approx(2 / 3)
    assert any("collapsed, below 70 % (no mixup: 1)" in note for note in filled_exhibit.notes)
    assert cell(fill(exhibit("fig4"), "smoke", [], demo), "no mixup").state == "not run at this scale"


def test_the_largest_scale_with_runs_is_taken():
    small, smoke = rows_of(), rows_of(scale="smoke")
    assert largest_scale(ERRORS, [*smoke, *small], {}) == "small"
    assert largest_scale(ERRORS, [*smoke, *rows_of(scale="paper")], {}) == "paper"
    assert largest_scale(ERRORS, smoke, {}) == "smoke"
    assert largest_scale(exhibit("III"), smoke, {}) is None
    assert largest_scale(exhibit("fig4"), smoke, {}) is None
    demo = {scale: pd.DataFrame() for scale in ("smoke", "small")}
    assert largest_scale(exhibit("fig4"), [], demo) == "small"
    assert largest_scale(ERRORS, [], {}) is None


def everything(table, seeds=(0, 1, 2)):
    """Rows of every training with every number of a table."""
    rows = []
    names = table.measures
    for recipe_name, arm, k in table.trainings:
        for seed in seeds:
            numbers = {
                column.name("small", row.k).partition(".")[2]: 10.0 + 10 * seed + k
                for column in table.columns
                for row in table.rows
                if column.measure
            }
            evaluations = {name: {"numbers": numbers} for name in names}
            errors, options = [90.0, 10.0 + 20 * seed + k], {"norms": [1.0, 0.00123 * (seed + k)], "selection": [2.0, 1.0]}
            made = result_row(RECIPES[recipe_name], arm, k, seed, errors, scale="small", **options)
            rows.append(made | {"evaluations": evaluations, "place": "nowhere"})
    return rows


def on_terminal(table, width):
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("table", [one for one in EXHIBITS if one.columns], ids=lambda one: one.label)
def test_without_results_the_papers_numbers_are_shown(table):
    filled_exhibit = fill(table, "small", [], {})
    text = on_terminal(exhibit_table(filled_exhibit), 100)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert "not run at this scale" in {entry.state for entry in filled_exhibit.cells.values()}
    for row in table.rows:
        for column in table.columns:
            value = column.paper.get(row.key)
            assert value is None or f"{value.mean:.2f}" in text
            assert value is None or value.sd is None or f"SD\u00a0{value.sd:.2f}" in text
    assert f"the paper's claims: {len(table.claims)} not run" in exhibit_notes(filled_exhibit)


@pytest.mark.parametrize("name", ["I", "VI", "VII", "fig6", "fig7"])
def test_a_full_table_has_every_number_within_a_hundred_columns(name):
    table = exhibit(name)
    filled_exhibit = fill(table, "small", everything(table), {})
    assert all(entry.values for entry in filled_exhibit.cells.values())
    narrow, wide = (on_terminal(exhibit_table(filled_exhibit), width) for width in (100, 2000))
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 100
    numbers = set(re.findall(r"(?<![\w.])[+−±]?\d+\.\d+|[pn][=<][\d.]+", wide))
    assert len(numbers) >= 4
    assert sorted(number for number in numbers if number not in narrow) == []


def test_cells_have_mean_interval_and_n_beside_the_papers_number_and_the_test():
    table = exhibit_table(fill(ERRORS, "small", rows_of(), {}), [0])
    outside = stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5])
    low, high = outside.confidence_interval()
    spread = stats.tstd([80.0, 82.0, 84.5])
    half = stats.sem([80.0, 82.0, 84.5]) * stats.t.ppf(0.975, 2)
    rows = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert rows["no mixup"] == {
        "method": "no mixup",
        "CIFAR-100 (PreActResNet18)": f"82.17 ± {half:.2f}, SD\u00a0{spread:.2f}, n = 3",
        "paper (other scale)": "23.53 (SD\u00a00.39)",
        "multi-mix (minus this row)": f"−3.00 ± {(high - low) / 2:.2f}, p = {outside.pvalue:.3f}, not seen",
    }
    assert rows["cutmix"]["CIFAR-100 (PreActResNet18)"].startswith("81.00 ")
    assert rows["multi-mix (puzzle, K = 5)"]["multi-mix (minus this row)"] == "–"
    notes = "\n".join(table.notes)
    assert "do not compare with those of this small scale" in notes
    assert (
        "lowest mean, CIFAR-100 (PreActResNet18): ours multi-mix (puzzle, K = 5) with 76.88 (of 3 rows); "
        "the paper's multi-mix (puzzle, K = 5) with 19.19 (of 10 rows)" in notes
    )


def test_csv_has_every_cell_in_full():
    rows = {
        (row["column"], row["label"]): row
        for row in csv.DictReader(io.StringIO(exhibit_records(fill(ERRORS, "small", rows_of())).csv()))
    }
    assert len(rows) == 40
    record = rows["CIFAR-100 (PreActResNet18)", "no mixup"]
    assert float(record["mean"]) == pytest.approx((80 + 82 + 84.5) / 3, abs=1e-12)
    assert float(record["difference_p"]) == pytest.approx(
        stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5]).pvalue, abs=1e-12
    )
    names = ("in_paper", "recipe", "field", "arm", "k", "n", "seeds", "state", "paper", "paper_sd", "paper_compares", "verdict")
    expected = ("Table I", "cifar100_preact_resnet18", "last", "none", "1", "3", "0 1 2", "", "23.53", "0.39", "no", "not seen")
    assert tuple(record[name] for name in names) == expected
    assert rows["CIFAR-100 (WRN16-8)", "cutmix"]["state"] == "not run at this scale"


def series(axes, label):
    handles, labels = axes.get_legend_handles_labels()
    return handles[labels.index(label)]


def test_figure_6_has_means_with_standard_deviations_and_the_papers_numbers_at_its_scale():
    resnext = RECIPES["cifar100_resnext29_4_24"]
    keys = [("none", 1), ("cutmix", 1), ("cutmix", 5)]
    errors = {key: [20.0 - key[1] / 4 + seed**2 for seed in range(3)] for key in keys}
    for scale in ("paper", "small"):
        rows = [
            result_row(resnext, *key, seed, [error, error], scale=scale)
            for key, own in errors.items()
            for seed, error in enumerate(own)
        ]
        (axes,) = exhibit_figure(fill(exhibit("fig6"), scale, rows), rows).axes
        line, _, (bars,) = series(axes, "cutmix")
        for k, y, bar in zip((1, 5), line.get_ydata(), bars.get_segments(), strict=True):
            mean, sd = sum(errors["cutmix", k]) / 3, stats.tstd(errors["cutmix", k])
            assert (y, *bar[:, 1]) == pytest.approx((mean, mean - sd, mean + sd))
        assert set(series(axes, "no mixup").get_ydata()) == {sum(errors["none", 1]) / 3}
        assert ("cutmix, the paper" in axes.get_legend_handles_labels()[1]) == (scale == "paper")


def test_figure_7_is_the_increase_beside_linear_growth():
    rows = [result_row(RESNEXT, "puzzlemix", 1, seed, [90.0], scale="small") for seed in range(3)]
    for seed, row in enumerate(rows):
        numbers = {f"increase_{k}": 70.0 * (k - 1) + 10 * seed * (k > 1) for k in (1, 3, 5, 7, 9)}
        row["evaluations"] = {"training_time": {"numbers": numbers}}
    (axes,) = exhibit_figure(fill(exhibit("fig7"), "small", rows), rows).axes
    assert list(series(axes, "puzzle-mix")[0].get_ydata()) == pytest.approx([0, 150, 290, 430, 570])
    assert list(series(axes, "linear growth").get_ydata()) == [0, 200, 400, 600, 800]


def test_figure_8_has_a_curve_for_every_k_of_puzzle_mix():
    norms = {(k, seed): [(epoch + 1.0) / k + seed for epoch in range(4)] for k in (1, 3) for seed in (0, 1)}
    rows = [result_row(RESNEXT, "puzzlemix", k, seed, [50.0] * 4, norms=own) for (k, seed), own in norms.items()]
    rows += [result_row(RESNEXT, "cutmix", 5, 0, [50.0] * 4), result_row(RESNEXT, "puzzlemix", 3, 2, general={"batch": 7})]
    (axes,) = exhibit_figure(fill(exhibit("fig8"), "paper", rows), rows).axes
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["puzzlemix K = 1", "puzzlemix K = 3"]
    for k, line in zip((1, 3), handles, strict=True):
        assert list(line.get_ydata()) == pytest.approx([(norms[k, 0][i] + norms[k, 1][i]) / 2 for i in range(4)])


@pytest.mark.parametrize("name", ["fig5", "fig6", "fig7", "fig8", "I"])
def test_without_runs_there_is_no_figure(name):
    assert exhibit_figure(fill(exhibit(name), "small", []), []) is None


def test_the_page_has_every_exhibit_with_verdicts():
    filled = [fill(one, "small", rows_of()) for one in (ERRORS, exhibit("fig6"), exhibit("VI"), exhibit("fig2"))]
    text = paper_page(filled, {}, scale="small", missing=["cub200: it is not there"])
    assert "cub200: it is not there" in text
    claims = sum(len(one.paper.claims) for one in filled)
    assert f"Of {claims} claims of the paper: 2 not seen" in text
    for one in filled:
        assert f"<h2>{one.paper.label}: " in text
    assert "There is nothing to show yet." in text
    assert "82.17 ±" in text
