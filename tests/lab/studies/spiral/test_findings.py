"""Sentences and tables from made-up results; the statistics are asked of scipy, by other functions than the code's own."""

import math
import re
import warnings

import pytest
from scipy import stats

from multimix.lab.recipes.spiral import ARMS, K1, K5, NONE, SpiralSettings
from multimix.lab.studies.spiral.findings import collapsed, comparisons, expectations, findings, p_value, summaries
from multimix.lab.studies.spiral.runs import SpiralResult, SpiralRun

SPREAD = [0, 4, -3, 7, 2, -6, 5, 1, -2, 3, 6, -4, 8, -1, -5, 9, -7, 10, -8, -9]


def made_up(none, one, five, settings=None):
    """A result from numbers of right answers of 600."""
    runs = {
        arm.name: tuple(SpiralRun(seed, right, 600, (), 1.0, {}) for seed, right in enumerate(rights))
        for arm, rights in zip(ARMS, (none, one, five), strict=True)
    }
    return SpiralResult(SpiralSettings() if settings is None else settings, tuple(range(len(none))), runs)


def shifted(by, spread=SPREAD):
    return [540 + by + one for one in spread]


def clear_gain():
    return made_up(shifted(-30), shifted(10, SPREAD[::-1]), shifted(30))


def test_numbers_agree_with_scipy():
    result = clear_gain()
    ours, theirs = result.accuracies(K1), result.accuracies(NONE)
    found = comparisons(result)[0].paired
    assert found.p_t == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    rights = [[run.right for run in result.runs[arm.name]] for arm in (K1, NONE)]  # whole numbers tie, percentages may not
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(*rights).pvalue)
    assert found.wins == sum(a > b for a, b in zip(ours, theirs, strict=True))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    interval = stats.t.interval(0.95, 19, loc=sum(ours) / 20, scale=stats.sem(ours))
    shown = summaries(result)[K1.name]
    assert (shown.mean - shown.half, shown.mean + shown.half) == pytest.approx(interval)
    assert shown.median == pytest.approx(sorted(ours)[9] / 2 + sorted(ours)[10] / 2)


def test_comparisons_are_the_three_asked_for():
    pairs = [(one.first, one.second, one.paper) for one in comparisons(clear_gain())]
    assert pairs == [(K1, NONE, 3.50), (K5, NONE, 6.83), (K5, K1, 3.33)]


def test_a_clear_gain_is_said_to_be_one():
    first, second, third, paper = findings(clear_gain())
    assert first.startswith("Manifold mixup, K = 1 is better than no mixup: +6.67 ± ")
    assert second.startswith("Multi-mix, K = 5 is better than no mixup: +10.00 ± 0.00 points")
    assert third.startswith("Multi-mix, K = 5 is better than manifold mixup, K = 1: +3.33 ± ")
    assert re.search(r"higher in (\d+) of 20", third)[1] == str(
        sum(30 + a > 10 + b for a, b in zip(SPREAD, SPREAD[::-1], strict=True))
    )
    assert "K = 5 ahead of K = 1 by +3.33 points; that lies inside our interval" in paper
    assert "neither confirmed nor refuted" in paper


def test_a_difference_that_does_not_show_is_not_claimed():
    result = made_up(shifted(-30), shifted(0), shifted(-1, SPREAD[::-1]))
    third, paper = findings(result)[2:4]
    assert third.startswith("Between multi-mix, K = 5 and manifold mixup, K = 1 these data show no difference: −0.17 ± ")
    assert "the 95 % interval contains 0" in third
    low, high = stats.ttest_rel(result.accuracies(K5), result.accuracies(K1)).confidence_interval(0.95)
    assert re.search(r"anything from (\S+) to (\S+) points", third).groups() == (f"−{-low:.2f}", f"+{high:.2f}")
    assert "better" not in third
    assert "worse" not in third
    reached = sum(a - b >= 3.33 - 1e-9 for a, b in zip(result.accuracies(K5), result.accuracies(K1), strict=True))
    assert f"outside our interval for the mean difference, and {reached} of 20 seeds" in paper


def test_a_loss_is_said_to_be_one():
    third = findings(made_up(shifted(-30), shifted(0), shifted(-20, SPREAD[5:] + SPREAD[:5])))[2]
    assert third.startswith("Multi-mix, K = 5 is worse than manifold mixup, K = 1: −3.33 ± ")


def test_nothing_different_at_all_is_no_difference():
    third = findings(made_up(shifted(-30), shifted(0), shifted(0)))[2]
    assert "show no difference: +0.00 ± 0.00 points" in third
    assert "higher in 0 of 20 seeds, equal in 20; paired t-test p = 1.00, Wilcoxon p = 1.00" in third


def test_tests_that_disagree_are_named():
    one_outlier = [1] * 19 + [-300]
    third = findings(made_up(shifted(-30), [500] * 20, [500 + d for d in one_outlier]))[2]
    assert "show no difference" in third
    assert "The two tests do not agree at the 5 % level" in third
    assert "do not agree" not in findings(clear_gain())[0]


def test_five_seeds_are_not_blamed_for_wilcoxon():
    said = findings(made_up([480, 481, 483, 485, 480], [550, 551, 552, 553, 555], [550, 553, 552, 551, 554]))
    assert "is better than" in said[0]
    assert "Wilcoxon p = 0.062" in said[0]
    assert not any("do not agree" in sentence for sentence in said)


def test_one_seed_says_so_and_no_interval_is_invented():
    said = findings(made_up([540], [560], [570]))
    assert said[0] == "One seed cannot compare manifold mixup, K = 1 with no mixup; they differ by +3.33 points here."
    assert "one seed of ours cannot be set against it" in said[3]
    assert "nan" not in " ".join(said)


def test_collapsed_runs_are_counted_apart():
    result = made_up([300, 419, 420, 500], [550] * 4, [550, 551, 552, 553])
    assert [collapsed(result, arm) for arm in ARMS] == [2, 0, 0]  # 420 of 600 is 70 %
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "no mixup: 2 of 4" in findings(result)[-1]
    assert not any("collapsed" in sentence for sentence in findings(clear_gain()))


def test_a_short_run_is_called_one():
    result = made_up([500, 501], [550, 549], [551, 552], SpiralSettings(epochs=400))
    assert findings(result)[0].startswith("This was a short run (400 of 3,000 epochs, 2 seeds)")
    assert expectations(result) == []


def test_expectations_can_be_met_and_missed():
    assert [met for *_, met in expectations(clear_gain())] == [True] * 6
    below = made_up(shifted(-30), shifted(10), shifted(0))  # 1.67 points below K = 1
    assert [met for *_, met in expectations(below)] == [True, True, False, True, True, True]
    small = made_up(shifted(0), shifted(17), shifted(19))  # 2.83 and 3.17 points
    assert [met for *_, met in expectations(small)][:2] == [False, True]
    fallen = made_up([300, *shifted(-30)[1:]], shifted(10), [300, 301, *shifted(30)[2:]])
    assert [met for *_, met in expectations(fallen)][3:] == [True, True, False]
    assert expectations(made_up(shifted(-30)[:19], shifted(0)[:19], shifted(1)[:19])) == []


@pytest.mark.parametrize(
    ("p", "shown"), [(1.0, "1.00"), (0.314, "0.31"), (0.049, "0.049"), (0.0061, "0.0061"), (4.6e-8, "5e−8"), (2e-12, "2e−12")]
)
def test_p_values_are_short(p, shown):
    assert p_value(p) == shown


def test_the_interval_of_one_value_is_not_a_number():
    assert math.isnan(summaries(made_up([540], [560], [570]))[K5.name].half)
