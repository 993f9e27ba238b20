"""Whether K > 1 helps is a difference, an equality within the margin, or open; and rows that are equal in cost are found."""

import numpy as np
import pytest
from scipy import stats

from multimix.lab.results.rows import aggregate
from multimix.lab.results.settled import MARGIN, against_one, at_equal_rows, headline, overall, settled_table
from result_rows import made_up_recipe, result_row

ARMS = ("mixup", "cutmix", "manifoldmix")
RECIPE = made_up_recipe(
    [(arm, k) for arm in ARMS for k in (1, 2, 5)], name="settled", options={"manifoldmix": {"layers": ("stage1",)}}
)


def study(effects, noise=0.2, seeds=8):
    """Rows whose K = 5 differs from K = 1 by the arm's effect, with noise of its own for every run."""
    rng = np.random.default_rng(0)
    rows = []
    for arm, effect in effects.items():
        for seed in range(seeds):
            for k, shift in ((1, 0.0), (2, effect / 2), (5, effect)):
                rows.append(result_row(RECIPE, arm, k, seed, (70 + seed / 4 + shift + noise * rng.normal(),)))
    return rows


def test_largest_k_against_one_by_hand():
    rows = study({"mixup": -2.0, "cutmix": 0.0})
    found = {one.line.split()[0]: one for one in against_one(aggregate(RECIPE, "paper", rows), "last")}
    assert set(found) == {"mixup", "cutmix"}
    p_values = {}
    for arm, one in found.items():
        five, single = ([row["outcome"]["last"] for row in rows if (row["arm"], row["k"]) == (arm, k)] for k in (5, 1))
        difference = np.subtract(five, single)
        assert one.paired.mean == pytest.approx(difference.mean())
        p_values[arm] = stats.ttest_rel(five, single).pvalue
        upper = stats.ttest_1samp(difference, MARGIN, alternative="less").pvalue
        lower = stats.ttest_1samp(difference, -MARGIN, alternative="greater").pvalue
        assert one.same.p == pytest.approx(max(upper, lower))
    least = min(p_values, key=p_values.get)
    assert found[least].p == pytest.approx(2 * p_values[least])
    assert found["mixup"].verdict == "better"
    assert found["cutmix"].verdict == "equal within ±0.5"


def test_verdicts():
    def verdict(effect, noise):
        (one,) = against_one(aggregate(RECIPE, "paper", study({"mixup": effect}, noise)), "last")
        return one.verdict

    assert verdict(1.0, 0.1) == "worse"
    assert verdict(-0.2, 0.02) == "better, by less than 0.5"
    assert verdict(0.0, 2.0) == "not settled"


def test_all_methods_together_need_common_seeds():
    rows = study(dict.fromkeys(ARMS, -0.8))
    whole = aggregate(RECIPE, "paper", rows)
    together = overall(whole, "last")
    assert together.effect.n == 24
    assert together.effect.mean == pytest.approx(np.mean([one.paired.mean for one in against_one(whole, "last")]))
    assert headline(whole, "last").endswith("(n = 24 pairs): better.")
    few = [row for row in rows if row["arm"] != "cutmix" or row["seed"] < 2]
    assert overall(aggregate(RECIPE, "paper", few), "last").effect.n == 16, "two seeds of cutmix judge nothing"
    assert overall(aggregate(RECIPE, "paper", study({"mixup": 0.0})), "last") is None


def test_lines_of_as_many_rows_are_compared_and_others_are_not():
    rows = study({"mixup": -1.0, "cutmix": 0.0}, seeds=4)
    for seed in range(4):
        # The made-up epochs have 5,000 rows each, whatever K is: one epoch costs what one epoch costs.
        rows.append(result_row(RECIPE, "mixup", 1, seed, (68.0 + seed / 3,), changes={"epochs": 9}))
        rows.append(result_row(RECIPE, "cutmix", 1, seed, (68.0, 68.0 + seed / 3), changes={"epochs": 9}))
    names = [(one.line, one.other) for one in at_equal_rows(aggregate(RECIPE, "paper", rows), "last")]
    assert any(line == "mixup K = 5" and "[1]" in other for line, other in names)
    assert not any("cutmix" in line and "[" in other for line, other in names), "twice as many rows"


def test_the_table_says_how_to_read_it_or_is_not_there():
    table = settled_table(aggregate(RECIPE, "paper", study(dict.fromkeys(ARMS, 0.0))), "last")
    assert [line[0] for line in table.lines][:4] == [
        "mixup K = 5 − K = 1",
        "cutmix K = 5 − K = 1",
        "manifoldmix K = 5 − K = 1",
        "all methods, K = 5 − K = 1",
    ]
    assert settled_table(aggregate(RECIPE, "paper", study({"mixup": 0.0}, seeds=2)), "last") is None
