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

import box_family_oracles
import comixup_oracle
import multimix as mm
import oracles
import puzzle_oracle
import recursive_oracle
import saliency_family_oracles as family
import samix_oracle
import style_oracle
from multimix.methods.samix.block import FixedBlock
from oracles import seeded

OPTIONS = {
    # At the published ε of 0.1 float32 is 6e-6 away from the oracle's float64; its own tests ask for that.
    "alignmixup": [{"layers": ("body",), "direction": "partner", "eps": 1.0, "rounds": 5}],
    "attentivemix": [{}, {"cells": 3, "beta": 8.0}],
    # On grids that are solved exactly: larger ones may be solved by moves, which the oracle does not make.
    "comixup": [{"part": 3, "blocks": (3,)}, {"blocks": (2, (3, 2)), "rule": "soft", "start": "fresh"}],
    "cutmix": [{}, {"box": "shift"}, {"grid": "integer"}, {"box": "shift", "grid": "integer"}],
    "cutout": [{"length": 5}, {"length": 6, "holes": 2, "fill": 0.7}],
    "gridmix": [{}, {"crop": 1.0, "holes": 3}, {"crop": 1, "hole_aspect": (0.5, 2.0), "random_offset": False}],
    "guidedmixup": [{}, {"pairing": "random", "blur_size": 3}],
    "fmix": [{}, {"decay": 1.5}, {"softness": 0.3}, {"spectrum": "reference"}],
    "manifoldmix": [{"layers": (None, "body")}],
    "puzzlemix": [{"std": 0.1}, {"std": 0.1, "labels": 4, "transport": "none", "blocks": (3, (2, 5))}],
    "recursivemix": [
        {},
        {"per_pair": True, "resize": "bilinear"},
        {"box": "shift", "grid": "continuous"},
        {"keep": "random", "area": 1.0},
    ],
    "resizemix": [
        {},
        {"scale": None, "box": "clip", "grid": "integer"},
        {"box": "shift", "resize": "bilinear"},
        {"resize": "bilinear"},
    ],
    "sage": [{"bound": 1.0}, {"bound": 1.0, "positions": 0.05, "stay": False, "blur_size": 1}],
    # Every mask is rescaled to its λ, so that the target is the share of pixels; without it is λ as drawn, by its own law.
    "samix": [{"block": FixedBlock(), "train_block": False, "clean_weight": 0.0, "rescale_p": 1.0}],
    "saliencymix": [{}, {"box": "shift", "grid": "continuous"}, {"reference": True}, {"saliency_from": "gradient"}],
    "smoothmix": [{}, {"width": (0.25, 0.5)}],
    # The settings in which the label is the share of flat images; tests of their own ask for the others.
    "stylemix": [{"pair": style_oracle.IDENTITY, "side": None, "tie": True}],
    "stylecutmix": [
        {"pair": style_oracle.IDENTITY, "side": None, "box": "shift", "gamma": 1.0},
        {"pair": style_oracle.IDENTITY, "side": None, "box": "shift", "gamma": 0.3, "content_weight": 0.0},
    ],
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
    "comixup": lambda x, partner, lam, generator, options: comixup_oracle.base(x, saliency(x), generator, **options),
    "recursivemix": lambda x, partner, lam, generator, options: recursive_oracle.recursive_mix(
        x, x.flip(0), generator, **options
    ),
    "stylemix": lambda x, partner, lam, generator, options: style_oracle.base_style_mix(x, partner, lam, generator, options),
    "stylecutmix": lambda x, partner, lam, generator, options: style_oracle.base_style_cutmix(
        x, partner, lam, generator, options
    ),
    "samix": lambda x, partner, lam, generator, options: samix_oracle.fixed_samix(x, partner, lam, generator, **options),
    "saliencymix": lambda x, partner, lam, generator, options: box_family_oracles.saliency_mix(
        x, partner, lam, maps=saliency(x) if options.get("saliency_from") == "gradient" else None, **options
    ),
    "resizemix": lambda x, partner, lam, generator, options: box_family_oracles.resize_mix(x, partner, lam, generator, **options),
    "gridmix": lambda x, partner, lam, generator, options: box_family_oracles.grid_mix(x, partner, lam, generator, **options),
    "smoothmix": lambda x, partner, lam, generator, options: box_family_oracles.smooth_mix(x, partner, lam, generator, **options),
    "alignmixup": lambda x, partner, lam, generator, options: family.align_mixup(x, partner, lam, generator, **options),
    "sage": lambda x, partner, lam, generator, options: family.sage(x, partner, lam, saliency(x), generator, **options),
    "guidedmixup": lambda x, partner, lam, generator, options: family.guided_mixup(x, partner, lam, saliency(x), **options),
    "attentivemix": lambda x, partner, lam, generator, options: family.attentive_mix(
        x, partner, lam, saliency(x), generator, **options
    ),
}

EXCEPTIONS = {
    ("cutmix", "partner at 1"): "clipped boxes lose what falls outside; box='shift' gives the end point",
    ("cutout", "target is the pixel share"): "what is removed belongs to nobody; the label stays",
    ("fmix", "K = 1 is the base method"): "soft edges and the reference spectrum have tests of their own in test_laws.py",
    ("puzzlemix", "volumes"): "blocks lie in rows and columns: signals and images only",
    ("puzzlemix", "one mask for the batch"): "a mask follows its own two images",
    ("comixup", "volumes"): "blocks lie in rows and columns: signals and images only",
    ("comixup", "order in k"): "the prior is a weak wish and outputs push each other: no order",
    ("comixup", "pairing"): "no pair is drawn; the partner is read off the weights",
    ("stylemix", "volumes"): "encoders and decoders are for images",
    ("stylemix", "signals"): "encoders and decoders are for images",
    ("stylemix", "geometry"): "its mask is even; what is drawn is t, tested in test_style_mix.py",
    ("stylecutmix", "volumes"): "encoders and decoders are for images",
    ("stylecutmix", "signals"): "encoders and decoders are for images",
    ("samix", "one mask for the batch"): "a mask follows its own two images",
    ("samix", "order in k"): "masks are learnt; monotone=True nests them",
    ("samix", "geometry"): "all that is drawn is the coin for rescaling, here certain",
    ("saliencymix", "partner at 1"): "clipped boxes lose what falls outside; box='shift' gives the end point",
    ("saliencymix", "one mask for the batch"): "the box follows the partner",
    ("saliencymix", "geometry"): "the box lies where the partner is most salient: nothing is drawn",
    ("resizemix", "partner at 1"): "clipped boxes lose what falls outside; the others give the end point",
    ("gridmix", "partner at 1"): "a crop leaves the rest of the image as it is; crop=1 gives the end point",
    ("alignmixup", "partner at 1"): "the path ends at the partner brought to the sample's places",
    ("alignmixup", "large samples"): "a transport between thousands of places is refused",
    ("sage", "partner at 1"): "the path ends at the moved partner",
    ("sage", "one mask for the batch"): "a mask follows its own two maps",
    ("sage", "a step is K = 1"): "the translation is the best for all K steps together",
    ("guidedmixup", "one mask for the batch"): "a mask follows its own two maps",
    ("guidedmixup", "geometry"): "nothing is left to draw once pair and path are given",
    ("attentivemix", "one mask for the batch"): "a mask follows its partner's map",
    ("mixup", "geometry"): "mixup has no geometry",
}
# The end point is there with these options, whatever the exception says.
AT_THE_PARTNER = {"cutmix": ("box", ("shift",)), "saliencymix": ("box", ("shift",)), "gridmix": ("crop", (1,)),
                  "resizemix": ("box", ("shift", "anywhere"))}  # fmt: skip


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
        if method.layout == "points" or (pair_only and not pair):
            continue  # methods for points have the same asked of clouds in tests of their own
        for options in OPTIONS.get(method.name, [{}]):
            for per_pair in (False, True) if pair else (None,):
                extra = {} if per_pair is None else {"per_pair": per_pair}
                words = " ".join(f"{k}={v}" for k, v in {**options, **extra}.items())
                yield pytest.param(method, {**options, **extra}, id=f"{method.name} {words}".strip())


every = pytest.mark.parametrize(("method", "options"), list(variants()))
every_pair = pytest.mark.parametrize(("method", "options"), list(variants(pair_only=True)))
sizes = pytest.mark.parametrize(("batch", "size"), [(5, (7, 11)), (1, (4, 6)), (2, (9, 5)), (8, (8, 8))], ids=str)


def excused(method, promise, options=()):
    if promise == "partner at 1" and method.name in AT_THE_PARTNER:
        option, wanted = AT_THE_PARTNER[method.name]
        given = dict(options).get(option, getattr(method(), option))
        return given not in wanted
    if (method.name, promise) == ("fmix", "K = 1 is the base method"):
        return bool({"softness", "spectrum"} & set(options))
    return (method.name, promise) in EXCEPTIONS


def saliency(x):
    """A map for every sample, none of them even, the same in every precision."""
    torch_map = torch.rand(len(x), *x.shape[2:], generator=seeded(77)) ** 3
    return torch_map + 1e-3


def planned(method, x, **given):
    """``method.plan(x, …)`` with what the method needs beside x."""
    return method.plan(x, **{name: saliency(x) for name in method.needs}, **remembered(method, x), **given)


def remembered(method, x, classes=3, label=None):
    """What a method that carries tensors from batch to batch would have kept of the batch before: this one, turned round."""
    label = torch.zeros(len(x), dtype=torch.long) if label is None else label
    old = {"history_x": x.flip(0), "history_target": torch.eye(classes)[label.flip(0)]}
    return {name: value for name, value in old.items() if name in method.history}


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
        made, y = method(k=k, **options), torch.arange(batch)
        past = remembered(made, x, max(2, batch), y)
        shares, target = mm.mixed_logits(probe(), made, x, y, generator=seeded(seed), **past)
        assert len(target) == k * batch or method is mm.NoMix
        torch.testing.assert_close(target.sum(1), torch.ones(len(target)))
        assert (target >= 0).all()
        if excused(method, "target is the pixel share"):
            assert (target.argmax(1) == torch.arange(batch).repeat(k)).all()
        else:
            torch.testing.assert_close(shares, target, atol=1e-6, rtol=0)


class Scored(nn.Module):
    """A linear head on what a layer puts out, for methods that look inside."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Identity(), nn.Linear(2, 3)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 1.0]]))
            self.head.bias.zero_()

    def forward(self, x):
        return self.head(self.body(x).flatten(2).mean(2))


OWN_LOSS = {
    "puzzlemix": [{"std": 0.1, "clean_weight": 1.0, "clean_scale": scale} for scale in ("plain", "per_class", "loss")],
    "comixup": [{"clean_weight": 1.0}],
    "sage": [{"update_ratio": 0.5}],
    "samix": [{"block": FixedBlock(), "train_block": False}],
    "recursivemix": [{"features": "body", "head": "head", "omega_scale": scale} for scale in ("plain", "per_class")],
}
OF_IMAGES = [method for method in mm.METHODS if method.layout == "images"]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (method, options)
        for method in OF_IMAGES
        for options in [*OPTIONS.get(method.name, [{}])[:1], *OWN_LOSS.get(method.name, [])]
    ],
)
def test_a_loss_is_known_by_what_it_returns_not_by_which_function_it_is(method, options):
    """The same function under another name gives the same number: nothing may hang on its identity."""
    x, y, made = images(4, (8, 8)).clamp(0, 1), torch.tensor([0, 1, 2, 0]), method(k=2, **options)
    past = {"history_logits": torch.zeros(4, 3), **remembered(made, x, 3, y)} if made.history else {}
    for loss in (mm.softmax_bce, mm.soft_cross_entropy):
        bare, wrapped = (
            mm.mixed_loss(Scored(), made, x, y, loss=one, generator=seeded(0), **past)
            for one in (loss, lambda logits, target, loss=loss: loss(logits, target))
        )
        assert torch.equal(bare, wrapped)


@every
@sizes
def test_order_in_k(method, options, batch, size):
    if excused(method, "order in k"):
        pytest.skip(EXCEPTIONS[method.name, "order in k"])
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
    if excused(method, "a step is K = 1"):
        pytest.skip(EXCEPTIONS[method.name, "a step is K = 1"])
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
    if excused(method, "pairing"):
        pytest.skip(EXCEPTIONS[method.name, "pairing"])
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
    if excused(method, "geometry"):
        pytest.skip(EXCEPTIONS[method.name, "geometry"])
    x = images(8, (12, 16))
    plans = [
        planned(method(k=1, **options), x, partner=torch.arange(8).roll(1), lam=[0.3], generator=seeded(s)) for s in range(12)
    ]
    if method.name in ("manifoldmix", "alignmixup"):
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
    made = method(k=5, **options)
    logits, target = mm.mixed_logits(probe(), made, x, y, num_classes=2, **remembered(made, x, 2, y))
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
    made = method(k=5, **options)
    past = remembered(made, x, 4, y)
    logits, target = mm.mixed_logits(model, made, x, y, generator=seeded(5), **past)
    nn.functional.cross_entropy(logits, target).backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    weights = []
    for part, its_target, weight in mm.mixed_chunks(model, made, x, y, steps=2, generator=seeded(5), **past):
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
    if len(size) == 1 and excused(method, "signals"):
        pytest.skip(EXCEPTIONS[method.name, "signals"])
    x = source_images(4, size)
    made, y = method(k=5, **options), torch.arange(4)
    shares, target = mm.mixed_logits(probe(), made, x, y, generator=seeded(0), **remembered(made, x, 4, y))
    if not excused(method, "target is the pixel share"):
        torch.testing.assert_close(shares, target, atol=1e-6, rtol=0)


@every
@pytest.mark.parametrize(("batch", "size"), [(3, (130, 129)), (4, (65, 67))], ids=str)
def test_large_samples_take_the_other_road_to_the_same_place(method, options, batch, size):
    """Big samples are mixed pair by pair, small ones all at once, those with gradients by one formula: all must agree."""
    if excused(method, "large samples"):
        pytest.skip(EXCEPTIONS[method.name, "large samples"])
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
