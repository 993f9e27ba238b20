"""Comparisons of made-up outcomes, where everything that must come out is known."""

from itertools import permutations

import pytest
from scipy import stats

from multimix import CutMix, InputMixup, NoMix
from multimix.lab.studies.digits.arms import Arm
from multimix.lab.studies.digits.comparison import ECE, ERROR, compared, findings, holm, signed, summarised, surplus
from multimix.lab.studies.digits.train import Outcome

NONE = Arm("none", None, NoMix())
SMOOTHING = Arm("smoothing", None, NoMix(), 0.1)
MIXUP1, MIXUP5 = Arm("mixup", 1, InputMixup(k=1)), Arm("mixup", 5, InputMixup(k=5))
CUTMIX1, CUTMIX5 = Arm("cutmix", 1, CutMix(k=1)), Arm("cutmix", 5, CutMix(k=5))

BASE = [5.0, 6.0, 4.0, 5.5, 4.5]
JITTER = [0.01, -0.02, 0.0, 0.02, -0.01]
APART = [0.0, 0.005, -0.005, 0.01, -0.01]


def outcomes(errors, ece=None, cpu=1.0, confidence=90.0):
    ece = errors if ece is None else ece
    return {
        seed: Outcome(error, own, 0.1, 0.2, confidence, 0.0, cpu, 100, "arm", "split", "start")
        for seed, (error, own) in enumerate(zip(errors, ece, strict=True))
    }


def shifted(by):
    return [value + by + noise for value, noise in zip(BASE, JITTER, strict=True)]


@pytest.fixture
def results():
    return {
        NONE: outcomes(BASE, BASE),
        SMOOTHING: outcomes(shifted(-1.0), BASE, confidence=99.0),
        MIXUP1: outcomes(shifted(-2.0), shifted(3.0)),
        MIXUP5: outcomes([4.0, 3.0, 5.0, 4.0, 4.0], shifted(3.0), cpu=3.0),
        CUTMIX1: outcomes(shifted(1.0), shifted(4.0)),
        # Not the same difference in every seed, which would be no test.
        CUTMIX5: outcomes([a + b for a, b in zip(shifted(1.5), APART, strict=True)], shifted(4.0), cpu=2.0),
    }


def test_every_arm_meets_none_and_every_larger_k_the_smallest(results):
    found = compared(results, ERROR)
    assert [(c.first, c.second) for c in found.with_none] == [(arm, NONE) for arm in list(results)[1:]]
    assert [(c.first, c.second) for c in found.with_fewer] == [(MIXUP5, MIXUP1), (CUTMIX5, CUTMIX1)]


def test_differences_are_first_minus_second_in_pairs(results):
    found = compared(results, ERROR)
    smoothing = found.with_none[0]
    assert smoothing.paired.mean == pytest.approx(-1.0)
    assert smoothing.lower == 5
    mixup5 = found.with_none[2]
    difference = [a - b for a, b in zip([4.0, 3.0, 5.0, 4.0, 4.0], BASE, strict=True)]
    assert mixup5.lower == sum(value < 0 for value in difference) == 4
    assert mixup5.paired.p_t == pytest.approx(stats.ttest_rel([4.0, 3.0, 5.0, 4.0, 4.0], BASE).pvalue)
    assert found.with_fewer[1].paired.mean == pytest.approx(0.5)
    assert found.with_fewer[1].lower == 0
    assert compared(results, ECE).with_none[0].lower == 0  # equal is not lower


def test_only_seeds_that_both_have_are_compared(results):
    del results[SMOOTHING][1], results[NONE][4]
    found = compared(results, ERROR).with_none[0].paired
    assert found.n == 3
    assert found.mean == pytest.approx(-1 + (0.01 + 0.0 + 0.02) / 3)


def test_arms_without_a_common_seed_are_not_compared(results):
    results[SMOOTHING] = {9: results[SMOOTHING][0]}
    assert [c.first for c in compared(results, ERROR).with_none] == [MIXUP1, MIXUP5, CUTMIX1, CUTMIX5]


def test_one_correction_over_all_comparisons_of_a_metric(results):
    found = compared(results, ERROR)
    everything = [*found.with_none, *found.with_fewer]
    assert [c.p_holm for c in everything] == pytest.approx(holm([c.paired.p_t for c in everything]))
    assert max(c.p_holm for c in everything) > max(c.paired.p_t for c in everything)


def test_holm_by_hand_and_in_any_order():
    # 4 · 0.01, 3 · 0.015, then 2 · 0.02 = 0.04, which may not fall below the one before, then 0.9.
    expected = {0.01: 0.04, 0.015: 0.045, 0.02: 0.045, 0.9: 0.9}
    for order in permutations(expected):
        assert holm(order) == pytest.approx([expected[p] for p in order])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_rejects_what_the_step_down_rule_rejects():
    """The rule as it is usually written: go up the sorted p-values and stop at the first that is not below level/(left)."""
    for ps in ([0.001, 0.012, 0.016, 0.2], [0.02, 0.02, 0.02], [0.0124, 0.03, 0.9, 0.0126], [0.04]):
        rejected = set()
        for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
            if ps[i] * (len(ps) - rank) >= 0.05:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(holm(ps)) if p < 0.05} == rejected


def test_the_sentences_say_what_shows_and_what_does_not(results):
    against_none, k_error, ece, k_ece, sure, cost, power = findings(results, [compared(results, m) for m in (ERROR, ECE)])
    assert against_none == (
        "The test error is lower than that of none in 2 of 5 comparisons (paired t-test, 5 %: smoothing, mixup K = 1; "
        "−2.00 to −1.00 points); all of these remain after Holm's correction for 7 comparisons. "
        "The test error is higher than that of none in 2 of 5 comparisons (paired t-test, 5 %: cutmix K = 1 and 5; "
        "+1.00 to +1.50 points); all of these remain after Holm's correction for 7 comparisons. "
        "No difference shows in the other 1 (−1.00 points)."
    )
    assert k_error.startswith("At K = 5 the test error is higher than that at K = 1 in 1 of 2 comparisons")
    assert "(paired t-test, 5 %: cutmix K = 5; +0.50 points)" in k_error
    assert ece.startswith("The calibration error is higher than that of none in 4 of 5 comparisons")
    assert (
        k_ece
        == "At K = 5 the calibration error shows no difference to that at K = 1 in any of 2 comparisons (+0.00 to +0.00 points)."
    )
    assert sure == (
        "Mean confidence minus accuracy is below 0 (not sure enough) for 5 of 6 arms; that of none is −5.00 points, "
        "the lowest is −7.00 (mixup, K = 1), the highest +3.00 (smoothing)."
    )
    assert cost == "Cost: for the same number of optimiser steps K = 5 took 2.0 to 3.0 times the CPU time of K = 1."
    assert power.startswith("14 comparisons were made, so about 0.7 would show at 5 %")
    assert "With 5 seeds Wilcoxon's test cannot give a p below 0.0625" in power


def test_wilcoxons_least_p_is_the_one_said(results):
    assert compared(results, ERROR).with_none[0].paired.p_wilcoxon == pytest.approx(0.0625)


def test_a_difference_that_the_correction_takes_back_is_said_to_be_taken_back(results):
    results[SMOOTHING] = outcomes([value - noise for value, noise in zip(BASE, [1.0, 2.2, 0.4, 1.6, 0.3], strict=True)])
    found = compared(results, ERROR)
    assert found.with_none[0].paired.p_t < 0.05 < found.with_none[0].p_holm
    sentence = findings(results, [found])[0]
    assert "1 of these remain after Holm's correction for 7 comparisons (mixup K = 1)" in sentence


def test_one_seed_is_no_evidence(results):
    alone = {arm: {0: runs[0]} for arm, runs in results.items()}
    sentences = findings(alone, [compared(alone, ERROR)])
    assert sentences[0] == (
        "The test error differs from that of none by −1.99 to +1.51 points; one seed gives no interval and no test."
    )
    assert not any("shows" in sentence or "comparisons were made" in sentence for sentence in sentences)


def test_no_mixing_alone_can_be_written_up(results):
    found = compared({NONE: results[NONE]}, ERROR)
    assert found.with_none == found.with_fewer == []
    assert findings({NONE: results[NONE]}, [found])[0].startswith("Mean confidence")


def test_numbers_in_words():
    assert [signed(number) for number in (-0.004, 0.0, -1.256, 2.0)] == ["+0.00", "+0.00", "−1.26", "+2.00"]
    assert surplus(outcomes([5.0, 7.0])) == pytest.approx(90 - 94)
    assert summarised(outcomes([5.0, 7.0]), "error").mean == 6
