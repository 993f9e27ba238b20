"""ResizeMix: equal to the slow loops and to torch's own resizing; laws of size and place. Chance failures below 1e-3."""

import math

import pytest
import torch
from scipy import stats
from torch.nn.functional import interpolate

import box_family_oracles as slow
import multimix as mm
from multimix.geometry.resized import uniform_boxes
from multimix.methods.resize_mix import ResizeMix
from oracles import seeded

PLACES = ["anywhere", "shift", "clip"]


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


@pytest.mark.parametrize("box", PLACES)
@pytest.mark.parametrize("grid", ["continuous", "integer"])
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("shape", [(3, 1, 6, 9), (1, 2, 5, 4), (3, 2, 13), (2, 1, 3, 4, 5)], ids=str)
def test_equal_to_the_slow_loop(box, grid, resize, per_pair, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam = [0.0, 0.02, 0.31, 0.65, 1.0]
    options = {"box": box, "grid": grid, "resize": resize, "per_pair": per_pair}
    mixed = ResizeMix(k=5, **options).plan(x, partner=partner, lam=lam, generator=seeded(2)).mix(x).unflatten(0, (5, shape[0]))
    for k, share in enumerate(lam):
        expected = slow.resize_mix(x, partner.tolist(), share, seeded(2), **options)
        single = ResizeMix(**options).plan(x, partner=partner, lam=[share], generator=seeded(2)).mix(x)
        assert torch.equal(single, mixed[k])
        if resize == "nearest":
            assert torch.equal(mixed[k], expected)
        else:
            torch.testing.assert_close(mixed[k], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("side", [36, 100])
def test_equal_to_the_resizing_of_torch(per_pair, side):
    """Small samples are gathered, large ones filled in box by box; the published code calls the same function."""
    x = images(5, 3, side, side + 6).double()
    for resize in ("nearest", "bilinear"):
        plan = ResizeMix(k=4, resize=resize, per_pair=per_pair).plan(x, generator=seeded(3))
        mixed, mask = plan.mix(x).unflatten(0, (4, 5)), plan.mask.bool()
        for k in range(4):
            for i, j in enumerate(plan.partner.tolist()):
                (top, left), (bottom, right) = (e[k, i if per_pair else 0].tolist() for e in (plan.low, plan.high))
                whole = interpolate(x[j : j + 1], (bottom - top, right - left), mode=resize)[0]
                torch.testing.assert_close(mixed[k, i, :, top:bottom, left:right], whole, atol=1e-9, rtol=1e-9)
                assert torch.equal(mixed[k, i][~mask[k, i].expand(3, -1, -1)], x[i][~mask[k, i].expand(3, -1, -1)])


def test_scales_are_uniform_and_sorted():
    """On a long signal the share is the scale, up to rounding: U(0.1, 0.8) at K = 1, its order statistics for more."""
    x = torch.zeros(1).expand(4000, 1, 20_000)
    found = ResizeMix(per_pair=True).plan(x, generator=seeded(4)).lam[0]
    assert stats.kstest(found.numpy(), stats.uniform(0.1, 0.7).cdf).pvalue > 1e-3
    assert 0.1 <= float(found.min()) < float(found.max()) <= 0.8
    found = ResizeMix(k=3, per_pair=True).plan(x, generator=seeded(5)).lam
    for k in range(3):
        assert stats.kstest(found[k].numpy(), stats.beta(k + 1, 3 - k, 0.1, 0.7).cdf).pvalue > 1e-3
    found = ResizeMix(k=2, sampler="grid", scale=(0.2, 0.5)).plan(x, generator=seeded(5)).lam[:, 0]
    assert found.tolist() == pytest.approx([0.3, 0.4], abs=1e-4)


def test_area_is_the_square_of_the_scale():
    x = torch.zeros(1).expand(6000, 1, 200, 100)
    found = ResizeMix(per_pair=True).plan(x, generator=seeded(6)).lam
    second = (0.8**3 - 0.1**3) / (3 * 0.7)
    assert float(found.mean()) == pytest.approx(second, abs=4.5 * float(found.std()) / math.sqrt(6000) + 1e-4)


def test_without_a_scale_the_path_is_the_area():
    x = torch.zeros(1).expand(3000, 1, 1000, 700)
    plan = ResizeMix(scale=None, alpha=0.6, per_pair=True).plan(x, generator=seeded(7))
    assert stats.kstest(plan.lam[0].numpy(), stats.beta(0.6, 0.6).cdf).pvalue > 1e-3


@pytest.mark.parametrize("width", [1, 4, 8, 9])
def test_every_position_is_equally_likely(width):
    """Also those at the border; a box that is only pushed back inside would lie there 8 times in 9 at side 8 of 9."""
    x = torch.zeros(1).expand(6000, 1, 9)
    plan = ResizeMix(per_pair=True).plan(x, lam=[width / 9], generator=seeded(8))
    count = torch.bincount(plan.low.flatten(), minlength=10 - width)
    assert len(count) == 10 - width
    assert len(count) == 1 or stats.chisquare(count.numpy()).pvalue > 1e-3


def test_boxes_nest_around_one_point():
    lam = mm.random.sample_path(6, 0.5, rows=5000, generator=seeded(9))
    size = (9, 14)
    point = torch.rand(5000, 2, dtype=torch.float64, generator=seeded(10)) * torch.tensor(size)
    low, high = uniform_boxes(lam, point, size)
    assert (low >= 0).all()
    assert (high <= torch.tensor(size)).all()
    assert (low.diff(dim=0) <= 0).all()
    assert (high.diff(dim=0) >= 0).all()
    filled = high > low
    assert ((low <= point.floor()) & (point.floor() < high))[filled].all()


def test_the_published_clipped_boxes():
    """Half sides int(W τ) // 2 around a whole centre, cut off at the border; the partner fills what is left of the box."""
    x = images(50, 1, 20, 13)
    plan = ResizeMix(box="clip", grid="integer", per_pair=True).plan(x, generator=seeded(11))
    generator = seeded(11)
    mm.random.random_partner(50, generator=generator)
    scale = 0.1 + 0.7 * mm.random.sample_path(1, 1.0, rows=50, generator=generator)[0]
    center = (torch.rand(50, 2, dtype=torch.float64, generator=generator) * torch.tensor([20, 13])).long().tolist()
    for i in range(50):
        for axis, side in enumerate((20, 13)):
            half = int(side * float(scale[i])) // 2
            assert plan.low[0, i, axis] == max(0, center[i][axis] - half)
            assert plan.high[0, i, axis] == min(side, center[i][axis] + half)


def test_a_target_with_places_is_resized_too():
    x = images(3, 1, 8, 10)
    labels = torch.rand(3, 4, 8, 10, generator=seeded(12)).softmax(1)
    plan = ResizeMix(k=2).plan(x, partner=torch.tensor([1, 2, 0]), generator=seeded(13))
    both = plan.mix(torch.cat([x, labels], 1))
    assert torch.equal(plan.mix_target(labels), both[:, 1:])


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("per_pair", [False, True])
def test_gradients_flow_to_what_is_shown(resize, per_pair):
    x = images(3, 1, 5, 4).double().requires_grad_()
    plan = ResizeMix(k=2, resize=resize, per_pair=per_pair).plan(x, lam=[0.3, 0.6], generator=seeded(14))
    assert torch.autograd.gradcheck(plan.mix, (x,))
    plan.mix(x).sum().backward()
    assert float(x.grad.sum()) == pytest.approx(2 * x.numel())


def test_empty_boxes_leave_the_sample():
    x = images(2, 1, 3, 3)
    plan = ResizeMix(k=2, resize="bilinear").plan(x, lam=[0.001, 0.002], generator=seeded(15))
    assert (plan.lam == 0).all()
    assert torch.equal(plan.mix(x), x.repeat(2, 1, 1, 1))
    assert torch.equal(plan.mix(x.clone().requires_grad_()), x.repeat(2, 1, 1, 1))


@pytest.mark.parametrize("per_pair", [False, True])
def test_mixing_compiles_in_one_graph(per_pair):
    x = images(4, 3, 8, 6)
    plan = ResizeMix(k=2, resize="bilinear", per_pair=per_pair).plan(x, generator=seeded(16))
    torch._dynamo.reset()
    compiled = torch.compile(lambda plan, x: plan.mix(x), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(plan, x), plan.mix(x))
    torch._dynamo.reset()


def test_options_are_checked():
    for options, sentence in [
        ({"scale": (0.8, 0.1)}, "scale must"),
        ({"scale": (0.1, 1.1)}, "scale must"),
        ({"scale": (0.1, math.nan)}, "scale must"),
        ({"resize": "cubic"}, "resize"),
        ({"box": "inside"}, "box"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            ResizeMix(**options)
    assert ResizeMix(scale=0.5).scale == (0.5, 0.5)
    with pytest.raises(ValueError, match="ResizeMix needs x of shape"):
        ResizeMix().plan(torch.randn(3, 4))
