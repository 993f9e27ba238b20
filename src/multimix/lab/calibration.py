"""How far a classifier's confidence is from its accuracy: expected calibration error, Brier score, negative log-likelihood."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BINS = 10


class Calibration(NamedTuple):
    """``ece`` in 0 … 1 (a fraction, not per cent), ``brier`` in 0 … 2, ``nll`` in nats; lower is better for all three."""

    ece: float
    brier: float
    nll: float


def calibration(logits: Tensor, label: Tensor, bins: int = BINS) -> Calibration:
    """All three for ``logits [N, C]`` and the classes ``label [N]``."""
    _check_labels(logits, label)
    probability = logits.softmax(dim=1)
    confidence, predicted = probability.max(dim=1)
    return Calibration(
        ece=expected_calibration_error(confidence, predicted == label, bins),
        brier=brier_score(probability, label),
        # From the logits, because a probability that is rounded to 0 has no logarithm.
        nll=float(functional.cross_entropy(logits.double(), label)),
    )


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Σ_m |B_m|/N · |accuracy(B_m) − mean confidence(B_m)|, a fraction, over the bins ((m−1)/M, m/M].

    ``confidence [N]`` is the probability of the predicted class, ``correct [N]`` whether it is the right one. An edge belongs to
    the bin below it and 1 to the last bin; 0, which no largest probability can be, is in no bin but counts in N. The edges are
    the float32 numbers nearest to m/M, compared in the dtype of ``confidence``, so that float32(0.3) lies in bin 3 of 10.

    >>> round(expected_calibration_error(torch.tensor([0.5, 0.45]), torch.tensor([False, True])), 6)
    0.025
    """
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(confidence) == 0:
        raise ValueError(
            f"confidence and correct must have one equal shape [N], N ≥ 1, got {list(confidence.shape)} and {list(correct.shape)}"
        )
    if not bool(((confidence >= 0) & (confidence <= 1)).all()):
        raise ValueError(f"confidence must lie in 0 … 1, got {float(confidence.min())} … {float(confidence.max())}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    edges = (torch.arange(bins + 1, dtype=torch.float64) / bins).float().to(confidence)
    # |B_m| cancels against the two means; what is left per bin is the sum of (correct − confidence).
    surplus = torch.zeros(bins + 1, dtype=torch.float64, device=confidence.device)
    surplus.index_add_(0, torch.bucketize(confidence, edges), correct.double() - confidence.double())
    return float(surplus[1:].abs().sum()) / len(confidence)


def brier_score(probability: Tensor, label: Tensor) -> float:
    """Mean over samples of Σ_c (p_c − y_c)² for ``probability [N, C]`` and the classes ``label [N]``: 0 … 2, 0 is perfect."""
    _check_labels(probability, label)
    distance = probability.double() - functional.one_hot(label, probability.shape[1])
    return float(distance.square().sum(dim=1).mean())


def _check_labels(rows: Tensor, label: Tensor) -> None:
    if rows.ndim != 2 or label.shape != rows.shape[:1] or len(label) == 0:
        raise ValueError(
            f"label must have one class for each of N ≥ 1 rows [N, C], got {list(label.shape)} for {list(rows.shape)}"
        )
    if label.is_floating_point() or not bool(((label >= 0) & (label < rows.shape[1])).all()):
        raise ValueError(
            f"label must hold classes 0 … {rows.shape[1] - 1}, got {label.min().item()} … {label.max().item()} ({label.dtype})"
        )
