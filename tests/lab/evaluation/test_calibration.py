"""Calibration against cases counted by hand, loops in exact arithmetic, sums written out, and torchmetrics where they agree."""

import json
import math
import warnings
from dataclasses import asdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import optimize

from multimix.lab.evaluation import calibration as module
from multimix.lab.evaluation.calibration import (
    Bin,
    adaptive_calibration_error,
    best_temperature,
    brier_score,
    calibration,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_bins,
    scaled,
    temperature_scaling,
)
from multimix.lab.evaluation.predictions import Predictions


def tensors(confidence, correct, dtype=torch.float32):
    return torch.tensor(confidence, dtype=dtype), torch.tensor(correct, dtype=torch.bool)


def ece(confidence, correct, bins=10, dtype=torch.float32):
    """As a fraction, as it is written in the papers."""
    return expected_calibration_error(*tensors(confidence, correct, dtype), bins) / 100


def some_predictions(seed, samples=300, classes=7, spread=3.0, truth=0.5):
    """Labels are drawn from the softmax of ``truth`` times the logits, so that the best temperature is about 1/truth."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, classes, generator=generator)
    labels = torch.multinomial((truth * logits).softmax(1), 1, generator=generator).squeeze(1)
    return Predictions(logits, labels)


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
        assert expected_calibration_error(inside, torch.tensor([False, True])) == pytest.approx(100 * gap, abs=1e-7)


def test_in_double_precision_three_tenths_lies_below_the_float32_edge_and_seven_tenths_above():
    # The float32 edge is 0.30000001192…; 0.3 in float64 is smaller and stays in bin 3. For 0.7 the edge is 0.69999998807….
    assert ece([0.3, 0.25], [False, True], dtype=torch.float64) == pytest.approx(0.225)
    assert ece([0.7, 0.65], [False, True], dtype=torch.float64) == pytest.approx((0.7 + 0.35) / 2)


@pytest.mark.parametrize(("bins", "seed"), [(1, 0), (3, 1), (10, 2), (15, 3)])
def test_a_slow_loop_agrees(bins, seed):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(300, generator=generator)
    confidence[:40] = (torch.arange(40) % (bins + 1)).double().div(bins).float()  # on the edges, 0 and 1 among them
    confidence[40:80] *= 0.05  # leaves some of the bins thin
    correct = torch.rand(300, generator=generator) < confidence
    expected = slow_ece(confidence.tolist(), correct.tolist(), bins)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(100 * expected, abs=1e-10)


def test_edges_are_those_of_the_usual_linspace():
    assert torch.equal((torch.arange(11, dtype=torch.float64) / 10).float(), torch.linspace(0, 1, 11))


def test_all_from_logits():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.0, 0.3], [-200.0, 0.0, 1.0]])
    label = torch.tensor([0, 2, 0])
    rows = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in logits.tolist()]
    found = calibration(Predictions(logits, label))
    brier = sum((p - (c == y)) ** 2 for row, y in zip(rows, label.tolist(), strict=True) for c, p in enumerate(row)) / 3
    nll = sum(math.log(sum(map(math.exp, row))) - row[y] for row, y in zip(logits.tolist(), label.tolist(), strict=True)) / 3
    right = [row.index(max(row)) == y for row, y in zip(rows, label.tolist(), strict=True)]
    assert right == [True, False, False]
    assert found.n == 3
    assert found.accuracy == pytest.approx(100 / 3)
    assert found.confidence == pytest.approx(100 * sum(map(max, rows)) / 3, abs=1e-5)
    assert found.brier == pytest.approx(brier, abs=1e-6)
    assert found.nll == pytest.approx(nll, abs=1e-6)
    assert found.nll > 60  # the last label's probability is 0 in float32, its logarithm must not be
    confidence = logits.softmax(1).amax(1).tolist()
    assert found.ece == pytest.approx(100 * slow_ece(confidence, right, 10), abs=1e-7)
    # Three bins with one sample each: 0.84… right, 0.41… and 0.73… wrong.
    assert found.mce == pytest.approx(100 * max(confidence[1:]), abs=1e-5)
    assert [entry.count for entry in found.bins] == [0, 0, 0, 0, 1, 0, 0, 1, 1, 0]


def test_the_record_is_json_and_its_summary_has_plain_numbers():
    found = calibration(some_predictions(0))
    read = json.loads(json.dumps(asdict(found)))
    assert read["bins"][0] == {"low": 0, "high": 10, "count": 0, "right": 0, "confidence": None, "accuracy": None}
    assert found.summary() == {name: value for name, value in read.items() if name != "bins"}
    assert json.loads(json.dumps(asdict(temperature_scaling(some_predictions(0)))))["fitted"] == 150


def test_bins_counted_by_hand():
    found = reliability_bins(*tensors([1.0, 0.5, 0.45, 0.75, 0.51, 0.0], [False, True, True, True, False, True]), 4)
    wanted = [
        Bin(0.0, 25.0, 0, 0, None, None),  # 0 is in no bin
        Bin(25.0, 50.0, 2, 2, 47.5, 100.0),
        Bin(50.0, 75.0, 2, 1, 63.0, 50.0),
        Bin(75.0, 100.0, 1, 0, 100.0, 0.0),
    ]
    for entry, expected in zip(found, wanted, strict=True):
        assert asdict(entry) == pytest.approx(asdict(expected), abs=1e-5)
    assert [entry.gap for entry in found] == pytest.approx([0, 52.5, -13, -100], abs=1e-5)


@pytest.mark.parametrize("bins", [1, 15])
def test_bins_add_up_to_the_errors(bins):
    found = calibration(some_predictions(3), bins)
    assert len(found.bins) == bins
    assert sum(entry.count for entry in found.bins) == found.n
    assert sum(entry.count * abs(entry.gap) for entry in found.bins) / found.n == pytest.approx(found.ece, abs=1e-9)
    assert max(abs(entry.gap) for entry in found.bins) == found.mce
    assert sum(entry.right for entry in found.bins) / found.n == pytest.approx(found.accuracy / 100)


def slow_adaptive(confidence, correct, bins):
    """Group after group in fractions: each ends at its rank, and takes in all that are equal to its last one."""
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    total, taken = Fraction(0), 0
    for m in range(1, bins + 1):
        end = max(taken, math.ceil(Fraction(m * len(order), bins)))
        while 0 < end < len(order) and confidence[order[end]] == confidence[order[end - 1]]:
            end += 1
        group, taken = order[taken:end], end
        total += abs(sum(Fraction(confidence[i]) - correct[i] for i in group))
    assert taken == len(order)
    return float(100 * total / len(order))


@pytest.mark.parametrize(
    ("confidence", "correct", "bins", "expected"),
    [
        # Two and two: |0.15 − 1/2|, |0.8 − 1/2|.
        ([0.1, 0.9, 0.2, 0.7], [True, True, False, False], 2, 32.5),
        # The first bin ends at 0.2 and takes in all three of it: |0.2 − 1/3| and |0.9 − 1|, three to one.
        ([0.2, 0.2, 0.9, 0.2], [True, False, True, False], 2, 12.5),
        # Of three bins the second has lost all to the first.
        ([0.2, 0.2, 0.9], [True, False, True], 3, (2 * 30 + 10) / 3),
        # More bins than samples: each has its own.
        ([0.4, 0.8], [False, True], 10, 30),
        ([1.0, 1.0, 1.0], [True, True, False], 10, 100 / 3),
        ([0.6], [True], 10, 40),
    ],
)
def test_equally_filled_bins_by_hand(confidence, correct, bins, expected):
    assert adaptive_calibration_error(*tensors(confidence, correct), bins) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("bins", "values"), [(1, 20), (3, 3), (10, 20), (15, 10**6), (400, 3)])
def test_equally_filled_bins_agree_with_a_slow_loop_in_any_order(bins, values):
    generator = torch.Generator().manual_seed(bins)
    confidence = (1 + torch.randint(0, values, (307,), generator=generator).double()).div(values).float()
    correct = torch.rand(307, generator=generator) < confidence
    expected = slow_adaptive(confidence.tolist(), correct.int().tolist(), bins)
    for order in (torch.arange(307), torch.randperm(307, generator=generator)):
        assert adaptive_calibration_error(confidence[order], correct[order], bins) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_torchmetrics_agrees_where_no_confidence_is_on_an_edge(seed):
    """It has bins [a, b) and one more for 1, so it is no oracle for edges."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchmetrics.functional.classification import multiclass_calibration_error
    except Exception as error:  # beside a broken torchvision it fails with more than ImportError
        pytest.skip(f"torchmetrics cannot be imported: {error}")
    found = some_predictions(seed, samples=2000, spread=1.0 + seed)
    confidence = found.logits.softmax(1).amax(1)
    assert not torch.isin(confidence, torch.linspace(0, 1, 11)).any()
    for norm, ours in (("l1", calibration(found).ece), ("max", calibration(found).mce)):
        theirs = multiclass_calibration_error(found.logits.softmax(1), found.labels, num_classes=7, n_bins=10, norm=norm)
        assert ours == pytest.approx(100 * float(theirs), abs=1e-3)


def test_brier_reaches_its_ends():
    labels = torch.tensor([1, 1])
    assert brier_score(Predictions(torch.tensor([[0.0, 1e4]] * 2), labels)) == 0
    assert brier_score(Predictions(torch.tensor([[1e4, 0.0]] * 2), labels)) == 2
    assert brier_score(Predictions(torch.zeros(2, 2), labels)) == 0.5


def test_parts_of_the_rows_add_up(monkeypatch):
    found = some_predictions(5)
    whole = [brier_score(found), negative_log_likelihood(found), best_temperature(found)]
    monkeypatch.setattr(module, "ROWS", 7)
    assert [brier_score(found), negative_log_likelihood(found), best_temperature(found)] == pytest.approx(whole, rel=1e-10)


@pytest.mark.parametrize(("distance", "offset"), [(1e-3, 0.0), (2.0, -512.0), (3e4, 0.0)])
def test_the_temperature_of_two_classes_is_known(distance, offset):
    # 3 of 4 are right and all are equally sure, so the best probability is 3/4: distance / T = log 3.
    logits = torch.tensor([[0.0, distance]] * 4, dtype=torch.float64) + offset
    assert best_temperature(Predictions(logits, torch.tensor([1, 0, 1, 1]))) == pytest.approx(distance / math.log(3), rel=1e-9)


@pytest.mark.parametrize(("truth", "seed"), [(0.05, 0), (1.0, 1), (4.0, 0)])
def test_the_temperature_is_that_of_a_plain_search(truth, seed):
    found = some_predictions(seed, truth=truth, spread=1.0)
    z, y = found.logits.double().numpy(), found.labels.numpy()

    def loss(log_temperature):
        rows = z / math.exp(log_temperature)
        top = rows.max(1)
        return np.mean(top + np.log(np.exp(rows - top[:, None]).sum(1)) - rows[np.arange(len(y)), y])

    searched = optimize.minimize_scalar(loss, bounds=(-4, 6), method="bounded", options={"xatol": 1e-12}).x
    best = best_temperature(found)
    assert best == pytest.approx(math.exp(searched), rel=1e-6)
    # At the minimum the loss rises to both sides.
    at = [loss(math.log(best) + step) for step in (-1e-3, 0, 1e-3)]
    assert at[1] < min(at[0], at[2])


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_temperature_follows_the_logits(factor):
    found = some_predictions(1)
    larger = Predictions(found.logits.double() * factor, found.labels)
    assert best_temperature(larger) == pytest.approx(best_temperature(found) * factor, rel=1e-9)


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[1.0, 0.0], [0.0, 3.0]], [0, 1]),  # all right: the lower the better
        ([[1.0, 1.0, 0.0], [0.0, 3.0, 0.0]], [1, 1]),  # as right as can be
        ([[1.0, 0.0], [0.0, 3.0], [5.0, 0.0]], [1, 0, 0]),  # for 1 and 3 against 5 there is one …
        ([[1.0, 0.0], [0.0, 3.0], [4.0, 0.0]], [1, 0, 0]),  # … for 1 and 3 against 4 equal probabilities are as good as any
        ([[1.0, 0.0], [0.0, 3.0], [3.0, 0.0]], [1, 0, 0]),  # the higher the better
        ([[1.0], [2.0]], [0, 0]),
        ([[0.0, 0.0]], [0]),
    ],
)
def test_where_no_temperature_is_the_best(logits, labels):
    found = best_temperature(Predictions(torch.tensor(logits), torch.tensor(labels)))
    assert (found is not None) == (logits[-1] == [5.0, 0.0])


def test_one_sample_that_is_hardly_wrong_ends_the_search():
    logits = torch.tensor([[5.0, 0.0]] * 50 + [[1e-30, 0.0]])
    best = best_temperature(Predictions(logits, torch.tensor([0] * 50 + [1])))
    # There the gain of 50 samples, 50·5·exp(−5/T), is what the last one loses: half of 1e−30 or all of it.
    assert 5 / math.log(250 / 0.5e-30) <= best <= 5 / math.log(250 / 1e-30) * 1.001


def test_scaling_is_fitted_on_one_half_and_measured_on_the_other():
    whole = some_predictions(2, samples=301)
    index = torch.arange(301)
    fitted, measured = whole.take(index[index % 2 == 0]), whole.take(index[index % 2 == 1])
    found = temperature_scaling(whole)
    best = best_temperature(fitted)
    assert (found.part, found.fitted, found.n) == ("every second sample, from the first", 151, 150)
    assert found.temperature == best != best_temperature(measured)
    probability = (measured.logits.double() / best).softmax(1)
    after = slow_ece(probability.amax(1).float().tolist(), measured.correct.tolist(), 10)
    assert found.ece == pytest.approx(100 * after, abs=1e-4)
    assert found.ece_before == calibration(measured).ece
    assert found.nll_before == calibration(measured).nll
    assert found.nll == pytest.approx(float(-probability.gather(1, measured.labels[:, None]).log().mean()), abs=1e-6)
    assert found.ece < found.ece_before / 2  # the logits are twice as large as the truth


def test_scaling_is_fitted_on_the_validation_part_where_there_is_one():
    whole, validation = some_predictions(2), some_predictions(4, samples=77, truth=0.8)
    found = temperature_scaling(whole, validation, bins=5)
    assert (found.part, found.fitted, found.n) == ("validation", 77, 300)
    assert found.temperature == best_temperature(validation)
    assert found.ece_before == calibration(whole, 5).ece
    assert found.ece == calibration(scaled(whole, found.temperature), 5).ece


def test_scaling_where_no_temperature_is_the_best():
    found = temperature_scaling(Predictions(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])))
    assert (found.temperature, found.ece, found.nll) == (None, None, None)
    assert found.ece_before == pytest.approx(100 / (1 + math.exp(-1)), abs=1e-4)


def test_scaled_predictions():
    found = scaled(Predictions(torch.tensor([[1e7, 1e7 + 2]]), torch.tensor([0])), 1e-4)
    assert found.logits.diff().item() == pytest.approx(2e4)  # 1e11 and 1e11 + 2e4 are no two numbers in float32
    assert found.logits.dtype == torch.float32
    assert torch.equal(scaled(some_predictions(0), 2.5).predicted, some_predictions(0).predicted)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        scaled(found, 0)


def test_one_sample():
    one = Predictions(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
    found = calibration(one)
    missing = 100 / (1 + math.exp(3))
    assert (found.ece, found.adaptive_ece, found.mce) == pytest.approx((missing,) * 3, abs=1e-4)
    with pytest.raises(ValueError, match="predictions must hold at least 2 samples to be halved where validation is None, got 1"):
        temperature_scaling(one)


def test_bins_must_be_at_least_one():
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        calibration(some_predictions(0), 0)
