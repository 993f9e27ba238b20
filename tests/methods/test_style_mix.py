"""StyleMix: equal to the slow loops, its identities, and the laws of what it draws. Chance failures below 1e-3."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

import multimix as mm
from multimix.methods.style.stylemix import StyleMix, feature_weights
from style_oracle import IDENTITY, CountingPair, LossyPair, seeded, style_mix


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


def method(pair=IDENTITY, **options):
    return StyleMix(**{"pair": pair, "side": None, **options})


@pytest.mark.parametrize("pair", [IDENTITY, LossyPair()], ids=["identity", "lossy"])
@pytest.mark.parametrize("shape", [(4, 2, 5, 8), (1, 1, 4, 3), (3, 3, 1, 1)], ids=str)
def test_equal_to_the_slow_loop(pair, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam, style_lam = [0.0, 0.1, 0.35, 0.8, 1.0], [0.02, 0.3, 0.5, 0.5, 0.9]
    given = {"partner": partner, "generator": seeded(2)}
    plan = method(pair, k=5).plan(x, lam=lam, style_lam=style_lam, **given)
    mixed = plan.mix(x).unflatten(0, (5, shape[0]))
    position = float(torch.rand(1, dtype=torch.float64, generator=seeded(2)))
    for k in range(5):
        expected = style_mix(x, partner.tolist(), lam[k], style_lam[k], position, pair)
        torch.testing.assert_close(mixed[k], expected, atol=2e-6, rtol=2e-6)
        single = method(pair).plan(x, lam=lam[k : k + 1], style_lam=style_lam[k : k + 1], partner=partner, generator=seeded(2))
        assert torch.equal(single.mix(x), mixed[k])
        assert torch.equal(plan[k].mix(x), mixed[k])


def test_per_pair_draws_a_position_for_each():
    x, partner = images(5, 2, 4, 6), torch.tensor([1, 2, 3, 4, 0])
    lam = mm.random.sample_path(3, 1.0, rows=5, generator=seeded(3))
    style_lam = mm.random.sample_path(3, 1.0, rows=5, generator=seeded(4))
    plan = method(LossyPair(), k=3, per_pair=True).plan(x, partner=partner, lam=lam, style_lam=style_lam, generator=seeded(5))
    mixed = plan.mix(x).unflatten(0, (3, 5))
    positions = torch.rand(5, dtype=torch.float64, generator=seeded(5)).tolist()
    for k in range(3):
        for i, j in enumerate(partner.tolist()):
            shares = float(lam[k, i]), float(style_lam[k, i])
            expected = style_mix(x[[i, j]], [1, 0], *shares, positions[i], LossyPair())[0]
            torch.testing.assert_close(mixed[k, i], expected, atol=2e-6, rtol=2e-6)


def test_weights_are_shares_of_content_and_style():
    generator = seeded(6)
    content, style, position = torch.rand(3, 100_000, dtype=torch.float64, generator=generator)
    content[:4], style[:4] = torch.tensor([0, 0, 1, 1.0]), torch.tensor([0, 1, 0, 1.0])
    weight = feature_weights(content, style, position)
    assert (weight >= 0).all()
    own, pair, own_restyled, pair_restyled = weight
    torch.testing.assert_close(weight.sum(0), torch.ones_like(content), atol=1e-14, rtol=0)
    torch.testing.assert_close(pair + pair_restyled, content, atol=1e-14, rtol=0)
    torch.testing.assert_close(pair + own_restyled, style, atol=1e-14, rtol=0)
    assert weight[:, :4].T.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert own.max() <= 1


def test_weight_of_the_sample_is_uniform_over_what_is_possible():
    x = torch.zeros(1).expand(5000, 1, 1, 1)
    plan = method(per_pair=True).plan(x, lam=[0.3], style_lam=[0.6], generator=seeded(7))
    found = plan.weight[0, :, 0]
    assert stats.kstest(found.numpy(), stats.uniform(0.1, 0.3).cdf).pvalue > 1e-3  # t in [0.7 + 0.4 − 1, 0.4]


def test_one_position_for_all_k():
    x = images(3, 1, 2, 2)
    lam, style_lam = torch.tensor([0.1, 0.4, 0.7]), torch.tensor([0.2, 0.3, 0.9])
    weight = method(k=3).plan(x, lam=lam, style_lam=style_lam, generator=seeded(8)).weight[:, 0, 0]
    least = (1 - lam - style_lam).clamp(min=0).double()
    most = torch.minimum(1 - lam, 1 - style_lam).double()
    position = (weight - least) / (most - least)
    torch.testing.assert_close(position, position[:1].expand(3), atol=1e-6, rtol=0)


def content_and_style(plan):
    """``[K, B]`` each, read off the weights."""
    return plan.weight[..., 1] + plan.weight[..., 3], plan.weight[..., 1] + plan.weight[..., 2]


def correlation(first, second):
    return abs(float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]))


@pytest.mark.parametrize("k", [1, 3])
def test_both_paths_have_the_law_and_the_order(k):
    """Sorted draws of Beta(½, ½), independent of each other."""
    x = torch.zeros(1).expand(4000, 1, 1, 1)
    plan = method(k=k, per_pair=True, style_order="sorted").plan(x, generator=seeded(9))
    content, style = content_and_style(plan)
    law = stats.beta(0.5, 0.5).cdf
    for path in (content, style):
        assert (path.diff(dim=0) >= -1e-12).all()
        assert stats.kstest(path[0].numpy(), lambda v: 1 - (1 - law(v)) ** k).pvalue > 1e-3
        assert stats.kstest(path[-1].numpy(), lambda v: law(v) ** k).pvalue > 1e-3
    assert correlation(content[0], style[0]) < 4.5 / math.sqrt(4000)
    torch.testing.assert_close(plan.lam, 0.7 * content + 0.3 * style)
    assert (plan.lam.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("sampler", ["iid", "stratified"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_content_and_style_of_any_step_are_independent_as_published(k, sampler):
    n = 4000
    plan = method(k=k, per_pair=True, sampler=sampler).plan(torch.zeros(1).expand(n, 1, 1, 1), generator=seeded(10))
    content, style = content_and_style(plan)
    picked = torch.randint(k, (1, n), generator=seeded(11))
    at_random = content.gather(0, picked)[0], style.gather(0, picked)[0]
    law = stats.beta(0.5, 0.5)
    for path in at_random:
        assert stats.kstest(path.numpy(), law.cdf).pvalue > 1e-3
    assert correlation(*at_random) < 4 / math.sqrt(n)
    for own, of_style in zip(content, style, strict=True):  # a style does not tell its step either
        assert stats.kstest(of_style.numpy(), law.cdf).pvalue > 1e-3
        assert correlation(own, of_style) < 4 / math.sqrt(n)
    assert (content.diff(dim=0) >= -1e-12).all()
    torch.testing.assert_close(plan.lam, 0.7 * content + 0.3 * style)
    # Sorted, both rise with the step: the same measure tells.
    both = content_and_style(
        method(k=k, per_pair=True, style_order="sorted").plan(plan.weight[0, :, :1, None, None], generator=seeded(10))
    )
    assert correlation(*both) > 0.3 if k > 1 else correlation(*both) < 4 / math.sqrt(n)


def test_tied_paths_are_one():
    x = torch.zeros(1).expand(50, 1, 1, 1)
    tied = method(k=4, tie=True, per_pair=True)
    plan = tied.plan(x, generator=seeded(10))
    torch.testing.assert_close(plan.weight[..., 2], plan.weight[..., 3], atol=1e-12, rtol=0)
    torch.testing.assert_close(plan.lam, plan.weight[..., 1] + plan.weight[..., 2])
    with pytest.raises(TypeError, match="takes no 'style_lam'"):
        tied.plan(x, lam=[0.1], style_lam=[0.2])


def test_a_path_handed_in_serves_both():
    plan = method(LossyPair(), k=3).plan(images(4, 1, 3, 3), lam=[0.1, 0.2, 0.9], generator=seeded(11))
    torch.testing.assert_close(plan.lam[:, 0], torch.tensor([0.1, 0.2, 0.9], dtype=torch.float64))
    torch.testing.assert_close(plan.weight[..., 2], plan.weight[..., 3], atol=1e-12, rtol=0)


def test_label_follows_content_and_style():
    plan = method(k=2, content_weight=0.9).plan(images(2, 1, 3, 3), lam=[0.1, 0.5], style_lam=[0.3, 0.7], partner=[1, 0])
    torch.testing.assert_close(plan.lam[:, 0], torch.tensor([0.12, 0.52], dtype=torch.float64))
    target = plan.mix_target(torch.tensor([0, 1]), 2)
    torch.testing.assert_close(target, torch.tensor([[0.88, 0.12], [0.12, 0.88], [0.48, 0.52], [0.52, 0.48]]))
    dense = plan.mix_target(torch.eye(2)[:, :, None, None].expand(2, 2, 3, 3))
    torch.testing.assert_close(dense, target[:, :, None, None].expand(4, 2, 3, 3))


def test_the_ends_are_the_decoded_images():
    pair, x = LossyPair(), images(5, 2, 6, 7)
    plan = method(pair, k=2).plan(x, lam=[0.0, 1.0], generator=seeded(12))
    own, partner = plan.mix(x).chunk(2)
    assert torch.equal(own, pair.decode(pair.encode(x)))
    assert torch.equal(partner, own[plan.partner])
    assert not torch.allclose(own, x, atol=1e-2)


def test_content_and_style_part():
    """Content of one and style of the other: the statistics of the result are the style's, its pattern the content's."""
    x = images(2, 1, 8, 8)
    x[1] = 5 + 3 * x[1]
    plan = method().plan(x, lam=[0.0], style_lam=[1.0], partner=[1, 0], generator=seeded(13))
    mixed = plan.mix(x)[0, 0]
    assert float(mixed.mean()) == pytest.approx(float(x[1].mean()), abs=1e-4)
    assert float(mixed.std()) == pytest.approx(float(x[1].std()), rel=1e-4)
    assert float(torch.corrcoef(torch.stack([mixed.flatten(), x[0, 0].flatten()]))[0, 1]) == pytest.approx(1, abs=1e-5)


def test_equal_statistics_make_it_input_mixup():
    """With features that are the pixels, and one style in all images, nothing is left but the content's share."""
    x = images(6, 3, 5, 7).double()
    x = (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True)
    lam, style_lam = [0.1, 0.4, 0.8], [0.3, 0.35, 0.5]
    plan = method(k=3).plan(x, lam=lam, style_lam=style_lam, generator=seeded(14))
    expected = mm.InputMixup(k=3).plan(x, lam=lam, partner=plan.partner).mix(x)
    torch.testing.assert_close(plan.mix(x), expected, atol=1e-10, rtol=0)


def test_the_pair_is_asked_once_for_what_all_steps_share_and_never_watched():
    pair, x = CountingPair(), images(6, 2, 4, 4).requires_grad_()
    mixed = method(pair, k=5).plan(x, generator=seeded(15)).mix(x)
    assert sum(pair.encoded) == 6
    assert sum(pair.decoded) == 5 * 6
    assert not pair.with_grad
    assert not mixed.requires_grad


def test_the_pair_sees_images_as_it_was_trained():
    """Normalised images are brought back to 0 … 1 and resized, channel by channel; the result is normalised again."""
    original = torch.rand(3, 2, 4, 6, generator=seeded(16)).double()
    mean, std = (0.4, 0.6), (0.2, 0.3)
    x = (original - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[:, None, None]
    pair = CountingPair()
    options = {"mean": mean, "std": std}
    plan = method(pair, **options).plan(x, lam=[0.0], generator=seeded(17))
    mixed = plan.mix(x)
    torch.testing.assert_close(pair.seen[0], original, atol=1e-7, rtol=0)
    expected = LossyPair().decode(LossyPair().encode(original))
    torch.testing.assert_close(
        mixed * torch.tensor(std).double()[:, None, None] + torch.tensor(mean).double()[:, None, None],
        expected,
        atol=1e-7,
        rtol=0,
    )
    large = CountingPair()
    StyleMix(pair=large, side=12, **options).plan(x, generator=seeded(17)).mix(x)
    assert large.seen[0].shape == (3, 2, 12, 18)
    # By an odd factor up and back again, bilinear resizing gives back what it was given.
    back = StyleMix(pair=IDENTITY, side=12, **options).plan(x, lam=[0.0], generator=seeded(17)).mix(x)
    torch.testing.assert_close(back, x, atol=1e-6, rtol=0)


def test_decoded_images_may_leave_the_range_or_be_cut_to_it():
    x = torch.rand(4, 1, 6, 6, generator=seeded(18))
    x[:2] *= 0.1
    given = {"lam": [0.0], "style_lam": [1.0], "partner": [2, 3, 0, 1]}
    free, cut = (
        method(clamp=clamp, mean=0.5, std=0.5).plan(2 * x - 1, generator=seeded(19), **given).mix(2 * x - 1)
        for clamp in (False, True)
    )
    assert free.abs().max() > 1
    torch.testing.assert_close(cut, free.clamp(-1, 1), atol=1e-6, rtol=0)


def test_constant_and_single_pixel_images_stay_finite():
    for shape in [(4, 2, 5, 6), (3, 1, 1, 1)]:
        x = torch.arange(shape[0]).float().reshape(-1, 1, 1, 1).expand(shape).contiguous()
        mixed = method(LossyPair(), k=5).plan(x, generator=seeded(20)).mix(x)
        assert torch.isfinite(mixed).all()


def test_trains_and_resumes_in_parts():
    x, y = images(6, 2, 5, 5), torch.arange(6) % 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(50, 3))
    out = mm.mixed_forward(model, method(LossyPair(), k=5), x, y, generator=seeded(21))
    logits, target = out.logits, out.target
    assert logits.shape == target.shape == (30, 3)
    logits.sum().backward()
    mixed, soft = mm.Mix(method(LossyPair(), k=2), num_classes=3, seed=1)(x, y)
    assert mixed.shape == (12, 2, 5, 5)
    torch.testing.assert_close(soft.sum(1), torch.ones(12))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plan = method(LossyPair(), k=2).plan(x, generator=seeded(22))
        assert torch.equal(plan.mix(x), plan.mix(x.clone()))


def test_refusals():
    with pytest.raises(TypeError, match="pair must"):
        StyleMix(pair="vgg")
    with pytest.raises(ValueError, match="images \\[B, C, H, W\\], got shape \\[4, 2, 9\\]"):
        method().plan(torch.zeros(4, 2, 9))
    with pytest.raises(ValueError, match="side must"):
        method(side=0)
    with pytest.raises(ValueError, match="std must"):
        method(std=(1.0, 0.0))
    with pytest.raises(ValueError, match="content_weight must"):
        method(content_weight=1.5)
    with pytest.raises(ValueError, match="as many steps as lam, 2, got 1"):
        method().plan(torch.zeros(2, 1, 3, 3), lam=[0.1, 0.2], style_lam=[0.3])
    with pytest.raises(ValueError, match="mean must"):
        method(mean=(0.1, 0.2, 0.3)).plan(torch.zeros(2, 2, 3, 3)).mix(torch.zeros(2, 2, 3, 3))

    class Wrong(LossyPair):
        def decode(self, features):
            return features

    with pytest.raises(ValueError, match=r"pair.decode must return images \[2, 2, H, W\], got \[2, 4, 3, 3\]"):
        method(Wrong()).plan(torch.zeros(2, 2, 3, 3)).mix(torch.zeros(2, 2, 3, 3))

    class Module(nn.Module):
        encode = decode = nn.Module.forward

    module = Module().eval()
    made = method(module)
    module.train()
    with pytest.raises(ValueError, match="pair must"):
        made.plan(torch.zeros(2, 2, 3, 3))
