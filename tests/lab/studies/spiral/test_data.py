"""The data law. Statistical tests have fixed seeds and fail with probability 0.001 each when a law is right and a seed is new."""

import math

import pytest
import torch
from scipy import stats

from multimix.lab.recipes.spiral import SpiralSettings
from multimix.lab.studies.spiral.data import spiral_data, spiral_points


def test_both_splits_are_balanced_and_exactly_80_labels_are_wrong():
    for seed in range(5):
        data = spiral_data(SpiralSettings(), seed)
        assert [len(part) for part in data] == [400, 400, 400, 600, 600]
        true = torch.where(data.flipped, 1 - data.y, data.y)
        assert torch.bincount(true).tolist() == [200, 200]
        assert torch.bincount(data.y_test).tolist() == [300, 300]
        assert int(data.flipped.sum()) == 80


def test_labels_say_which_arm_a_point_lies_on():
    data = spiral_data(SpiralSettings(noise=0.0), 3)
    true = torch.where(data.flipped, 1 - data.y, data.y)
    for x, label in ((data.x, true), (data.x_test, data.y_test)):
        for (a, b), arm in zip(x.tolist(), label.tolist(), strict=True):
            radius = math.hypot(a, b)
            assert 0 <= radius <= 1
            assert a == pytest.approx(radius * math.cos(2 * math.pi * radius + math.pi * arm), abs=1e-12)
            assert b == pytest.approx(radius * math.sin(2 * math.pi * radius + math.pi * arm), abs=1e-12)


def test_no_point_is_used_twice_and_seeds_differ():
    data, other = spiral_data(SpiralSettings(), 0), spiral_data(SpiralSettings(), 1)
    assert len(torch.cat([data.x, data.x_test, other.x, other.x_test]).unique(dim=0)) == 2000
    assert not torch.equal(data.flipped, other.flipped)


def test_radius_is_uniform_in_both_splits_and_both_arms():
    data = spiral_data(SpiralSettings(samples=8000, train=4000, noise=0.0), 5)
    true = torch.where(data.flipped, 1 - data.y, data.y)
    for x, label in ((data.x, true), (data.x_test, data.y_test)):
        for arm in (0, 1):
            assert stats.kstest(x[label == arm].norm(dim=1).numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("noise", [0.03, 0.2])
def test_noise_is_gaussian_with_the_stated_deviation_and_independent_in_both_coordinates(noise):
    label = torch.arange(2).repeat_interleave(2000)
    noisy, clean = (
        spiral_points(label, SpiralSettings(turns=1.5, noise=sd), torch.Generator().manual_seed(7)) for sd in (noise, 0.0)
    )
    drawn = ((noisy - clean) / noise).numpy()
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert stats.pearsonr(drawn[:, 0], drawn[:, 1]).pvalue > 1e-3


def test_more_turns_wind_further():
    data = spiral_points(
        torch.zeros(50, dtype=torch.long), SpiralSettings(turns=2.0, noise=0.0), torch.Generator().manual_seed(0)
    )
    for a, b in data.tolist():
        radius = math.hypot(a, b)
        assert a == pytest.approx(radius * math.cos(4 * math.pi * radius), abs=1e-12)


def test_flips_fall_on_all_places_alike():
    """80 of 400 without replacement: every place is wrong in a fifth of the seeds."""
    settings = SpiralSettings(samples=20, train=10, flipped=2)
    counts = sum(spiral_data(settings, seed).flipped.long() for seed in range(2000))
    assert int(counts.sum()) == 4000
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_draws_leave_the_global_stream_alone():
    before = torch.get_rng_state()
    first, second = spiral_data(SpiralSettings(), 9), spiral_data(SpiralSettings(), 9)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"samples": 999}, "samples must be an even number, at least 2, got 999"),
        ({"train": 1000}, r"train must be less than samples \(1000\), got 1000"),
        ({"flipped": 401}, "flipped must lie in 0 … 400, got 401"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"rate": 0.0}, "rate must be above 0, got 0.0"),
        ({"noise": -1.0}, "noise must be at least 0, got -1.0"),
        ({"slope": 1.0}, "slope must be at least 0 and below 1, got 1.0"),
        ({"alpha": math.nan}, "alpha must be above 0, got nan"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace("…", ".") + "$"):
        SpiralSettings(**wrong)


@pytest.mark.parametrize(("uniform_in", "power"), [("angle", 1), ("arc", 2)])
def test_the_law_of_the_radius(uniform_in, power):
    settings = SpiralSettings(noise=0.0, turns=1.5, uniform_in=uniform_in)
    radius = spiral_points(torch.ones(4000, dtype=torch.long), settings, torch.Generator().manual_seed(0)).norm(dim=1)
    assert stats.kstest(radius**power, "uniform").pvalue > 1e-3
