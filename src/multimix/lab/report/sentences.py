"""Findings in sentences: what comparisons show, what they do not, and at what cost."""

from collections.abc import Iterator, Sequence

from ..recipes.base import counts_k
from ..terminal import counted
from .comparison import Comparison, comparable_groups, comparisons, overall_effect
from .frame import BASELINE, ERROR_LABELS, RunGroup, Study
from .stats import SIGNIFICANCE_LEVEL
from .study_tables import measured
from .tables import cell, joined, signed


def findings(study: Study) -> list[str]:
    """Return sentences on error, calibration, confidence, cost, and the power of the tests."""
    compared = {label: comparisons(study, column) for column, label in measured(study).items()}
    sentences = []
    for label, tests in compared.items():
        baseline, k1 = ([one for one in tests if (one.other == BASELINE) == wanted] for wanted in (True, False))
        sentences += [_differences(label, "no mixing", baseline)] if baseline else []
        sentences += [_differences(label, "K = 1 of the same method", k1)] if k1 else []
    if not sentences:
        single = len(study.trained) == 1
        reason = "there is one way of training here" if single else "that takes two seeds that no mixing, or K = 1, has as well"
        sentences.append(f"Nothing is compared: {reason}.")
    every = [one for tests in compared.values() for one in tests]
    return [*sentences, *_confidence(study), *_cost(study), *_power(every)]


def headline(study: Study) -> str:
    """Return which training has the lowest error, and whether it differs from no mixing."""
    column = study.error
    means = [(group, mean) for group in study.trained if (mean := group.summary(column)) is not None]
    group, mean = min(means, key=lambda one: one[1].mean)
    text = cell(mean)
    spread = f"{text[1]}, " if text[1] else ""
    error = f"{text[0]} % ({spread}{counted(mean.n, 'seed')})"
    name = "No mixing" if group.arm == BASELINE else study.label(group)
    if len(means) == 1:
        return f"{name}: {ERROR_LABELS[column]} {error}."
    first = f"{name} has the lowest error of {len(means)}, {error}"
    test = next((one for one in comparisons(study, column) if (one.group, one.other) == (study.label(group), BASELINE)), None)
    if group.arm == BASELINE or test is None:
        return f"{first}."
    points = f"{signed(test.paired.mean)} points against no mixing"
    if test.paired.n < 3:
        return f"{first}; {points}, which two seeds cannot tell from chance."
    significant = "significant" if test.p_holm < SIGNIFICANCE_LEVEL else "not significant"
    return f"{first}; {points}, {significant} after Holm correction."


def k_headline(study: Study, column: str | None = None) -> str | None:
    """Return the effect of K over all methods in a sentence, if it can be estimated.

    Args:
        study: The study.
        column: Column of the run frame; None for the error that the study compares.
    """
    overall = overall_effect(study, column or study.error)
    if overall is None:
        return None
    effect = overall.effect
    return (
        f"K = {overall.k} against K = 1 over {overall.methods} methods: {signed(effect.mean)} ± {effect.half:.2f} points of "
        f"error (n = {effect.n} pairs): {overall.verdict}."
    )


def warnings(study: Study, unequal: Sequence[str]) -> list[str]:
    """Return what speaks against taking the numbers at face value.

    Args:
        study: The study.
        unequal: Sentences on evaluations that were not made in the same way.
    """
    few = [study.label(group) for group in study.trained if len(group.seeds) < 3]
    if not few:
        return [*unequal]
    which = "every way of training" if len(few) == len(study.trained) else ", ".join(few)
    return [*unequal, f"Fewer than three seeds: {which}. So few say little about a method."]


def _differences(label: str, other: str, tests: Sequence[Comparison]) -> str:
    lower = [one for one in tests if one.paired.mean + one.paired.half < 0]
    higher = [one for one in tests if one.paired.mean - one.paired.half > 0]
    neither = len(tests) - len(lower) - len(higher)
    sentence = (
        f"{counted(len(tests), 'comparison')} of {label} with {other}: lower in {len(lower)}{_named(lower)}, higher in "
        f"{len(higher)}{_named(higher)}, not different in {neither} (95 % intervals of the paired difference, in points)."
    )
    if len(tests) > 1 and (lower or higher):
        significant = [one for one in [*lower, *higher] if one.p_holm < SIGNIFICANCE_LEVEL]
        verb = "has" if len(significant) < 2 else "have"
        count = len(significant) or "none"
        sentence += f" After Holm correction {count} of them {verb} p < 0.05{_named(significant)}."
    return sentence


def _named(tests: Sequence[Comparison]) -> str:
    texts = [f"{one.group} {joined(cell(one.paired))}, n = {one.paired.n}" for one in tests]
    return f" ({'; '.join(texts)})" if texts else ""


def _confidence(study: Study) -> list[str]:
    """Say whether networks are over- or underconfident, which ECE does not tell."""
    surplus = {}
    for group in study.trained:
        confidence, accuracy = (group.mean(f"calibration.{name}") for name in ("confidence", "accuracy"))
        if confidence is not None and accuracy is not None:
            surplus[study.label(group)] = confidence - accuracy
    if not surplus:
        return []
    below = sum(value < 0 for value in surplus.values())
    texts = [f"Mean confidence minus accuracy is below 0 (underconfident) in {below} of {counted(len(surplus), 'training')}"]
    lowest, highest = (choose(surplus, key=surplus.__getitem__) for choose in (min, max))
    ends = {BASELINE: "no mixing has"} | ({lowest: "the lowest is", highest: "the highest is"} if len(surplus) > 1 else {})
    texts += [f"{text} {signed(surplus[label])} ({label})" for label, text in ends.items() if label in surplus]
    return ["; ".join(texts) + ", in points."]


def _cost(study: Study) -> Iterator[str]:
    """Compare CPU time at the largest and smallest K with the same updates on one machine."""
    groups = comparable_groups(study)
    ratios: dict[tuple[int, int], list[float]] = {}
    for arm in dict.fromkeys(group.arm for group in groups if counts_k(group.arm)):
        own = sorted((group for group in groups if group.arm == arm), key=lambda group: group.k)
        few, many = own[0], own[-1]
        if few.k < many.k and _same_work(few, many):
            ratios.setdefault((few.k, many.k), []).append((many.mean("compute") or 0.0) / (few.mean("compute") or 1.0))
    for (few_k, many_k), values in ratios.items():
        span = f"{values[0]:.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"
        yield f"Cost: for the same number of updates K = {many_k} took {span} times the CPU time of K = {few_k}."


def _same_work(first: RunGroup, second: RunGroup) -> bool:
    work = {(run["machine"], run["steps"]) for group in (first, second) for _, run in group.runs.iterrows()}
    return len(work) == 1 and bool(first.runs["on_cpu"].all()) and (first.mean("compute") or 0.0) > 0


def _power(tests: Sequence[Comparison]) -> list[str]:
    """Say what chance alone would show, and what so few seeds cannot show."""
    if not tests:
        return []
    chance = f"about {len(tests) * SIGNIFICANCE_LEVEL:.1f} would show at 5 % without correction even if nothing differed"
    sentence = f"{counted(len(tests), 'comparison')} in all: {chance}."
    seeds = max(one.paired.n for one in tests)
    smallest = 2 / 2**seeds
    if smallest > SIGNIFICANCE_LEVEL:
        sentence += (
            f" With {seeds} seeds a rank test (Wilcoxon's) cannot give a p below {smallest:g}: these results rest on the t-test, "
            "which assumes normally distributed differences."
        )
    return [sentence]
