"""Points matched with points: always a permutation, of least total distance or within the bound of an auction."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from multimix.methods.sagemix import method as point_assignment
from multimix.methods.sagemix.method import MAX_EXACT_POINTS, leaf_order, leaf_tiles, matched_points
from oracles import seeded
from points_oracle import total

KINDS = ["cube", "sphere", "apart", "grid", "line", "one place", "twice"]


def some_clouds(kind, batch, n, seed, d=3):
    generator = seeded(seed)
    a, b = torch.rand(2, batch, n, d, dtype=torch.float64, generator=generator)
    if kind == "sphere":
        a = torch.nn.functional.normalize(a - 0.5, dim=2)
    elif kind == "apart":
        b = b + 100
    elif kind == "grid":  # many ties
        a, b = (a * 3).floor(), (b * 3).floor()
    elif kind == "line":
        a[..., 1:], b[..., 1:] = 0, 1
    elif kind == "one place":
        a[:], b[:] = 0.3, 0.3
    elif kind == "twice":
        b = a[:, torch.randperm(n, generator=generator)]
    return a, b


def costs(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(2).numpy())


def least(a, b):
    distance = costs(a, b)
    return math.fsum(distance[linear_sum_assignment(distance)])


def found(a, b, order):
    return total(a.tolist(), b.tolist(), order.tolist())


def diagonal(a, b):
    both = torch.cat([a, b])
    return float((both.amax(0) - both.amin(0)).norm())


def check_permutations(order, batch, n):
    assert order.shape == (batch, n)
    assert order.dtype == torch.int64
    assert torch.equal(order.sort(1).values, torch.arange(n).expand(batch, n))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_no_permutation_is_cheaper(n):
    for kind, seed in itertools.product(KINDS, range(3)):
        a, b = some_clouds(kind, 2, n, seed)
        order = matched_points(a, b)
        check_permutations(order, 2, n)
        for i in range(2):
            least_of_all = min(total(a[i].tolist(), b[i].tolist(), p) for p in itertools.permutations(range(n)))
            assert found(a[i], b[i], order[i]) == pytest.approx(least_of_all, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_is_scipys_cost(kind):
    for n, d in ((17, 2), (50, 3), (130, 3), (40, 1)):
        a, b = some_clouds(kind, 2, n, n, d)
        order = matched_points(a, b, rule="exact")
        check_permutations(order, 2, n)
        for i in range(2):
            assert found(a[i], b[i], order[i]) == pytest.approx(least(a[i], b[i]), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("eps", [0.2, 0.01, 0.001])
@pytest.mark.parametrize("kind", KINDS)
def test_an_auction_keeps_its_bound(kind, eps):
    for n in (1, 2, 40, 90):
        a, b = some_clouds(kind, 2, n, 5)
        order = matched_points(a, b, rule="auction", eps=eps)
        check_permutations(order, 2, n)
        for i in range(2):
            assert found(a[i], b[i], order[i]) <= least(a[i], b[i]) + n * eps * diagonal(a[i], b[i]) + 1e-9


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 2**16), st.integers(1, 5), st.sampled_from(["exact", "auction"]))
def test_coarse_coordinates(n, seed, levels, rule):
    """Few distinct coordinates, so nearly everything ties."""
    a, b = torch.randint(levels, (2, 1, n, 3), generator=seeded(seed)).double()
    order = matched_points(a, b, rule=rule, eps=1e-4)
    check_permutations(order, 1, n)
    # Sums of few different numbers: within N·ε·D of the least is the least.
    assert found(a[0], b[0], order[0]) <= least(a[0], b[0]) + (1e-9 if rule == "exact" else n * 1e-4 * 9)


def match(first, second, phases, exact, price, order):
    kernel = pytest.importorskip("multimix.methods.sagemix.kernel")
    place = leaf_order(second, kernel.LEAF)
    tiles, boxes = leaf_tiles(second, place, kernel.LEAF)
    kernel.match(first, second, place, tiles, boxes, phases, exact, price, order, 0, len(first))


def test_prices_certify_the_compiled_optimum():
    """d(i, order_i) + price is least over all places for every point: nobody could do better, so neither can all together."""
    a, b = some_clouds("cube", 1, 80, 2)
    first, second = point_assignment._scaled(a, b)
    price, order = np.zeros((1, 80)), np.empty((1, 80), np.int64)
    match(first, second, point_assignment._phases(0.01), True, price, order)
    distance = np.sqrt(((first[0][:, :, None] - second[0][:, None]) ** 2).sum(0))
    offered = distance + price[0]
    assert (offered[np.arange(80), order[0]] <= offered.min(1) + 1e-12).all()


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_prices_certify_the_gap_of_an_auction(kind, n):
    """Nobody could do better by more than ε, looked up in all distances: so all together not by more than N·ε."""
    first, second = point_assignment._scaled(*some_clouds(kind, 2, n, 3))
    for eps in (0.05, 0.002):
        price, order = np.full((2, n), np.nan), np.empty((2, n), np.int64)
        match(first, second, point_assignment._phases(eps), False, price, order)
        for i in range(2):
            distance = np.sqrt(((first[i][:, :, None] - second[i][:, None]) ** 2).sum(0))
            offered = distance + price[i]
            mine = np.arange(n), order[i]
            assert (offered[mine] <= offered.min(1) + eps + 1e-12).all()
            least_sum = distance[linear_sum_assignment(distance)].sum()
            assert distance[mine].sum() <= least_sum + n * eps + 1e-9


def test_points_in_leaves():
    """Every point once, in full leaves but the last, within the bounds of its leaf."""
    leaf = 16
    for n in (1, 16, 17, 100):
        points = point_assignment._scaled(*some_clouds("cube", 2, n, 4))[1]
        places = leaf_order(points, leaf)
        for cloud, place, tiles, bounds in zip(points, places, *leaf_tiles(points, places, leaf), strict=True):
            assert sorted(place) == list(range(n))
            for number, tile in enumerate(tiles):
                members = cloud[:, place[number * leaf : (number + 1) * leaf]]
                count = members.shape[1]
                assert np.array_equal(tile[:3, :count], members)
                assert (tile[3, :count] == 0).all(), "prices"
                assert np.isinf(tile[:, count:]).all()
                assert np.array_equal(bounds[:, :, number], [members.min(1), members.max(1)])


def test_auto_is_exact_for_few_points_and_an_auction_for_many():
    for n, rule in ((MAX_EXACT_POINTS, "exact"), (MAX_EXACT_POINTS + 1, "auction")):
        a, b = some_clouds("sphere", 1, n, 1)
        assert torch.equal(matched_points(a, b), matched_points(a, b, rule=rule))
    assert not torch.equal(matched_points(a, b), matched_points(a, b, rule="exact"))


def test_a_finer_auction_is_closer():
    a, b = some_clouds("sphere", 1, 200, 4)
    excess = [
        found(a[0], b[0], matched_points(a, b, rule="auction", eps=eps)[0]) / least(a[0], b[0]) - 1 for eps in (0.3, 0.02, 1e-5)
    ]
    assert excess[0] > excess[1] > excess[2] >= -1e-12
    assert excess[2] < 1e-4


@pytest.mark.parametrize("rule", ["exact", "auction"])
def test_neither_size_nor_place_matters(rule):
    a, b = some_clouds("cube", 2, 50, 6)
    order = matched_points(a, b, rule=rule)
    for scale, shift in ((2.0**-40, 0.0), (2.0**40, 0.0), (1.0, 8.0)):
        assert torch.equal(matched_points(a * scale + shift, b * scale + shift, rule=rule), order)


def test_a_pair_does_not_depend_on_the_others_nor_on_threads():
    a, b = some_clouds("sphere", 5, 40, 7)
    whole = matched_points(a, b, threads=1)
    assert torch.equal(matched_points(a, b, threads=3), whole)
    for i in range(5):
        assert torch.equal(matched_points(a[i : i + 1], b[i : i + 1])[0], whole[i])


def test_inputs_stay_and_half_precision_will_do():
    a, b = (cloud.half() for cloud in some_clouds("cube", 1, 20, 8))
    before = a.clone(), b.clone()
    order = matched_points(a.requires_grad_(), b)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])
    assert found(a[0].double(), b[0].double(), order[0]) == pytest.approx(least(a[0].detach().double(), b[0].double()))


def test_points_that_are_not_finite_raise():
    with pytest.raises(ValueError, match="points must"):
        matched_points(torch.zeros(1, 5, 3), torch.full((1, 5, 3), math.nan))
