"""Calibration against cases counted by hand, a loop in exact arithmetic, and sums written out."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

from multimix.lab.calibration import brier_score, calibration, expected_calibration_error


def ece(confidence, correct, bins=10, dtype=torch.float32):
    return expected_calibration_error(torch.tensor(confidence, dtype=dtype), torch.tensor(correct, dtype=torch.bool), bins)


def slow_ece(confidence, correct, bins):
    """Sample by sample and bin by bin, in fractions; the edges are NumPy's float32 numbers nearest to m/M."""
    edges = [Fraction(float(np.float32(m / bins))) for m in range(bins + 1)]
    total = Fraction(0)
    for low, high in pairwise(edges):
        inside = [(Fraction(p), c) for p, c in zip(confidence, correct, strict=True) if low < Fraction(p) <= high]
        if inside:
            mean_confidence = sum(p for p, _ in inside) / len(inside)
            accuracy = Fraction(sum(c for _, c in inside), len(inside))
            total += Fraction(len(inside), len(confidence)) * abs(accuracy - mean_confidence)
    return float(total)


@pytest.mark.parametrize(
    ("confidence", "correct", "expected"),
    [
        # 0.5 lies in (0.4, 0.5] together with 0.45: one of two right, mean confidence 0.475.
        ([0.5, 0.45], [False, True], 0.025),
        ([0.7, 0.65], [False, True], 0.175),
        # 0.3 as float32 lies above 3/10, and so does the edge: still bin 3.
        ([0.3, 0.25], [False, True], 0.225),
        # 1 is in the last bin, with 0.92: 19 of 20 right, mean confidence 0.96.
        ([1.0] * 10 + [0.92] * 10, [True] * 9 + [False] + [True] * 10, 0.01),
        # Three bins: 2/5·|0 − 0.15| + 1/5·|1 − 0.55| + 2/5·|0.5 − 0.95|; the other seven are empty.
        ([0.12, 0.18, 0.55, 0.92, 0.98], [False, False, True, True, False], 0.06 + 0.09 + 0.18),
        ([1.0], [True], 0.0),
        ([1.0], [False], 1.0),
    ],
)
def test_cases_counted_by_hand(confidence, correct, expected):
    assert ece(confidence, correct) == pytest.approx(expected, abs=1e-6)


def test_zero_is_in_no_bin_but_counts_in_n():
    assert ece([0.0, 1.0], [True, False]) == 0.5
    assert ece([0.0], [True]) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_edge_belongs_to_the_bin_below_in_every_precision(dtype):
    # In one bin the two gaps, of opposite sign, partly cancel; in two bins they would add up to 0.515 for every edge.
    for m in range(1, 10):
        edge = torch.tensor(m / 10).to(dtype)
        inside = torch.stack([edge, edge - 0.03])
        gap = abs(1 - inside.double().sum().item()) / 2
        assert expected_calibration_error(inside, torch.tensor([False, True])) == pytest.approx(gap, abs=1e-9)


def test_in_double_precision_three_tenths_lies_below_the_float32_edge_and_seven_tenths_above():
    # The float32 edge is 0.30000001192…; 0.3 in float64 is smaller and stays in bin 3. For 0.7 the edge is 0.69999998807….
    assert ece([0.3, 0.25], [False, True], dtype=torch.float64) == pytest.approx(0.225)
    assert ece([0.7, 0.65], [False, True], dtype=torch.float64) == pytest.approx((0.7 + 0.35) / 2)


@pytest.mark.parametrize("bins", [1, 3, 10, 15])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_loop_agrees(bins, seed):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(300, generator=generator)
    confidence[:40] = (torch.arange(40) % (bins + 1)).double().div(bins).float()  # on the edges, 0 and 1 among them
    confidence[40:80] *= 0.05  # leaves some of the bins thin
    correct = torch.rand(300, generator=generator) < confidence
    expected = slow_ece(confidence.tolist(), correct.tolist(), bins)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(expected, abs=1e-12)


def test_edges_are_those_of_the_usual_linspace():
    assert torch.equal((torch.arange(11, dtype=torch.float64) / 10).float(), torch.linspace(0, 1, 11))


def test_all_three_from_logits():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.0, 0.3], [-200.0, 0.0, 1.0]])
    label = torch.tensor([0, 2, 0])
    rows = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in logits.tolist()]
    found = calibration(logits, label)
    brier = sum((p - (c == y)) ** 2 for row, y in zip(rows, label.tolist(), strict=True) for c, p in enumerate(row)) / 3
    nll = sum(math.log(sum(map(math.exp, row))) - row[y] for row, y in zip(logits.tolist(), label.tolist(), strict=True)) / 3
    right = [row.index(max(row)) == y for row, y in zip(rows, label.tolist(), strict=True)]
    assert right == [True, False, False]
    assert found.brier == pytest.approx(brier, abs=1e-6)
    assert found.nll == pytest.approx(nll, abs=1e-6)
    assert found.nll > 60  # the last label's probability is 0 in float32, its logarithm must not be
    assert found.ece == pytest.approx(slow_ece(logits.softmax(1).amax(1).tolist(), right, 10), abs=1e-9)


def test_brier_reaches_its_ends():
    label = torch.tensor([1, 1])
    assert brier_score(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), label) == 0
    assert brier_score(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), label) == 2
    assert brier_score(torch.full((2, 2), 0.5), label) == 0.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([0.5, 1.5], [True, True]), "confidence must lie in 0 … 1, got 0.5 … 1.5"),
        (([float("nan")], [True]), "confidence must lie in 0 … 1, got nan … nan"),
        (([0.5], [True, True]), r"confidence and correct must have one equal shape \[N\], N ≥ 1, got \[1\] and \[2\]"),
        (([], []), r"N ≥ 1, got \[0\] and \[0\]"),
        (([0.5], [True], 0), "bins must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        ece(*arguments)


def test_labels_outside_the_classes_are_refused():
    with pytest.raises(ValueError, match="label must hold classes 0 … 1, got 0 … 2"):
        brier_score(torch.full((2, 2), 0.5), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"label must have one class for each of N ≥ 1 rows \[N, C\], got \[3\] for \[2, 2\]"):
        calibration(torch.zeros(2, 2), torch.tensor([0, 1, 1]))
