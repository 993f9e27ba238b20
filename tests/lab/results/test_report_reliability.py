"""Bins of several runs together are the bins of all their samples."""

from dataclasses import asdict

import pytest
import torch

from multimix.lab.evaluation.calibration import reliability_bins
from multimix.lab.results.figures.reliability import Panel, pooled_bins, reliability_grid
from multimix.lab.statistics import summary


def some(seed, number):
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.1 + 0.7 * torch.rand(number, generator=generator)
    return confidence, torch.rand(number, generator=generator) < confidence


def test_pooled_bins_are_those_of_all_samples():
    parts = [some(seed, number) for seed, number in ((1, 50), (2, 80), (3, 7))]
    results = [{"bins": [asdict(one) for one in reliability_bins(*part)]} for part in parts]
    whole = reliability_bins(torch.cat([c for c, _ in parts]), torch.cat([r for _, r in parts]))
    for own, expected in zip(pooled_bins(results), whole, strict=True):
        assert (own.low, own.high, own.count) == (expected.low, expected.high, expected.count)
        assert own.confidence == (None if expected.confidence is None else pytest.approx(expected.confidence))
        assert own.accuracy == (None if expected.accuracy is None else pytest.approx(expected.accuracy))
    assert any(one.count == 0 for one in pooled_bins(results)), "an empty bin, too"


@pytest.mark.parametrize("number", [1, 5])
def test_one_panel_or_several(number):
    bins = pooled_bins([{"bins": [asdict(one) for one in reliability_bins(*some(1, 30))]}])
    files = reliability_grid([Panel(f"line {i}", summary([1.0]), bins) for i in range(number)])
    assert set(files) == {"reliability.png", "reliability.svg"}
