"""StyleCutMix: equal to the slow loops, CutMix at γ = 1, and the laws of what it draws. Chance failures below 1e-3."""

import pytest
import torch
from scipy import stats
from torch import nn

import multimix as mm
from multimix.methods.style.adain import ClassDistances
from multimix.methods.style.stylecutmix import StyleCutMix
from oracles import cutmix_box, drawn_centers
from style_oracle import IDENTITY, CountingPair, LossyPair, seeded, style_cutmix


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


def method(pair=IDENTITY, **options):
    return StyleCutMix(**{"pair": pair, "side": None, **options})


@pytest.mark.parametrize("pair", [IDENTITY, LossyPair()], ids=["identity", "lossy"])
@pytest.mark.parametrize("box", ["clip", "shift"])
@pytest.mark.parametrize("grid", ["continuous", "integer"])
@pytest.mark.parametrize("shape", [(3, 2, 5, 8), (1, 1, 4, 3)], ids=str)
def test_equal_to_the_slow_loop(pair, box, grid, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam, style_lam = [0.0, 0.1, 0.35, 0.8, 1.0], [0.02, 0.3, 0.5, 0.5, 0.9]
    options = {"box": box, "grid": grid, "gamma": 0.3}
    plan = method(pair, k=5, **options).plan(x, lam=lam, style_lam=style_lam, partner=partner, generator=seeded(2))
    mixed = plan.mix(x).unflatten(0, (5, shape[0]))
    centers = drawn_centers(1, shape[2:], grid, seeded(2)) * shape[0]
    for k in range(5):
        expected, share = style_cutmix(x, partner.tolist(), lam[k], style_lam[k], centers, 0.3, pair, box, grid)
        torch.testing.assert_close(mixed[k], expected, atol=2e-6, rtol=2e-6)
        torch.testing.assert_close(plan.lam[k], share, atol=1e-12, rtol=0)
        single = method(pair, **options).plan(
            x, lam=lam[k : k + 1], style_lam=style_lam[k : k + 1], partner=partner, generator=seeded(2)
        )
        assert torch.equal(single.mix(x), mixed[k])
        assert torch.equal(plan[k].mix(x), mixed[k])


def test_per_pair_has_boxes_and_gamma_for_each():
    x, partner = images(4, 2, 7, 6), torch.tensor([1, 2, 3, 0])
    lam, style_lam = (mm.random.sample_path(3, 1.0, rows=4, generator=seeded(s)) for s in (3, 4))
    plan = method(LossyPair(), k=3, per_pair=True).plan(x, partner=partner, lam=lam, style_lam=style_lam, generator=seeded(5))
    generator = seeded(5)
    centers = drawn_centers(4, (7, 6), "continuous", generator)
    gamma = mm.random.sample_path(1, 0.8, rows=4, generator=generator)[0]
    assert torch.equal(plan.gamma, gamma)
    mixed = plan.mix(x).unflatten(0, (3, 4))
    for k in range(3):
        for i, j in enumerate(partner.tolist()):
            shares = float(lam[k, i]), float(style_lam[k, i])
            expected, share = style_cutmix(x[[i, j]], [1, 0], *shares, [centers[i]] * 2, float(gamma[i]), LossyPair())
            torch.testing.assert_close(mixed[k, i], expected[0], atol=2e-6, rtol=2e-6)
            assert float(plan.lam[k, i]) == pytest.approx(float(share[0]), abs=1e-12)


@pytest.mark.parametrize("box", ["clip", "shift"])
@pytest.mark.parametrize("per_pair", [False, True])
def test_gamma_1_is_cutmix(box, per_pair):
    """Inside x, outside x', bit for bit, and the label is the area; the pair is not even asked."""
    pair, x = CountingPair(), images(5, 3, 9, 12)
    options = {"box": box, "per_pair": per_pair}
    plan = method(pair, k=4, gamma=1.0, style_order="sorted", **options).plan(x, generator=seeded(6))
    # CutMix pastes the partner into the sample: the same boxes come from the shares of the sample, read backwards.
    rows = 5 if per_pair else 1
    generator = seeded(6)
    mm.random.random_partner(5, generator=generator)
    lam = mm.random.sample_path(4, 1.0, rows=rows, generator=generator)
    mm.random.sample_path(4, 1.0, rows=rows, generator=generator)
    inverse = torch.argsort(plan.partner)
    back = mm.CutMix(k=4, **options).plan(x, partner=inverse, lam=(1 - lam).flip(0), generator=generator)
    mask = 1 - back.mask.flip(0)
    assert torch.equal(plan.mask, mask)
    torch.testing.assert_close(plan.lam, 1 - back.lam.flip(0), atol=1e-15, rtol=0)
    expected = torch.where(mask.bool(), x[plan.partner], x)
    assert torch.equal(plan.mix(x), expected.flatten(0, 1))
    assert pair.encoded == pair.decoded == []
    almost = method(LossyPair(), k=4, gamma=1.0 - 1e-9, style_order="sorted", **options).plan(x, generator=seeded(6))
    torch.testing.assert_close(almost.mix(x), plan.mix(x), atol=1e-6, rtol=0)


def test_boxes_shrink_labels_rise_and_the_mask_tells_the_label():
    x = images(3, 1, 11, 8)
    for seed in range(20):
        plan = method(k=6, style_order="sorted").plan(x, generator=seeded(seed))
        assert (plan.low.diff(dim=0) >= 0).all()
        assert (plan.high.diff(dim=0) <= 0).all()
        assert (plan.mask.diff(dim=0) >= 0).all()
        assert (plan.lam.diff(dim=0) >= 0).all()
        torch.testing.assert_close(plan.mask.mean((2, 3, 4), dtype=torch.float64), plan.lam, atol=1e-6, rtol=0)
        for weight in (0.0, 1.0):
            odd = method(k=6, content_weight=weight, gamma=0.0, style_order="sorted").plan(x, generator=seeded(seed))
            assert (odd.lam.diff(dim=0) >= 0).all()
            torch.testing.assert_close(odd.lam, (odd.content if weight else odd.style).expand(6, 3), atol=1e-15, rtol=0)


def test_flat_images_show_the_style_share():
    """A flat image is all style: with features that are pixels the share of the partner's colour is the style's law."""
    x = torch.eye(4)[:, :, None, None].expand(4, 4, 6, 7).contiguous()
    for gamma in (0.0, 0.4, "beta"):
        plan = method(k=3, gamma=gamma, content_weight=0.0, derange=True).plan(x, generator=seeded(7))
        shown = plan.mix(x).mean((2, 3))
        torch.testing.assert_close(shown, plan.mix_target(torch.arange(4), 4), atol=1e-5, rtol=0)
        dense = plan.mix_target(torch.eye(4)[:, :, None, None].expand(4, 4, 6, 7))
        torch.testing.assert_close(dense, plan.mix(x), atol=1e-5, rtol=0)


def test_dense_targets_do_not_go_through_the_pair():
    pair, x = CountingPair(), images(3, 1, 5, 5)
    plan = method(pair, k=2).plan(x, generator=seeded(8))
    dense = plan.mix_target(torch.eye(3)[:, :, None, None].expand(3, 3, 5, 5))
    torch.testing.assert_close(dense.sum(1), torch.ones(6, 5, 5))
    torch.testing.assert_close(dense.mean((2, 3)), plan.mix_target(torch.arange(3), 3), atol=1e-6, rtol=0)
    assert pair.encoded == pair.decoded == []


def test_ends_with_boxes_slid_inside():
    x = images(5, 2, 6, 9)
    plan = method(LossyPair(), k=2, box="shift").plan(x, lam=[0.0, 1.0], generator=seeded(9))
    own, partner = plan.mix(x).chunk(2)
    assert torch.equal(own, x)
    assert torch.equal(partner, x[plan.partner])
    assert plan.lam[:, 0].tolist() == [0, 1]


def test_the_laws():
    x = torch.zeros(1).expand(4000, 1, 300, 200)
    plan = method(per_pair=True).plan(x, generator=seeded(10))
    assert stats.kstest(plan.gamma.numpy(), stats.beta(0.8, 0.8).cdf).pvalue > 1e-3
    assert stats.kstest(plan.style[0].numpy(), "uniform").pvalue > 1e-3
    inside = 1 - plan.content[0]
    assert float(inside.mean()) == pytest.approx(77 / 240, abs=4.5 * float(inside.std()) / 4000**0.5 + 0.004)  # rounded down
    independent = torch.corrcoef(torch.stack([plan.gamma, plan.style[0], plan.content[0]]))
    assert (independent - torch.eye(3)).abs().max() < 4.5 / 4000**0.5
    shifted = method(per_pair=True, box="shift").plan(x, generator=seeded(11))
    assert stats.kstest(shifted.content[0].numpy(), "uniform").pvalue > 1e-3
    # Boxes reach every border equally often, as CutMix's do.
    low, high = shifted.low[0], shifted.high[0]
    touching = torch.stack([low[:, 0] == 0, high[:, 0] == 300, low[:, 1] == 0, high[:, 1] == 200]).double().mean(1)
    assert float(touching.max() - touching.min()) < 4.5 * (2 * 0.25 / 4000) ** 0.5


def test_content_and_style_of_any_step_are_independent_as_published():
    x = torch.zeros(1).expand(4000, 1, 30, 20)
    plan = method(k=5, per_pair=True, box="shift", alpha=1.0).plan(x, generator=seeded(13))
    assert abs(float(torch.corrcoef(torch.stack([plan.content.flatten(), plan.style.flatten()]))[0, 1])) < 4 / 20_000**0.5
    for style in plan.style:
        assert stats.kstest(style.numpy(), "uniform").pvalue > 1e-3
    assert (plan.content.diff(dim=0) >= 0).all()


def test_boxes_are_those_of_the_slow_cutmix():
    plan = method(k=3).plan(images(2, 1, 10, 14), lam=[0.2, 0.5, 0.9], partner=[1, 0], generator=seeded(12))
    (center,) = drawn_centers(1, (10, 14), "continuous", seeded(12))
    for k, lam in enumerate([0.2, 0.5, 0.9]):
        edges = cutmix_box(1 - lam, center, (10, 14), "clip", "continuous")
        assert list(zip(plan.low[k, 0].tolist(), plan.high[k, 0].tolist(), strict=True)) == edges


def test_auto_gamma_follows_the_classes():
    distances = torch.tensor([[2.0, 0.5], [0.5, 2.2]])
    auto = method(gamma="auto", delta=2.0, distances=distances, k=2)
    x, label = images(4, 1, 5, 5), torch.tensor([0, 0, 1, 1])
    plan = auto.plan(x, label=label, partner=[1, 2, 3, 0], generator=seeded(13))
    torch.testing.assert_close(plan.gamma, torch.tanh(torch.tensor([2.0, 0.5, 2.2, 0.5]).double() / 2))
    soft = auto.plan(x, label=torch.eye(2)[label], partner=[1, 2, 3, 0], generator=seeded(13))
    torch.testing.assert_close(soft.gamma, plan.gamma)
    halves = auto.plan(x, label=torch.full((4, 2), 0.5), partner=[1, 2, 3, 0], generator=seeded(13))
    torch.testing.assert_close(halves.gamma, torch.tanh(torch.full((4,), 1.3).double() / 2), atol=1e-7, rtol=0)
    assert auto == method(gamma="auto", delta=2.0, distances=ClassDistances(distances), k=2)
    assert "0x" not in repr(auto.distances)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(25, 2))
    out = mm.mixed_forward(model, auto, x, label, generator=seeded(14))
    logits = out.logits
    assert logits.shape == (8, 2)
    mixed, _ = mm.Mix(auto, num_classes=2)(x, label, label=label)
    assert mixed.shape == (8, 1, 5, 5)
    with pytest.raises(TypeError, match="needs label="):
        auto.plan(x)
    with pytest.raises(ValueError, match="label must"):
        auto.plan(x, label=torch.tensor([0, 1, 2, 0]))
    with pytest.raises(ValueError, match="one row per sample"):
        auto.plan(x, label=torch.tensor([0, 1, 1]))


def test_the_pair_is_asked_once_and_gradients_reach_the_pixels():
    pair, x = CountingPair(), images(6, 2, 4, 4).requires_grad_()
    plan = method(pair, k=5, gamma=0.5).plan(x, generator=seeded(15))
    mixed = plan.mix(x)
    assert sum(pair.encoded) == 6
    assert sum(pair.decoded) == 2 * 6
    assert not pair.with_grad
    mixed.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad > 0).any()


def test_constant_and_single_pixel_images_stay_finite():
    for shape in [(4, 2, 5, 6), (3, 1, 1, 1)]:
        x = torch.arange(shape[0]).float().reshape(-1, 1, 1, 1).expand(shape).contiguous()
        assert torch.isfinite(method(LossyPair(), k=5).plan(x, generator=seeded(16)).mix(x)).all()


def test_half_precision_is_rounded_once():
    x = images(4, 2, 6, 6).to(torch.bfloat16)
    plan = method(LossyPair(), k=3).plan(x, generator=seeded(17))
    exact = plan.mix(x.double())
    torch.testing.assert_close(plan.mix(x).double(), exact, atol=1e-5, rtol=2**-8)


def test_refusals():
    with pytest.raises(ValueError, match=r"images \[B, C, H, W\]"):
        method().plan(torch.zeros(4, 2, 9))
    with pytest.raises(ValueError, match="needs distances="):
        method(gamma="auto")
    with pytest.raises(ValueError, match="gamma"):
        method(gamma="alpha")
    with pytest.raises(ValueError, match="gamma must"):
        method(gamma=1.2)
    for name in ("delta", "gamma_alpha"):
        with pytest.raises(ValueError, match=f"{name} must be finite and above 0, got 0"):
            method(**{name: 0})
    with pytest.raises(ValueError, match="distances must"):
        method(distances=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="z has shape"):
        method().plan(torch.zeros(2, 1, 4, 4)).mix(torch.zeros(2, 1, 4, 5))
