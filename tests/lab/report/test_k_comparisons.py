"""Whether K > 1 helps is a difference, an equality within the margin, or open; and rows that are equal in cost are found."""

import numpy as np
import pytest
from scipy import stats

from multimix.lab.report.comparison import MARGIN, compare_at_equal_rows, compare_with_k1, overall_effect
from multimix.lab.report.frame import study
from multimix.lab.report.sentences import k_headline
from multimix.lab.report.study_tables import k_table
from result_rows import made_up_recipe, result_row

ARMS = ("mixup", "cutmix", "manifoldmix")
RECIPE = made_up_recipe(
    [(arm, k) for arm in ARMS for k in (1, 2, 5)], name="settled", options={"manifoldmix": {"layers": ("stage1",)}}
)


def made_rows(effects, noise=0.2, seeds=8):
    """Rows whose K = 5 differs from K = 1 by the arm's effect, with noise of its own for every run."""
    rng = np.random.default_rng(0)
    rows = []
    for arm, effect in effects.items():
        for seed in range(seeds):
            for k, shift in ((1, 0.0), (2, effect / 2), (5, effect)):
                rows.append(result_row(RECIPE, arm, k, seed, (70 + seed / 4 + shift + noise * rng.normal(),)))
    return rows


def test_largest_k_against_one_by_hand():
    rows = made_rows({"mixup": -2.0, "cutmix": 0.0})
    comparisons_of_k = {one.group.split()[0]: one for one in compare_with_k1(study(RECIPE, "paper", rows), "last")}
    assert set(comparisons_of_k) == {"mixup", "cutmix"}
    p_values = {}
    for arm, one in comparisons_of_k.items():
        five, single = ([row["outcome"]["last"] for row in rows if (row["arm"], row["k"]) == (arm, k)] for k in (5, 1))
        difference = np.subtract(five, single)
        assert one.paired.mean == pytest.approx(difference.mean())
        p_values[arm] = stats.ttest_rel(five, single).pvalue
        upper = stats.ttest_1samp(difference, MARGIN, alternative="less").pvalue
        lower = stats.ttest_1samp(difference, -MARGIN, alternative="greater").pvalue
        assert one.same.p == pytest.approx(max(upper, lower))
    least = min(p_values, key=p_values.get)
    assert comparisons_of_k[least].p == pytest.approx(2 * p_values[least])
    assert comparisons_of_k["mixup"].verdict == "better"
    assert comparisons_of_k["cutmix"].verdict == "equal within ±0.5"


def test_verdicts():
    def verdict(effect, noise):
        (one,) = compare_with_k1(study(RECIPE, "paper", made_rows({"mixup": effect}, noise)), "last")
        return one.verdict

    assert verdict(1.0, 0.1) == "worse"
    assert verdict(-0.2, 0.02) == "better, by less than 0.5"
    assert verdict(0.0, 2.0) == "not settled"


def test_all_methods_together_need_common_seeds():
    rows = made_rows(dict.fromkeys(ARMS, -0.8))
    full_study = study(RECIPE, "paper", rows)
    together = overall_effect(full_study, "last")
    assert together.effect.n == 24
    assert together.effect.mean == pytest.approx(np.mean([one.paired.mean for one in compare_with_k1(full_study, "last")]))
    assert k_headline(full_study).endswith("(n = 24 pairs): better.")
    few = [row for row in rows if row["arm"] != "cutmix" or row["seed"] < 2]
    assert overall_effect(study(RECIPE, "paper", few), "last").effect.n == 16, "two seeds of cutmix judge nothing"
    assert overall_effect(study(RECIPE, "paper", made_rows({"mixup": 0.0})), "last") is None


def test_lines_of_as_many_rows_are_compared_and_others_are_not():
    rows = made_rows({"mixup": -1.0, "cutmix": 0.0}, seeds=4)
    for seed in range(4):
        # The made-up epochs have 5,000 rows each, whatever K is: one epoch costs what one epoch costs.
        rows.append(result_row(RECIPE, "mixup", 1, seed, (68.0 + seed / 3,), changes={"epochs": 9}))
        rows.append(result_row(RECIPE, "cutmix", 1, seed, (68.0, 68.0 + seed / 3), changes={"epochs": 9}))
    names = [(one.group, one.other) for one in compare_at_equal_rows(study(RECIPE, "paper", rows), "last")]
    assert any(line == "mixup K = 5" and "[1]" in other for line, other in names)
    assert not any("cutmix" in line and "[" in other for line, other in names), "twice as many rows"


def test_the_table_says_how_to_read_it_or_is_not_there():
    table = k_table(study(RECIPE, "paper", made_rows(dict.fromkeys(ARMS, 0.0))))
    assert table.columns[0].values[:4] == [
        "mixup K = 5 − K = 1",
        "cutmix K = 5 − K = 1",
        "manifoldmix K = 5 − K = 1",
        "all methods, K = 5 − K = 1",
    ]
    assert k_table(study(RECIPE, "paper", made_rows({"mixup": 0.0}, seeds=2))) is None
