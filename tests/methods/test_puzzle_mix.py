"""Puzzle mix as a method: its draws, its options, what it asks of a model; masks and moves have tests of their own."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import multimix as mm
import puzzle_oracle
from multimix.methods.registry import entry
from oracles import seeded


def batch_of(size, batch=4, channels=3, seed=0):
    x = torch.rand(batch, channels, *size, generator=seeded(seed))
    return x, torch.rand(batch, *size, generator=seeded(seed + 1)) ** 4


@pytest.mark.parametrize(
    "options",
    [
        {"labels": 2},
        {"labels": 5, "beta": 4.0},
        {"gamma": 1.0, "beta": 5.0, "neighborhood": 1},
        {"eta": 0.02, "transport_eps": 0.05},
        {"transport_eps": 0.01, "transport_size": 2},
        {"transport_eps": 0.01, "transport_size": 1, "blocks": ((2, 3),)},
        {"transport_size": 99, "transport_eps": 0.02},
        {"blocks": (1,)},
        {"beta": 0.0, "transport": "none"},
    ],
    ids=str,
)
def test_equals_the_slow_version(options):
    x, saliency = batch_of((9, 12))
    options = {"blocks": (3, 4), **options}
    moved = 0
    for seed, lam in enumerate([0.2, 0.5, 0.7]):
        partner = torch.tensor([1, 2, 3, 0])
        plan = mm.PuzzleMix(**options).plan(x, saliency=saliency, partner=partner, lam=[lam], generator=seeded(seed))
        moves = plan.source, plan.source_pair
        expected = puzzle_oracle.puzzle_mix(x, partner.tolist(), lam, saliency, seeded(seed), moves=moves, **options)
        torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=0)
        moved += plan.source is not None or plan.source_pair is not None
    assert (moved > 0) == (options.get("transport_eps", 1) < 0.1), "the test is to see blocks move"


def test_block_numbers_are_drawn_evenly_and_once_per_batch():
    x, saliency = batch_of((32, 32), batch=3)
    method = mm.PuzzleMix(k=2, transport="none", per_pair=True)
    generator = seeded(0)
    drawn = Counter(method.plan(x, saliency=saliency, generator=generator).levels.shape[2:] for _ in range(400))
    assert set(drawn) == {(n, n) for n in (2, 4, 8, 16)}
    assert all(70 <= count <= 130 for count in drawn.values())  # 100 ± 3.5 standard deviations


def test_small_sides_have_a_block_per_place():
    x, saliency = batch_of((5, 20))
    plan = mm.PuzzleMix(blocks=(16,), transport="none").plan(x, saliency=saliency, generator=seeded(0))
    assert plan.levels.shape[2:] == (5, 16)


@pytest.mark.parametrize("transport_size", [None, 4])
def test_spectrograms(transport_size):
    x, saliency = batch_of((161, 101), channels=1)
    for blocks in (2, 4, 8, 16, 32):
        method = mm.PuzzleMix(k=5, blocks=(blocks,), transport_size=transport_size)
        plan = method.plan(x, saliency=saliency, generator=seeded(blocks))
        mixed = plan.mix(x)
        assert mixed.shape == (20, 1, 161, 101)
        assert (plan.mask.diff(dim=0) >= 0).all()
        torch.testing.assert_close(plan.lam, plan.mask.double().flatten(2).mean(2))
        torch.testing.assert_close(mixed, plan.mix(x.clone().requires_grad_()).detach())


@settings(max_examples=25)
@given(
    height=st.integers(1, 24),
    width=st.integers(1, 24),
    channels=st.integers(1, 4),
    batch=st.integers(1, 5),
    blocks=st.integers(1, 32),
    labels=st.integers(2, 4),
    k=st.integers(1, 4),
    transport=st.sampled_from(["exact", "reference", "none"]),
    size=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 99),
)
def test_any_shape_and_options(height, width, channels, batch, blocks, labels, k, transport, size, seed):
    x, saliency = batch_of((height, width), batch, channels, seed)
    method = mm.PuzzleMix(k=k, blocks=(blocks,), labels=labels, transport=transport, transport_size=size, transport_eps=0.1)
    plan = method.plan(x, saliency=saliency, generator=seeded(seed))
    assert (plan.lam.diff(dim=0) >= 0).all()
    assert (plan.mask.diff(dim=0) >= 0).all()
    mixed = plan.mix(x)
    torch.testing.assert_close(mixed, plan.mix(x.clone().requires_grad_()).detach())
    assert 0 <= float(mixed.min()) <= float(mixed.max()) <= 1
    torch.testing.assert_close(plan.mix_target(torch.arange(batch), batch + 1).sum(1), torch.ones(k * batch))


def test_a_pair_is_mixed_alike_in_any_batch():
    x, saliency = batch_of((31, 30), batch=7)
    partner = torch.randperm(7, generator=seeded(3))
    lam = torch.tensor([[0.3], [0.6]])
    method = mm.PuzzleMix(k=2, blocks=(8,), transport_eps=0.1)
    whole = method.plan(x, saliency=saliency, partner=partner, lam=lam, generator=seeded(0)).mix(x).unflatten(0, (2, 7))
    order = torch.randperm(7, generator=seeded(4))
    again = method.plan(x[order], saliency=saliency[order], partner=order.argsort()[partner[order]], lam=lam, generator=seeded(0))
    assert torch.equal(again.mix(x[order]).unflatten(0, (2, 7)), whole[:, order])


def test_one_sample_is_mixed_with_itself_and_stays():
    x, saliency = batch_of((8, 8), batch=1)
    plan = mm.PuzzleMix(k=5).plan(x, saliency=saliency, generator=seeded(0))
    torch.testing.assert_close(plan.mix(x), x.expand(5, -1, -1, -1))


def test_the_scale_of_saliency_means_nothing():
    x, saliency = batch_of((16, 16))
    method = mm.PuzzleMix(k=3, blocks=(4,))
    plans = [method.plan(x, saliency=saliency * scale, generator=seeded(0)) for scale in (1.0, 2.0**-90, 1024.0)]
    for plan in plans[1:]:
        assert torch.equal(plan.levels, plans[0].levels)
    zero = method.plan(x, saliency=torch.zeros_like(saliency), generator=seeded(0))
    even = method.plan(x, saliency=torch.ones_like(saliency), generator=seeded(0))
    assert torch.equal(zero.mix(x), even.mix(x))


def test_what_is_salient_is_kept():
    """Each image has all its saliency in one corner: at λ = 1/2 the mask shows both corners."""
    x = torch.rand(2, 3, 16, 16, generator=seeded(0))
    saliency = torch.zeros(2, 16, 16)
    saliency[0, :4, :4] = saliency[1, 12:, 12:] = 1
    plan = mm.PuzzleMix(blocks=(4,), transport="none").plan(
        x, saliency=saliency, partner=torch.tensor([1, 0]), lam=[0.5], generator=seeded(0)
    )
    assert plan.levels[0, 0, 0, 0] == 0
    assert plan.levels[0, 0, 3, 3] == 2
    assert plan.levels[0, 1, 0, 0] == 2


def test_what_is_salient_but_hidden_moves_to_where_it_shows():
    """The partner's best corner is the sample's too; its second best, opposite, is shown, and gives way to the best."""
    x = torch.rand(2, 3, 16, 16, generator=seeded(0))
    saliency = torch.zeros(2, 16, 16)
    saliency[0, :4, :4], saliency[1, :4, :4], saliency[1, 12:, 12:] = 1.0, 0.6, 0.4
    for eps, expected in ((0.09, 0), (0.11, 15)):  # the way costs 2 eps, the gain is 0.2
        method = mm.PuzzleMix(blocks=(4,), labels=2, gamma=0.0, transport_eps=eps)
        plan = method.plan(x, saliency=saliency, partner=torch.tensor([1, 0]), lam=[0.5], generator=seeded(0))
        assert plan.levels[0, 0, 0, 0] == 0
        assert plan.levels[0, 0, 3, 3] == 1
        assert (15 if plan.source_pair is None else int(plan.source_pair[0, 0, 15])) == expected
        corner = x[1, :, :4, :4] if expected == 0 else x[1, :, 12:, 12:]
        assert torch.equal(plan.mix(x)[0, :, 12:, 12:], corner)


def test_lam_is_followed_on_average():
    """The prior leads: over random pairs the realised share ascends with λ, and is fair at λ = 1/2."""
    x, saliency = batch_of((32, 32), batch=200)
    lam = [0.1, 0.3, 0.5, 0.7, 0.9]
    share = mm.PuzzleMix(blocks=(8,)).plan(x, saliency=saliency, lam=lam, generator=seeded(0)).lam
    assert (share.mean(1).diff() > 0.02).all()
    assert abs(float(share[2].mean()) - 0.5) < 4 * float(share[2].std()) / 200**0.5 + 1e-9
    torch.testing.assert_close(share[0].mean() + share[4].mean(), torch.tensor(1.0, dtype=torch.float64), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"blocks": (64,)}, "blocks must"),
        ({"blocks": ()}, "blocks must"),
        ({"blocks": ((2, 3, 4),)}, "blocks must"),
        ({"labels": 1}, "labels must"),
        ({"labels": 300}, "labels must"),
        ({"labels": None}, "labels must"),
        ({"neighborhood": None}, "neighborhood must"),
        ({"blocks": True}, "blocks must"),
        ({"neighborhood": 0}, "neighborhood must"),
        ({"transport_size": -1}, "transport_size must"),
        ({"beta": "1.2"}, "beta must"),
        ({"std": "0.2"}, "std must"),
        ({"mean": [0.1, None]}, "mean must"),
        ({"adv_eps": 1000}, "adv_eps"),
        ({"beta": -1.0}, "beta must"),
        ({"eta": float("nan")}, "eta must"),
        ({"transport": "dense"}, "transport"),
        ({"cost": "l3"}, "cost"),
        ({"adv_p": 2.0}, "adv_p must"),
        ({"std": (0.2, 0.0)}, "std must"),
        ({"backend": "gpu"}, "backend"),
        ({"out_of_range": "ignore"}, "out_of_range"),
    ],
    ids=str,
)
def test_bad_options_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        mm.PuzzleMix(**options)


def test_bad_batches_are_one_sentence():
    x, saliency = batch_of((8, 8))
    method = mm.PuzzleMix()
    for given_, sentence in (
        ({}, "PuzzleMix.plan needs saliency="),
        ({"saliency": saliency[:3]}, "saliency must"),
        ({"saliency": -saliency}, "saliency must"),
        ({"saliency": saliency / 0}, "saliency must"),
        ({"saliency": saliency.numpy()}, "saliency must"),
        ({"saliency": saliency, "noise": x}, "PuzzleMix.plan takes no 'noise'"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            method.plan(x, **given_)
    with pytest.raises(ValueError, match="x must"):
        method.plan(x * 2 - 1, saliency=saliency)
    with pytest.raises(ValueError, match="gamma"):
        mm.PuzzleMix(std=1.0).plan(x * 5, saliency=saliency)
    with pytest.raises(ValueError, match="mean must"):
        mm.PuzzleMix(mean=(0.1, 0.2)).plan(x, saliency=saliency)
    attacked = mm.PuzzleMix(adv_p=1.0)
    for noise, sentence in (
        (x[:, :1], "noise must"),
        (x.long(), "noise must"),
    ):
        with pytest.raises(ValueError, match=sentence):
            attacked.plan(x, saliency=saliency, noise=noise)
    assert torch.isfinite(attacked.plan(x, saliency=saliency, noise=x.clone().requires_grad_()).mix(x)).all()
    with pytest.raises(ValueError, match="std must"):
        mm.PuzzleMix(std=(1.0, 1.0)).plan(x, saliency=saliency)
    with pytest.raises(ValueError, match=r"PuzzleMix.*\[4, 3, 2, 8, 8\]"):
        method.plan(x.unsqueeze(2).expand(-1, -1, 2, -1, -1), saliency=saliency.unsqueeze(1).expand(-1, 2, -1, -1))
    clamped = mm.PuzzleMix(out_of_range="clamp").plan(x * 5, saliency=saliency.unsqueeze(1))
    assert torch.isfinite(clamped.mix(x * 5)).all()


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array], ids=["list", "tuple", "tensor", "array"])
def test_mean_and_std_in_any_form(kind):
    method = mm.PuzzleMix(mean=kind([0.5, 0.25]), std=kind([0.25, 0.5]))
    assert method == mm.PuzzleMix(mean=(0.5, 0.25), std=(0.25, 0.5))
    assert hash(method) == hash(mm.PuzzleMix(mean=(0.5, 0.25), std=(0.25, 0.5)))
    assert mm.PuzzleMix(std=kind([0.5])[0]) == mm.PuzzleMix(std=0.5)


def test_the_authors_names_are_known():
    with pytest.raises(TypeError, match="'t_eps'.*'transport_eps'"):
        mm.create("puzzlemix", t_eps=0.8)
    for ours in entry("puzzlemix").published.values():
        assert hasattr(mm.PuzzleMix(), ours)
