"""Errors against counts by hand, loops over samples, and scipy's interval."""

import json
from dataclasses import asdict

import pytest
import torch
from scipy import stats

from multimix.lab.evaluation.error import ClassError, Confusion, errors, proportion
from multimix.lab.evaluation.predictions import Predictions


def predicting(predicted, labels, classes):
    """Predictions whose largest logit is where it is wanted."""
    logits = torch.full((len(predicted), classes), -1.0)
    logits[torch.arange(len(predicted)), torch.tensor(predicted)] = 2.0
    return Predictions(logits, torch.tensor(labels))


def test_counted_by_hand():
    #            right  right  0→2  0→2  1→0  right  3→1
    found = errors(predicting([0, 0, 2, 2, 0, 1, 1], [0, 0, 0, 0, 1, 1, 3], 5))
    assert found.n == 7
    assert (found.top1.count, found.top1.n) == (4, 7)
    assert found.top1.percent == pytest.approx(400 / 7)
    assert found.top5 is None
    assert found.per_class == (
        ClassError(4, 2, 50.0), ClassError(2, 1, 50.0), ClassError(0, 0, None), ClassError(1, 1, 100.0), ClassError(0, 0, None)
    )  # fmt: skip
    assert found.confusions == (Confusion(0, 2, 2, 50.0), Confusion(1, 0, 1, 50.0), Confusion(3, 1, 1, 100.0))


def test_summary_has_plain_numbers():
    found = errors(predicting([0, 0, 2, 2, 0, 1, 1], [0, 0, 0, 0, 1, 1, 3], 6)).summary()
    interval = stats.binomtest(4, 7).proportion_ci(method="wilson")
    assert found["n"] == 7
    assert found["classes"] == 3
    assert found["error"] == pytest.approx(400 / 7)
    assert found["error_low"] == pytest.approx(100 * interval.low)
    assert found["error_high"] == pytest.approx(100 * interval.high)
    assert found["mean_class_error"] == pytest.approx((50 + 50 + 100) / 3)
    assert found["worst_class_error"] == 100
    # All but the predicted class have equal logits, so class 3 comes fourth, and the others before it.
    assert found["error_top5"] == 0
    assert set(errors(predicting([0], [0], 5)).summary()) == set(found)
    assert errors(predicting([0], [0], 5)).summary()["error_top5_high"] is None
    assert all(type(value) in (int, float) for value in found.values())


def test_all_of_it_is_json():
    found = errors(predicting([0, 1, 1], [0, 1, 0], 7))
    read = json.loads(json.dumps(asdict(found)))
    assert read["top1"]["count"] == 1
    assert read["per_class"][2] == {"n": 0, "wrong": 0, "error": None}
    assert read["confusions"] == [{"true": 0, "predicted": 1, "count": 1, "percent": 50.0}]


@pytest.mark.parametrize("classes", [1, 2, 5, 6, 13])
def test_a_slow_loop_agrees(classes):
    generator = torch.Generator().manual_seed(classes)
    # Few values, so that equal logits are common.
    logits = torch.randint(0, 4, (60, classes), generator=generator).float()
    labels = torch.randint(0, classes, (60,), generator=generator)
    found = errors(Predictions(logits, labels))
    first = fifth = 0
    matrix = [[0] * classes for _ in range(classes)]
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        order = sorted(range(classes), key=lambda c: (-row[c], c))
        first += order[0] != label
        fifth += label not in order[:5]
        matrix[label][order[0]] += 1
    assert found.top1.count == first
    assert (found.top5 and found.top5.count) == (fifth if classes > 5 else None)
    for c, entry in enumerate(found.per_class):
        assert (entry.n, entry.wrong) == (sum(matrix[c]), sum(matrix[c]) - matrix[c][c])
    pairs = [(matrix[i][j], i, j) for i in range(classes) for j in range(classes) if i != j and matrix[i][j]]
    assert [(e.count, e.true, e.predicted) for e in found.confusions] == sorted(pairs, key=lambda p: (-p[0], p[1], p[2]))
    assert [e.percent for e in found.confusions] == pytest.approx([100 * e.count / sum(matrix[e.true]) for e in found.confusions])


def test_nothing_wrong_confuses_nothing():
    found = errors(predicting([1, 0, 6], [1, 0, 6], 7))
    assert found.confusions == ()
    assert found.top1.percent == found.top5.percent == 0


@pytest.mark.parametrize(("count", "n"), [(0, 1), (1, 1), (3, 10), (67, 250), (1, 50_000)])
def test_the_interval_is_wilsons(count, n):
    found, interval = proportion(count, n), stats.binomtest(count, n).proportion_ci(method="wilson")
    assert found.percent == pytest.approx(100 * count / n)
    assert (found.low, found.high) == pytest.approx((100 * interval.low, 100 * interval.high), rel=1e-12, abs=1e-12)
    assert 0 <= found.low <= found.percent <= found.high <= 100
    assert (found.low == 0) == (count == 0)
    assert (found.high == 100) == (count == n)


def test_the_ends_are_exact_for_every_count():
    assert {proportion(n, n).high for n in range(1, 300)} == {100}
    assert {proportion(0, n).low for n in range(1, 300)} == {0}


@pytest.mark.parametrize(("count", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_what_is_no_proportion_is_refused(count, n):
    with pytest.raises(ValueError, match=f"count must lie in 0 … n with n ≥ 1, got {count} of {n}"):
        proportion(count, n)
