"""Arms summarised and compared in pairs of the same seed, and what that does and does not show, in sentences."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...statistics import Paired, Summary, holm, paired, summary
from .arms import BASELINE, Arm
from .train import Outcome

Results = Mapping[Arm, Mapping[int, Outcome]]

LEVEL = 0.05


class Metric(NamedTuple):
    """A measured quantity: the field of :class:`Outcome`, its name, and the unit of a difference."""

    field: str
    name: str
    unit: str


ERROR = Metric("error", "test error", "points")
ECE = Metric("ece", "calibration error", "points")
TESTED = (ERROR, ECE)


class Comparison(NamedTuple):
    """``first − second`` over their common seeds; negative is better for the first. ``lower`` counts the seeds where it is.

    ``p_holm`` is the t-test's p after Holm's correction for all comparisons of the same metric.
    """

    first: Arm
    second: Arm
    lower: int
    paired: Paired
    p_holm: float


class Compared(NamedTuple):
    """All comparisons of one metric: every arm against no mixing, and every larger K against the smallest."""

    metric: Metric
    with_none: list[Comparison]
    with_fewer: list[Comparison]


def values(outcomes: Mapping[int, Outcome], field: str) -> list[float]:
    """One field, in the order of the seeds."""
    return [float(getattr(outcomes[seed], field)) for seed in sorted(outcomes)]


def summarised(outcomes: Mapping[int, Outcome], field: str) -> Summary:
    """Mean and interval of one field over the seeds."""
    return summary(values(outcomes, field))


def compared(results: Results, metric: Metric) -> Compared:
    """Every comparison of ``metric`` that the finished seeds allow, with one correction over all of them."""
    baseline = next(arm for arm in results if arm.name == BASELINE)
    smallest = {arm.name: min(a.k for a in results if a.name == arm.name and a.k is not None) for arm in results if arm.k}
    pairs = [(arm, baseline) for arm in results if arm != baseline]
    fewer = {arm.name: arm for arm in results if arm.k is not None and arm.k == smallest[arm.name]}
    pairs += [(arm, fewer[arm.name]) for arm in results if arm.k is not None and arm != fewer[arm.name]]
    pairs = [(first, second) for first, second in pairs if _common(results[first], results[second])]
    raw = [_compared(results, first, second, metric) for first, second in pairs]
    corrected = [comparison._replace(p_holm=p) for comparison, p in zip(raw, holm([c.paired.p_t for c in raw]), strict=True)]
    with_none = [c for c, (_, second) in zip(corrected, pairs, strict=True) if second == baseline]
    with_fewer = [c for c, (_, second) in zip(corrected, pairs, strict=True) if second != baseline]
    return Compared(metric, with_none, with_fewer)


def findings(results: Results, all_compared: Sequence[Compared]) -> list[str]:
    """What the data do and do not show, in sentences made from the numbers."""
    seeds = {seed for outcomes in results.values() for seed in outcomes}
    ks = sorted({arm.k for arm in results if arm.k is not None})
    sentences = [sentence for one in all_compared for sentence in _of_metric(one, ks)]
    return [*sentences, *_of_confidence(results), *_of_cost(results), *_of_power(len(seeds), all_compared)]


def surplus(outcomes: Mapping[int, Outcome]) -> float:
    """Mean confidence minus accuracy in points: above 0 the networks are too sure, below 0 not sure enough."""
    return summarised(outcomes, "confidence").mean - (100 - summarised(outcomes, "error").mean)


def signed(number: float) -> str:
    """Two places, a sign, a minus that is one, and no minus before 0."""
    return f"{round(number, 2) + 0.0:+.2f}".replace("-", "−")


def _common(first: Mapping[int, Outcome], second: Mapping[int, Outcome]) -> list[int]:
    return sorted(set(first) & set(second))


def _compared(results: Results, first: Arm, second: Arm, metric: Metric) -> Comparison:
    seeds = _common(results[first], results[second])
    one, other = ([float(getattr(results[arm][seed], metric.field)) for seed in seeds] for arm in (first, second))
    lower = sum(a < b for a, b in zip(one, other, strict=True))
    return Comparison(first, second, lower, paired(one, other), p_holm=1.0)


def _of_metric(one: Compared, ks: Sequence[int]) -> list[str]:
    """One sentence on the metric against no mixing, and one on K against the smallest K."""
    fewer = f"K = {ks[0]}" if ks else "K = 1"
    subject = f"At K = {ks[1]} the {one.metric.name}" if len(ks) == 2 else f"At a larger K the {one.metric.name}"
    count = len(one.with_none) + len(one.with_fewer)
    sentences = []
    if one.with_none:
        sentences.append(_sorted_out(one.with_none, f"The {one.metric.name}", "that of none", one.metric, count))
    if one.with_fewer:
        sentences.append(_sorted_out(one.with_fewer, subject, f"that at {fewer}", one.metric, count))
    return sentences


def _sorted_out(comparisons: Sequence[Comparison], subject: str, than: str, metric: Metric, count: int) -> str:
    """Which differences show at 5 %, which of them remain after the correction, and which do not show."""
    if all(c.paired.n < 2 for c in comparisons):
        return f"{subject} differs from {than} by {_span(comparisons)} {metric.unit}; one seed gives no interval and no test."
    shown = [c for c in comparisons if c.paired.p_t < LEVEL]
    silent = [c for c in comparisons if c.paired.p_t >= LEVEL]
    parts = []
    for word, sign in (("lower", -1), ("higher", 1)):
        these = [c for c in shown if c.paired.mean * sign > 0]
        if these:
            parts.append(
                f"{subject} is {word} than {than} in {len(these)} of {len(comparisons)} comparisons "
                f"(paired t-test, 5 %: {_named(these)}; {_span(these)} {metric.unit}); {_remaining(these, count)}."
            )
    if silent:
        where = f"in the other {len(silent)}" if shown else f"in any of {len(silent)} comparisons"
        opening = "No difference shows" if shown else f"{subject} shows no difference to {than}"
        parts.append(f"{opening} {where} ({_span(silent)} {metric.unit}).")
    return " ".join(parts)


def _remaining(shown: Sequence[Comparison], count: int) -> str:
    """How many of the differences remain after the correction."""
    firm = [c for c in shown if c.p_holm < LEVEL]
    after = f"after Holm's correction for {count} comparisons"
    if len(firm) == len(shown):
        return f"{'this remains' if len(firm) == 1 else 'all of these remain'} {after}"
    if not firm:
        return f"{'this does not remain' if len(shown) == 1 else 'none of these remains'} {after}"
    return f"{len(firm)} of these remain {after} ({_named(firm)})"


def _named(comparisons: Sequence[Comparison]) -> str:
    """The arms, those of a method together: 'smoothing, cutmix K = 1 and 5'."""
    ks: dict[str, list[str]] = {}
    for c in comparisons:
        ks.setdefault(c.first.name, []).extend([] if c.first.k is None else [str(c.first.k)])
    return ", ".join(f"{name} K = {' and '.join(found)}" if found else name for name, found in ks.items())


def _span(comparisons: Sequence[Comparison]) -> str:
    """The smallest and the largest mean difference."""
    means = sorted(c.paired.mean for c in comparisons)
    return signed(means[0]) if len(means) == 1 else f"{signed(means[0])} to {signed(means[-1])}"


def _of_confidence(results: Results) -> list[str]:
    """Which way the confidence is off, which the calibration error does not say."""
    found = {arm.label: surplus(outcomes) for arm, outcomes in results.items()}
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    below = sum(value < 0 for value in found.values())
    return [
        f"Mean confidence minus accuracy is below 0 (not sure enough) for {below} of {len(found)} arms; that of none "
        f"is {signed(found[BASELINE])} points, the lowest is {signed(found[low])} ({low}), "
        f"the highest {signed(found[high])} ({high})."
    ]


def _of_cost(results: Results) -> list[str]:
    """How many times the CPU time of the smallest K the largest takes."""
    ratios, steps = [], set()
    for name in dict.fromkeys(arm.name for arm in results if arm.k is not None):
        own = sorted((arm for arm in results if arm.name == name), key=lambda arm: arm.k or 0)
        if len(own) > 1:
            few, many = (summarised(results[arm], "cpu_seconds").mean for arm in (own[0], own[-1]))
            ratios.append(many / few)
            steps.add((own[0].k, own[-1].k))
    if len(steps) != 1:
        return []
    few_k, many_k = steps.pop()
    span = f"{min(ratios):.1f} to {max(ratios):.1f}" if len(ratios) > 1 else f"{ratios[0]:.1f}"
    return [f"Cost: for the same number of optimiser steps K = {many_k} took {span} times the CPU time of K = {few_k}."]


def _of_power(seeds: int, all_compared: Sequence[Compared]) -> list[str]:
    """What these tests could not have shown whatever the data."""
    if seeds < 2:
        return []
    smallest = 2 / 2**seeds
    tests = sum(len(one.with_none) + len(one.with_fewer) for one in all_compared)
    sentence = (
        f"{tests} comparisons were made, so about {tests * LEVEL:.1f} would show at 5 % without correction "
        "even if no arm differed."
    )
    if smallest > LEVEL:
        sentence += (
            f" With {seeds} seeds Wilcoxon's test cannot give a p below {smallest:g}: "
            "it cannot show anything at 5 % here and is listed for completeness."
        )
    return [sentence]
