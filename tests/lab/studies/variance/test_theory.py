"""The closed forms against the enumeration of all batches and all shares of a tiny population."""

import math
from itertools import product

import numpy as np
import pytest

from multimix.lab.studies.variance import Components, crossover, large_batch_variance, multimix_variance

PROBABILITY = np.array([0.2, 0.8])


@pytest.fixture(scope="module")
def table():
    """g[pair, share, dimension]: three pairs, two shares."""
    return np.random.default_rng(0).normal(size=(3, 2, 2)) + 3


@pytest.fixture(scope="module")
def parts(table):
    def trace(values, weights):
        mean = np.tensordot(weights, values, 1)
        return float(weights @ ((values - mean) ** 2).sum(-1))

    uniform = np.full(3, 1 / 3)
    joint = (uniform[:, None] * PROBABILITY).reshape(-1)
    of_pairs, of_lam = np.einsum("pld,l->pd", table, PROBABILITY), table.mean(0)
    return Components(trace(table.reshape(6, 2), joint), trace(of_pairs, uniform), trace(of_lam, PROBABILITY))


def brute_force(table, k, batch, per_pair):
    """Var[g̃] over every batch of pairs and every choice of shares, one by one."""
    square, mean = 0.0, 0.0
    for chosen in product(range(len(table)), repeat=batch):
        for shares in product(range(len(PROBABILITY)), repeat=k * batch if per_pair else k):
            chance = len(table) ** -batch * math.prod(PROBABILITY[share] for share in shares)
            of_pair = [shares[b * k : (b + 1) * k] if per_pair else shares for b in range(batch)]
            g = sum(table[pair, share] for pair, own in zip(chosen, of_pair, strict=True) for share in own) / (k * batch)
            square, mean = square + chance * g @ g, mean + chance * g
    return square - mean @ mean


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_the_formula_is_the_variance_over_everything_that_can_be_drawn(table, parts, k, batch, per_pair):
    found = multimix_variance(parts, k=k, batch=batch, per_pair=per_pair)
    assert found.value == pytest.approx(brute_force(table, k, batch, per_pair), abs=1e-10)
    assert found.half == 0


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_large_batch_is_mixup_of_as_many_pairs(table, parts, rows, per_pair):
    found = large_batch_variance(parts, rows=rows, per_pair=per_pair).value
    assert found == pytest.approx(brute_force(table, 1, rows, per_pair), abs=1e-10)


def test_the_scalar_example():
    """g = p + 3 λ + 2 p λ², p normal, λ uniform: moments of λ by hand; simulated values (200,000 repetitions) beside them."""
    second, fourth = 1 / 3, 1 / 5
    lam = 9 / 12
    parts = Components(lam + 1 + 4 * second + 4 * fourth, (1 + 2 * second) ** 2, lam)
    shared = [multimix_variance(parts, k=k, batch=16).value for k in (1, 2, 5)]
    assert shared == pytest.approx([0.9456, 0.5596, 0.3280], abs=5e-4)
    assert shared == pytest.approx([0.946, 0.560, 0.329], rel=0.01)
    assert multimix_variance(parts, k=5, batch=16, per_pair=True).value == pytest.approx(0.1874, abs=5e-4)
    assert large_batch_variance(parts, rows=80).value == pytest.approx(0.789, abs=5e-4)
    assert large_batch_variance(parts, rows=80, per_pair=True).value == pytest.approx(0.0485, abs=5e-4)


@pytest.mark.parametrize("k", [2, 5, 9])
def test_both_are_equal_at_the_crossover_for_every_k(k):
    parts = Components(31.0, 17.0, 0.25)
    b_0 = crossover(parts).value
    assert b_0 == 68

    def both(batch):
        return multimix_variance(parts, k=k, batch=batch).value, large_batch_variance(parts, rows=k * batch).value

    multi, large = both(68)
    assert multi == pytest.approx(large, rel=1e-12)
    assert all(np.greater(*both(batch)) for batch in (1, 17, 67))
    assert all(np.less(*both(batch)) for batch in (69, 272))


def test_with_a_share_for_each_pair_a_large_batch_is_never_worse():
    generator = np.random.default_rng(1)
    for _ in range(200):
        pairs, lam, rest = generator.exponential(size=3)
        parts = Components(pairs + lam + rest, pairs, lam)
        k, batch = int(generator.integers(1, 10)), int(generator.integers(1, 5000))
        large = large_batch_variance(parts, rows=k * batch, per_pair=True).value
        assert large <= multimix_variance(parts, k=k, batch=batch, per_pair=True).value * (1 + 1e-12)
        assert large <= multimix_variance(parts, k=k, batch=batch).value * (1 + 1e-12)


def test_intervals_follow_the_covariance_of_the_parts():
    covariance = np.array([[4.0, 1.5, 0.0], [1.5, 2.0, 0.0], [0.0, 0.0, 0.01]])
    parts = Components(30.0, 20.0, 0.5, tuple(map(tuple, covariance)))
    weights = np.array([1, 2, 7]) / 24
    expected = 1.959964 * math.sqrt(weights @ covariance @ weights)
    assert multimix_variance(parts, k=3, batch=8).half == pytest.approx(expected)


def test_the_interval_of_the_crossover_covers_it():
    """1,000 normal estimates of V_pairs and V_λ: the 95 % interval holds the ratio in 93 to 97 % (3 standard errors: 2.1)."""
    generator = np.random.default_rng(2)
    truth, deviation = np.array([20.0, 0.5]), np.array([2.0, 0.12])
    covariance = ((0.0, 0.0, 0.0), (0.0, 4.0, 0.0), (0.0, 0.0, 0.0144))
    found = [crossover(Components(0.0, *pair, covariance)) for pair in truth + deviation * generator.normal(size=(1000, 2))]
    assert 0.93 < np.mean([one.low <= 40 <= one.high for one in found]) < 0.97


def test_an_unresolved_v_lam_leaves_the_crossover_open():
    covariance = ((0.0,) * 3, (0.0,) * 3, (0.0, 0.0, 1.0))
    assert crossover(Components(1.0, 1.0, 0.5, covariance)).high == math.inf
    open_end = crossover(Components(1.0, 1.0, -0.5, covariance))
    assert open_end.value == open_end.high == math.inf
    assert open_end.low == pytest.approx(1 / 1.459964)


@pytest.mark.parametrize(
    ("k", "batch", "sentence"), [(0, 2, "k must be an integer of at least 1, got 0"), (1, 2.5, "batch must be")]
)
def test_sizes_must_be_whole(k, batch, sentence):
    with pytest.raises(ValueError, match=sentence):
        multimix_variance(Components(1.0, 1.0, 1.0), k=k, batch=batch)


@pytest.mark.parametrize("seed", range(40))
def test_the_interval_of_the_crossover_is_one_whatever_the_estimates(seed):
    """Uncertain, correlated and even negative estimates: the interval contains the value, and nothing lies below 0."""
    random = np.random.default_rng(seed)
    half = random.normal(size=(3, 3)) * random.choice([0.1, 1.0, 5.0])
    pairs, lam = random.normal(1, 2, size=2)
    found = crossover(Components(9.0, pairs, lam, tuple(map(tuple, half @ half.T))))
    assert 0 <= found.low <= found.value <= found.high


def test_exact_parts_have_a_point_for_an_interval():
    assert crossover(Components(31.0, 17.0, 0.25)) == (68.0, 68.0, 68.0)
