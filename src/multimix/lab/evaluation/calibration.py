"""How far a classifier's confidence is from its accuracy: calibration errors, Brier score, negative log-likelihood; and how much
of that a single temperature would take away. Shares are in per cent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import optimize
from torch import Tensor
from torch.nn import functional

from .base import Finding, measure
from .predictions import Predictions, Reading, predictions
from .subject import Subject

BINS = 10
ROWS = 4096  # converted to double precision at once


@dataclass(frozen=True)
class Bin:
    """Samples with a confidence in (``low``, ``high``]: how many, their mean confidence, how many of them are right.

    All but ``count`` and ``right`` in per cent; means are None without samples.
    """

    low: float
    high: float
    count: int
    right: int
    confidence: float | None
    accuracy: float | None

    @property
    def gap(self) -> float:
        """Accuracy minus mean confidence; 0 without samples."""
        return 0.0 if self.confidence is None or self.accuracy is None else self.accuracy - self.confidence


@dataclass(frozen=True)
class Calibration:
    """``ece``, ``adaptive_ece``, ``mce``, mean ``confidence`` and ``accuracy`` in per cent, ``brier`` in 0 … 2, ``nll`` in nats.

    Lower is better for all but the last two. ``bins`` are those of ``ece`` and ``mce``.
    """

    n: int
    accuracy: float
    confidence: float
    ece: float
    adaptive_ece: float
    mce: float
    brier: float
    nll: float
    bins: tuple[Bin, ...]

    def summary(self) -> dict[str, float | int]:
        """One number by name, without the bins."""
        return {name: value for name, value in vars(self).items() if name != "bins"}


@dataclass(frozen=True)
class Scaling:
    """What one temperature for all logits does to calibration errors and mean −log p of the ``n`` samples it was not fitted on.

    ``part`` names the ``fitted`` samples. ``temperature`` and what follows from it are None where no temperature is the best:
    all of the fitted samples are right, so lower is always better, or their logits say less than nothing, so higher always is.
    """

    part: str
    fitted: int
    n: int
    temperature: float | None
    ece_before: float
    ece: float | None
    nll_before: float
    nll: float | None


@dataclass(frozen=True)
class CalibrationResult:
    """The calibration of the network as it is, and what a temperature would leave of its error (None for one sample)."""

    calibration: Calibration
    scaling: Scaling | None


@measure("calibration", labels=lambda subject, options: subject.labels("report", "select"))
def measure_calibration(subject: Subject, reading: Reading, *, bins: int = BINS) -> Finding:
    """The calibration of a subject; a temperature is fitted on the part for selection, if the run has one."""
    predicted = subject.predictions(reading)
    found, scaling, select = calibration(predicted, bins), None, subject.parts().select
    numbers: dict[str, float | None] = dict(found.summary())
    validation = None if select is None else predictions(subject.network, select, subject.evaluation, reading)
    if len(predicted) > 1:
        scaling = temperature_scaling(predicted, validation, bins)
        # Before and after on the samples that the temperature was not fitted on: fewer than all, so ECE is higher by itself.
        numbers |= {"temperature": scaling.temperature, "ece_before": scaling.ece_before, "ece_scaled": scaling.ece}
    return Finding(numbers, CalibrationResult(found, scaling))


def calibration(predictions: Predictions, bins: int = BINS) -> Calibration:
    """All measures of one network's predictions."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    confidence, correct = _top(predictions)
    found = reliability_bins(confidence, correct, bins)
    return Calibration(
        n=len(predictions),
        accuracy=100 * float(correct.double().mean()),
        confidence=100 * float(confidence.double().mean()),
        ece=expected_calibration_error(confidence, correct, bins),
        adaptive_ece=adaptive_calibration_error(confidence, correct, bins),
        mce=max(abs(entry.gap) for entry in found),
        brier=brier_score(predictions),
        nll=negative_log_likelihood(predictions),
        bins=found,
    )


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Σ_m |B_m|/N · |accuracy(B_m) − mean confidence(B_m)|, in per cent, over the bins ((m−1)/M, m/M].

    ``confidence [N]`` is the probability of the predicted class, ``correct [N]`` whether it is the right one. An edge belongs to
    the bin below it and 1 to the last bin; 0, which no largest probability can be, is in no bin but counts in N. The edges are
    the float32 numbers nearest to m/M, compared in the dtype of ``confidence``, so that float32(0.3) lies in bin 3 of 10.

    >>> round(expected_calibration_error(torch.tensor([0.5, 0.45]), torch.tensor([False, True])), 4)
    2.5
    """
    return _weighted_gap(confidence, correct, _edges(confidence, bins))


def adaptive_calibration_error(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """The same sum over M bins with equally many samples, in per cent.

    Bin m ends at the sample of rank ⌈m·N/M⌉ by confidence. Samples with one confidence stay together, in the lower bin, so their
    order does not matter; a bin that loses all of its samples to such a tie is empty.
    """
    count = len(confidence)
    # Ranks in whole numbers: m·N/M in floating point may lie just above a whole number.
    last = torch.tensor([-(-m * count // bins) - 1 for m in range(1, bins + 1)], device=confidence.device)
    below_all = torch.full_like(confidence[:1], -1)
    return _weighted_gap(confidence, correct, torch.cat([below_all, confidence.sort().values[last]]))


def reliability_bins(confidence: Tensor, correct: Tensor, bins: int = BINS) -> tuple[Bin, ...]:
    """Counts and means in the bins ((m−1)/M, m/M] of ``expected_calibration_error``, empty ones included."""
    values = torch.stack([torch.ones_like(correct).double(), confidence.double(), correct.double()], dim=1)
    sums = _sums(values, confidence, _edges(confidence, bins))
    found = []
    for m, (count, total, right) in enumerate(sums.tolist()):
        means = (100 * total / count, 100 * right / count) if count else (None, None)
        found.append(Bin(100 * m / bins, 100 * (m + 1) / bins, int(count), int(right), *means))
    return tuple(found)


def brier_score(predictions: Predictions) -> float:
    """Mean over samples of Σ_c (p_c − y_c)²: 0 … 2, 0 is perfect."""

    def squares(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits.softmax(dim=1).double() - functional.one_hot(labels, logits.shape[1])).square().sum()

    return _mean(predictions, squares)


def negative_log_likelihood(predictions: Predictions) -> float:
    """Mean over samples of −log p_y, in nats."""
    # From the logits, because a probability that is rounded to 0 has no logarithm.
    return _mean(predictions, lambda logits, labels: functional.cross_entropy(logits.double(), labels, reduction="sum"))


def temperature_scaling(predictions: Predictions, validation: Predictions | None = None, bins: int = BINS) -> Scaling:
    """What is left of the calibration error when all logits are divided by the temperature T that minimises the mean −log p.

    T is fitted on ``validation``; without it on every second sample of ``predictions``, the 1st, 3rd, …, and what is measured,
    before and after, is the other half.
    """
    if validation is not None:
        part, fitted, measured = "validation", validation, predictions
    elif len(predictions) > 1:
        part = "every second sample, from the first"
        index = torch.arange(len(predictions))
        fitted, measured = predictions.take(index[::2]), predictions.take(index[1::2])
    else:
        raise ValueError("predictions must hold at least 2 samples to be halved where validation is None, got 1")
    best = best_temperature(fitted)
    after = None if best is None else scaled(measured, best)
    return Scaling(
        part=part,
        fitted=len(fitted),
        n=len(measured),
        temperature=best,
        ece_before=expected_calibration_error(*_top(measured), bins),
        ece=None if after is None else expected_calibration_error(*_top(after), bins),
        nll_before=negative_log_likelihood(measured),
        nll=None if after is None else negative_log_likelihood(after),
    )


def scaled(predictions: Predictions, temperature: float) -> Predictions:
    """The same predictions with all logits divided by ``temperature``, but for a number that all of a sample have in common."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    logits = predictions.logits.double()
    # Shifted, which changes no probability, because division by a small temperature would bury differences of large logits.
    logits = (logits - logits.amax(dim=1, keepdim=True)) / temperature
    return Predictions(logits.to(predictions.logits.dtype), predictions.labels)


def best_temperature(predictions: Predictions) -> float | None:
    """The T > 0 with the least mean −log softmax(logits / T)_y; None where none is the best (see ``Scaling``).

    In β = 1/T this is convex: its derivative, the mean of E_p[z] − z_y with p = softmax(β·z), rises from that of equal
    probabilities to that of certainty. So there is a best β exactly if the first is below 0 and the last above.
    """

    def slope(beta: float) -> float:
        def surplus(logits: Tensor, labels: Tensor) -> Tensor:
            z = logits.double()
            # Shifted, so that it is exactly 0 where the true class is certain, and nothing overflows.
            z = z - z.amax(dim=1, keepdim=True)
            expected = ((beta * z).softmax(dim=1) * z).sum(dim=1)
            return (expected - z.gather(1, labels[:, None]).squeeze(1)).sum()

        return _mean(predictions, surplus)

    # Sums of rounding errors must not pass for a slope: whether all are right is asked directly.
    own = predictions.logits.gather(1, predictions.labels[:, None]).squeeze(1)
    if bool((own == predictions.logits.amax(dim=1)).all()) or slope(0.0) >= 0:
        return None
    low, high = 0.5, 1.0
    while slope(high) < 0:
        low, high = high, 2 * high
    while slope(low) > 0:
        low, high = low / 2, low
    return 1 / float(optimize.brentq(slope, low, high, xtol=1e-300, rtol=1e-12))


def _top(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Probability of the predicted class, and whether it is the true one."""
    return predictions.logits.softmax(dim=1).amax(dim=1), predictions.correct


def _edges(confidence: Tensor, bins: int) -> Tensor:
    return (torch.arange(bins + 1, dtype=torch.float64) / bins).float().to(confidence)


def _sums(values: Tensor, confidence: Tensor, edges: Tensor) -> Tensor:
    """Sums of ``values [N, …]`` in every bin (edges[m − 1], edges[m]] of the confidence; what lies below all is left out."""
    found = torch.zeros(len(edges), *values.shape[1:], dtype=torch.float64, device=values.device)
    return found.index_add_(0, torch.bucketize(confidence, edges), values)[1:]


def _weighted_gap(confidence: Tensor, correct: Tensor, edges: Tensor) -> float:
    # |B_m| cancels against the two means; what is left per bin is the sum of (correct − confidence).
    surplus = _sums(correct.double() - confidence.double(), confidence, edges)
    return 100 * (float(surplus.abs().sum()) / len(confidence))


def _mean(predictions: Predictions, total: Callable[[Tensor, Tensor], Tensor]) -> float:
    """The mean over samples of what ``total(logits, labels)`` sums up, in parts that fit into memory."""
    parts = zip(torch.split(predictions.logits, ROWS), torch.split(predictions.labels, ROWS), strict=True)
    return sum(float(total(logits, labels)) for logits, labels in parts) / len(predictions)
