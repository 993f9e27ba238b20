"""The law of the pairing. Each chi-squared test fails by chance with probability 1e-3."""

from collections import Counter
from itertools import permutations

import pytest
import torch
from scipy import stats

from multimix.random import random_partner
from oracles import seeded


def counts(batch, n, derange, generator):
    return Counter(tuple(random_partner(batch, derange=derange, generator=generator).tolist()) for _ in range(n))


def test_every_permutation_is_equally_likely():
    seen = counts(4, 6_000, False, seeded(0))
    assert set(seen) == set(permutations(range(4)))
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_every_derangement_is_equally_likely():
    seen = counts(4, 4_500, True, seeded(1))
    assert set(seen) == {p for p in permutations(range(4)) if all(i != j for i, j in enumerate(p))}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_one_fixed_point_on_average():
    generator, index = seeded(2), torch.arange(32)
    fixed = [int((random_partner(32, generator=generator) == index).sum()) for _ in range(4_000)]
    assert sum(fixed) / len(fixed) == pytest.approx(1, abs=4 / len(fixed) ** 0.5)


def test_a_batch_of_one_is_its_own_partner():
    assert random_partner(1, derange=True).tolist() == [0]


@pytest.mark.parametrize("batch", [0, float("nan")])
def test_an_empty_batch_is_rejected(batch):
    with pytest.raises(ValueError, match="^batch must"):
        random_partner(batch)
