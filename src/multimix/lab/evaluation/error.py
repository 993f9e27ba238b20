"""How often a classifier is wrong: at the first and among the first five, class by class, and what it takes for what."""

import math
from collections import Counter
from dataclasses import dataclass

import torch

from ..training.evaluate import true_class_rank
from .base import Finding, measure
from .predictions import Predictions, Reading
from .subject import Subject

Z = 1.959963984540054  # 97.5 % of the normal distribution lie below it


@dataclass(frozen=True)
class Proportion:
    """``count`` of ``n`` in ``percent``, with Wilson's 95 % interval ``low … high``, also in per cent."""

    count: int
    n: int
    percent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.percent:.2f} % ({self.low:.2f} … {self.high:.2f})"


@dataclass(frozen=True)
class ClassError:
    """Of the ``n`` samples of a class ``wrong`` got another one; ``error`` in per cent, None without samples."""

    n: int
    wrong: int
    error: float | None


@dataclass(frozen=True)
class Confusion:
    """``count`` samples of the class ``true`` were taken for ``predicted``, ``percent`` of that class."""

    true: int
    predicted: int
    count: int
    percent: float


@dataclass(frozen=True)
class Errors:
    """Errors on all samples, class by class, and every confusion of two classes, the most frequent first.

    ``top5`` counts the samples whose true class is not among the first five; None with five classes or fewer. ``classes`` are
    their names, if they are known.
    """

    n: int
    top1: Proportion
    top5: Proportion | None
    per_class: tuple[ClassError, ...]
    confusions: tuple[Confusion, ...]
    classes: tuple[str, ...] = ()

    def summary(self) -> dict[str, float | int | None]:
        """One number by name, without classes: errors in per cent with their intervals."""
        numbers: dict[str, float | int | None] = {"n": self.n}
        for name, rate in (("error", self.top1), ("error_top5", self.top5)):
            values = (None, None, None) if rate is None else (rate.percent, rate.low, rate.high)
            numbers |= zip((name, f"{name}_low", f"{name}_high"), values, strict=True)
        numbers["classes"] = sum(entry.n > 0 for entry in self.per_class)
        known_errors = [entry.error for entry in self.per_class if entry.error is not None]
        # Every class counts the same, however many samples it has.
        numbers["mean_class_error"] = math.fsum(known_errors) / len(known_errors)
        numbers["worst_class_error"] = max(known_errors)
        return numbers


@measure("error")
def measure_error(subject: Subject, reading: Reading) -> Finding:
    """The errors of a subject."""
    found = errors(subject.predictions(reading), subject.report.classes)
    return Finding(found.summary(), found)


def errors(predictions: Predictions, classes: tuple[str, ...] = ()) -> Errors:
    """All errors. Of classes with the same logit the first counts as the more likely."""
    labels, count = predictions.labels, predictions.logits.shape[1]
    rank = true_class_rank(predictions.logits, labels)
    counts = torch.bincount(labels, minlength=count).tolist()
    wrong = torch.bincount(labels[rank > 0], minlength=count).tolist()
    return Errors(
        n=len(predictions),
        top1=proportion(int((rank > 0).sum()), len(predictions)),
        top5=proportion(int((rank > 4).sum()), len(predictions)) if count > 5 else None,
        per_class=tuple(ClassError(n, w, 100 * w / n if n else None) for n, w in zip(counts, wrong, strict=True)),
        confusions=_confusions(predictions, counts),
        classes=classes,
    )


def proportion(count: int, n: int) -> Proportion:
    """``count`` of ``n`` with Wilson's 95 % interval, which stays inside 0 … 100 and is never empty.

    >>> print(proportion(0, 10))
    0.00 % (0.00 … 27.75)
    """
    if not 0 <= count <= n or n < 1:
        raise ValueError(f"count must lie in 0 … n with n ≥ 1, got {count} of {n}")
    middle = (count + Z**2 / 2) / (n + Z**2)
    half = Z / (n + Z**2) * math.sqrt(count * (n - count) / n + Z**2 / 4)
    # The ends are exact, which rounding would not leave them.
    low = 0.0 if count == 0 else middle - half
    high = 1.0 if count == n else middle + half
    return Proportion(count, n, 100 * count / n, 100 * low, 100 * high)


def _confusions(predictions: Predictions, counts: list[int]) -> tuple[Confusion, ...]:
    """The pairs that occur, by descending count, then by class: at most as many as there are errors, whatever C."""
    pairs = Counter(zip(predictions.labels.tolist(), predictions.predicted.tolist(), strict=True))
    wrong = [Confusion(true, taken, count, 100 * count / counts[true]) for (true, taken), count in pairs.items() if true != taken]
    return tuple(sorted(wrong, key=lambda entry: (-entry.count, entry.true, entry.predicted)))
