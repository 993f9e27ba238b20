"""The answer to *which mixing is best for these data, how sure, at what cost*, from finished runs, in sentences and in code."""

import math
from collections.abc import Sequence
from dataclasses import MISSING, fields
from statistics import fmean
from typing import Any, NamedTuple

import multimix

from ...methods import Method
from ...methods.base import descriptions
from ..recipes.base import STRATEGIES, counts_k
from ..results.comparison import Compared, compare
from ..results.findings import LEVEL
from ..results.rows import BASELINE, ECE, Aggregate, Line
from ..results.table import counted, signed
from ..statistics import Paired, paired_by_seed

FIELD = "last"  # the error that is compared
LEARNT = 90.0  # per cent of the training samples, which a network gets right that has learnt them


class Answer(NamedTuple):
    """In one sentence, and in more; ``best`` is the line with the least error, ``better`` whether it mixes and is beyond doubt.

    ``mixing`` is the best line that mixes, ``advice`` what to use: ``best``, or the cheapest line that is not told apart from it.
    """

    headline: str
    sentences: tuple[str, ...]
    best: Line
    mixing: Line
    advice: Line
    better: bool


def answer(whole: Aggregate) -> Answer:
    """What the lines of a comparison say; beyond doubt is p < 0.05 after Holm's correction for all comparisons."""
    lines = sorted(whole.trained, key=lambda line: (_mean(line), line.arm != BASELINE, line.k))
    best, none = lines[0], next((line for line in lines if line.arm == BASELINE), None)
    mixing = next((line for line in lines if line.arm != BASELINE), best)
    tests = {one.line: one for one in compare(whole, FIELD) if one.other == BASELINE}
    test = tests.get(whole.label(mixing))
    better = best is mixing and test is not None and test.p_holm < LEVEL and test.paired.mean < 0
    equals = [line for line in lines if line is not mixing and line.arm != BASELINE and not told_apart(mixing, line)]
    advice = min([best, *equals], key=_seconds) if better else best
    sentences = [*_sureness(whole, mixing, test, tests), *_equals(mixing, equals)]
    sentences += [
        *_cost(whole, none, advice if better else mixing),
        *_calibration(none, mixing),
        *_learnt(none),
        *_test_part(best),
    ]
    return Answer(_headline(best, none, test, better), tuple(sentences), best, mixing, advice, better)


def told_apart(first: Line, second: Line) -> Paired | None:
    """The paired difference of two lines if its 95 % interval leaves 0 out."""
    test = paired_by_seed(first.values(FIELD), second.values(FIELD))
    return test if test is not None and abs(test.mean) > test.half else None


def words(line: Line) -> str:
    """A line in words."""
    return "no mixing" if line.arm == BASELINE else line.label


def code(method: Method | None, arm: str, k: int) -> str:
    """The lines that use an arm in a loop of one's own."""
    if arm in STRATEGIES:
        return f"# {STRATEGIES[arm].about}" + (f", K = {k}" if counts_k(arm) else "")
    if method is None or arm == BASELINE:
        return "logits = model(x)\nloss = torch.nn.functional.cross_entropy(logits, y)"
    described = descriptions(method)
    lines = ["import multimix as mm", *(f"from {type(one).__module__} import {type(one).__name__}" for one in described.values())]
    lines.append(f"method = {call(method)}")
    if described:
        lines.append("method = method.bind(model, x)  # once, before the optimiser is made, which is given method.modules too")
    if method.traits.history:
        lines += [
            "state = None  # at the start of an epoch, then that of the previous batch",
            "out = mm.mixed_forward(model, method, x, y, state=state)",
            "state = out.state",
        ]
    else:
        lines.append("out = mm.mixed_forward(model, method, x, y)")
    loop = f"  # the loop is in docs/methods/{method.name}.md" if described or len(method.modules) > 0 else ""
    lines.append(f"loss = out.loss(torch.nn.functional.cross_entropy){loop}")
    return "\n".join(lines)


def call(method: Method) -> str:
    """The method as code, with K and the options that are not its defaults."""
    given = []
    options: Sequence[Any] = fields(method)  # type: ignore[arg-type]  # every method is a dataclass
    for option in options:
        value = getattr(method, option.name)
        usual = option.default if option.default is not MISSING else MISSING
        if option.name == "k" or value != usual:
            given.append(f"{option.name}={value!r}")
    name = type(method).__name__
    return f"{'mm.' if hasattr(multimix, name) else ''}{name}({', '.join(given)})"


def _headline(best: Line, none: Line | None, test: Compared | None, better: bool) -> str:
    error = f"{_mean(best):.1f} %"
    if none is None or test is None:
        return f"Of one seed {words(best)} has the least error, {error}, which says nothing about how sure that is."
    if best is none:
        least = "No mixing has the least error" if test.paired.mean > 0 else "No method has less error than no mixing"
        return f"{least}, {error}: none of the methods tried is better on these data."
    if better:
        return f"{words(best)} is best: error {error} instead of {_mean(none):.1f} % without mixing, beyond doubt."
    return (
        f"No method is better than no mixing beyond doubt: {words(best)} has the least error, {error} instead of "
        f"{_mean(none):.1f} %, which may be chance."
    )


def _sureness(whole: Aggregate, mixing: Line, test: Compared | None, tests: dict[str, Compared]) -> list[str]:
    found = []
    if test is not None:
        # Seeds that differ by the same have no spread, which would pass for certainty.
        spread = math.isfinite(test.paired.half) and test.paired.half > 0
        half = f" ± {test.paired.half:.2f}" if spread else ""
        over = "95 % interval of the paired difference over" if spread else "the same in each of the"
        p = "< 0.001" if test.p_holm < 0.001 else f"= {test.p_holm:.3f}"
        found.append(
            f"How sure: {words(mixing)} minus no mixing is {signed(test.paired.mean)}{half} points of error ({over} "
            f"{test.paired.n} seeds), p {p} after Holm's correction for all comparisons made."
        )
    for sign, how in ((-1, "better"), (1, "worse")):
        sure = [name for name, one in tests.items() if sign * one.paired.mean > 0 and one.p_holm < LEVEL]
        if sure and not (sign < 0 and sure == [whole.label(mixing)]):
            found.append(f"Beyond doubt {how} than no mixing: {', '.join(sure)}.")
    return found


def _equals(mixing: Line, equals: Sequence[Line]) -> list[str]:
    if not equals or len(mixing.seeds) < 2:
        return []
    return [f"Not told apart from {words(mixing)} (95 % interval): {', '.join(map(words, equals))}."]


def _cost(whole: Aggregate, none: Line | None, line: Line) -> list[str]:
    if none is None or line is none or not _seconds(none) > 0:
        return []
    times = _seconds(line) / _seconds(none)
    return [f"Cost: {words(line)} took {times:.1f} times the {whole.timed} of no mixing for the same number of updates."]


def _calibration(none: Line | None, mixing: Line) -> list[str]:
    mixed, plain = mixing.summary(ECE), None if none is None else none.summary(ECE)
    if mixed is None or plain is None or mixing is none:
        return []
    return [f"Calibration error (ECE): {mixed.mean:.1f} % with {words(mixing)}, {plain.mean:.1f} % without mixing."]


def _learnt(none: Line | None) -> list[str]:
    """Whether networks had the time to learn what they were shown: before that there is little that mixing could help."""
    accuracy = None if none is None else none.mean(lambda run: run.epochs[-1].accuracy)
    if accuracy is None or accuracy >= LEARNT:
        return []
    return [
        f"Without mixing the network got only {accuracy:.0f} % of what it learns from right in its last epoch: it had no time to "
        "learn all of it, and what mixing is worth shows in longer trainings. A larger budget would tell more."
    ]


def _test_part(best: Line) -> list[str]:
    """What the number of samples alone leaves open, which intervals over seeds do not show."""
    rows = best.evaluated("error")
    if not rows:
        return []
    numbers = rows[0]["numbers"]
    return [
        f"Intervals are over seeds. {counted(int(numbers['n']), 'sample')} to be tested on leave more open: an error of "
        f"{numbers['error']:.1f} % on so many has a 95 % interval of {numbers['error_low']:.1f} … {numbers['error_high']:.1f} %, "
        "so with other samples the order may be another."
    ]


def _mean(line: Line) -> float:
    return fmean(line.values(FIELD).values())


def _seconds(line: Line) -> float:
    return line.spent("compute") or 0.0
