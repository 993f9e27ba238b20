"""Transport: the cost against scipy and full enumeration, the published rule against plain loops over a dense matrix."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from multimix.methods.puzzlemix import method as assignment
from multimix.methods.puzzlemix.method import assigned_blocks
from oracles import seeded

GRIDS = [(1, 1), (1, 7), (6, 1), (2, 2), (3, 5), (4, 4), (7, 4), (8, 8), (12, 16)]
EPS = [0, 0.05, 0.2, 0.8, 5]
KINDS = ["uniform", "flat", "one", "zero", "few", "heavy"]
SHOWN = ["some", "all", "none", "one", "half"]
RULES = ["exact", "reference"]


def some_saliency(kind, rows, columns, seed, batch=1):
    generator = seeded(seed)
    s = torch.rand(batch, rows * columns, dtype=torch.float64, generator=generator)
    if kind == "flat":
        s.fill_(1)
    elif kind == "one":
        s = torch.zeros_like(s).scatter_(1, s.argmax(1, keepdim=True), 1)
    elif kind == "zero":
        s.zero_()
    elif kind == "few":  # many ties, many zeros
        s = (s * 4).floor()
        s[:, 0] += 1
    elif kind == "heavy":
        s = torch.exp(3 * torch.randn(s.shape, dtype=torch.float64, generator=generator))
    return (s / s.sum(1, keepdim=True).clamp(min=1e-300)).reshape(batch, rows, columns)


def some_visible(shown, rows, columns, seed, k=1, batch=1):
    generator = seeded(seed + 1)
    noise = torch.rand(k, batch, rows * columns, generator=generator)
    share = torch.rand(k, batch, 1, generator=generator)
    visible = {
        "some": noise < share,
        "all": noise < 2,
        "none": noise > 2,
        "one": noise == noise.amax(2, keepdim=True),
        "half": (torch.arange(rows * columns) < rows * columns // 2).expand(k, batch, -1),
    }[shown]
    return visible.reshape(k, batch, rows, columns)


def move(i, j, rows, columns, eps):
    """ε d² of two blocks, by Python's own numbers."""
    down, right = i // columns - j // columns, i % columns - j % columns
    return eps * ((down / (rows - 1) if down else 0.0) ** 2 + (right / (columns - 1) if right else 0.0) ** 2)


@functools.cache
def moves(rows, columns, eps):
    return np.array([[move(i, j, rows, columns, eps) for j in range(rows * columns)] for i in range(rows * columns)])


def cost(source, visible, saliency, eps):
    rows, columns = visible.shape
    s, shown = saliency.flatten().tolist(), visible.flatten().tolist()
    pairs = [(i, j) for j, i in enumerate(source.tolist()) if shown[j]]
    return math.fsum(move(i, j, rows, columns, eps) - s[i] for i, j in pairs)


def least_cost(visible, saliency, eps):
    """The optimum by scipy on all blocks against the visible places."""
    rows, columns = visible.shape
    costs = (moves(rows, columns, eps) - saliency.reshape(-1, 1).numpy())[:, visible.flatten().numpy()]
    return math.fsum(costs[linear_sum_assignment(costs)])


def check_valid(source, visible):
    """Hidden places keep their own blocks, visible ones show different blocks."""
    shown = visible.flatten()
    assert source.dtype == torch.int32
    assert torch.equal(source[~shown], torch.arange(len(shown), dtype=torch.int32)[~shown])
    assert len(set(source[shown].tolist())) == int(shown.sum())
    assert ((source >= 0) & (source < len(shown))).all()


def bidding(visible, saliency, eps):
    """The published rule as it is written down: every block bids in every round, every losing entry gets + 1."""
    rows, columns = visible.shape
    blocks = rows * columns
    shown, s = visible.flatten().tolist(), saliency.flatten().tolist()
    # The last bit decides ties of the sums, so the two squares are scaled by ε one by one, as in the solver.
    scale = [[eps * (step / max(side - 1, 1)) ** 2 for step in range(side)] for side in (rows, columns)]
    costs = [
        [
            scale[0][abs(i // columns - j // columns)] + scale[1][abs(i % columns - j % columns)] - s[i] * shown[j]
            for j in range(blocks)
        ]
        for i in range(blocks)
    ]
    winners = {}
    for _ in range(max(rows, columns)):
        bids = [min(range(blocks), key=lambda j, i=i: (costs[i][j], j)) for i in range(blocks)]
        winners = {}
        for i, j in enumerate(bids):
            if costs[i][j] < 0 and (j not in winners or costs[i][j] < costs[winners[j]][j]):
                winners[j] = i
        for i, j in enumerate(bids):
            if winners.get(j) != i:
                costs[i][j] += 1
    return torch.tensor([winners.get(j, j) for j in range(blocks)], dtype=torch.int32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", GRIDS, ids=str)
def test_the_cost_is_scipys_and_no_rule_does_better(size, kind):
    saliency = some_saliency(kind, *size, seed=sum(size), batch=2)
    visible = torch.cat([some_visible(shown, *size, seed=3, batch=2) for shown in SHOWN])
    own = torch.arange(size[0] * size[1])
    for eps in EPS:
        source = assigned_blocks(visible, saliency, eps)
        published = assigned_blocks(visible, saliency, eps, rule="reference")
        assert source.shape == published.shape == (len(SHOWN), 2, size[0] * size[1])
        for k, b in itertools.product(range(len(SHOWN)), range(2)):
            problem = (visible[k, b], saliency[b], eps)
            check_valid(source[k, b], visible[k, b])
            best = cost(source[k, b], *problem)
            assert best == pytest.approx(least_cost(*problem), abs=1e-13)
            assert best <= cost(own, *problem) + 1e-13
            # Cut off after its rounds the published rule may show a block twice, which is no assignment.
            if len(set(published[k, b][visible[k, b].flatten()].tolist())) == int(visible[k, b].sum()):
                assert best <= cost(published[k, b], *problem) + 1e-13


@settings(max_examples=200)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    eps=st.one_of(st.sampled_from(EPS), st.floats(0, 10), st.floats(0, 1e-3)),
    kind=st.sampled_from(KINDS),
    shown=st.sampled_from(SHOWN),
    seed=st.integers(0, 10**6),
)
def test_any_grid_and_parameters(size, eps, kind, shown, seed):
    saliency, visible = some_saliency(kind, *size, seed), some_visible(shown, *size, seed)
    source = assigned_blocks(visible, saliency, eps)[0, 0]
    check_valid(source, visible[0, 0])
    assert cost(source, visible[0, 0], saliency[0], eps) == pytest.approx(least_cost(visible[0, 0], saliency[0], eps), abs=1e-13)


@pytest.mark.parametrize("size", [(1, 4), (2, 2), (2, 3), (6, 1)], ids=str)
@pytest.mark.parametrize("eps", [0, 0.1, 0.5])
def test_the_cost_is_the_least_of_all_assignments(size, eps):
    blocks = size[0] * size[1]
    for seed in range(8):
        saliency, visible = some_saliency("heavy", *size, seed)[0], some_visible("some", *size, seed)[0, 0]
        places = visible.flatten().nonzero().flatten().tolist()
        s = saliency.flatten().tolist()
        best = min(
            math.fsum(move(i, j, *size, eps) - s[i] for i, j in zip(chosen, places, strict=True))
            for chosen in itertools.permutations(range(blocks), len(places))
        )
        source = assigned_blocks(visible[None, None], saliency[None], eps)[0, 0]
        assert cost(source, visible, saliency, eps) == pytest.approx(best, abs=1e-14)


@pytest.mark.parametrize("kind", ["uniform", "few", "heavy"])
@pytest.mark.parametrize("eps", [0.002, 0.05, 0.8])
def test_large_grids(kind, eps):
    rows, columns = 64, 22
    saliency, visible = some_saliency(kind, rows, columns, 0)[0], some_visible("half", rows, columns, 0)[0, 0]
    source = assigned_blocks(visible[None, None], saliency[None], eps)[0, 0]
    check_valid(source, visible)
    row, column = np.divmod(np.arange(rows * columns), columns)
    costs = eps * (((row[:, None] - row) / 63) ** 2 + ((column[:, None] - column) / 21) ** 2) - saliency.numpy().reshape(-1, 1)
    costs = costs[:, visible.flatten().numpy()]
    assert cost(source, visible, saliency, eps) == pytest.approx(costs[linear_sum_assignment(costs)].sum(), abs=1e-12)


def test_a_chain_of_moves():
    """1 × 4 blocks, the last three visible: the first enters, two step aside, the last leaves."""
    saliency = torch.tensor([[[0.5, 0.25, 0.2, 0.05]]], dtype=torch.float64)
    visible = torch.tensor([[[[False, True, True, True]]]])
    for eps, source in [(0.45, [0, 0, 1, 2]), (1.8, [0, 0, 2, 3]), (2.7, [0, 1, 2, 3])]:  # a step costs ε / 9
        assert assigned_blocks(visible, saliency, eps).tolist() == [[source]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 1), (3, 3), (4, 6), (7, 5)], ids=str)
def test_reference_is_the_published_rule(size, kind):
    saliency = some_saliency(kind, *size, seed=5, batch=2)
    visible = torch.cat([some_visible(shown, *size, seed=5, batch=2) for shown in SHOWN])
    for eps in EPS:
        source = assigned_blocks(visible, saliency, eps, rule="reference")
        for k, b in itertools.product(range(len(SHOWN)), range(2)):
            assert torch.equal(source[k, b], bidding(visible[k, b], saliency[b], eps))


@pytest.mark.parametrize("rule", RULES)
def test_threads_slices_and_order_of_the_batch_change_nothing(rule, monkeypatch):
    saliency, visible = some_saliency("heavy", 9, 7, 0, batch=6), some_visible("some", 9, 7, 0, k=5, batch=6)
    given = saliency.clone(), visible.clone()
    source = assigned_blocks(visible, saliency, 0.1, rule=rule, threads=1)
    assert int((source != torch.arange(63)).sum()) > 20
    monkeypatch.setattr(assignment, "MIN_BLOCKS_PER_THREAD", 1)
    for threads in (2, 7, None):
        assert torch.equal(assigned_blocks(visible, saliency, 0.1, rule=rule, threads=threads), source)
    for k in range(5):
        assert torch.equal(assigned_blocks(visible[k : k + 1], saliency, 0.1, rule=rule), source[k : k + 1])
    other = torch.randperm(6, generator=seeded(1))
    assert torch.equal(assigned_blocks(visible[:, other], saliency[other], 0.1, rule=rule), source[:, other])
    assert torch.equal(saliency, given[0])
    assert torch.equal(visible, given[1])


@pytest.mark.parametrize("rule", RULES)
def test_strides_and_types_do_not_matter(rule):
    saliency = some_saliency("heavy", 5, 8, 2, batch=3).float()
    visible = some_visible("some", 5, 8, 2, k=2, batch=3)
    source = assigned_blocks(visible, saliency.double(), 0.1, rule=rule)
    strided = saliency.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    flipped = visible.flip(3).contiguous().flip(3).transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(assigned_blocks(flipped, strided, 0.1, rule=rule), source)
    expanded = visible[:1].expand(4, -1, -1, -1)
    assert torch.equal(assigned_blocks(expanded, saliency, 0.1, rule=rule), source[:1].expand(4, -1, -1))
    assert assigned_blocks(visible[:0], saliency, 0.1, rule=rule).shape == (0, 3, 40)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eps": -0.1}, "eps must"),
        ({"eps": math.nan}, "eps must"),
        ({"eps": math.inf}, "eps must"),
        ({"eps": "1"}, "eps must"),
        ({"eps": 1, "rule": "best"}, "rule"),
    ],
)
def test_errors_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        assigned_blocks(torch.ones(1, 1, 2, 2, dtype=torch.bool), torch.ones(1, 2, 2) / 4, **options)
