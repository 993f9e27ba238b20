import math

import pytest
from scipy import stats

from multimix.lab.statistics import paired, summary


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
    with pytest.raises(ValueError, match="as many values on both sides, got 2 and 1"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no values"):
        summary([])
