import io
import re

import pytest
from rich.console import Console
from scipy import stats

from browser import in_browser, sound
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.base import arm_names
from multimix.lab.results.paper import EXHIBITS, exhibit
from multimix.lab.results.paper_table import fill, listing, page, records, tables
from result_rows import result_row

CIFAR, ERRORS = RECIPES["cifar100_preact_resnet18"], exhibit("table", "I")
NUMBERED = [one for one in EXHIBITS if one.columns]
LAST = {("none", 1): [80.0, 82.0, 84.5], ("cutmix", 1): [79.0], ("puzzlemix", 5): [78.0, 79.5, 80.0]}


def rows_of(scale="small"):
    return [
        result_row(CIFAR, arm, k, seed, [95.0, error], scale=scale)
        for (arm, k), errors in LAST.items()
        for seed, error in enumerate(errors)
    ]


def everything(table, scale="small"):
    """Two runs for every cell of a table, with numbers as wide as they come."""
    rows = []
    for name in table.recipes:
        for arm, k in {row.key for row in table.rows if row.arm in arm_names()} | {(arm, k) for _, arm, k in table.trainings}:
            for seed in range(2):
                evaluations = {}
                for column in table.columns:
                    on, _, number = column.value.partition(".")
                    numbers = {number.format(k=one): 10.0 * one + 80.123 * seed for one in (1, 3, 5, 7, 9)}
                    evaluations.setdefault(on, {"numbers": {}})["numbers"].update(numbers)
                rows.append(
                    result_row(
                        RECIPES[name],
                        arm,
                        k,
                        seed,
                        [90.0, 10.0 + 80 * seed + k],
                        scale=scale,
                        seconds=12345.6 * (seed + k),
                        norms=[1.0, 0.00123 * (seed + k)],
                        selection=[2.0, 1.0],
                        evaluations=evaluations,
                    )
                )
    return rows


def on_terminal(found, width):
    console = Console(width=width, file=io.StringIO())
    for sheet in tables(found):
        console.print(sheet)
    return console.file.getvalue()


def cells(text):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {line[0]: dict(zip(lines[0][1:], line[1:], strict=True)) for line in lines[2:]}


@pytest.mark.parametrize("table", NUMBERED, ids=lambda table: table.label)
def test_without_results_the_whole_table_of_the_paper_is_shown(table):
    found = fill(table, "small", [], {})
    text = on_terminal(found, 100)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    states = {entry.state for entry in found.cells.values()}
    assert states <= {"not run at this scale", "not in this version"}
    assert "not run at this scale" in states
    for row in table.rows:
        for column in table.columns:
            value = column.paper.get(row.key)
            assert value is None or f"{value.mean:.2f}" in text
            assert value is None or value.sd is None or f"SD\u00a0{value.sd:.2f}" in text
    assert "minus it" not in text
    assert f"the paper's claims: {len(table.claims)} not run" in " ".join(text.split())


@pytest.mark.parametrize("table", [table for table in NUMBERED if table.name != "spiral"], ids=lambda table: table.label)
def test_a_full_table_fits_into_a_hundred_columns_and_no_number_is_broken(table):
    found = fill(table, "small", everything(table), {})
    assert all(entry.values for (i, _), entry in found.cells.items())
    narrow, wide = on_terminal(found, 100), on_terminal(found, 400)
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 100
    numbers = set(re.findall(r"(?<![\w.])[+−±]?\d+\.\d+|[pn][=<][\d.]+", wide))
    assert len(numbers) > 4
    assert sorted(number for number in numbers if number not in narrow) == []
    words = [part.strip("()") for column in table.columns for part in column.head.split(" (")]
    assert [word for word in words if word not in " ".join(narrow.split()) and " " not in word] == []


def test_cells_have_mean_interval_and_n_beside_the_papers_number_and_the_test():
    found = fill(ERRORS, "small", rows_of(), {})
    first, second = tables(found)
    assert (
        first.title
        == "Table I: Test error on CIFAR-100 and Tiny-ImageNet (small scale: a reduced study, not the paper's setting)"
    )
    assert (second.title, first.notes) == ("Table I: continued", [])
    lines = cells(first.markdown())
    outside = stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5])
    low, high = outside.confidence_interval()
    spread = stats.tstd([80.0, 82.0, 84.5])
    half = stats.sem([80.0, 82.0, 84.5]) * stats.t.ppf(0.975, 2)
    assert lines["no mixup"] == {
        "CIFAR-100 (PreActResNet18)": f"82.17 ± {half:.2f}, SD\u00a0{spread:.2f}, n = 3",
        "paper (other scale)": "21.93 (SD\u00a00.52)",  # of the second network; the first has the same head
        "multi-mix (minus this row)": f"−3.00 ± {(high - low) / 2:.2f}, p = {outside.pvalue:.3f}, not seen",
        "CIFAR-100 (WRN16-8)": "not run at this scale",
    }
    assert lines["cutmix"]["CIFAR-100 (PreActResNet18)"] == "79.00 (n = 1)"
    assert lines["multi-mix (puzzle, K = 5)"]["multi-mix (minus this row)"] == "–"
    assert lines["cutmix"]["multi-mix (minus this row)"] == "too few runs"
    assert [row[2] for row in first.lines][:2] == [("23.53", "SD\u00a00.39"), ("22.49", "SD\u00a00.21")]
    notes = "\n".join(second.notes)
    assert "the paper's claims: 1 not seen" in notes
    assert "rule: the difference is taken seed by seed" in notes
    assert (
        "lowest mean, CIFAR-100 (PreActResNet18): ours cutmix with 79.00 (of 3 rows); "
        "the paper's multi-mix (puzzle, K = 5) with 19.19 (of 10 rows)" in notes
    )
    assert "do not compare with those of this small scale" in notes
    assert "2.29" in notes


def test_at_paper_scale_the_papers_numbers_compare():
    found = fill(ERRORS, "paper", rows_of("paper"), {})
    assert tables(found)[0].title.endswith("(paper scale)")
    assert tables(found)[0].heads[2] == "paper"
    assert "do not compare" not in "\n".join(tables(found)[-1].notes)
    assert {record["paper_compares"] for record in records(found)} == {"yes"}


def test_the_best_mean_is_the_highest_where_that_is_better_and_ties_are_named():
    rows = [
        result_row(RECIPES["imagenet"], arm, 1, 0, scale="small", evaluations={"localization": {"numbers": {"reference": value}}})
        for arm, value in (("none", 50.0), ("mixup", 55.0), ("cutmix", 55.0))
    ]
    notes = tables(fill(exhibit("table", "IV"), "small", rows, {}))[-1].notes
    ours = "highest mean, IoU ≥ 0.5, class (code): ours input mixup and cutmix with 55.00 (of 3 rows)"
    assert f"{ours}; the paper's multi-mix (puzzle, K = 5) with 55.43 (of 10 rows)" in notes
    assert "in per cent, higher is better" in notes


def test_records_are_in_full():
    found = fill(ERRORS, "small", rows_of(), {})
    by_key = {(record["column"], record["label"]): record for record in records(found)}
    assert len(by_key) == 40
    record = by_key["CIFAR-100 (PreActResNet18)", "no mixup"]
    outside = stats.ttest_rel([78.0, 79.5, 80.0], [80.0, 82.0, 84.5])
    assert record["mean"] == pytest.approx((80 + 82 + 84.5) / 3, abs=1e-12)
    assert record["difference_p"] == pytest.approx(outside.pvalue, abs=1e-12)
    shown = (
        "in_paper",
        "recipe",
        "field",
        "arm",
        "k",
        "n",
        "seeds",
        "state",
        "paper",
        "paper_sd",
        "paper_compares",
        "difference_n",
        "verdict",
    )
    expected = ("Table I", "cifar100_preact_resnet18", "last", "none", 1, 3, "0 1 2", "", 23.53, 0.39, "no", 3, "not seen")
    assert tuple(record[name] for name in shown) == expected
    single = by_key["CIFAR-100 (PreActResNet18)", "cutmix"]
    assert (single["n"], single["mean"], single["half"], single["difference"]) == (1, 79.0, None, None)
    assert by_key["CIFAR-100 (WRN16-8)", "cutmix"]["state"] == "not run at this scale"


def test_the_list_says_how_much_there_is():
    console = Console(width=100, file=io.StringIO())
    console.print(listing(rows_of(), {}))
    text = console.file.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    lines = [line for line in text.splitlines() if re.match(r"Table|Fig", line)]
    assert [line.split()[:3] for line in lines if "Table" in line] == [
        [*one.label.split(), one.name] for one in EXHIBITS if one.kind == "table"
    ]
    assert "3 of 40 cells" in lines[0]
    assert "not run" in lines[2]


@in_browser
def test_the_page_is_worth_showing(tmp_path):
    path = tmp_path / "table.html"
    path.write_text(page(fill(ERRORS, "small", rows_of(), {})))
    seen = sound(path, tmp_path)
    for words in (
        "Table I: Test error",
        "small scale",
        "Tiny-ImageNet (PreActResNet18)",
        "82.17 ±",
        "not run at this scale",
        "19.89",
    ):
        assert words in seen["text"]


def test_a_table_of_many_measurements_is_two_tables_on_a_page():
    rows = [
        result_row(RECIPES["imagenet"], arm, 1, 0, scale="small", evaluations={"transfer": {"numbers": {"accuracy_2": value}}})
        for arm, value in (("none", 50.0), ("mixup", 55.25))
    ]
    text = page(fill(exhibit("table", "VI"), "small", rows, {}))
    assert text.count("<table") == 3  # ours, the paper's, verdicts
    assert "<td>55.25 (n = 1)</td>" in text
    assert text.count("<td>74.72</td>") == 1
    assert text.count(">step 2 (class)</th>") == 1
    assert "step 3 (class)</th>" not in text  # nobody has it
