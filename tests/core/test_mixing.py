"""The mixing equation, and its results on every route against loops over pairs and places."""

import itertools

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import multimix as mm
from multimix.core import mixing
from oracles import seeded

SHAPES = [(5, 3, 7, 6), (1, 2, 3, 3), (4, 1, 9), (3, 2, 3, 4, 5), (6, 11)]
METHODS = [
    mm.InputMixup(k=3),
    mm.InputMixup(k=2, per_pair=True),
    mm.CutMix(k=2),
    mm.CutMix(k=2, per_pair=True),
    mm.FMix(k=2, softness=0.2),
]


@pytest.fixture(params=["small samples", "large samples"])
def route(request, monkeypatch):
    """Both ways to mix on the CPU, for samples of any size."""
    limit = {"small samples": 10**9, "large samples": 0}[request.param]
    monkeypatch.setattr(mixing, "LARGE_SAMPLE", limit)


def layouts(x):
    yield x
    if x.ndim in (4, 5):
        order = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        yield x.contiguous(memory_format=order)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_ends_are_exact(dtype):
    odd = [0.0, -0.0, 1.0, 1 / 3, -2.5e4, 1e-7]
    z, pair = (torch.tensor(part).to(dtype) for part in zip(*itertools.product(odd, odd), strict=True))
    for m, end in ((0.0, z), (1.0, pair)):
        for share in (torch.tensor(m), torch.full(z.shape, m, dtype=torch.float64)):
            mixed = mm.plans.mix(z, pair, share)
            assert mixed.dtype == dtype
            assert torch.equal(mixed, end)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_pair", [False, True])
def test_blends_are_those_of_a_loop(shape, per_pair, route):
    x = torch.randn(shape, generator=seeded(1))
    partner = torch.randint(shape[0], (shape[0],), generator=seeded(2))  # not only permutations
    share = torch.tensor([[0.0], [0.2], [0.5], [0.9], [1.0]], dtype=torch.float64)
    share = share.repeat(1, shape[0]) if per_pair else share
    for z in layouts(x):
        plan = mm.InputMixup(k=5, per_pair=per_pair).plan(z, partner=partner, lam=share)
        mixed = plan.mix(z)
        for k, i in np.ndindex(5, shape[0]):
            w = np.float64(np.float32(share[k, i % share.shape[1]]))
            a, b = (z[row].double().numpy() for row in (i, partner[i]))
            expected = (1 - w) * a + w * b
            np.testing.assert_allclose(mixed[k * shape[0] + i], expected, rtol=0, atol=1e-6)
        assert torch.equal(mixed[: shape[0]], z), "λ = 0 is the sample"
        assert torch.equal(mixed[-shape[0] :], z[partner]), "λ = 1 is the partner"
        assert mixing.memory_format(mixed) == mixing.memory_format(z)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) > 2])
@pytest.mark.parametrize("per_pair", [False, True])
def test_boxes_are_those_of_a_loop(shape, per_pair, route):
    x = torch.randn(shape, generator=seeded(3))
    for z in layouts(x):
        plan = mm.CutMix(k=3, per_pair=per_pair).plan(z, generator=seeded(4))
        mixed, target = plan.mix(z), plan.mix_target(torch.arange(shape[0]), max(2, shape[0]))
        expected = torch.empty(mixed.shape)
        expected_target = torch.zeros_like(target)
        for k, i in np.ndindex(3, shape[0]):
            low, high = (edge[k, i % plan.low.shape[1]] for edge in (plan.low, plan.high))
            row, count = k * shape[0] + i, 0
            for place in np.ndindex(shape[2:]):
                is_inside = all(low[axis] <= at < high[axis] for axis, at in enumerate(place))
                count += is_inside
                source = int(plan.partner[i]) if is_inside else i
                expected[(row, slice(None), *place)] = z[(source, slice(None), *place)]
            share = count / np.prod(shape[2:])
            expected_target[row, i] += 1 - share
            expected_target[row, int(plan.partner[i])] += share
        assert torch.equal(mixed, expected)
        torch.testing.assert_close(target, expected_target, atol=1e-6, rtol=0)


def inputs():
    x = torch.randn(12, 3, 9, 7, generator=seeded(0))
    wide = torch.randn(12, 3, 9, 14, generator=seeded(6))
    with torch.inference_mode():
        inference = x.clone()
    return {
        "float32": x,
        "float64": x.double(),
        "bfloat16": x.bfloat16(),
        "with a gradient": x.clone().requires_grad_(),
        "with gaps": wide[..., ::2],
        "negated when read": torch._neg_view(x),
        "expanded": x[:1].expand(12, 3, 9, 7),
        "zeros without memory": torch._efficientzerotensor(x.shape),
        "inference": inference,
        "large": torch.randn(2, 3, 90, 80, generator=seeded(7)),
    }


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", inputs())
def test_every_kind_of_input_is_mixed_by_the_same_equation(method, name):
    x = inputs()[name]
    plan = method.plan(x, generator=seeded(8))
    z = x.detach().double() + 0  # a plain copy
    expected = z.unsqueeze(0) * (1 - plan.mask.double()) + z[plan.partner] * plan.mask.double()
    mixed = plan.mix(x)
    assert mixed.dtype == x.dtype
    assert mixed.requires_grad == x.requires_grad
    atol = {torch.bfloat16: 0.02}.get(x.dtype, 1e-6)
    torch.testing.assert_close(mixed.detach().double(), expected.flatten(0, 1), atol=atol, rtol=atol)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_gradients_are_those_of_the_equation(method):
    x = torch.randn(6, 2, 5, 4, generator=seeded(0), dtype=torch.float64, requires_grad=True)
    plan = method.plan(x, generator=seeded(8))
    assert torch.autograd.gradcheck(plan.mix, x)


@pytest.mark.parametrize("method", [*METHODS, mm.ResizeMix(k=2), mm.CoMixup(k=2)], ids=repr)
def test_a_forward_mode_derivative_is_not_lost(method):
    x = torch.randn(12, 3, 9, 7, generator=seeded(0))
    given = {"saliency": x.abs().sum(1)} if method.traits.needs else {}
    plan = method.plan(x, generator=seeded(8), **given)
    with forward_ad.dual_level():
        mixed, tangent = forward_ad.unpack_dual(plan.mix(forward_ad.make_dual(x, x + 1)))
    torch.testing.assert_close(mixed, plan.mix(x))
    torch.testing.assert_close(tangent, plan.mix(x + 1))  # mixing is linear


def test_a_share_with_a_gradient_keeps_it():
    x = torch.rand(2, 3, generator=seeded(0))
    lam = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    plan = mm.InputMixup().plan(x, partner=torch.tensor([1, 0]), lam=lam)
    plan.mix(x)[0, 0].backward()
    torch.testing.assert_close(float(lam.grad), float(x[1, 0] - x[0, 0]))


def test_the_plan_of_a_device_is_applied_there():
    """A default device does not move draws or results."""
    x = torch.rand(4, 3, 6, 6, generator=seeded(0))
    expected = mm.CutMix(k=2).plan(x, generator=seeded(1)).mix(x)
    with torch.device("meta"):
        assert torch.equal(mm.CutMix(k=2).plan(x, generator=seeded(1)).mix(x), expected)
