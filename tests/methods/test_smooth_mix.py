"""SmoothMix: equal to the slow loops; the mean of the mask is λ; laws of centre and width. Chance failures below 1e-3."""

import math

import pytest
import torch
from scipy import stats

import box_family_oracles as slow
import multimix as mm
from multimix.geometry.threshold import outer_masks
from multimix.methods.smooth_mix import SmoothMix, bumps_along, sharpness
from oracles import drawn_centers, seeded


def bump_masks(q, center, size):
    return outer_masks(bumps_along(q, center, size))


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("shape", [(4, 2, 7, 11), (1, 1, 6, 5), (3, 2, 13), (2, 1, 3, 4, 5), (2, 1, 1, 1)], ids=str)
def test_equal_to_the_slow_loop(per_pair, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam = [0.003, 0.05, 0.31, 0.65, 0.999]
    mixed = SmoothMix(k=5, per_pair=per_pair).plan(x, partner=partner, lam=lam, generator=seeded(2)).mix(x)
    for k, share in enumerate(lam):
        expected = slow.smooth_mix(x, partner.tolist(), share, seeded(2), per_pair=per_pair)
        torch.testing.assert_close(mixed.unflatten(0, (5, shape[0]))[k], expected, atol=2e-6, rtol=2e-6)
        single = SmoothMix(per_pair=per_pair).plan(x, partner=partner, lam=[share], generator=seeded(2))
        assert torch.equal(single.mix(x), mixed.unflatten(0, (5, shape[0]))[k])


@pytest.mark.parametrize("per_pair", [False, True])
def test_drawn_widths_equal_the_slow_loop(per_pair):
    x, size = images(3, 2, 9, 12), (9, 12)
    plan = SmoothMix(k=3, width=(0.25, 0.5), per_pair=per_pair).plan(x, generator=seeded(3))
    generator = seeded(3)
    assert torch.equal(plan.partner, mm.random.random_partner(3, generator=generator))
    rows = 3 if per_pair else 1
    width = 0.25 + 0.25 * mm.random.sample_path(3, 1.0, rows=rows, generator=generator)
    centers = drawn_centers(rows, size, "continuous", generator)
    for k in range(3):
        for i in range(3):
            row = i if per_pair else 0
            bump = slow.bump(float(width[k, row]), centers[row], size)
            expected = torch.tensor(list(bump.values())).reshape(1, *size)
            torch.testing.assert_close(plan.mask[k, i], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("size", [(32, 32), (7, 11), (161, 101), (50,), (5, 6, 7), (1, 9), (1, 1)], ids=str)
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_the_mean_of_the_mask_is_lam(size, alpha):
    rows = 2000 if math.prod(size) < 2000 else 100
    lam = mm.random.sample_path(5, alpha, rows=rows, generator=seeded(4))
    center = torch.rand(rows, len(size), dtype=torch.float64, generator=seeded(5))
    mask = bump_masks(sharpness(lam, center, size), center, size).double()
    torch.testing.assert_close(mask.flatten(2).mean(2), lam, atol=1e-7, rtol=1e-6)
    assert (mask.diff(dim=0) >= 0).all()
    assert float(mask.max()) <= 1


def test_shares_follow_the_path():
    x = torch.zeros(1).expand(3000, 1, 12, 9)
    lam = SmoothMix(alpha=0.7, per_pair=True).plan(x, generator=seeded(6)).lam[0]
    assert stats.kstest(lam.numpy(), stats.beta(0.7, 0.7).cdf).pvalue > 1e-3


def test_extreme_shares():
    """Both ends, what lies next to them, and shares closer than rounding: ordered, finite, exact at the ends."""
    lam = torch.tensor([0.0, 1e-300, 1e-9, 1e-6, 0.3, 0.3 + 1e-16, 0.3 + 1e-15, 1 - 1e-9, 1 - 1e-16, 1.0], dtype=torch.float64)
    lam = lam.unsqueeze(1).expand(-1, 60)
    for size in ((6, 7), (300,)):
        center = torch.rand(60, len(size), dtype=torch.float64, generator=seeded(7))
        center[0] = 0.5 / torch.tensor(size)  # the middle of the first place: its share cannot fall below 1
        mask = bump_masks(sharpness(lam, center, size), center, size)
        assert torch.isfinite(mask).all()
        assert (mask[0] == 0).all()
        assert (mask[-1] == 1).all()
        assert (mask.diff(dim=0) >= 0).all()
        torch.testing.assert_close(mask[4:, 1:].double().flatten(2).mean(2), lam[4:, 1:], atol=1e-7, rtol=0)


def test_widths_are_ordered_where_shares_hardly_differ():
    generator = seeded(13)
    for apart in (1e-16, 1e-14, 1e-12):
        lam = torch.rand(1, 300, dtype=torch.float64, generator=generator)
        lam = (lam + apart * torch.rand(40, 300, dtype=torch.float64, generator=generator).cumsum(0)).clamp(max=1)
        center = torch.rand(300, 2, dtype=torch.float64, generator=generator)
        assert (sharpness(lam, center, (9, 7)).diff(dim=0) <= 0).all()


def test_the_label_is_the_share_of_the_partner():
    """The public code gives the bump's mean to the sample, though the bump shows the partner."""
    x = torch.stack([torch.zeros(1, 9, 8), torch.ones(1, 9, 8)])
    plan = SmoothMix(k=3).plan(x, partner=torch.tensor([1, 0]), lam=[0.1, 0.3, 0.8], generator=seeded(8))
    target = plan.mix_target(torch.tensor([0, 1]), 2)
    torch.testing.assert_close(plan.mix(x).mean((1, 2, 3)), target[:, 1])
    assert target[:, 1].tolist() == pytest.approx([0.1, 0.9, 0.3, 0.7, 0.8, 0.2], abs=1e-6)


def test_centres_are_uniform():
    """The highest place of a bump is the one its centre lies in; borders are as likely as the middle."""
    x = torch.zeros(1).expand(9000, 1, 5, 9)
    mask = SmoothMix(per_pair=True).plan(x, lam=[0.2], generator=seeded(9)).mask[0]
    count = torch.bincount(mask.flatten(1).argmax(1), minlength=45)
    assert stats.chisquare(count.numpy()).pvalue > 1e-3


def test_a_bump_has_the_shape_of_its_image():
    """Half as wide in places along an axis half as long, so the bump in a stretched image is the stretched bump."""
    center = torch.tensor([[0.4, 0.7]], dtype=torch.float64)
    q = torch.tensor([[3.0]], dtype=torch.float64)
    wide = bump_masks(q, center, (15, 30))[0, 0, 0]
    tall = bump_masks(q, center.flip(1), (30, 15))[0, 0, 0]
    assert torch.equal(wide, tall.T)
    assert torch.equal(wide[:, 1::3], bump_masks(q, center, (15, 10))[0, 0, 0])


def test_law_of_the_drawn_widths():
    """−q is the divided difference of the parabola log m, from three places at 0.05, 0.55 and 0.95 of the side."""
    x = torch.zeros(1).expand(2000, 1, 10)
    mask = SmoothMix(width=(0.25, 0.5), per_pair=True).plan(x, generator=seeded(10)).mask[0, :, 0].double()
    log = mask.log()
    q = -((log[:, 9] - log[:, 5]) / 0.4 - (log[:, 5] - log[:, 0]) / 0.5) / 0.9
    width = (0.5 / q).sqrt()
    assert stats.kstest(width.numpy(), stats.uniform(0.25, 0.25).cdf).pvalue > 1e-3
    sorted_widths = SmoothMix(k=4, width=(0.25, 0.5)).plan(x[:3], generator=seeded(11))
    assert (sorted_widths.mask.diff(dim=0) > 0).any()
    assert (sorted_widths.mask.diff(dim=0) >= 0).all()


def test_a_share_handed_in_goes_before_the_widths():
    x = images(3, 1, 12, 12)
    plan = SmoothMix(width=0.3).plan(x, lam=[0.2, 0.6], generator=seeded(12))
    torch.testing.assert_close(plan.lam, torch.tensor([[0.2], [0.6]]).double().expand(2, 3), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="partner must"):
        SmoothMix(width=0.3).plan(x, partner=torch.tensor([0, 1]))


def test_options_are_checked():
    for width in (0, (0.0, 0.5), (0.5, 0.25), -1.0, (0.1, math.inf), "wide"):
        with pytest.raises(ValueError, match="width must"):
            SmoothMix(width=width)
    for options in ({}, {"width": 0.3}):
        with pytest.raises(ValueError, match="SmoothMix needs x of shape"):
            SmoothMix(**options).plan(torch.randn(3, 4))
