import math

import numpy as np
import pytest
from scipy import stats

from multimix.lab.report.stats import claim_verdict, effect_over_groups, equivalence, paired, summary


def test_summary_by_hand():
    result = summary([1.0, 2.0, 3.0, 6.0])
    assert (result.n, result.mean, result.median) == (4, 3.0, 2.5)
    sd = math.sqrt((4 + 1 + 0 + 9) / 3)
    assert result.sd == pytest.approx(sd)
    assert result.half == pytest.approx(3.182446 * sd / 2, rel=1e-6)
    assert math.isnan(summary([1.0]).half)


def test_paired_is_scipys():
    a, b = [3.0, 4.0, 6.0, 1.5, 2.0], [1.0, 4.5, 2.0, 1.0, 0.0]
    result = paired(a, b)
    assert result.mean == pytest.approx(1.6)
    assert result.wins == 4
    assert result.p_t == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert result.p_wilcoxon == pytest.approx(stats.wilcoxon(a, b).pvalue)


def test_values_equal_up_to_rounding_are_equal():
    third = 0.1 + 0.2
    assert paired([third, 1.0, 2.0], [0.3, 1.0, 1.0])[3] == 1
    assert paired([third] * 3, [0.3] * 3).p_t == 1
    assert paired([1 + third, 1.3, 1.3], [1.0, 1.0, 1.0]).p_t == 0.25, "no spread but rounding"


def test_degenerate_comparisons():
    assert paired([1.0, 1.0], [1.0, 1.0])[2:] == (0.0, 0, 1.0, 1.0)
    same = paired([2.0, 2.0], [1.0, 1.0])
    assert (same.mean, same.p_t) == (1.0, 0.5), "two seeds that differ by the same are no proof"
    assert paired([2.0] * 6, [1.0] * 6)[2:5] == (0.0, 6, 0.03125), "six with one sign are"
    assert math.isnan(same.half)
    assert paired([2.0], [1.0]).p_t == 1
    with pytest.raises(ValueError, match="first and second"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="values"):
        summary([])


def simulated(rng, effect, groups=4, seeds=8, noise=0.6):
    """Errors with a truth that is known: groups and seeds differ, and the first of each pair is higher by ``effect``."""
    group, seed = 3 * rng.normal(size=(groups, 1, 1)), rng.normal(size=(1, seeds, 1))
    values = 70 + group + seed + noise * rng.normal(size=(groups, seeds, 2))
    values[..., 0] += effect
    return {str(g): {s: tuple(values[g, s]) for s in range(seeds)} for g in range(groups)}


def test_effect_is_that_of_least_squares_with_a_constant_per_seed():
    pairs = simulated(np.random.default_rng(0), -0.4, groups=3, seeds=5)
    rows, y = [], []
    for g, group in enumerate(pairs.values()):
        for s, both in group.items():
            for treated, value in zip((1, 0), both, strict=True):
                rows.append([treated, *np.eye(3)[g], *np.eye(5)[s][1:]])
                y.append(value)
    design, y = np.array(rows), np.array(y)
    solution, (rest,), rank, _ = np.linalg.lstsq(design, y, rcond=None)
    error = math.sqrt(rest / (len(y) - rank) * np.linalg.inv(design.T @ design)[0, 0])
    effect = effect_over_groups(pairs)
    assert effect.mean == pytest.approx(solution[0])
    assert effect.error == pytest.approx(error)
    assert (effect.n, effect.freedom) == (15, len(y) - rank)


def test_effect_needs_the_same_seeds_everywhere():
    with pytest.raises(ValueError, match="pairs"):
        effect_over_groups({"a": {0: (1.0, 2.0), 1: (1.0, 2.0)}, "b": {0: (1.0, 2.0), 2: (1.0, 2.0)}})


def test_the_intervals_of_effects_cover_the_truth():
    rng = np.random.default_rng(1)
    effects = [effect_over_groups(simulated(rng, -0.7)) for _ in range(2000)]
    covered = sum(abs(effect.mean + 0.7) < effect.half for effect in effects)
    assert stats.binomtest(covered, 2000, 0.95).pvalue > 1e-4


def rate_of_equivalence(truth, noise, margin, n, times=4000):
    values = truth + noise * np.random.default_rng(2).normal(size=(times, n))
    rates = [equivalence(v.mean(), v.std(ddof=1) / math.sqrt(n), n - 1, margin) for v in values]
    for one in rates[:50]:
        assert (one.p < 0.05) == (-margin < one.low and one.high < margin)
    return sum(one.p < 0.05 for one in rates)


def test_size_of_the_test_for_equivalence_at_the_margin():
    for truth in (0.5, -0.5):
        wrong = rate_of_equivalence(truth, 0.2, 0.5, 8)
        assert stats.binomtest(wrong, 4000, 0.05).pvalue > 1e-4


def test_power_of_the_test_for_equivalence_where_there_is_no_difference():
    # The chance that both one-sided tests reject, over the law of the sample's mean and standard deviation.
    n, noise, margin = 8, 0.4, 0.5
    error = noise / math.sqrt(n)
    spread = np.sqrt(stats.chi2(n - 1).ppf((np.arange(4000) + 0.5) / 4000) / (n - 1))
    room = np.maximum(margin - stats.t(n - 1).ppf(0.95) * error * spread, 0) / error
    power = float((2 * stats.norm.cdf(room) - 1).mean())
    assert stats.binomtest(rate_of_equivalence(0.0, noise, margin, n), 4000, power).pvalue > 1e-4
    assert 0.8 < power < 0.99


def test_equivalence_without_spread_is_not_judged():
    assert math.isnan(equivalence(0.0, 0.0, 3, 0.5).p)
    with pytest.raises(ValueError, match="margin"):
        equivalence(0.0, 1.0, 3, 0)


BASE = {0: 20.0, 1: 21.0, 2: 19.5, 3: 20.4}


def shifted(*differences):
    return {seed: BASE[seed] + difference for seed, difference in enumerate(differences)}


@pytest.mark.parametrize(
    ("first", "second", "lower", "verdict"),
    [
        (shifted(-1.0, -1.2, -0.9, -1.1), BASE, True, "seen"),
        (shifted(1.0, 1.2, 0.9, 1.1), BASE, True, "opposite"),
        (shifted(1.0, 1.2, 0.9, 1.1), BASE, False, "seen"),
        (shifted(-1.0, -1.2, -0.9, -1.1), BASE, False, "opposite"),
        (shifted(-0.3, 0.4, -0.2, 0.1), BASE, True, "not seen"),
        (shifted(-9.0), BASE, True, "too few runs"),
        (shifted(-1.0, -1.0), BASE, True, "too few runs"),  # no spread
        ({7: 1.0, 8: 1.0}, BASE, True, "too few runs"),  # no common seed
        ({}, BASE, True, "not run"),
        (BASE, {}, True, "not run"),
        ({0: 150.0, 1: 160.0, 2: 155.0}, 400.0, True, "seen"),
        ({0: 450.0, 1: 460.0, 2: 455.0}, 400.0, True, "opposite"),
    ],
)
def test_the_verdict_follows_from_the_paired_interval(first, second, lower, verdict):
    assert claim_verdict(first, second, lower=lower)[0] == verdict


def test_the_interval_of_a_claim_is_that_of_the_paired_t_test():
    first = shifted(-1.0, -0.2, -0.9, 0.3)
    low, high = stats.ttest_rel(list(first.values()), list(BASE.values())).confidence_interval()
    verdict, test = claim_verdict(first, BASE, lower=True)
    assert (test.mean - test.half, test.mean + test.half) == pytest.approx((low, high))
    assert low < 0 < high
    assert verdict == "not seen"
