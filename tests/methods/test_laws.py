"""What methods draw beside path and geometry. Fixed seeds; each test fails by chance with probability 1e-3 or less."""

import copy
import math
from collections import Counter

import pytest
import torch
from scipy import stats

import multimix as mm
from oracles import seeded

X = torch.zeros(4, 1, 8, 8)
N = 2_000


@pytest.mark.parametrize("name", ["cutout", "mixup", "cutmix", "fmix"])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9])
def test_rate_of_p(name, p):
    """Applied once, not twice: a library of the field shipped p²."""
    method, generator = mm.create(name, k=3, p=p), seeded(0)
    mixed = sum(method.plan(X, generator=generator).k == 3 for _ in range(N))
    assert mixed == 0 if p == 0 else stats.binomtest(mixed, N, p).pvalue > 1e-3


def test_p_is_settled_by_choosing():
    method, generator = mm.CutMix(p=0.5), seeded(1)
    for _ in range(50):
        chosen = method.choose(generator=generator)
        if chosen is not None:
            assert chosen == mm.CutMix()
            assert chosen.choose(generator=generator) is chosen


def test_an_unmixed_batch_keeps_its_rows_and_labels():
    x = torch.randn(4, 1, 8, 8)
    for method in (mm.CutMix(k=5, p=0.0), mm.InputMixup(k=5, alpha=0.0), mm.NoMix(k=5)):
        plan = method.plan(x)
        assert plan.k == 1
        assert torch.equal(plan.mix(x), x)
        assert torch.equal(plan.mix_target(torch.arange(4), 4), torch.eye(4))
        assert plan.mask.shape == (1, 4, 1, 8, 8)
        assert not plan.mask.any()


def test_one_of_draws_with_its_probabilities():
    generator = seeded(2)
    method = mm.OneOf((mm.CutMix(k=2), mm.InputMixup(k=3), mm.FMix(k=4, p=0.5)), (0.5, 0.2, 0.2))
    seen = Counter(method.plan(X, generator=generator).k for _ in range(N))
    expected = {2: 0.5, 3: 0.2, 4: 0.1, 1: 0.2}
    assert stats.chisquare([seen[k] for k in expected], [N * p for p in expected.values()]).pvalue > 1e-3


def test_one_of_splits_evenly_when_nothing_is_said():
    generator = seeded(3)
    method = mm.OneOf((mm.CutMix(k=1), mm.InputMixup(k=2), mm.FMix(k=3)))
    seen = Counter(method.plan(X, generator=generator).k for _ in range(N))
    assert set(seen) == {1, 2, 3}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_one_of_hands_on_what_the_drawn_method_takes():
    method = mm.OneOf((mm.CutMix(k=2), mm.Cutout(k=2)))
    for seed in range(10):
        plan = method.plan(X, lam=[0.2, 0.4], partner=torch.tensor([1, 0, 3, 2]), generator=seeded(seed))
        assert plan.k == 2
    assert method.traits.mixes_at == (None,)


def test_layers_are_drawn_uniformly():
    method, generator = mm.ManifoldMixup(layers=(None, "a", "b")), seeded(4)
    seen = Counter(method.plan(X, generator=generator).layer for _ in range(N))
    assert stats.chisquare([seen[layer] for layer in (None, "a", "b")]).pvalue > 1e-3


def test_rounding_coin_of_fmix_is_fair():
    generator = seeded(5)
    x = torch.zeros(1, 1, 3, 3)
    up = sum(float(mm.FMix().plan(x, lam=[0.5], generator=generator).lam) > 0.5 for _ in range(N))
    assert stats.binomtest(up, N).pvalue > 1e-3


def test_fmix_area_is_within_one_place():
    x = torch.zeros(1).expand(200, 1, 9, 7)
    for seed in range(5):
        lam = mm.random.sample_path(5, 1.0, rows=200, generator=seeded(seed))
        plan = mm.FMix(k=5, per_pair=True).plan(x, lam=lam, generator=seeded(seed))
        assert ((plan.lam - lam).abs() <= 1 / 63 + 1e-12).all()


def test_cutout_removes_the_expected_area():
    """(L − L²/4W) (L − L²/4H) for continuous centres; for whole ones by enumeration."""
    height, width, length = 20, 14, 8
    along = [sum(min(side, c + 4) - max(0, c - 4) for c in range(side)) / side for side in (height, width)]
    x = torch.zeros(1).expand(20_000, 1, height, width)
    removed = mm.Cutout(length=length).plan(x, generator=seeded(6)).mask.mean((2, 3, 4))
    spread = float(removed.std()) / math.sqrt(20_000)
    assert float(removed.mean()) == pytest.approx(along[0] * along[1] / (height * width), abs=3.3 * spread)


def test_cutout_sides_grow_to_the_length_and_labels_stay():
    x = torch.ones(3, 1, 40, 40)
    plan = mm.Cutout(k=4, length=16).plan(x, generator=seeded(8))
    assert plan.mix(x).shape == (12, 1, 40, 40)
    assert (plan.lam == 0).all()
    sides = (plan.high - plan.low).amax((1, 2, 3))
    assert sides.tolist() == [4, 8, 12, 16]
    # round(13 · k/4) = 3, 7, 10, 13, and an odd side loses one place.
    plan = mm.Cutout(k=4, length=13).plan(x, generator=seeded(8))
    assert (plan.high - plan.low).amax((1, 2, 3)).tolist() == [2, 6, 10, 12]


def test_per_pair_paths_differ_by_pair_and_shared_ones_do_not():
    for sampler in ("iid", "stratified", "antithetic"):
        x = torch.zeros(16, 1, 4, 4)
        shared = mm.InputMixup(k=3, sampler=sampler).plan(x, generator=seeded(9)).lam
        own = mm.InputMixup(k=3, sampler=sampler, per_pair=True).plan(x, generator=seeded(9)).lam
        assert (shared == shared[:, :1]).all()
        assert len(own[0].unique()) == 16


def test_fmix_softness_is_the_width_asked_for():
    x = torch.zeros(1, 1, 20, 20)
    for softness in (0.1, 0.25):
        mask = mm.FMix(softness=softness).plan(x, lam=[0.5], generator=seeded(10)).mask
        between = int(((mask > 0) & (mask < 1)).sum())
        assert between == pytest.approx(2 * softness * 400, abs=1)


def test_fmix_survives_any_decay():
    x = torch.zeros(1, 1, 64, 64)
    masks = [mm.FMix(decay=40.0).plan(x, lam=[0.5], generator=seeded(s)).mask for s in (1, 2)]
    assert not torch.equal(*masks)
    assert float(masks[0].mean()) == 0.5


def test_one_of_leaves_no_gap_below_1(monkeypatch):
    """Ten probabilities of 0.1 sum to a little less than 1 in floating point; the largest draw must still find a method."""
    method = mm.OneOf(tuple(mm.InputMixup() for _ in range(10)), (0.1,) * 10)
    assert sum((0.1,) * 10) < 1
    monkeypatch.setattr(torch, "rand", lambda *args, **options: torch.tensor(math.nextafter(1.0, 0.0), dtype=torch.float64))
    assert method.choose(generator=seeded(0)) is not None


@pytest.mark.parametrize("device", ["meta"])
def test_a_default_device_does_not_matter(device):
    x = torch.randn(4, 2, 6, 5)
    for method in (mm.InputMixup(k=2, sampler="stratified"), mm.CutMix(k=2), mm.FMix(k=2), mm.Cutout(k=2), mm.NoMix()):
        plain = method.plan(x, generator=seeded(1)).mix(x)
        with torch.device(device):
            plan = method.plan(x, generator=torch.Generator(device="cpu").manual_seed(1))
            assert torch.equal(plan.mix(x), plain)
        assert torch.equal(plan.mix(x), plain)


def test_a_default_device_does_not_matter_to_what_draws_or_is_copied():
    x, y = torch.randn(4, 2, 6, 5), torch.arange(4)
    used = mm.Mix(mm.CutMix(k=2), num_classes=4, seed=1)
    used(x, y)
    expected = copy.deepcopy(used)(x, y)
    skipped, one = mm.CutMix(p=0.5), mm.OneOf(methods=(mm.CutMix(), mm.InputMixup()))
    with torch.device("meta"):
        found = copy.deepcopy(used)(x, y)
        for method in (skipped, one):
            method.choose(generator=torch.Generator(device="cpu").manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
