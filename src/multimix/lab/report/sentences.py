"""Summarize findings in sentences: significant differences, cost, and the power of the tests."""

from collections.abc import Iterator, Sequence

from ..recipes.base import counts_k
from ..terminal import counted
from .comparison import Comparison, comparable_groups, comparisons, overall_effect
from .frame import BASELINE, ERROR_LABELS, RunGroup, Study
from .stats import SIGNIFICANCE_LEVEL
from .study_tables import measured
from .tables import cell, joined, signed


def findings(study: Study) -> list[str]:
    """Return sentences on error, calibration, confidence, cost, and the power of the tests.

    Args:
        study: The study.
    """
    compared = {label: comparisons(study, column) for column, label in measured(study).items()}
    sentences = []
    for label, tests in compared.items():
        baseline = [test for test in tests if test.other == BASELINE]
        k1 = [test for test in tests if test.other != BASELINE]
        sentences += [_differences(label, "no mixing", baseline)] if baseline else []
        sentences += [_differences(label, "K = 1 of the same method", k1)] if k1 else []
    if not sentences:
        single = len(study.trained) == 1
        reason = "there is one way of training" if single else "a comparison needs two seeds in common with no mixing or K = 1"
        sentences.append(f"Nothing is compared: {reason}.")
    return [*sentences, *_confidence(study), *_cost(study), *_power([test for tests in compared.values() for test in tests])]


def headline(study: Study) -> str:
    """Return a sentence on the training of lowest error and its difference from no mixing.

    Args:
        study: The study.
    """
    column = study.error
    means = [(group, mean) for group in study.trained if (mean := group.summary(column)) is not None]
    group, mean = min(means, key=lambda pair: pair[1].mean)
    text = cell(mean)
    spread = f"{text[1]}, " if text[1] else ""
    error = f"{text[0]} % ({spread}{counted(mean.n, 'seed')})"
    name = "No mixing" if group.arm == BASELINE else study.label(group)
    if len(means) == 1:
        return f"{name}: {ERROR_LABELS[column]} {error}."
    first = f"{name} has the lowest error of {len(means)}, {error}"
    tests = {(test.group, test.other): test for test in comparisons(study, column)}
    test = tests.get((study.label(group), BASELINE))
    if test is None:
        return f"{first}."
    points = f"{signed(test.paired.mean)} points against no mixing"
    if test.paired.n < 3:
        return f"{first}; {points}, which two seeds cannot distinguish from chance."
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
    """Return warnings on unequal evaluations and on groups with fewer than three seeds.

    Args:
        study: The study.
        unequal: Sentences on evaluations with different options.
    """
    undersampled = [study.label(group) for group in study.trained if len(group.seeds) < 3]
    if not undersampled:
        return [*unequal]
    which = "every way of training" if len(undersampled) == len(study.trained) else ", ".join(undersampled)
    return [*unequal, f"Fewer than three seeds: {which}. The results are uncertain."]


def _differences(label: str, other: str, tests: Sequence[Comparison]) -> str:
    lower = [test for test in tests if test.paired.mean + test.paired.half < 0]
    higher = [test for test in tests if test.paired.mean - test.paired.half > 0]
    neither = len(tests) - len(lower) - len(higher)
    sentence = (
        f"{counted(len(tests), 'comparison')} of {label} with {other}: lower in {len(lower)}{_named(lower)}, higher in "
        f"{len(higher)}{_named(higher)}, not different in {neither} (95 % intervals of the paired difference, in points)."
    )
    if len(tests) > 1 and (lower or higher):
        significant = [test for test in [*lower, *higher] if test.p_holm < SIGNIFICANCE_LEVEL]
        verb = "has" if len(significant) < 2 else "have"
        count = len(significant) or "none"
        names = f" ({', '.join(test.group for test in significant)})" if significant else ""
        sentence += f" After Holm correction {count} of them {verb} p < 0.05{names}."
    return sentence


def _named(tests: Sequence[Comparison]) -> str:
    texts = [f"{test.group} {joined(cell(test.paired))}, n = {test.paired.n}" for test in tests]
    return f" ({'; '.join(texts)})" if texts else ""


def _confidence(study: Study) -> list[str]:
    """Return whether networks are over- or underconfident, which ECE does not distinguish."""
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
    introductions = {BASELINE: "no mixing has"} | (
        {lowest: "the lowest is", highest: "the highest is"} if len(surplus) > 1 else {}
    )
    texts += [f"{text} {signed(surplus[label])} ({label})" for label, text in introductions.items() if label in surplus]
    return ["; ".join(texts) + ", in points."]


def _cost(study: Study) -> Iterator[str]:
    """Compare CPU time at the largest and smallest K with the same updates on one machine."""
    groups = comparable_groups(study)
    ratios: dict[tuple[int, int], list[float]] = {}
    for arm in dict.fromkeys(group.arm for group in groups if counts_k(group.arm)):
        by_k = sorted((group for group in groups if group.arm == arm), key=lambda group: group.k)
        lowest, highest = by_k[0], by_k[-1]
        if lowest.k < highest.k and _same_work(lowest, highest):
            ratios.setdefault((lowest.k, highest.k), []).append(
                (highest.mean("compute") or 0.0) / (lowest.mean("compute") or 1.0)
            )
    for (few_k, many_k), values in ratios.items():
        low, high = f"{min(values):.1f}", f"{max(values):.1f}"
        span = low if low == high else f"{low} to {high}"
        yield f"Cost: for the same number of updates K = {many_k} took {span} times the CPU time of K = {few_k}."


def _same_work(first: RunGroup, second: RunGroup) -> bool:
    work = {(run["machine"], run["steps"]) for group in (first, second) for _, run in group.runs.iterrows()}
    return len(work) == 1 and bool(first.runs["on_cpu"].all()) and (first.mean("compute") or 0.0) > 0


def _power(tests: Sequence[Comparison]) -> list[str]:
    """Return the expected number of false positives, and the limit of a rank test with few seeds."""
    if not tests:
        return []
    chance = f"about {len(tests) * SIGNIFICANCE_LEVEL:.1f} would show at 5 % without correction even if nothing differed"
    sentence = f"{counted(len(tests), 'comparison')} in all: {chance}."
    seeds = max(test.paired.n for test in tests)
    smallest = 2 / 2**seeds
    if smallest > SIGNIFICANCE_LEVEL:
        sentence += (
            f" With {seeds} seeds a rank test (Wilcoxon's) cannot give a p below {smallest:g}: these results rest on the t-test, "
            "which assumes normally distributed differences."
        )
    return [sentence]
