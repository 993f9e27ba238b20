"""The exact variance under permutations against all batches, all permutations and all shares, one by one."""

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch

from variance_oracle import table_enumeration

PROBABILITY = np.array([0.3, 0.7])


def table_of(samples):
    """g[sample, partner, share, dimension]."""
    return np.random.default_rng(samples).normal(size=(samples, samples, 2, 3)) + 1


def brute_force(table, k, batch, per_pair):
    square, mean, whole = 0.0, 0.0, 0.0
    for chosen in combinations(range(len(table)), batch):
        for order in permutations(range(batch)):
            pairs = [(chosen[b], chosen[order[b]]) for b in range(batch)]
            for shares in product((0, 1), repeat=k * batch if per_pair else k):
                chance = math.prod(PROBABILITY[share] for share in shares)
                own = [shares[b * k : (b + 1) * k] if per_pair else shares for b in range(batch)]
                g = sum(table[i, j, share] for (i, j), some in zip(pairs, own, strict=True) for share in some) / (k * batch)
                square, mean, whole = square + chance * g @ g, mean + chance * g, whole + chance
    return square / whole - mean @ mean / whole**2


CASES = [(4, 1), (4, 2), (4, 3), (5, 4), (2, 2), (1, 1)]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(("samples", "batch"), CASES)
def test_shares_common_to_the_batch(samples, batch, k):
    table = table_of(samples)
    found = table_enumeration(torch.tensor(table), torch.tensor(PROBABILITY))
    assert found.permutation_variance(k=k, batch=batch) == pytest.approx(brute_force(table, k, batch, False), abs=1e-10)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(("samples", "batch"), [case for case in CASES if case[1] < 4])
def test_shares_for_each_pair(samples, batch, k):
    table = table_of(samples)
    found = table_enumeration(torch.tensor(table), torch.tensor(PROBABILITY))
    expected = brute_force(table, k, batch, True)
    assert found.permutation_variance(k=k, batch=batch, per_pair=True) == pytest.approx(expected, abs=1e-10)


def test_four_pairs_with_shares_of_their_own():
    table = table_of(5)
    found = table_enumeration(torch.tensor(table), torch.tensor(PROBABILITY))
    assert found.permutation_variance(k=2, batch=4, per_pair=True) == pytest.approx(brute_force(table, 2, 4, True), abs=1e-10)


def test_the_parts_for_independent_pairs():
    table = table_of(4)
    parts = table_enumeration(torch.tensor(table), torch.tensor(PROBABILITY)).components
    pairs, lam = np.einsum("ijld,l->ijd", table, PROBABILITY), table.mean((0, 1))
    mean = pairs.mean((0, 1))
    total = (((table - mean) ** 2).sum(-1) * PROBABILITY).sum(-1).mean()
    expected = [total, ((pairs - mean) ** 2).sum(-1).mean(), PROBABILITY @ ((lam - mean) ** 2).sum(-1)]
    assert [parts.total, parts.pairs, parts.lam] == pytest.approx(expected, abs=1e-12)


def test_a_batch_larger_than_the_data_is_refused():
    found = table_enumeration(torch.tensor(table_of(3)), torch.tensor(PROBABILITY))
    with pytest.raises(ValueError, match="batch must be at most the number of samples, 3, got 4"):
        found.permutation_variance(k=1, batch=4)
