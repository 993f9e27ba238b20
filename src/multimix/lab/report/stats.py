"""Statistics of runs: means with intervals, paired tests, equivalence, and verdict rules."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy import stats

SIGNIFICANCE_LEVEL = 0.05

Verdict = Literal["seen", "not seen", "opposite", "too few runs", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
VERDICT_RULE = (
    "rule: differences are paired by seed; seen: the 95 % t-interval of the mean difference lies on "
    "the claimed side of 0; opposite: on the other side; not seen: it contains 0; too few runs: "
    "fewer than two common seeds, or no spread"
)


class Summary(NamedTuple):
    """Mean of ``n`` values with its 95 % t-interval ``mean ± half``.

    Args:
        n: Number of values.
        mean: Their mean.
        half: Half the interval; NaN for n = 1.
        median: Their median.
        sd: Standard deviation; NaN for n = 1.
    """

    n: int
    mean: float
    half: float
    median: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.half:.2f}"


class Paired(NamedTuple):
    """Mean difference over common seeds with its 95 % interval and two-sided p-values.

    If all differences are equal and not 0, there is no spread to test: ``p_t`` is that of the sign
    test, and ``half`` is NaN below six seeds.

    Args:
        n: Number of common seeds.
        mean: Mean difference.
        half: Half the 95 % t-interval; NaN for n = 1.
        wins: Number of differences above 0.
        p_t: p-value of the paired t-test.
        p_wilcoxon: p-value of Wilcoxon's signed-rank test.
    """

    n: int
    mean: float
    half: float
    wins: int
    p_t: float
    p_wilcoxon: float

    @property
    def significant(self) -> bool:
        """Whether the 95 % interval excludes 0."""
        return abs(self.mean) > self.half


class Equivalence(NamedTuple):
    """Two one-sided t-tests against ±``margin``.

    Args:
        margin: The largest difference that does not matter.
        p: p-value of the null hypothesis that the difference is larger.
        low: Lower end of the 90 % interval.
        high: Upper end of the 90 % interval.
    """

    margin: float
    p: float
    low: float
    high: float


class Effect(NamedTuple):
    """Effect of a treatment in a model with blocks.

    Args:
        n: Number of pairs.
        mean: The estimate.
        half: Half its 95 % interval.
        error: Its standard error.
        freedom: Degrees of freedom.
        p: Two-sided p-value.
    """

    n: int
    mean: float
    half: float
    error: float
    freedom: int
    p: float


def summary(values: Sequence[float]) -> Summary:
    """Return mean, 95 % interval, median, and standard deviation.

    Args:
        values: At least one number.
    """
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError("values must not be empty")
    sd = float(array.std(ddof=1)) if array.size > 1 else math.nan
    half = half_width(sd, array.size)
    return Summary(array.size, float(array.mean()), half, float(np.median(array)), sd)


def half_width(sd: float, n: int) -> float:
    """Return half the 95 % t-interval of the mean of ``n`` values, NaN for n = 1.

    Args:
        sd: Standard deviation of the values.
        n: Number of values.
    """
    return float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n) if n > 1 else math.nan


def half_shown(mean: Summary | Paired) -> float:
    """Return half the width of the interval to show; for two values, half their range.

    The t-interval of two values is 13 times as wide as their range.

    Args:
        mean: A mean or paired difference.
    """
    return mean.half / float(stats.t.ppf(0.975, 1)) if mean.n == 2 else mean.half


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare ``first − second`` by the t-test and Wilcoxon's signed-rank test.

    Args:
        first: One value per seed.
        second: One value per seed, in the same order.
    """
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(
            f"first and second must have the same number of values, at least one, got {len(first)} and {len(second)}"
        )
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    # Rounding errors must not break ties, nor give a zero spread a tiny p-value.
    tolerance = 1e-12 * max(1.0, *np.abs(first), *np.abs(second))
    difference[np.abs(difference) < tolerance] = 0.0
    mean = summary(difference.tolist())
    wins = int((difference > 0).sum())
    if len(difference) < 2 or not difference.any():
        return Paired(mean.n, mean.mean, mean.half, wins, 1.0, 1.0)
    p_wilcoxon = float(stats.wilcoxon(difference).pvalue)
    if mean.sd < tolerance:
        # Errors are counts, so a few seeds may differ by the same amount: only the sign counts.
        p_sign = 2 * 0.5**mean.n
        half = 0.0 if p_sign < SIGNIFICANCE_LEVEL else math.nan
        return Paired(mean.n, mean.mean, half, wins, p_sign, p_wilcoxon)
    p_t = float(stats.ttest_1samp(difference, 0.0).pvalue)
    return Paired(mean.n, mean.mean, mean.half, wins, p_t, p_wilcoxon)


def paired_by_seed(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """Return the paired comparison over common seeds, or None for fewer than two.

    Args:
        first: Values by seed.
        second: Values by seed, to be subtracted.
    """
    common = sorted(set(first) & set(second))
    if len(common) < 2:
        return None
    return paired([first[seed] for seed in common], [second[seed] for seed in common])


def equivalence(mean: float, error: float, freedom: float, margin: float) -> Equivalence:
    """Test whether a mean lies within ±``margin``.

    Args:
        mean: The estimate.
        error: Its standard error.
        freedom: Degrees of freedom of ``error``.
        margin: Positive; the largest difference that does not matter.
    """
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}")
    if math.isnan(error) or error == 0:
        return Equivalence(margin, math.nan, math.nan, math.nan)
    law = stats.t(freedom)
    half = float(law.ppf(0.95)) * error
    return Equivalence(margin, float(law.sf((margin - abs(mean)) / error)), mean - half, mean + half)


def paired_equivalence(test: Paired, margin: float) -> Equivalence:
    """Test whether a paired mean difference lies within ±``margin``.

    Args:
        test: The paired comparison.
        margin: Positive; the largest difference that does not matter.
    """
    error = test.half / float(stats.t.ppf(0.975, test.n - 1))
    return equivalence(test.mean, error, test.n - 1, margin)


def effect_over_groups(pairs: Mapping[str, Mapping[int, tuple[float, float]]]) -> Effect:
    """Fit ``value ~ group + treatment`` with the seed as a random effect.

    For balanced data the restricted maximum likelihood estimate equals least squares with a
    constant per seed, which this solves exactly.

    Args:
        pairs: ``pairs[group][seed]`` holds the values with and without treatment. Every group
            needs the same seeds.
    """
    seeds = [sorted(group) for group in pairs.values()]
    if not seeds or len(seeds[0]) < 2 or any(other != seeds[0] for other in seeds):
        by_group = dict(zip(pairs, seeds, strict=True))
        raise ValueError(f"pairs must have the same seeds in every group, at least 2, got {by_group}")
    # [group, seed, treatment]
    values = np.array([[group[seed] for seed in seeds[0]] for group in pairs.values()])
    groups, count, _ = values.shape
    means = (values.mean(axis=axes, keepdims=True) for axes in ((1, 2), (0, 2), (0, 1)))
    residuals = values - (sum(means) - 2 * values.mean())
    freedom = values.size - (groups + count)
    error = math.sqrt(float((residuals**2).sum()) / freedom * 2 / (groups * count))
    mean = float((values[..., 0] - values[..., 1]).mean())
    p = float(2 * stats.t.sf(abs(mean) / error, freedom)) if error else math.nan
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Effect(groups * count, mean, half, error, freedom, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method, in the given order.

    Args:
        p_values: The p-values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def difference_verdict(mean: float, p: float, same: Equivalence) -> str:
    """Return better, worse, equal, or not settled; lower is better.

    Args:
        mean: Difference of two errors.
        p: Its two-sided p-value after correction.
        same: Its equivalence test.
    """
    equal = same.p < SIGNIFICANCE_LEVEL
    if p < SIGNIFICANCE_LEVEL:
        return f"{'better' if mean < 0 else 'worse'}{f', by less than {same.margin:g}' if equal else ''}"
    return f"equal within ±{same.margin:g}" if equal else "not settled"


def claim_verdict(
    first: Mapping[int, float], second: Mapping[int, float] | float, *, lower: bool
) -> tuple[Verdict, Paired | None]:
    """Decide the claim that ``first`` is better than ``second`` by :data:`VERDICT_RULE`.

    Args:
        first: Values by seed.
        second: Values by seed, or one number for every seed.
        lower: Whether lower values are better.

    Returns:
        The verdict and the paired test, which is None without two common seeds.
    """
    other = second if isinstance(second, Mapping) else dict.fromkeys(first, second)
    if not first or not other:
        return "not run", None
    test = paired_by_seed(first, other)
    if test is None or math.isnan(test.half):
        return "too few runs", test
    if not test.significant:
        return "not seen", test
    return "seen" if (test.mean < 0) == lower else "opposite", test
