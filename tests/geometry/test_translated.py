"""Maps that are blurred and compared, and samples that are moved by whole places."""

import math
from collections import Counter

import pytest
import torch

import saliency_family_oracles as slow
from multimix.geometry.translated import (
    _blurred,
    covered,
    shares_by_odds,
    smooth_maps,
    translated,
)
from multimix.methods.sage import random_shifts
from oracles import seeded


def test_translations():
    z = torch.arange(24.0).reshape(2, 1, 3, 4)
    moved = translated(z, torch.tensor([[1, 0], [-1, 2]]))
    assert moved[0, 0].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert covered(torch.tensor([[1, 0], [-1, 2]]), torch.Size((3, 4)))[1].tolist() == [[False, False, True, True]] * 2 + [
        [False] * 4
    ]
    assert moved[1, 0, :2, 2:].tolist() == [[16, 17], [20, 21]]


def test_offsets_are_uniform_and_different():
    size, generator, seen = torch.Size((3, 2)), seeded(6), Counter()
    for _ in range(900):
        drawn = random_shifts(4, size, generator)
        assert len(set(drawn)) == 4
        seen.update(drawn)
    every = [(a, b) for a in range(-2, 3) for b in range(-1, 2)]
    assert set(seen) == set(every), "borders included"
    # 4 of 15 without replacement: the variance of each count is 900 p (1 − p), p = 4/15.
    assert all(abs(seen[shift] - 240) < 4.5 * math.sqrt(900 * 4 / 15 * 11 / 15) for shift in every)


@pytest.mark.parametrize("size", [(6, 9), (1,), (2, 3), (4, 1, 5)], ids=str)
@pytest.mark.parametrize(("length", "sigma"), [(5, 1.0), (1, 1.0), (7, 3.0)])
def test_blur(size, length, sigma):
    values = torch.rand(3, *size, generator=seeded(0), dtype=torch.float64) ** 4
    found = _blurred(values, length, sigma)
    for s, b in zip(values, found, strict=True):
        torch.testing.assert_close(b / b.sum(), slow.smooth_map(s, length, sigma))
    torch.testing.assert_close(_blurred(torch.ones(2, *size), length, sigma), torch.ones(2, *size))
    point = torch.zeros(1, 11, 11)
    point[0, 5, 5] = 1
    spread = _blurred(point, 5, 1.0)
    assert float(spread.sum()) == pytest.approx(1)
    assert int((spread > 0).sum()) == 25


@pytest.mark.parametrize("size", [(6, 9), (1,), (13,), (2, 3), (4, 1, 5)], ids=str)
@pytest.mark.parametrize(("length", "sigma"), [(5, 1.0), (1, 1.0), (7, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_smooth_maps(size, length, sigma, dtype):
    values = (torch.rand(3, *size, generator=seeded(0)) ** 4).to(dtype)
    found = smooth_maps(values, length, sigma)
    assert (found.shape, found.dtype) == (values.shape, torch.float32)
    for s, b in zip(values.double(), found, strict=True):
        wanted = slow.smooth_map(s, length, sigma) * s.numel()
        torch.testing.assert_close(b.double(), wanted, atol=1e-6, rtol=1e-5)
    assert torch.equal(smooth_maps(torch.zeros_like(values), length, sigma), torch.ones(values.shape))


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 3e38])
def test_smooth_maps_of_any_scale(scale):
    """The sum of such maps would overflow, or the inverse of their highest."""
    values = torch.rand(2, 8, 11, generator=seeded(1))
    torch.testing.assert_close(smooth_maps(values * scale, 7, 3.0), smooth_maps(values, 7, 3.0), atol=1e-4, rtol=1e-4)


def odds(rho):
    return (rho.double() / (1 - rho.double())).float()


def test_shares_agree_with_the_formula():
    own, pair = torch.rand(2, 3, 40, 70, generator=seeded(2)) ** 4
    own[0, :5], pair[0, 2:7] = 0.0, 0.0
    for rho in (torch.tensor([[0.9], [0.2]]), torch.rand(4, 3, generator=seeded(3))):
        share = shares_by_odds(own / pair, odds(rho))
        for k, weights in enumerate(rho.expand(-1, 3).tolist()):
            for i, weight in enumerate(weights):
                a, b = weight * own[i].double(), (1 - weight) * pair[i].double()
                wanted = torch.where(a + b > 0, b / (a + b), 1 - weight)
                torch.testing.assert_close(share[k, i, 0].double(), wanted, atol=1e-6, rtol=0)


def test_shares_of_extreme_maps():
    """0 and ∞ in every combination: no NaN, ordered, and 1 − ρ where nobody is salient."""
    values = torch.tensor([0.0, 1e-38, 1.0, 1e30])
    own, pair = (grid.reshape(1, -1) for grid in torch.meshgrid(values, values, indexing="ij"))
    rho = torch.tensor([[1.0], [0.9], [0.5], [1e-6], [0.0]], dtype=torch.float64)
    share = shares_by_odds(own / pair, odds(rho))
    assert share.shape == (5, 1, 1, 16)
    assert torch.isfinite(share).all()
    assert (share.diff(dim=0) >= 0).all()
    torch.testing.assert_close(share[:, 0, 0, 0], (1 - rho[:, 0]).float())
    assert (share[0] == 0).all()
    assert (share[-1] == 1).all()
