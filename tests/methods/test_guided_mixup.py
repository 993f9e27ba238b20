"""GuidedMixup: against loops, its masks, and pairs that look at different places."""

import math
import re
from collections import Counter

import pytest
import torch
from scipy import stats

import multimix as mm
import saliency_family_oracles as slow
from multimix.geometry.translated import _with_mean_1 as with_mean_1
from multimix.methods.guided_mixup import GuidedMixup, far_partner
from multimix.random import random_partner
from oracles import seeded
from salient import Network, images, labels

LAM = [0.05, 0.3, 0.5, 0.8, 0.97]


def maps(batch, size, seed=0, holes=0.0):
    values = torch.rand(batch, *size, generator=seeded(seed)) ** 4
    return torch.where(torch.rand(batch, *size, generator=seeded(seed + 50)) < holes, 0.0, values)


def inputs(batch=4, size=(5, 7), seed=0):
    return torch.randn(batch, 2, *size, generator=seeded(seed))


@pytest.mark.parametrize("options", [{}, {"blur_size": 1}, {"blur_size": 3, "blur_sigma": 0.7, "pairing": "random"}], ids=str)
@pytest.mark.parametrize("size", [(5, 7), (9,), (2, 3, 4), (1,)], ids=str)
@pytest.mark.parametrize("lam", [[0.4], LAM], ids=["K = 1", "K = 5"])
def test_agrees_with_loops(options, size, lam):
    x, s, partner = inputs(size=size), maps(4, size, holes=0.5), torch.tensor([2, 1, 3, 0])
    plan = GuidedMixup(k=len(lam), **options).plan(x, saliency=s, partner=partner, lam=lam, generator=seeded(0))
    for step, share in zip(plan.mix(x).chunk(len(lam)), lam, strict=True):
        torch.testing.assert_close(step, slow.guided_mixup(x, partner.tolist(), share, s, **options), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plan.lam, plan.mask.double().mean((2, *range(3, 3 + len(size)))))


def test_one_half_is_the_published_ratio():
    x, s, partner = inputs(), maps(4, (5, 7)), torch.tensor([1, 2, 3, 0])
    plan = GuidedMixup(sampler="grid", blur_size=1).plan(x, saliency=s, partner=partner)
    share = s / s.sum((1, 2), keepdim=True)
    torch.testing.assert_close(plan.mask[0, :, 0], share[partner] / (share + share[partner]))


def test_masks_are_ordered_with_both_ends():
    for seed in range(20):
        x, s = inputs(5, (9, 6), seed), maps(5, (9, 6), seed, holes=0.3 * (seed % 3))
        options = {"per_pair": bool(seed % 2), "blur_size": 1 + 2 * (seed % 3)}
        plan = GuidedMixup(k=6, **options).plan(x, saliency=s, generator=seeded(seed))
        assert (plan.mask.diff(dim=0) >= 0).all()
        ends = GuidedMixup(**options).plan(x, saliency=s, lam=[0.0, 1.0], generator=seeded(seed))
        assert torch.equal(ends.mix(x), torch.cat([x, x[ends.partner]]))


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 13, 70])
def test_far_pairs_agree_with_loops(batch):
    for seed in range(5):
        s = maps(batch, (4, 5), seed, holes=0.9)
        found = far_partner(s, seeded(seed)).tolist()
        wide = s.double()
        far_partner(wide, seeded(seed))
        assert torch.equal(wide, s.double()), "maps are left as they are"
        apart = slow.distances(list(s))
        # Of maps that are equally far any may come next, and rounding may decide; so what counts is how far the next one is.
        starts = [i for i in range(batch) if max(apart[i]) > max(map(max, apart)) - 1e-9]
        assert any(slow.is_far_cycle(found, apart, start, 1e-9) for start in starts)


def test_far_pairs_are_farther_than_random_ones():
    s = with_mean_1(maps(40, (6, 6), 3))
    far = (s - s[far_partner(s, seeded(0))]).flatten(1).norm(dim=1).mean()
    chance = torch.stack(
        [(s - s[random_partner(40, derange=True, generator=seeded(n))]).flatten(1).norm(dim=1).mean() for n in range(50)]
    )
    assert far > chance.max()


def test_equally_far_samples_are_paired_at_random():
    """Even maps of three samples: the two cycles are equally likely; of four, each partner is."""
    generator, n = seeded(1), 2000
    turns = sum(far_partner(torch.ones(3, 2, 2), generator).tolist() == [1, 2, 0] for _ in range(n))
    assert stats.binomtest(turns, n).pvalue > 1e-3
    of_first = Counter(int(far_partner(torch.ones(4, 2, 2), generator)[0]) for _ in range(n))
    assert stats.chisquare([of_first[i] for i in (1, 2, 3)]).pvalue > 1e-3


def test_pairs_come_before_the_path_and_do_not_depend_on_k():
    x, s = inputs(16), maps(16, (5, 7))
    for pairing in ("far", "random"):
        plans = [GuidedMixup(k=k, pairing=pairing).plan(x, saliency=s, generator=seeded(2)) for k in (1, 5)]
        assert torch.equal(plans[0].partner, plans[1].partner)
        given = GuidedMixup(pairing=pairing).plan(x, saliency=s, lam=[0.3], generator=seeded(2))
        assert torch.equal(given.partner, plans[0].partner)
    handed = GuidedMixup().plan(x, saliency=s, partner=torch.arange(16), generator=seeded(2))
    assert torch.equal(handed.partner, torch.arange(16))
    assert torch.equal(handed.mix(x), x), "its own partner"
    random = GuidedMixup(pairing="random").plan(x, saliency=s, generator=seeded(2))
    assert torch.equal(random.partner, mm.random.random_partner(16, generator=seeded(2)))


def test_law_of_the_share():
    """With even maps the share is λ itself."""
    n = 2000
    x, even = torch.zeros(n, 1, 2, 2), torch.ones(n, 2, 2)
    found = GuidedMixup(per_pair=True, pairing="random").plan(x, saliency=even, generator=seeded(3)).lam[0]
    assert abs(float(found.mean()) - 0.5) < 4.5 / math.sqrt(12 * n)
    assert stats.kstest(found.numpy(), stats.uniform().cdf).pvalue > 1e-3


def test_from_a_model_and_without_saliency():
    x, y = images(), labels()
    out = mm.mixed_forward(Network(), GuidedMixup(k=3), x, y, generator=seeded(0))
    logits, target = out.logits, out.target
    assert logits.shape == target.shape == (18, 4)
    plan = GuidedMixup(k=2).plan(x, saliency=torch.zeros(6, 5, 7), lam=[0.2, 0.7], generator=seeded(0))
    torch.testing.assert_close(plan.lam, torch.tensor([[0.2], [0.7]], dtype=torch.float64).expand(2, 6), atol=1e-6, rtol=0)
    one = torch.full((1, 1, 4, 3), 0.25)
    assert torch.equal(GuidedMixup(k=2).plan(one, saliency=torch.zeros(1, 4, 3)).mix(one), one.repeat(2, 1, 1, 1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pairing": "greedy"}, "pairing"),
        ({"blur_size": 0}, "blur_size must"),
        ({"blur_sigma": math.inf}, "blur_sigma must"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        GuidedMixup(**options)


def test_places_and_saliency_are_needed():
    with pytest.raises(ValueError, match="GuidedMixup needs x of shape"):
        GuidedMixup().plan(torch.zeros(2, 3), saliency=torch.ones(2))
    with pytest.raises(TypeError, match="GuidedMixup.plan needs saliency="):
        GuidedMixup().plan(inputs())
