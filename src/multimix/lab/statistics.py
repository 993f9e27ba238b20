"""Means with intervals, and paired comparisons over the same seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class Summary(NamedTuple):
    """``mean ± half`` is the 95 % t-interval of the mean of ``n`` values; ``half`` is NaN for n = 1."""

    n: int
    mean: float
    half: float
    median: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.half:.2f}"


class Paired(NamedTuple):
    """First minus second over the same seeds: mean difference ± ``half`` (95 %), how often it is above 0, two-sided p-values.

    Where all differences are the same but not 0 there is no spread to judge them by: ``p_t`` is that of the sign test, and with
    fewer than six seeds ``half`` is NaN.
    """

    n: int
    mean: float
    half: float
    wins: int
    p_t: float
    p_wilcoxon: float


def summary(values: Sequence[float]) -> Summary:
    """Mean, its 95 % interval, median and standard deviation."""
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError("there are no values to summarise")
    sd = float(array.std(ddof=1)) if array.size > 1 else math.nan
    return Summary(array.size, float(array.mean()), half_width(sd, array.size), float(np.median(array)), sd)


def half_width(sd: float, n: int) -> float:
    """Half the 95 % t-interval of a mean of ``n`` values with standard deviation ``sd``."""
    return float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n) if n > 1 else math.nan


def half_shown(whole: Summary | Paired) -> float:
    """Half of what to show around a mean: of its interval; of two values of their range, NaN of one.

    The interval of two values is 13 times as wide as their range, and would say more about t than about them.
    """
    return whole.half / float(stats.t.ppf(0.975, 1)) if whole.n == 2 else whole.half


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """The paired difference ``first − second`` with t-test and Wilcoxon's signed-rank test; p is 1 where nothing differs."""
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(f"a paired comparison needs as many values on both sides, got {len(first)} and {len(second)}")
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    # Values that are equal up to rounding are equal: otherwise ties are missed and a spread of nothing gets a tiny p.
    rounding = 1e-12 * max(1.0, *np.abs(first), *np.abs(second))
    difference[np.abs(difference) < rounding] = 0.0
    whole = summary(difference.tolist())
    wins = int((difference > 0).sum())
    if len(difference) < 2 or not difference.any():
        return Paired(whole.n, whole.mean, whole.half, wins, 1.0, 1.0)
    p_wilcoxon = float(stats.wilcoxon(difference).pvalue)
    if whole.sd < rounding:
        # Errors are counts, so a few seeds differ by the same now and then; a spread of nothing would pass for certainty. What
        # is left is that all have one sign.
        p_sign = 2 * 0.5**whole.n
        return Paired(whole.n, whole.mean, 0.0 if p_sign < 0.05 else math.nan, wins, p_sign, p_wilcoxon)
    return Paired(whole.n, whole.mean, whole.half, wins, float(stats.ttest_1samp(difference, 0.0).pvalue), p_wilcoxon)


def paired_by_seed(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """``first − second`` over the seeds that both have, if there are at least two."""
    common = sorted(set(first) & set(second))
    return paired([first[seed] for seed in common], [second[seed] for seed in common]) if len(common) > 1 else None


class Equivalence(NamedTuple):
    """Two one-sided t-tests: ``p`` that a mean is outside ±``margin``, and its 90 % interval, inside ±margin where p < 0.05."""

    margin: float
    p: float
    low: float
    high: float


def equivalence(mean: float, error: float, freedom: float, margin: float) -> Equivalence:
    """Whether a mean with standard ``error`` and so many degrees of freedom lies within ±``margin``."""
    if not margin > 0:
        raise ValueError(f"margin must be above 0, got {margin}")
    if math.isnan(error) or error == 0:  # one value, or equal ones: no spread to judge by
        return Equivalence(margin, math.nan, math.nan, math.nan)
    law = stats.t(freedom)
    half = float(law.ppf(0.95)) * error
    return Equivalence(margin, float(law.sf((margin - abs(mean)) / error)), mean - half, mean + half)


def paired_equivalence(test: Paired, margin: float) -> Equivalence:
    """Whether a mean difference lies within ±``margin``."""
    return equivalence(test.mean, test.half / float(stats.t.ppf(0.975, test.n - 1)), test.n - 1, margin)


class Effect(NamedTuple):
    """``mean`` ± ``half`` (95 %) of a treatment in a model with blocks; ``error`` is its standard error."""

    n: int
    mean: float
    half: float
    error: float
    freedom: int
    p: float


def effect_over_groups(pairs: Mapping[str, Mapping[int, tuple[float, float]]]) -> Effect:
    """First minus second over all groups and seeds: ``value ~ group + treatment`` with the seed as a random effect.

    ``pairs[group][seed]`` holds both values; every group needs the same seeds. For such balanced data the estimate by restricted
    maximum likelihood is that of least squares with a constant for every seed (where seeds differ at all), so this is solved.
    """
    seeds = [sorted(group) for group in pairs.values()]
    if not seeds or len(seeds[0]) < 2 or any(own != seeds[0] for own in seeds):
        raise ValueError(f"every group needs the same seeds, at least two, got {dict(zip(pairs, seeds, strict=True))}")
    values = np.array([[group[seed] for seed in seeds[0]] for group in pairs.values()])  # [group, seed, treatment]
    groups, count, _ = values.shape
    fitted = sum(values.mean(axis=axes, keepdims=True) for axes in ((1, 2), (0, 2), (0, 1))) - 2 * values.mean()
    freedom = values.size - (groups + count)
    error = math.sqrt(float(((values - fitted) ** 2).sum()) / freedom * 2 / (groups * count))
    mean = float((values[..., 0] - values[..., 1]).mean())
    p = float(2 * stats.t.sf(abs(mean) / error, freedom)) if error else math.nan
    return Effect(groups * count, mean, float(stats.t.ppf(0.975, freedom)) * error, error, freedom, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected by Holm's step-down rule, in the order given: all may then be read at one level together.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for done, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[i]))
        adjusted[i] = largest
    return adjusted
