"""AttentiveMix: against loops, cells that nest from the most attended on, and the laws of their number."""

import math
import re
from collections import Counter

import pytest
import torch
from scipy import stats

import multimix as mm
import saliency_family_oracles as slow
from multimix.core.sampling import sample_path
from multimix.geometry.grid import block_means, spread
from multimix.methods.attentive_mix import AttentiveMix
from oracles import seeded
from salient import Network, images, labels

LAM = [0.02, 0.3, 0.5, 0.8, 0.97]


def inputs(batch=4, size=(9, 16), seed=0):
    return torch.randn(batch, 2, *size, generator=seeded(seed))


def maps(batch, size, seed=0):
    return torch.rand(batch, *size, generator=seeded(seed)) ** 3


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("cells", [7, 3, 1])
@pytest.mark.parametrize("size", [(9, 16), (7, 7), (5, 3), (15,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("lam", [[0.4], LAM], ids=["K = 1", "K = 5"])
def test_agrees_with_loops(per_pair, cells, size, lam):
    x, s, partner = inputs(size=size), maps(4, size), torch.tensor([2, 1, 3, 0])
    s[3] = 1.0  # an even map: the random order decides
    plan = AttentiveMix(k=len(lam), cells=cells, per_pair=per_pair).plan(
        x, saliency=s, partner=partner, lam=lam, generator=seeded(1)
    )
    for step, share in zip(plan.mix(x).chunk(len(lam)), lam, strict=True):
        assert torch.equal(step, slow.attentive_mix(x, partner.tolist(), share, s, seeded(1), per_pair=per_pair, cells=cells))


def test_the_most_attended_cells_come_first_and_stay():
    x, s = inputs(6, (14, 21)), maps(6, (14, 21))
    plan = AttentiveMix(k=8).plan(x, saliency=s, generator=seeded(2))
    assert (plan.mask.diff(dim=0) >= 0).all()
    assert set(plan.mask.unique().tolist()) <= {0.0, 1.0}
    attended = block_means(s, (7, 7))[plan.partner]
    taken = plan.mask[:, :, 0, ::2, ::3] == 1
    for step in taken:
        for cells, value in zip(step, attended, strict=True):
            if cells.any() and not cells.all():
                assert value[cells].min() >= value[~cells].max()


def test_area_follows_the_path():
    x = torch.zeros(200, 1, 14, 14)
    lam = mm.random.sample_path(5, 1.0, rows=200, generator=seeded(3))
    plan = AttentiveMix(k=5, per_pair=True).plan(x, saliency=maps(200, (14, 14)), lam=lam, generator=seeded(3))
    assert ((plan.lam - lam).abs() <= 1 / 49 + 1e-12).all()
    odd = AttentiveMix(k=5).plan(torch.zeros(3, 1, 10, 13), saliency=maps(3, (10, 13)), generator=seeded(3))
    torch.testing.assert_close(odd.lam, odd.mask.double().mean((2, 3, 4)))
    ends = AttentiveMix().plan(inputs(), saliency=maps(4, (9, 16)), lam=[0.0, 1.0], generator=seeded(3))
    assert torch.equal(ends.mix(inputs()), torch.cat([inputs(), inputs()[ends.partner]]))


def test_a_whole_number_of_cells_is_taken_whatever_the_coin_says():
    x, s = torch.zeros(3, 1, 7, 7), maps(3, (7, 7))
    lam = [count / 49 for count in range(50)]
    for seed in range(8):
        plan = AttentiveMix(k=50).plan(x, saliency=s, lam=lam, generator=seeded(seed))
        assert (plan.mask.sum((2, 3, 4)) == torch.arange(50.0).unsqueeze(1)).all()


def test_the_rounding_coin_is_fair_and_even_maps_favour_no_cell():
    n = 3000
    x, even = torch.zeros(n, 1, 4, 4), torch.ones(n, 4, 4)
    plan = AttentiveMix(cells=2, per_pair=True).plan(x, saliency=even, lam=[0.375], generator=seeded(4))
    cells = plan.mask[0, :, 0, ::2, ::2].flatten(1)
    counts = Counter(cells.sum(1).int().tolist())
    assert set(counts) == {1, 2}
    assert stats.binomtest(counts[1], n).pvalue > 1e-3
    alone = cells[cells.sum(1) == 1].argmax(1)
    assert stats.chisquare(torch.bincount(alone, minlength=4).tolist()).pvalue > 1e-3


def test_law_of_the_number_of_cells():
    """Beta(α, α) as for other methods, or Beta(α, 8): the mean share falls from ½ to α/(α + 8)."""
    n = 4000
    x, s = torch.zeros(n, 1, 30, 30), maps(1, (30, 30)).expand(n, 30, 30)
    fine = {"cells": 30, "per_pair": True}
    for options, law in (
        ({}, stats.beta(2, 2)),
        ({"beta": 8.0}, stats.beta(2, 8)),
        ({"alpha": 0.5, "beta": 3}, stats.beta(0.5, 3)),
    ):
        lam = AttentiveMix(**fine, **options).plan(x[:n], saliency=s, generator=seeded(5)).lam[0]
        assert abs(float(lam.mean()) - law.mean()) < 4.5 * law.std() / math.sqrt(n) + 1 / 900
    drawn = sample_path(3, 2.0, beta=8.0, rows=n, generator=seeded(6))
    assert drawn.shape == (3, n)
    assert (drawn.diff(dim=0) >= 0).all()
    assert stats.kstest(drawn[:, :1300].flatten().numpy(), stats.beta(2, 8).cdf).pvalue > 1e-3
    small = sample_path(1, 0.01, beta=8.0, rows=n, generator=seeded(7))
    assert ((small > 0) & (small < 1)).all()


def test_the_law_changes_no_pairing():
    x, s = inputs(16), maps(16, (9, 16))
    partners = [
        AttentiveMix(k=k, beta=beta).plan(x, saliency=s, generator=seeded(8)).partner for k in (1, 5) for beta in (None, 8.0)
    ]
    assert all(torch.equal(partner, partners[0]) for partner in partners)
    given = AttentiveMix(beta=8.0).plan(x, saliency=s, partner=torch.arange(16).roll(1), generator=seeded(8))
    assert torch.equal(given.partner, torch.arange(16).roll(1))
    assert AttentiveMix(beta=8.0, derange=True).plan(x[:2], saliency=s[:2]).partner.tolist() == [1, 0]
    grid = AttentiveMix(k=3, beta=8.0, sampler="grid", cells=8).plan(torch.zeros(1, 1, 8, 8), saliency=maps(1, (8, 8)))
    assert grid.lam.flatten().tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(("size", "cells"), [((10, 13), 7), ((3, 20), 7), ((5,), 2), ((2, 3, 4), 3)], ids=str)
def test_cells(size, cells):
    grid = tuple(min(cells, side) for side in size)
    assert grid == tuple(min(cells, side) for side in size)
    values = torch.rand(2, *grid, generator=seeded(9))
    torch.testing.assert_close(block_means(spread(values, size), grid), values)
    places = torch.rand(2, *size, generator=seeded(9))
    sizes = [torch.tensor([side * c // n for c in range(n + 1)]).diff() for side, n in zip(size, grid, strict=True)]
    area = sizes[0]
    for along in sizes[1:]:
        area = area.unsqueeze(-1) * along
    total = (block_means(places, grid) * area).flatten(1).sum(1)
    torch.testing.assert_close(total, places.flatten(1).sum(1))


def test_from_a_model_and_without_saliency():
    x, y = images(), labels()
    out = mm.mixed_forward(Network(), AttentiveMix(k=3), x, y, generator=seeded(0))
    logits, target = out.logits, out.target
    assert logits.shape == target.shape == (18, 4)
    plan = AttentiveMix(k=2).plan(x, saliency=torch.zeros(6, 5, 7), generator=seeded(0))
    assert torch.isfinite(plan.mix(x)).all()
    dense = torch.rand(6, 3, 5, 7)
    assert torch.equal(plan.mix_target(dense), plan.mix(dense))
    one = torch.full((1, 1, 4, 3), 0.25)
    assert torch.equal(AttentiveMix(k=2).plan(one, saliency=torch.ones(1, 1, 4, 3)).mix(one), one.repeat(2, 1, 1, 1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cells": 0}, "cells must"),
        ({"beta": 0}, "beta must"),
        ({"beta": 8.0, "sampler": "stratified"}, "sampler"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        AttentiveMix(**options)


def test_places_are_needed():
    with pytest.raises(ValueError, match="AttentiveMix needs x of shape"):
        AttentiveMix().plan(torch.zeros(2, 3), saliency=torch.ones(2))
