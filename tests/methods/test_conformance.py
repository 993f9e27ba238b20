"""What every registered method must pass. A new method is picked up by its line in METHODS.

It needs an entry in OPTIONS only if it has required options or further variants to test, one in BASE (its independently
written single-interpolation form), and one in EXCEPTIONS for every promise it cannot give, with the reason.
"""

import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import multimix as mm
import oracles
import puzzle_oracle
from oracles import seeded

OPTIONS = {
    "cutmix": [{}, {"box": "shift"}, {"grid": "integer"}, {"box": "shift", "grid": "integer"}],
    "cutout": [{"length": 5}, {"length": 6, "holes": 2, "fill": 0.7}],
    "fmix": [{}, {"decay": 1.5}, {"softness": 0.3}, {"spectrum": "reference"}],
    "manifoldmix": [{"layers": (None, "body")}],
    "puzzlemix": [{"std": 0.1}, {"std": 0.1, "labels": 4, "transport": "none", "blocks": (3, (2, 5))}],
}

BASE = {
    "none": lambda x, partner, lam, generator, options: x,
    "cutout": lambda x, partner, lam, generator, options: oracles.cutout(x, generator, **options),
    "mixup": lambda x, partner, lam, generator, options: oracles.mixup(x, partner, lam),
    "manifoldmix": lambda x, partner, lam, generator, options: oracles.mixup(x, partner, lam),
    "cutmix": lambda x, partner, lam, generator, options: oracles.cutmix(x, partner, lam, generator, **options),
    "fmix": lambda x, partner, lam, generator, options: oracles.fmix(x, partner, lam, generator, **options),
    "puzzlemix": lambda x, partner, lam, generator, options: puzzle_oracle.puzzle_mix(
        x, partner, lam, saliency(x), generator, **options
    ),
}

EXCEPTIONS = {
    ("cutmix", "partner at 1"): "clipped boxes lose what falls outside; box='shift' gives the end point",
    ("cutout", "target is the pixel share"): "what is removed belongs to nobody; the label stays",
    ("fmix", "K = 1 is the base method"): "soft edges and the reference spectrum have tests of their own in test_laws.py",
    ("puzzlemix", "volumes"): "blocks lie in rows and columns: signals and images only",
    ("puzzlemix", "one mask for the batch"): "a mask follows its own two images",
}


class Pooled(nn.Module):
    """Mean over places: the class scores of "images" whose channel c is the share of sample c."""

    def forward(self, z):
        return z.flatten(2).mean(2)


def probe():
    return nn.Sequential(OrderedDict(body=nn.Identity(), head=Pooled()))


def variants(pair_only=False):
    """(class, options) for every registered method, each pair method also with per_pair."""
    for method in mm.METHODS:
        pair = issubclass(method, mm.PairMethod)
        if pair_only and not pair:
            continue
        for options in OPTIONS.get(method.name, [{}]):
            for per_pair in (False, True) if pair else (None,):
                extra = {} if per_pair is None else {"per_pair": per_pair}
                words = " ".join(f"{k}={v}" for k, v in {**options, **extra}.items())
                yield pytest.param(method, {**options, **extra}, id=f"{method.name} {words}".strip())


every = pytest.mark.parametrize(("method", "options"), list(variants()))
every_pair = pytest.mark.parametrize(("method", "options"), list(variants(pair_only=True)))
sizes = pytest.mark.parametrize(("batch", "size"), [(5, (7, 11)), (1, (4, 6)), (2, (9, 5)), (8, (8, 8))], ids=str)


def excused(method, promise, options=()):
    if (method.name, promise) == ("cutmix", "partner at 1") and dict(options).get("box") == "shift":
        return False
    if (method.name, promise) == ("fmix", "K = 1 is the base method"):
        return bool({"softness", "spectrum"} & set(options))
    return (method.name, promise) in EXCEPTIONS


def saliency(x):
    """A map for every sample, none of them even, the same in every precision."""
    torch_map = torch.rand(len(x), *x.shape[2:], generator=seeded(77)) ** 3
    return torch_map + 1e-3


def planned(method, x, **given):
    """``method.plan(x, …)`` with what the method needs beside x."""
    return method.plan(x, **{name: saliency(x) for name in method.needs}, **given)


def images(batch, size, channels=2, seed=0, **kwargs):
    return torch.randn(batch, channels, *size, generator=seeded(seed)).to(**kwargs)


def source_images(batch, size):
    """Image i is 1 in channel i and 0 elsewhere, so that a mixed image shows how much of each sample it holds."""
    channels = max(batch, 2)
    return torch.eye(batch, channels).reshape(batch, channels, *[1] * len(size)).expand(batch, channels, *size).contiguous()


def tensors(plan):
    return {name: value for name, value in vars(plan).items() if isinstance(value, torch.Tensor)}


@every
@sizes
def test_shapes(method, options, batch, size):
    x = images(batch, size)
    plan = planned(method(k=5, **options), x, generator=seeded(0))
    assert plan.k == (1 if method is mm.NoMix else 5)
    assert plan.mix(x).shape == (plan.k * batch, 2, *size)
    assert plan.mix(x).dtype == x.dtype
    assert plan.lam.shape == (plan.k, batch)
    assert plan.lam.dtype == torch.float64
    assert plan.mix_target(torch.zeros(batch, dtype=torch.long), 3).shape == (plan.k * batch, 3)
    if plan.layer is None:
        assert plan.mask.shape == (plan.k, batch, 1, *size)


@every
@sizes
@pytest.mark.parametrize("k", [1, 5])
def test_target_is_the_pixel_share(method, options, batch, size, k):
    x = source_images(batch, size)
    for seed in range(4):
        shares, target = mm.mixed_logits(probe(), method(k=k, **options), x, torch.arange(batch), generator=seeded(seed))
        torch.testing.assert_close(target.sum(1), torch.ones(len(target)))
        assert (target >= 0).all()
        if excused(method, "target is the pixel share"):
            assert (target.argmax(1) == torch.arange(batch).repeat(k)).all()
        else:
            torch.testing.assert_close(shares, target, atol=1e-6, rtol=0)


@every
@sizes
def test_order_in_k(method, options, batch, size):
    x = images(batch, size)
    for seed in range(5):
        plan = planned(method(k=5, **options), x, generator=seeded(seed))
        assert (plan.lam.diff(dim=0) >= 0).all()
        assert (plan.mask.diff(dim=0) >= 0).all(), "masks must be nested"


@every_pair
@sizes
def test_end_points(method, options, batch, size):
    x = images(batch, size)
    plan = planned(method(**options), x, lam=[0.0, 1.0], generator=seeded(3))
    at_0, at_1 = mm.mixed_forward(nn.Sequential(OrderedDict(body=nn.Identity())), plan, x).chunk(2)
    assert torch.equal(at_0, x)
    if not excused(method, "partner at 1", options):
        assert torch.equal(at_1, x[plan.partner])


@every
@sizes
def test_k_1_is_the_base_method(method, options, batch, size):
    if excused(method, "K = 1 is the base method", options):
        pytest.skip(EXCEPTIONS[method.name, "K = 1 is the base method"])
    assert method.name in BASE, "write the single-interpolation form of the method, independently, in oracles.py"
    x = images(batch, size)
    of_base = {name: value for name, value in options.items() if name not in ("layers",)}
    for seed, lam in enumerate([0.03, 0.3, 0.5, 0.81]):
        partner = torch.randperm(batch, generator=seeded(100 + seed))
        if method.name in ("mixup", "manifoldmix", "fmix"):
            of_base.pop("per_pair", None)
        if method.name == "fmix" and options.get("per_pair") and batch > 1:
            pytest.skip("one field per pair: the base method has one for all")
        given = {"partner": partner, "lam": [lam]} if issubclass(method, mm.PairMethod) else {}
        plan = planned(method(k=1, **options), x, generator=seeded(seed), **given)
        expected = BASE[method.name](x, partner.tolist(), lam, seeded(seed), of_base)
        torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=1e-6)


@every_pair
def test_a_step_of_k_5_is_k_1_at_its_lam(method, options):
    x = images(6, (7, 11))
    lam = mm.sample_path(5, 1.0, rows=6 if options["per_pair"] else 1, generator=seeded(1))
    partner = torch.randperm(6, generator=seeded(2))
    whole = planned(method(k=5, **options), x, partner=partner, lam=lam, generator=seeded(3))
    for k in range(5):
        single = planned(method(k=1, **options), x, partner=partner, lam=lam[k : k + 1], generator=seeded(3))
        assert torch.equal(single.mix(x), whole.mix(x)[6 * k : 6 * (k + 1)])
        assert torch.equal(single.lam[0], whole.lam[k])
        assert torch.equal(whole[k].mix(x), single.mix(x))


@every
def test_k_never_changes_the_pairing(method, options):
    x = images(64, (4, 4))
    partners = [planned(method(k=k, **options), x, generator=seeded(7)).partner for k in (1, 2, 5)]
    assert torch.equal(partners[0], partners[1])
    assert torch.equal(partners[0], partners[2])


@every
def test_same_generator_same_plan(method, options):
    x = images(9, (7, 11))
    first, again, other = (planned(method(k=5, **options), x, generator=seeded(seed)) for seed in (0, 0, 1))
    assert tensors(first).keys() == tensors(again).keys()
    for name, value in tensors(first).items():
        assert torch.equal(value, tensors(again)[name])
    if method is not mm.NoMix:
        assert any(not torch.equal(value, tensors(other)[name]) for name, value in tensors(first).items())


@every_pair
def test_geometry_is_drawn(method, options):
    """With pair and path given, what is left to draw must differ between seeds, and between pairs if it is per pair."""
    if method.name == "mixup":
        pytest.skip("mixup has no geometry")
    x = images(8, (12, 16))
    plans = [
        planned(method(k=1, **options), x, partner=torch.arange(8).roll(1), lam=[0.3], generator=seeded(s)) for s in range(12)
    ]
    if method.name == "manifoldmix":
        assert {plan.layer for plan in plans} == {None, "body"}
        return
    masks = torch.stack([plan.mask[0] for plan in plans])
    assert (masks[:, 0] != masks[0, 0]).any()
    if excused(method, "one mask for the batch"):
        return
    differ_by_pair = bool((masks != masks[:, :1]).any())
    assert differ_by_pair == options["per_pair"]


@every
def test_inputs_and_global_state_are_untouched(method, options):
    x, y = images(6, (7, 11)), torch.arange(6) % 2
    x_before, y_before = x.clone(), y.clone()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    logits, target = mm.mixed_logits(probe(), method(k=5, **options), x, y, num_classes=2)
    logits.fill_(9.0)
    target.fill_(9.0)
    if method is not mm.NoMix:
        planned(method(k=5, **options), x).mix(x).fill_(9.0)
    assert torch.equal(x, x_before)
    assert torch.equal(y, y_before)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]


@every
def test_chunks_have_the_gradient_of_the_whole(method, options):
    x, y = images(6, (7, 11), dtype=torch.float64), torch.arange(6) % 4
    torch.manual_seed(0)
    body = nn.Conv2d(2, 3, 3, padding=1)
    model = nn.Sequential(OrderedDict(body=body, act=nn.Tanh(), head=nn.Flatten(), out=nn.Linear(3 * 77, 4))).double()
    logits, target = mm.mixed_logits(model, method(k=5, **options), x, y, generator=seeded(5))
    nn.functional.cross_entropy(logits, target).backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    weights = []
    for part, its_target, weight in mm.mixed_chunks(model, method(k=5, **options), x, y, steps=2, generator=seeded(5)):
        assert len(part) <= 2 * 6
        (weight * nn.functional.cross_entropy(part, its_target)).backward()
        weights.append(weight)
    assert sum(weights) == pytest.approx(1)
    for grad, parameter in zip(whole, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision(method, options, dtype):
    x = images(5, (7, 11))
    plan = planned(method(k=5, **options), x.to(dtype), generator=seeded(0))
    mixed = plan.mix(x.to(dtype))
    assert mixed.dtype == dtype
    # Mixed in float32 and rounded once: within one rounding of the float64 mixture of the same inputs.
    expected = plan.mix(x.to(dtype).double()).to(dtype)
    torch.testing.assert_close(mixed, expected, atol=1e-6, rtol=torch.finfo(dtype).eps)


@every
@pytest.mark.parametrize(("size", "layout"), [((7, 11), torch.channels_last), ((3, 4, 5), torch.channels_last_3d)], ids=str)
def test_channels_last_is_kept(method, options, size, layout):
    if options.get("spectrum") == "reference" and len(size) == 3:
        pytest.skip("the defect it reproduces exists for images only")
    if len(size) == 3 and excused(method, "volumes"):
        pytest.skip(EXCEPTIONS[method.name, "volumes"])
    x = images(5, size, channels=3).contiguous(memory_format=layout)
    plan = planned(method(k=5, **options), x, generator=seeded(0))
    for z in (x, x.clone(memory_format=torch.preserve_format).requires_grad_()):
        mixed = plan.mix(z)
        assert mixed.is_contiguous(memory_format=layout)
        torch.testing.assert_close(mixed.detach(), plan.mix(x.contiguous()))


@every
@pytest.mark.parametrize("size", [(13,), (1,), (3, 4, 5)], ids=str)
def test_signals_and_volumes(method, options, size):
    if options.get("spectrum") == "reference":
        pytest.skip("the defect it reproduces exists for images only")
    if len(size) == 3 and excused(method, "volumes"):
        pytest.skip(EXCEPTIONS[method.name, "volumes"])
    x = source_images(4, size)
    shares, target = mm.mixed_logits(probe(), method(k=5, **options), x, torch.arange(4), generator=seeded(0))
    if not excused(method, "target is the pixel share"):
        torch.testing.assert_close(shares, target, atol=1e-6, rtol=0)


@every
@pytest.mark.parametrize(("batch", "size"), [(3, (130, 129)), (4, (65, 67))], ids=str)
def test_large_samples_take_the_other_road_to_the_same_place(method, options, batch, size):
    """Big samples are mixed pair by pair, small ones all at once, those with gradients by one formula: all must agree."""
    x = images(batch, size, channels=3)
    plan = planned(method(k=3, **options), x, generator=seeded(1))
    expected = plan.mix(x.clone().requires_grad_()).detach()
    torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=1e-6)
    out = torch.full((plan.k * batch, 3, *size), 7.0)
    assert plan.mix(x, out=out) is out
    assert torch.equal(out, plan.mix(x))


@every
def test_constant_images_stay_constant(method, options):
    x = torch.full((4, 1, 6, 5), 0.25)
    plan = planned(method(k=5, **options), x, generator=seeded(0))
    mixed = plan.mix(x)
    assert torch.isfinite(mixed).all()
    if method is not mm.Cutout:
        torch.testing.assert_close(mixed, torch.full_like(mixed, 0.25))
