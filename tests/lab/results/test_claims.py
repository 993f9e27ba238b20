"""The rule of the verdicts, on made-up differences."""

import pytest
from scipy import stats

from multimix.lab.results.claims import judge
from multimix.lab.results.paper import Claim

CLAIM = Claim("a below b", 0, ("puzzlemix", 5), ("puzzlemix", 1))
BASE = {0: 20.0, 1: 21.0, 2: 19.5, 3: 20.4}


def shifted(*by):
    return {seed: BASE[seed] + one for seed, one in enumerate(by)}


@pytest.mark.parametrize(
    ("first", "second", "lower", "verdict"),
    [
        (shifted(-1.0, -1.2, -0.9, -1.1), BASE, True, "seen"),
        (shifted(1.0, 1.2, 0.9, 1.1), BASE, True, "opposite"),
        (shifted(1.0, 1.2, 0.9, 1.1), BASE, False, "seen"),
        (shifted(-1.0, -1.2, -0.9, -1.1), BASE, False, "opposite"),
        (shifted(-0.3, 0.4, -0.2, 0.1), BASE, True, "not seen"),
        (shifted(-9.0), BASE, True, "too few runs"),
        (shifted(-1.0, -1.0), BASE, True, "too few runs"),  # no spread to judge by
        ({7: 1.0, 8: 1.0}, BASE, True, "too few runs"),  # no seed in common
        ({}, BASE, True, "not run"),
        (BASE, {}, True, "not run"),
        ({0: 150.0, 1: 160.0, 2: 155.0}, 400.0, True, "seen"),
        ({0: 450.0, 1: 460.0, 2: 455.0}, 400.0, True, "opposite"),
    ],
)
def test_the_verdict_follows_from_the_paired_interval(first, second, lower, verdict):
    assert judge(CLAIM, first, second, lower=lower).verdict == verdict


def test_the_interval_is_that_of_the_paired_t_test():
    first = shifted(-1.0, -0.2, -0.9, 0.3)
    low, high = stats.ttest_rel(list(first.values()), list(BASE.values())).confidence_interval()
    found = judge(CLAIM, first, BASE, lower=True)
    assert found.test.mean - found.test.half == pytest.approx(low)
    assert found.test.mean + found.test.half == pytest.approx(high)
    assert found.verdict == "not seen"
    assert low < 0 < high
