"""Entropic transport in the log domain: against loops, its marginals, its stop rule, and numbers that would overflow."""

import pytest
import torch

from multimix.methods.align_mixup import squared_distances, transport_plan
from oracles import seeded
from saliency_family_oracles import sinkhorn


def costs(pairs, n, m, scale=1.0, seed=0):
    return scale * torch.rand(pairs, n, m, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 4), (3, 7), (9, 2)])
@pytest.mark.parametrize(("eps", "rounds", "tolerance"), [(0.1, 100, 0.1), (1.0, 3, 0.0), (0.02, 40, 1e-6)])
def test_agrees_with_loops(n, m, eps, rounds, tolerance):
    cost = costs(3, n, m)
    found = transport_plan(cost, eps, rounds, tolerance)
    torch.testing.assert_close(
        found, torch.tensor(sinkhorn(cost.tolist(), eps, rounds, tolerance)).double(), atol=1e-9, rtol=1e-7
    )


def test_marginals():
    cost = costs(5, 12, 8).float()
    plan = transport_plan(cost, 0.1, 100, 0.1)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(1), torch.full((5, 8), 1 / 8), atol=1e-7, rtol=1e-5)
    assert (plan.sum(2) - 1 / 12).abs().max() < 0.02, "rows only as good as the rounds made them"
    long = transport_plan(cost, 0.1, 2000, 0.0)
    torch.testing.assert_close(long.sum(2), torch.full((5, 12), 1 / 12), atol=1e-6, rtol=1e-4)


def test_small_eps_finds_the_permutation_and_nothing_overflows():
    points = torch.randn(1, 3, 10, generator=seeded(1))
    order = torch.randperm(10, generator=seeded(2))
    plan = transport_plan(squared_distances(points, points[:, :, order]), 1e-3, 500, 0.0)
    expected = torch.zeros(10, 10)
    expected[order, torch.arange(10)] = 0.1
    torch.testing.assert_close(plan[0], expected, atol=1e-5, rtol=0)
    huge = transport_plan(costs(2, 6, 6, scale=1e8).float(), 0.1, 100, 0.1)
    assert torch.isfinite(huge).all()


def test_an_even_cost_gives_an_even_plan():
    torch.testing.assert_close(transport_plan(torch.full((2, 3, 5), 7.0), 0.1, 100, 0.1), torch.full((2, 3, 5), 1 / 15))


def test_stop_rule_looks_at_the_mean_over_the_batch():
    easy, hard = torch.zeros(1, 4, 4), costs(1, 4, 4, scale=30.0).float()
    one, many = transport_plan(hard, 0.1, 1, 0.0), transport_plan(hard, 0.1, 100, 0.0)
    assert (one - many).abs().max() > 1e-3
    u = -0.1 * (torch.tensor(4.0).log() + (hard / -0.1).logsumexp(2))  # what the first round makes of u = 0
    first = float(u.abs().sum())
    assert torch.equal(transport_plan(hard, 0.1, 100, first * 1.01), one), "below the tolerance after one round"
    assert not torch.equal(transport_plan(hard, 0.1, 100, first * 0.75), one)
    # Beside an easy pair, whose u hardly changes, the mean is little more than half.
    assert torch.equal(transport_plan(torch.cat([hard, easy]), 0.1, 100, first * 0.75)[:1], one)


def test_squared_distances():
    a, b = torch.randn(2, 5, 4, generator=seeded(3)), torch.randn(2, 5, 6, generator=seeded(4))
    expected = ((a[:, :, :, None] - b[:, :, None, :]) ** 2).sum(1)
    torch.testing.assert_close(squared_distances(a, b), expected)
    far = squared_distances(a + 1000.0, b + 1000.0)
    torch.testing.assert_close(far, expected, atol=0.01, rtol=1e-3)
    assert (squared_distances(a, a) >= 0).all()


@pytest.mark.parametrize(("channels", "places"), [(256, 64), (512, 16)])
@pytest.mark.parametrize("deviation", [1, 30, 100])
def test_columns_are_exact_however_large_the_costs(channels, places, deviation):
    a, b = deviation * torch.randn(2, 3, channels, places, generator=seeded(0))
    plan = transport_plan(squared_distances(a, b), 0.1, 100, 0.1)
    torch.testing.assert_close(plan.sum(1), torch.full((3, places), 1 / places), atol=0, rtol=2e-6)
    assert bool((plan >= 0).all())
