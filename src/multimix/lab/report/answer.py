"""Recommend a method for a data set, with its significance and its cost."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import multimix

from ...methods import Method
from ...methods.base import descriptions
from ..recipes.base import STRATEGIES, counts_k
from ..terminal import counted
from .comparison import Comparison, comparisons
from .frame import BASELINE, ECE, RunGroup, Study
from .stats import SIGNIFICANCE_LEVEL, paired_by_seed
from .tables import p_value, signed

COLUMN = "last"  # the compared error
FITTED_ACCURACY = 90.0  # per cent of the training samples; below, the network had no time to learn


class Answer(NamedTuple):
    """A recommendation in sentences and the groups it names.

    Args:
        headline: The recommendation in one sentence.
        sentences: Its evidence: tests, cost, calibration, and limits.
        best: The group of lowest error.
        mixing: The mixing group of lowest error.
        advice: The recommended group: the best, or the cheapest group that does not differ from it.
        better: Whether ``best`` mixes and is significantly better than no mixing.
    """

    headline: str
    sentences: tuple[str, ...]
    best: RunGroup
    mixing: RunGroup
    advice: RunGroup
    better: bool


def answer(study: Study) -> Answer:
    """Recommend a method from the groups of a comparison.

    Significant means p < 0.05 after Holm correction for all comparisons.

    Args:
        study: The study, with at least one trained group.
    """
    groups = sorted(study.trained, key=lambda group: (_error(group), group.arm != BASELINE, group.k))
    best, baseline = groups[0], study.baseline()
    mixing = next((group for group in groups if group.arm != BASELINE), best)
    tests = {test.group: test for test in comparisons(study, COLUMN) if test.other == BASELINE}
    test = tests.get(study.label(mixing))
    better = best is mixing and test is not None and test.p_holm < SIGNIFICANCE_LEVEL and test.paired.mean < 0
    similar = [group for group in groups if group not in (mixing, baseline) and not _differs(mixing, group)]
    advice = min([best, *similar], key=_cost) if better else best
    sentences = [
        *_confidence(study, mixing, test, tests),
        *_similar(mixing, similar),
        *_relative_cost(study, baseline, advice if better else mixing),
        *_calibration(baseline, mixing),
        *_underfitted(baseline),
        *_test_set(best),
    ]
    return Answer(_headline(best, baseline, test, better), tuple(sentences), best, mixing, advice, better)


def group_name(group: RunGroup) -> str:
    """Return the label of a group, ``no mixing`` for the baseline.

    Args:
        group: The group.
    """
    return "no mixing" if group.arm == BASELINE else group.label


def usage_code(method: Method | None, arm: str, k: int) -> str:
    """Return code that uses a method in a training loop.

    Args:
        method: The trained method; None for no mixing or a batch strategy.
        arm: Name of the method or strategy.
        k: Its K.
    """
    if arm in STRATEGIES:
        return f"# {STRATEGIES[arm].about}" + (f", K = {k}" if counts_k(arm) else "")
    if method is None or arm == BASELINE:
        return "import torch\n\nlogits = model(x)\nloss = torch.nn.functional.cross_entropy(logits, y)"
    described = descriptions(method)
    lines = [
        "import torch",
        "import multimix as mm",
        *(f"from {type(component).__module__} import {type(component).__name__}" for component in described.values()),
    ]
    lines.append(f"method = {constructor_call(method)}")
    if described:
        lines.append("method = method.bind(model, x)  # once; also pass method.modules to the optimizer")
    if method.traits.history:
        lines += [
            "state = None  # at the start of an epoch, otherwise the state of the previous batch",
            "out = mm.mixed_forward(model, method, x, y, state=state)",
            "state = out.state",
        ]
    else:
        lines.append("out = mm.mixed_forward(model, method, x, y)")
    loop = f"  # the loop is in docs/methods/{method.name}.md" if described or len(method.modules) > 0 else ""
    lines.append(f"loss = out.loss(torch.nn.functional.cross_entropy){loop}")
    return "\n".join(lines)


def constructor_call(method: Method) -> str:
    """Return the code that constructs a method, with K and all options that differ from their defaults.

    Args:
        method: The method.
    """
    arguments = []
    options: Sequence[Any] = fields(method)  # type: ignore[arg-type]  # every method is a dataclass
    for option in options:
        value = getattr(method, option.name)
        if option.name == "k" or value != option.default:
            arguments.append(f"{option.name}={value!r}")
    name = type(method).__name__
    return f"{'mm.' if hasattr(multimix, name) else ''}{name}({', '.join(arguments)})"


def _differs(first: RunGroup, second: RunGroup) -> bool:
    test = paired_by_seed(first.values(COLUMN), second.values(COLUMN))
    return test is not None and test.significant


def _headline(best: RunGroup, baseline: RunGroup | None, test: Comparison | None, better: bool) -> str:
    error, name = f"{_error(best):.1f} %", group_name(best)
    if baseline is None or test is None:
        return f"With one seed, {name} has the lowest error, {error}; one seed cannot distinguish it from chance."
    if best is baseline:
        lowest = "No mixing has the lowest error" if test.paired.mean > 0 else "No method has a lower error than no mixing"
        return f"{lowest}, {error}: none of these methods is better on these data."
    against = f"error {error} instead of {_error(baseline):.1f} % without mixing"
    if better:
        return f"{name} is best: {against} (significant)."
    lowest = f"{name} has the lowest error, {error} instead of {_error(baseline):.1f} %"
    return f"No method is significantly better than no mixing: {lowest}."


def _confidence(study: Study, mixing: RunGroup, test: Comparison | None, tests: dict[str, Comparison]) -> list[str]:
    sentences = []
    if test is not None:
        spread = math.isfinite(test.paired.half) and test.paired.half > 0
        half = f" ± {test.paired.half:.2f}" if spread else ""
        interval = "95 % interval of the paired difference over" if spread else "the same in each of the"
        p = p_value(test.p_holm)
        sentences.append(
            f"{group_name(mixing)} minus no mixing: {signed(test.paired.mean)}{half} points of error ({interval} "
            f"{test.paired.n} seeds), p {p if p.startswith('<') else f'= {p}'} after Holm correction for all comparisons."
        )
    for sign, direction in ((-1, "better"), (1, "worse")):
        significant = [label for label, test in tests.items() if sign * test.paired.mean > 0 and test.p_holm < SIGNIFICANCE_LEVEL]
        if significant and not (sign < 0 and significant == [study.label(mixing)]):
            sentences.append(f"Significantly {direction} than no mixing: {', '.join(significant)}.")
    return sentences


def _similar(mixing: RunGroup, similar: Sequence[RunGroup]) -> list[str]:
    if not similar or len(mixing.seeds) < 2:
        return []
    return [f"Not significantly different from {group_name(mixing)} (95 % interval): {', '.join(map(group_name, similar))}."]


def _relative_cost(study: Study, baseline: RunGroup | None, group: RunGroup) -> list[str]:
    if baseline is None or group is baseline or not _cost(baseline) > 0:
        return []
    times = _cost(group) / _cost(baseline)
    return [f"Cost: {group_name(group)} took {times:.1f} times the {study.timed} of no mixing for the same number of updates."]


def _calibration(baseline: RunGroup | None, mixing: RunGroup) -> list[str]:
    mixed, plain = mixing.mean(ECE), None if baseline is None else baseline.mean(ECE)
    if mixed is None or plain is None or mixing is baseline:
        return []
    return [f"Calibration error (ECE): {mixed:.1f} % with {group_name(mixing)}, {plain:.1f} % without mixing."]


def _underfitted(baseline: RunGroup | None) -> list[str]:
    """Warn if networks had too little time to fit the training set, where mixing cannot help."""
    if baseline is None:
        return []
    accuracy = baseline.epochs[baseline.epochs.seed.isin(baseline.seeds)].groupby("seed")["accuracy"].last().mean()
    if accuracy >= FITTED_ACCURACY:
        return []
    return [
        f"Without mixing the network fitted only {accuracy:.0f} % of its training samples in the last epoch. Mixing helps longer "
        "trainings, so use a larger budget to judge it."
    ]


def _test_set(best: RunGroup) -> list[str]:
    """Return the confidence interval of the error over test samples."""
    evaluations = best.evaluated("error")
    if not evaluations:
        return []
    numbers = evaluations[0]["numbers"]
    return [
        f"The intervals above are over seeds. Over {counted(int(numbers['n']), 'test sample')}, an error of "
        f"{numbers['error']:.1f} % has a 95 % interval of {numbers['error_low']:.1f} … {numbers['error_high']:.1f} %, "
        "so the order may differ on another test set."
    ]


def _error(group: RunGroup) -> float:
    mean = group.mean(COLUMN)
    return math.inf if mean is None else mean


def _cost(group: RunGroup) -> float:
    return group.mean("compute") or 0.0
