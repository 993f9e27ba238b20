import csv
import io
import re

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from multimix.lab.report.frame import study
from multimix.lab.report.study_tables import results_table, statistics_table
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe()
NONE = {0: (24.0, 23.0, 23.5), 1: (26.0, 25.0, 24.0), 2: (25.5, 22.0, 25.0)}
MIXUP = {0: (24.0, 22.0, 21.0), 1: (26.0, 23.0, 22.5), 2: (25.5, 23.0, 24.5)}
TABLE = [result_row(RECIPE, "none", 1, seed, errors, norms=[3.0, 2.0, 1.0 + seed]) for seed, errors in NONE.items()]
TABLE += [result_row(RECIPE, "mixup", 5, seed, errors, seconds=5.0 + seed) for seed, errors in MIXUP.items()]
TABLE += [result_row(RECIPE, "mixup", 1, 4)]


def shown(recipe, scale, rows, width=200):
    console = Console(width=width, file=io.StringIO())
    console.print(results_table(study(recipe, scale, rows)))
    return console.file.getvalue()


def recipe_markdown(recipe, scale, rows):
    return results_table(study(recipe, scale, rows)).markdown()


def cells(markdown):
    """The cells of the Markdown table by head, one dictionary for each line."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in markdown.splitlines() if line.startswith("|")]
    heads, _, *body = [[cell.strip() for cell in line] for line in lines]
    assert len({len(line) for line in lines}) == 1
    return [dict(zip(heads, line, strict=True)) for line in body]


def records(recipe, scale, rows):
    return list(csv.DictReader(io.StringIO(results_table(study(recipe, scale, rows)).csv())))


def interval(values):
    return stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))


def test_the_csv_file_has_every_number_in_full():
    none, _, mixup, _ = records(RECIPE, "paper", TABLE)
    expected = {
        "last": [errors[-1] for errors in NONE.values()],
        "median": [np.median(errors) for errors in NONE.values()],
        "best": [min(errors) for errors in NONE.values()],
        "squared_grad_norm": [1.0, 2.0, 3.0],
        "seconds_per_epoch": [2.0, 2.0, 2.0],
    }
    for field, values in expected.items():
        low, high = interval(values) if np.ptp(values) else (values[0], values[0])
        assert float(none[field]) == pytest.approx(np.mean(values))
        assert float(none[f"{field}_half"]) == pytest.approx((high - low) / 2)
    assert none["selected"] == ""
    assert (none["n"], none["seeds"], none["images"]) == ("3", "0 1 2", "3000.0")
    assert (none["arm"], none["k"], none["scale"], none["recipe"]) == ("none", "1", "paper", "made_up")
    assert (mixup["arm"], mixup["k"], mixup["digest"]) == ("mixup", "5", TABLE[3]["digest"])
    assert float(mixup["seconds_per_epoch"]) == 6.0


def test_the_csv_file_has_the_paired_difference_of_the_metric():
    none, single, mixup, missing = records(RECIPE, "paper", TABLE)
    first, second = ([np.median(errors) for errors in arm.values()] for arm in (MIXUP, NONE))
    difference = np.subtract(first, second)
    low, high = interval(difference)
    assert float(mixup["minus_none"]) == pytest.approx(difference.mean())
    assert float(mixup["minus_none_half"]) == pytest.approx((high - low) / 2)
    assert float(mixup["minus_none_p"]) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert mixup["minus_none_n"] == "3"
    assert {line["minus_none"] for line in (none, single, missing)} == {""}
    assert (single["n"], single["last"], single["last_half"]) == ("1", "30.0", "")


def test_markdown_shows_the_same_rounded():
    none, single, mixup, missing = cells(recipe_markdown(RECIPE, "paper", TABLE))
    median = [np.median(errors) for errors in NONE.values()]
    half = (interval(median)[1] - interval(median)[0]) / 2
    assert none["median\\*"] == f"{np.mean(median):.2f} ± {half:.2f}"
    assert (none["method"], none["K"], none["n"], none["paper"], none["vs none"]) == ("none", "–", "3", "23.53", "–")
    assert none["‖g‖²"].startswith("2 ± 2.48")
    assert none["images"] == "3 k"
    assert mixup["s/epoch"].startswith("6 ± 2.48")
    difference = [a - b for a, b in zip([np.median(e) for e in MIXUP.values()], median, strict=True)]
    p = stats.ttest_1samp(difference, 0).pvalue
    assert re.fullmatch(rf"−{-np.mean(difference):.2f} ± [\d.]+, p = {p:.3f}", mixup["vs none"])
    assert (single["median\\*"], single["n"], single["paper"], single["vs none"]) == ("40.00", "1", "22.49", "–")
    assert (missing["method"], missing["n"], missing["median\\*"], missing["paper"]) == ("puzzlemix", "0", "not run", "19.19")
    assert missing["last"] == missing["images"] == "–"
    assert "selected" not in none


def test_a_single_seed_shows_no_interval_and_a_smaller_difference_its_sign():
    rows = [result_row(RECIPE, "none", 1, seed, [30.0, 30.0, 30.0]) for seed in range(2)]
    rows += [result_row(RECIPE, "mixup", 1, seed, [30.0, 30.001, 30.0]) for seed in range(2)]
    rows += [result_row(RECIPE, "mixup", 5, seed, [31.0, 31.0, 31.0 + seed]) for seed in range(2)]
    _, equal, more, _ = cells(recipe_markdown(RECIPE, "paper", rows))
    assert equal["vs none"] == "0.00 (both)"
    assert more["vs none"].startswith("+1.00 ")
    alone = recipe_markdown(RECIPE, "paper", rows[:1])
    assert cells(alone)[0]["median\\*"] == "30.00"
    assert "±" not in cells(alone)[0]["median\\*"]


def test_the_heading_and_the_title_say_when_the_scale_is_not_the_papers():
    paper = shown(RECIPE, "paper", TABLE)
    assert paper.startswith("A made-up table (paper scale)")
    assert "other" not in paper
    for scale, words in (("small", "small scale: a reduced study, not the paper's setting"), ("smoke", "smoke scale: ")):
        rows = [row | {"scale": scale} for row in TABLE]
        text = shown(RECIPE, scale, rows)
        assert words in text.splitlines()[0]
        assert "(other scale)" in text
        assert f"do not compare with those of this {scale} scale" in " ".join(text.split())
        assert "paper (other scale)" in cells(recipe_markdown(RECIPE, scale, rows))[0]
        assert [line["paper_compares"] for line in records(RECIPE, scale, rows)] == ["no", "no", "", "no"]
    assert [line["paper_compares"] for line in records(RECIPE, "paper", TABLE)] == ["yes", "yes", "", "yes"]


def test_the_papers_number_is_in_brackets_where_settings_are_not_the_recipes():
    rows = [result_row(RECIPE, "none", 1), result_row(RECIPE, "mixup", 1, general={"epochs": 7})]
    text = recipe_markdown(RECIPE, "paper", rows)
    assert [line["paper"] for line in cells(text)] == ["23.53", "(22.49)", "–", "19.19"]
    assert "(in brackets)" in text
    assert records(RECIPE, "paper", rows)[1]["paper_compares"] == "no"
    assert records(RECIPE, "paper", rows)[1]["not_of_recipe"] == "epochs = 7, not 3"
    assert "(in brackets)" not in recipe_markdown(RECIPE, "paper", TABLE)
    # At another scale no number compares, which the heading says.
    assert "(22.49)" not in recipe_markdown(RECIPE, "small", [row | {"scale": "small"} for row in rows])


@pytest.mark.parametrize(
    "metric", ["last", "median", "best", "selected", "squared_grad_norm", "seconds_per_epoch", "cpu_seconds_per_epoch"]
)
def test_the_recipes_metric_is_marked_and_stands_beside_the_papers_number(metric):
    heads = {"squared_grad_norm": "‖g‖²", "seconds_per_epoch": "s/epoch"}
    recipe = made_up_recipe(metric=metric)
    rows = [result_row(recipe, "none", 1, seed, selection=[3.0, 1.0, 2.0]) for seed in range(2)]
    line = cells(recipe_markdown(recipe, "paper", rows))[0]
    marked = [head for head in line if head.endswith("\\*")]
    assert marked == [heads.get(metric, metric) + "\\*"]
    assert list(line).index("paper") == list(line).index(marked[0]) + 1
    values = {
        "selected": "40.00 (both)",
        "last": "30.00 (both)",
        "seconds_per_epoch": "2 (both)",
        "cpu_seconds_per_epoch": "2 (both)",
    }
    assert line[marked[0]] == values.get(metric, line[marked[0]])
    assert records(recipe, "paper", rows)[0]["metric"] == metric
    assert metric in records(recipe, "paper", rows)[0]


def test_settings_that_differ_are_named_below_the_table():
    rows = [*TABLE, result_row(RECIPE, "mixup", 5, 9, changes={"epochs": 7, "batch": 50})]
    text = recipe_markdown(RECIPE, "paper", rows)
    assert [line["method"] for line in cells(text)] == ["none", "mixup", "mixup", "mixup [1]", "puzzlemix"]
    assert "- [1] epochs = 7, not 3; batch = 50, not 100\n" in text
    assert "[1] epochs = 7, not 3; batch = 50, not 100" in shown(RECIPE, "paper", rows)
    assert records(RECIPE, "paper", rows)[3]["differs"] == "epochs = 7, not 3; batch = 50, not 100"


def test_notes_on_rows_are_in_the_terminal_and_in_markdown():
    rows = [*TABLE, TABLE[0]]
    for text in (shown(RECIPE, "paper", rows), recipe_markdown(RECIPE, "paper", rows)):
        assert "none, seed 0, has 2 rows: the last one counts" in text


def test_eighty_columns_are_enough_for_every_number():
    recipe = made_up_recipe([("none", 1, 23.53), ("batch_augmentation_mixup", 5, 20.0)], metric="selected")
    rows = []
    for seed in range(3):
        for (arm, k), base in ((("none", 1), 60.0), (("batch_augmentation_mixup", 5), 50.0)):
            errors = [base, base - 10 * seed, base - 11]
            norms = [123.456, 98.7 - seed, 0.0123 * (1 + seed)]
            rows.append(result_row(recipe, arm, k, seed, errors, norms=norms, seconds=1234.5 + seed, selection=[1.0, 2.0, 3.0]))
    wide, narrow = (
        shown(recipe, "small", [row | {"scale": "small"} for row in rows]),
        shown(recipe, "small", [row | {"scale": "small"} for row in rows], width=80),
    )
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    numbers = set(re.findall(r"(?<![\w.])[+−±]?\d+\.\d+", wide))
    assert len(numbers) > 8
    assert all(number in narrow for number in numbers)


def test_words_of_a_recipe_are_no_markup():
    recipe = made_up_recipe([("none", 1)], "alone")
    object.__setattr__(recipe, "title", "[bold]A|B[/bold] <b>")
    assert shown(recipe, "paper", []).startswith("[bold]A|B[/bold] <b> (paper scale)")
    assert recipe_markdown(recipe, "paper", []).startswith("## [bold]A\\|B[/bold] \\<b> (paper scale)\n")


def test_without_rows_everything_is_not_run_and_nothing_is_compared():
    text = recipe_markdown(RECIPE, "paper", [])
    assert [line["median\\*"] for line in cells(text)] == ["not run"] * 4
    assert "vs none" not in text
    assert [line["n"] for line in records(RECIPE, "paper", [])] == ["0"] * 4
    assert shown(made_up_recipe([]), "paper", [])
    assert results_table(study(made_up_recipe([]), "paper", [])).csv().startswith("recipe,")


def test_a_line_that_was_not_trained_with_the_recipes_settings_is_marked_and_the_mark_explained():
    rows = [result_row(RECIPE, "none", 1, general={"epochs": 7}), result_row(RECIPE, "mixup", 1)]
    text = recipe_markdown(RECIPE, "paper", rows)
    assert "| none † |" in text
    assert "| mixup |" in text
    assert "- † not with the recipe's settings: none (epochs = 7, not 3)" in text


def with_ece(row, ece):
    return row | {"evaluations": {"calibration": {"numbers": {"ece": ece}}}}


K_OF = {("none", 1): [30.0, 32.0, 31.0], ("mixup", 1): [29.0, 30.0, 30.5], ("mixup", 5): [28.0, 30.5, 27.0]}
ECE_OF = {("none", 1): [10.0, 12.0, 11.0], ("mixup", 1): [8.0, 9.5, 7.0], ("mixup", 5): [6.0, 6.5, 5.0]}


def compared_rows(measured=True, **more):
    rows = []
    for (arm, k), errors in K_OF.items():
        for seed, error in enumerate(errors):
            row = result_row(RECIPE, arm, k, seed, [40.0, error], scale="small", **more)
            rows.append(with_ece(row, ECE_OF[arm, k][seed]) if measured else row)
    return rows


def test_k_is_compared_with_one_interpolation_over_common_seeds():
    rows = [*compared_rows(measured=False), result_row(RECIPE, "mixup", 5, 7, [40.0, 1.0], scale="small")]
    none, one, five, missing = cells(recipe_markdown(RECIPE, "small", rows))
    outside = stats.ttest_rel(K_OF["mixup", 5], K_OF["mixup", 1])
    low, high = outside.confidence_interval()
    assert five["vs K = 1"] == f"−1.33 ± {(high - low) / 2:.2f}, p = {outside.pvalue:.3f}"
    assert {line["vs K = 1"] for line in (none, one, missing)} == {"–"}
    record = records(RECIPE, "small", rows)[2]
    assert float(record["minus_one"]) == pytest.approx(-4 / 3)
    assert float(record["minus_one_p"]) == pytest.approx(outside.pvalue)
    assert record["minus_one_n"] == "3"
    note = "vs K = 1: last minus that of the same method with K = 1, paired over common seeds, p of the t-test"
    assert note in results_table(study(RECIPE, "small", rows)).notes


def test_only_runs_that_differ_by_k_alone_are_compared_with_one_interpolation():
    rows = compared_rows(measured=False)
    changed = [result_row(RECIPE, "mixup", 5, seed, [40.0, 20.0], scale="small", general={"batch": 50}) for seed in range(3)]
    lines = cells(recipe_markdown(RECIPE, "small", [*rows, *changed]))
    assert [line["vs K = 1"].split()[0] for line in lines] == ["–", "–", "−1.33", "–", "–"]
    same = [result_row(RECIPE, "mixup", 1, seed, [40.0, 21.0 + seed], scale="small", general={"batch": 50}) for seed in range(3)]
    lines = cells(recipe_markdown(RECIPE, "small", [*rows, *changed, *same]))
    assert [line["vs K = 1"].split()[0] for line in lines] == ["–", "–", "–", "−1.33", "−2.00", "–"]
    assert "vs K = 1" not in recipe_markdown(RECIPE, "small", [*rows[:6], *changed])


def test_the_calibration_error_is_shown_where_it_was_measured():
    rows = compared_rows()
    none, one, five, missing = cells(recipe_markdown(RECIPE, "small", rows))
    assert list(none)[:9] == ["method", "K", "n", "last\\*", "paper (other scale)", "vs none", "vs K = 1", "ECE", "ECE vs none"]
    half = (interval(ECE_OF["none", 1])[1] - interval(ECE_OF["none", 1])[0]) / 2
    assert none["ECE"] == f"11.00 ± {half:.2f}"
    p = stats.ttest_rel(ECE_OF["mixup", 5], ECE_OF["none", 1]).pvalue
    assert re.fullmatch(rf"−5.17 ± [\d.]+, p = {p:.3f}", five["ECE vs none"])
    assert (missing["ECE"], none["ECE vs none"]) == ("–", "–")
    assert one["ECE"].startswith("8.17 ")
    record = records(RECIPE, "small", rows)[2]
    assert float(record["calibration.ece"]) == pytest.approx(17.5 / 3)
    assert float(record["calibration.ece_minus_none_p"]) == pytest.approx(p)
    without = recipe_markdown(RECIPE, "small", compared_rows(measured=False))
    assert "ECE" not in without
    assert not any("ece" in name for name in records(RECIPE, "small", compared_rows(measured=False))[0])


def test_with_all_columns_eighty_are_still_enough_for_every_number():
    rows = [
        row | {"evaluations": {"calibration": {"numbers": {"ece": 10.0 * row["seed"]}}}} for row in compared_rows(seconds=1234.5)
    ]
    wide, narrow = (shown(RECIPE, "small", rows, width) for width in (200, 80))
    assert max(map(len, narrow.splitlines())) <= 80
    numbers = set(re.findall(r"(?<![\w.])[+−±]?\d+\.\d+|p[=<][\d.]+", wide))
    assert len(numbers) > 15
    assert [number for number in numbers if number not in narrow] == []


def test_batch_norm_statistics_are_compared_by_seed():
    errors = {"error": [30.0, 31.5, 33.0], "error[batchnorm = recomputed]": [29.0, 31.0, 31.0]}
    rows = []
    for seed in range(3):
        evaluations = {key: {"numbers": {"error": values[seed]}} for key, values in errors.items()}
        rows.append(result_row(RECIPE, "mixup", 5, seed) | {"evaluations": evaluations})
    rows.append(result_row(RECIPE, "none", 1, 0) | {"evaluations": {"error": {"numbers": {"error": 40.0}}}})
    table = statistics_table(study(RECIPE, "paper", rows))
    test = stats.ttest_rel(*reversed(errors.values()))
    assert table.columns[0].values == ["mixup K = 5"]
    (change,) = table.columns[3].values
    assert (change.n, change.mean, change.p_t) == (3, pytest.approx(-7 / 6), pytest.approx(test.pvalue))
    assert table.without_empty_columns().heads == ["training", "error, as trained", "recomputed", "change"]
    assert statistics_table(study(RECIPE, "paper", rows[-1:])) is None
