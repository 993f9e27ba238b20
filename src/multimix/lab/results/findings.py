"""What the comparisons of a study show and what not, in sentences that count before they name."""

from collections.abc import Sequence
from statistics import fmean

from ..recipes.base import counts_k
from .comparison import Compared, comparable_lines, compare
from .rows import BASELINE, ECE, ERROR_WORDS, Aggregate, Line
from .table import counted, difference_cell, joined, mean_cell, parts, signed

LEVEL = 0.05


def measures(whole: Aggregate) -> dict[str, str]:
    """What is compared, by field, and what it is called."""
    return {whole.recipe.reported(whole.scale): "error", ECE: "ECE"}


def findings(whole: Aggregate) -> list[str]:
    """Sentences on error and calibration error, then on confidence, cost, and what so many tests and seeds can show."""
    compared = {word: compare(whole, field) for field, word in measures(whole).items()}
    sentences = []
    for word, every in compared.items():
        none, one = ([test for test in every if (test.other == BASELINE) == wanted] for wanted in (True, False))
        sentences += [_differences(word, "no mixing", none)] if none else []
        sentences += [_differences(word, "K = 1 of the same method", one)] if one else []
    if not sentences:
        alone = len(whole.trained) == 1
        reason = "there is one way of training here" if alone else "that takes two seeds that no mixing, or K = 1, has as well"
        sentences.append(f"Nothing is compared: {reason}.")
    tests = [test for every in compared.values() for test in every]
    return [*sentences, *_confidence(whole), *_cost(whole), *_power(tests)]


def headline(whole: Aggregate) -> str:
    """Which line has the lowest error, and whether that is more than chance beside no mixing; of a single line its error."""
    field = whole.error
    known = [(line, mean) for line in whole.trained if (mean := line.summary(field)) is not None]
    line, mean = min(known, key=lambda one: one[1].mean)
    error, spread = parts(mean_cell(mean))
    error = f"{error} % ({f'{spread}, ' if spread else ''}{counted(mean.n, 'seed')})"
    name = "No mixing" if line.arm == BASELINE else whole.label(line)
    if len(known) == 1:
        return f"{name}: {ERROR_WORDS[field]} {error}."
    first = f"{name} has the lowest error of {len(known)}, {error}"
    test = next((one for one in compare(whole, field) if (one.line, one.other) == (whole.label(line), BASELINE)), None)
    if line.arm == BASELINE or test is None:
        return f"{first}."
    points = f"{signed(test.paired.mean)} points beside no mixing"
    if test.paired.n < 3:
        return f"{first}; {points}, which two seeds cannot tell from chance."
    if test.p_holm < LEVEL:
        return f"{first}; {points}, which shows also after correction for the number of comparisons."
    return f"{first}; {points}, which does not show after correction for the number of comparisons."


def _differences(word: str, other: str, compared: Sequence[Compared]) -> str:
    lower = [one for one in compared if one.paired.mean + one.paired.half < 0]
    higher = [one for one in compared if one.paired.mean - one.paired.half > 0]
    open_ = len(compared) - len(lower) - len(higher)
    sentence = (
        f"{counted(len(compared), 'comparison')} of {word} with {other}: lower in {len(lower)}{_named(lower)}, higher in "
        f"{len(higher)}{_named(higher)}, not told apart in {open_} (95 % intervals of the paired difference, in points)."
    )
    if len(compared) > 1 and (lower or higher):
        sure = [one for one in [*lower, *higher] if one.p_holm < LEVEL]
        verb = "has" if len(sure) < 2 else "have"
        sentence += f" After Holm's correction for their number {len(sure) or 'none'} of them {verb} p < 0.05{_named(sure)}."
    return sentence


def _named(compared: Sequence[Compared]) -> str:
    words = [f"{one.line} {joined(difference_cell(one.paired))}, n = {one.paired.n}" for one in compared]
    return f" ({'; '.join(words)})" if words else ""


def _confidence(whole: Aggregate) -> list[str]:
    """Whether networks are too sure or not sure enough, which the calibration error does not say."""
    surplus = {}
    for line in whole.trained:
        confidence, accuracy = (line.summary(f"calibration.{name}") for name in ("confidence", "accuracy"))
        if confidence is not None and accuracy is not None:
            surplus[whole.label(line)] = confidence.mean - accuracy.mean
    if not surplus:
        return []
    below = sum(value < 0 for value in surplus.values())
    words = [f"Mean confidence minus accuracy is below 0 (not sure enough) in {below} of {counted(len(surplus), 'line')}"]
    lowest, highest = (choose(surplus, key=surplus.__getitem__) for choose in (min, max))
    ends = {BASELINE: "no mixing has"} | ({lowest: "the lowest is", highest: "the highest is"} if len(surplus) > 1 else {})
    words += [f"{end} {signed(surplus[label])} ({label})" for label, end in ends.items() if label in surplus]
    return ["; ".join(words) + ", in points."]


def _cost(whole: Aggregate) -> list[str]:
    """How many times the CPU time of the smallest K the largest takes, where both made the same updates on one CPU."""
    lines = comparable_lines(whole)
    ratios: dict[tuple[int, int], list[float]] = {}
    for arm in dict.fromkeys(line.arm for line in lines if counts_k(line.arm)):
        own = sorted((line for line in lines if line.arm == arm), key=lambda line: line.k)
        few, many = own[0], own[-1]
        runs = [*few.runs.values(), *many.runs.values()]
        same = len({(run.machine, run.epochs[-1].updates) for run in runs}) == 1
        if few.k < many.k and same and runs[0].on_cpu and _seconds(few) > 0:
            ratios.setdefault((few.k, many.k), []).append(_seconds(many) / _seconds(few))
    sentences = []
    for (few_k, many_k), values in ratios.items():
        span = f"{values[0]:.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"
        sentences.append(f"Cost: for the same number of updates K = {many_k} took {span} times the CPU time of K = {few_k}.")
    return sentences


def _seconds(line: Line) -> float:
    return fmean(run.spent("compute") for run in line.runs.values())


def _power(tests: Sequence[Compared]) -> list[str]:
    """What these tests would show by chance, and what so few seeds cannot show whatever the data."""
    if not tests:
        return []
    chance = f"about {len(tests) * LEVEL:.1f} would show at 5 % without correction even if nothing differed"
    sentence = f"{counted(len(tests), 'comparison')} in all: {chance}."
    seeds = max(test.paired.n for test in tests)
    if 2 / 2**seeds > LEVEL:
        sentence += (
            f" With {seeds} seeds a test by ranks (Wilcoxon's) cannot give a p below {2 / 2**seeds:g}: what shows here rests on "
            "the t-test, which takes differences to be normally distributed."
        )
    return [sentence]
