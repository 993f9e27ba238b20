"""Estimators on populations whose variances are known: no bias, and intervals that cover as often as they say."""

import numpy as np
import pytest
import torch

from multimix.lab.studies.variance.parts import (
    lam_part,
    mean_estimate,
    pair_parts,
    paired_ratio,
    ratio,
    squared_norm,
    trace_variance,
)
from multimix.lab.studies.variance.theory import Estimate

PAIRS, SHARES, SIZE = 300, 4, 3
WEIGHT = torch.tensor([0.1, 0.4, 0.3, 0.2], dtype=torch.float64)


@pytest.fixture(scope="module")
def population():
    """g[pair, share, dimension] with a large part of the pairs, a small one of the shares, and a large rest."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return 2 + 2 * normal(PAIRS, 1, SIZE) + 0.4 * normal(1, SHARES, SIZE) + normal(PAIRS, SHARES, SIZE)


@pytest.fixture(scope="module")
def truth(population):
    g, weight = population.numpy(), WEIGHT.numpy()
    mean = np.einsum("pld,l->d", g, weight) / PAIRS
    total = (((g - mean) ** 2).sum(-1) @ weight).mean()
    pairs = ((np.einsum("pld,l->pd", g, weight) - mean) ** 2).sum(-1).mean()
    return total, pairs, weight @ ((g.mean(0) - mean) ** 2).sum(-1)


def off_by(values, expected):
    """The distance of the mean from what is expected, in standard errors."""
    values = np.asarray(values)
    return abs(values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize(("groups", "size"), [(2, 4), (5, 2)])
def test_v_lam_has_no_bias(population, truth, groups, size):
    """4,000 repetitions; 4 standard errors are missed by chance once in 16,000 times."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(PAIRS, (4000, groups, size), generator=generator)
    found = [lam_part(population[rows].mean(1), WEIGHT) for rows in drawn]
    assert off_by([value for value, _ in found], truth[2]) < 4


def test_v_and_v_pairs_have_no_bias(population, truth):
    """4,000 repetitions of 6 pairs with 2 shares each."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for _ in range(4000):
        rows = torch.randint(PAIRS, (6, 1), generator=generator)
        g = population[rows, torch.multinomial(WEIGHT, 12, True, generator=generator).reshape(6, 2)]
        found.append(pair_parts(g.mean(1), g.square().sum(2).mean(1), 2))
    assert off_by([total for total, _, _ in found], truth[0]) < 4
    assert off_by([pairs for _, pairs, _ in found], truth[1]) < 4


def test_intervals_of_the_parts_cover_the_truth(population, truth):
    """600 repetitions: 95 % intervals hold the truth in 91.5 to 98.5 % (the standard error is 0.9, and the law not normal)."""
    generator = torch.Generator().manual_seed(3)
    inside = np.zeros(3)
    for _ in range(600):
        rows = torch.randint(PAIRS, (200, 1), generator=generator)
        g = population[rows, torch.multinomial(WEIGHT, 600, True, generator=generator).reshape(200, 3)]
        total, pairs, covariance = pair_parts(g.mean(1), g.square().sum(2).mean(1), 3)
        lam, lam_variance = lam_part(population[torch.randint(PAIRS, (40, 5), generator=generator)].mean(1), WEIGHT)
        spread = [*covariance.diagonal().tolist(), lam_variance]
        missed = np.abs(np.array([total, pairs, lam]) - truth)
        inside += missed <= 1.96 * np.sqrt(spread)
    assert ((inside / 600 > 0.915) & (inside / 600 < 0.985)).all()


def test_trace_variance_and_its_interval():
    """Against numpy, and 600 repetitions of 150 normal rows with the trace 1 + 4 + 9."""
    generator = torch.Generator().manual_seed(4)
    rows = torch.randn(600, 150, 3, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 2.0, 3.0]) + 5
    found = [trace_variance(one) for one in rows]
    assert found[0].value == pytest.approx(float(np.trace(np.cov(rows[0].numpy().T))))
    assert off_by([one.value for one in found], 14) < 4
    assert 0.915 < np.mean([one.low <= 14 <= one.high for one in found]) < 0.985
    assert squared_norm(rows[0]).value == pytest.approx(float((rows[0] ** 2).sum(1).mean()))


def test_ratios_and_their_intervals():
    """Means 2 and 4 with common noise: 600 repetitions, coverage as above; the pairing makes the interval narrower."""
    generator = torch.Generator().manual_seed(5)
    common, own = torch.randn(2, 600, 200, dtype=torch.float64, generator=generator)
    first, second = 2 + common + 0.3 * own, 4 + 2 * common
    inside = [one.low <= 0.5 <= one.high for one in map(paired_ratio, first, second)]
    assert 0.915 < np.mean(inside) < 0.985
    apart = ratio(mean_estimate(first[0]), mean_estimate(second[0]))
    assert apart.value == pytest.approx(paired_ratio(first[0], second[0]).value)
    assert apart.half > 3 * paired_ratio(first[0], second[0]).half
    assert ratio(Estimate(6.0, 0.3), Estimate(3.0, 0.2)).half == pytest.approx(2 * np.hypot(0.3 / 6, 0.2 / 3))


def test_too_few_are_refused():
    with pytest.raises(ValueError, match="replicates must be at least 2, got 1"):
        trace_variance(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="groups must be at least 2, got 1"):
        lam_part(torch.zeros(1, 2, 3), torch.ones(2))
    with pytest.raises(ValueError, match="pairs and draws must be at least 2 each, got 5 and 1"):
        pair_parts(torch.zeros(5, 3), torch.zeros(5), 1)
