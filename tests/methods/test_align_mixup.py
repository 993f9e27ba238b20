"""AlignMixup: against loops, what its transport guarantees, and what average pooling leaves of it."""

import re
from collections import Counter, OrderedDict

import pytest
import torch
from scipy import stats
from torch import nn

import multimix as mm
from multimix.core.plan import SharePlan
from multimix.methods import align_mixup
from multimix.methods.align_mixup import AlignedPlan, AlignMixup
from oracles import seeded
from saliency_family_oracles import aligned_mix

N = 2000
BODY = nn.Sequential(OrderedDict(body=nn.Identity()))


def features(batch=5, size=(3, 4), channels=6, seed=0, **kwargs):
    return torch.randn(batch, channels, *size, generator=seeded(seed), **kwargs)


def aligned(z, lam=(0.2, 0.5, 0.9), *, shift=1, seed=0, **options):
    """A plan that aligns at layer body, and the pairing i → i + shift."""
    method = AlignMixup(layers=("body",), input_share=0.0, **options)
    partner = torch.arange(len(z)).roll(shift)
    return method.plan(z, partner=partner, lam=list(lam), generator=seeded(seed)), partner


@pytest.mark.parametrize("direction", ["partner", "sample"])
@pytest.mark.parametrize("size", [(3, 4), (7,), (2, 1, 3), (1,), ()], ids=str)
@pytest.mark.parametrize("lam", [(0.3,), (0.05, 0.3, 0.5, 0.8, 0.95)], ids=["K = 1", "K = 5"])
def test_agrees_with_loops(direction, size, lam):
    z = features(size=size)
    plan, partner = aligned(z, lam, direction=direction)
    mixed = mm.plans.run_plan(BODY, plan, z).chunk(len(lam))
    for step, share in zip(mixed, lam, strict=True):
        expected = aligned_mix(z, partner.tolist(), share, [direction == "sample"] * 5)
        torch.testing.assert_close(step, expected, atol=2e-5, rtol=1e-4)


def test_a_coin_for_each_pair():
    z = features(batch=8)
    plan, partner = aligned(z, (0.4,), per_pair=True, seed=2)
    moves = plan.sample_moves.tolist()
    assert 0 < sum(moves) < 8
    torch.testing.assert_close(plan.mix(z), aligned_mix(z, partner.tolist(), 0.4, moves), atol=2e-5, rtol=1e-4)


def test_columns_of_the_transport_are_exact_and_rows_once_it_has_converged():
    z = features(batch=4, size=(4, 4)).requires_grad_()
    own = z.flatten(2)
    worst = []
    for rounds, tolerance in ((100, 0.1), (5000, 0.0)):
        plan, partner = aligned(z, rounds=rounds, tolerance=tolerance)
        fitted = 16 * plan.transport(own, own[partner])
        assert (fitted >= 0).all()
        torch.testing.assert_close(fitted.sum(1), torch.ones(4, 16), atol=1e-5, rtol=0)
        worst.append(float((fitted.sum(2) - 1).abs().max()))
        assert not fitted.requires_grad
    assert worst[1] < 0.01 < worst[0] < 1


def test_equal_maps_with_distinct_columns_are_not_changed():
    """R is nearly the identity then, and the method manifold mixup."""
    z = features(batch=1, size=(4, 4), channels=40).expand(3, -1, -1, -1).contiguous()
    for direction in ("partner", "sample"):
        plan, _ = aligned(z, direction=direction)
        torch.testing.assert_close(plan.mix(z), z.repeat(3, 1, 1, 1), atol=1e-4, rtol=1e-3)


def test_the_order_of_the_partners_places_does_not_matter():
    z = features(batch=2, size=(9,))
    order = torch.randperm(9, generator=seeded(3))
    shuffled = torch.stack([z[0], z[1][:, order]])
    plan, _ = aligned(z, direction="partner")
    torch.testing.assert_close(plan.mix(shuffled)[::2], plan.mix(z)[::2], atol=1e-5, rtol=1e-4)


def test_steps_lie_on_one_segment_with_an_exact_end():
    z = features()
    for direction, step, own in (("partner", 0, True), ("sample", 1, False)):
        plan, partner = aligned(z, (0.0, 1.0), direction=direction)
        ends = plan.mix(z).chunk(2)
        assert torch.equal(ends[step], z if own else z[partner])
        assert not torch.allclose(ends[1 - step], z[partner] if own else z, atol=0.01)
        plan, _ = aligned(z, (0.2, 0.5, 0.9), direction=direction)
        for lam, row in zip((0.2, 0.5, 0.9), plan.mix(z).chunk(3), strict=True):
            torch.testing.assert_close(row, (1 - lam) * ends[0] + lam * ends[1], atol=1e-6, rtol=1e-5)
        plain = mm.InputMixup().plan(z, partner=partner, lam=[0.2, 0.5, 0.9])
        assert torch.equal(plan.mix_target(torch.arange(5), 5), plain.mix_target(torch.arange(5), 5))


class Net(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.body, self.last, self.head = nn.Conv2d(2, 6, 3, padding=1), last, nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.last(self.body(x)).flatten(2).mean(2))


def test_before_average_pooling_it_is_manifold_mixup_of_the_pooled_features():
    """Exactly if the partner is moved; if the sample is, up to the row sums that Sinkhorn's rounds left."""
    torch.manual_seed(0)
    x, partner, lam = torch.randn(6, 2, 5, 7), torch.arange(6).roll(2), [0.1, 0.5, 0.7]
    straight, bent = Net(nn.Identity()), Net(nn.ReLU())

    def logits(net, method):
        return mm.plans.run_plan(net, method.plan(x, partner=partner, lam=lam, generator=seeded(0)), x).detach()

    def apart(net, direction):
        plain = logits(net, mm.ManifoldMixup(layers=("body",)))
        return float((logits(net, AlignMixup(layers=("body",), input_share=0.0, direction=direction)) - plain).abs().max())

    assert apart(straight, "partner") < 1e-6
    assert 1e-6 < apart(straight, "sample") < 0.05
    assert apart(bent, "partner") > 0.01, "alignment matters if a non-linear layer follows"


def test_a_sample_that_is_its_own_partner_stays():
    z = features()
    for direction in ("partner", "sample"):
        plan, _ = aligned(z, shift=0, direction=direction)
        assert torch.equal(plan.mix(z), z.repeat(3, 1, 1, 1))
    one = features(batch=1)
    assert torch.equal(aligned(one, shift=0)[0].mix(one), one.repeat(3, 1, 1, 1))


def test_tokens_have_their_channels_last():
    z = features(size=(7,))
    plan, _ = aligned(z)
    tokens, _ = aligned(z, channel_axis=-1)
    torch.testing.assert_close(tokens.mix(z.mT.contiguous()), plan.mix(z).mT)
    flat = features(size=())
    assert torch.equal(tokens.mix(flat), plan.mix(flat)), "no places: manifold mixup"
    number = torch.randn(5)
    torch.testing.assert_close(tokens.mix(number)[:5], 0.8 * number + 0.2 * number.roll(1))


def test_one_transport_for_all_k_and_the_trunk_runs_once(monkeypatch):
    calls, rows = [], []
    real = align_mixup.transport_plan
    monkeypatch.setattr(align_mixup, "transport_plan", lambda *args: calls.append(len(args[0])) or real(*args))
    net = nn.Sequential(OrderedDict(body=nn.Conv2d(2, 6, 3), tail=nn.Flatten(), head=nn.Linear(6 * 15, 3)))
    for layer in net:
        layer.register_forward_hook(lambda module, args, result: rows.append(len(result)))
    method = AlignMixup(k=5, layers=("body",), input_share=0.0)
    out = mm.mixed_forward(net, method, torch.randn(4, 2, 5, 7), torch.arange(4) % 3, generator=seeded(0))
    logits, target = out.logits, out.target
    assert calls == [4]
    assert rows == [4, 20, 20]
    assert logits.shape == target.shape == (20, 3)


def test_gradients_reach_both_maps_and_not_the_transport():
    z = features(batch=3, dtype=torch.float64, seed=4).requires_grad_()
    plan, partner = aligned(z, (0.3, 0.6))
    weight = torch.randn(6, 6, 3, 4, generator=seeded(5), dtype=torch.float64)
    (found,) = torch.autograd.grad((plan.mix(z) * weight).sum(), z)
    own = z.detach().flatten(2)
    fitted = 12 * plan.transport(own, own[partner]).double()
    moves = bool(plan.sample_moves)
    expected = torch.zeros_like(own)
    for k, lam in enumerate((0.3, 0.6)):
        for i, j in enumerate(partner.tolist()):
            g = weight.flatten(2)[3 * k + i]
            expected[i] += (1 - lam) * (g @ fitted[i].T if moves else g)
            expected[j] += lam * (g if moves else g @ fitted[i])
    torch.testing.assert_close(found.flatten(2), expected)


def test_half_precision_and_autocast_align_in_float32():
    z = features(channels=30)
    plan, _ = aligned(z)
    low = z.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = plan.mix(low)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, plan.mix(low.float()).bfloat16(), atol=0, rtol=2**-7)


def test_laws_of_the_coins():
    x, generator = torch.zeros(4, 1, 2, 2), seeded(6)
    method = AlignMixup(layers=("a", "b", "c"), input_share=0.3)
    plans = [method.plan(x, generator=generator) for _ in range(N)]
    inputs = sum(type(plan) is SharePlan and plan.layer is None for plan in plans)
    assert stats.binomtest(inputs, N, 0.3).pvalue > 1e-3
    hidden = [plan for plan in plans if isinstance(plan, AlignedPlan)]
    assert inputs + len(hidden) == N
    assert stats.chisquare([Counter(plan.layer for plan in hidden)[layer] for layer in "abc"]).pvalue > 1e-3
    assert stats.binomtest(sum(bool(plan.sample_moves) for plan in hidden), len(hidden)).pvalue > 1e-3
    assert stats.kstest([float(plan.lam[0, 0]) for plan in hidden], stats.beta(2, 2).cdf).pvalue > 1e-3
    both = AlignMixup(layers=("a",), input_share=0.0, per_pair=True)
    moves = torch.stack([both.plan(x, generator=generator).sample_moves for _ in range(N)])
    assert stats.chisquare(list(Counter((moves[:, 0] * 2 + moves[:, 1]).tolist()).values())).pvalue > 1e-3
    for share, layer in ((0.0, "a"), (1.0, None)):
        assert all(AlignMixup(layers=("a",), input_share=share).plan(x, generator=generator).layer == layer for _ in range(50))


def test_the_coins_do_not_depend_on_each_other_or_on_options():
    x = torch.zeros(4, 1, 2, 2)
    for options in ({"input_share": 0.0}, {"input_share": 1.0}, {"direction": "sample"}):
        generator, twin = seeded(7), seeded(7)
        AlignMixup(layers=("a",), **options).plan(x, generator=generator)
        AlignMixup(layers=("a",)).plan(x, generator=twin)
        assert torch.equal(generator.get_state(), twin.get_state())


def test_plans_can_be_cut_and_moved():
    z = features()
    plan, _ = aligned(z, per_pair=True)
    whole = plan.mix(z)
    assert torch.equal(torch.cat([part.mix(z) for part in plan.split(2)]), whole)
    assert torch.equal(plan[1].to("cpu").mix(z), whole[5:10])
    assert plan.mask.shape == (3, 5, 1)


def test_where_it_may_mix():
    assert AlignMixup(layers=("a", "b")).traits.mixes_at == (None, "a", "b")
    assert AlignMixup(layers=("a",), input_share=0).traits.mixes_at == ("a",)
    assert AlignMixup(layers=("a",), input_share=1).traits.mixes_at == (None,)
    x_mix, _ = mm.Mix(AlignMixup(k=2, layers=("a",), input_share=1), 3)(torch.randn(4, 1, 5, 5), torch.arange(4) % 3)
    assert len(x_mix) == 8
    tokens = torch.randint(9, (4, 6))
    net = nn.Sequential(OrderedDict(body=nn.Embedding(9, 5), tail=nn.Flatten(), head=nn.Linear(30, 3)))
    method = AlignMixup(k=2, layers=("body",), input_share=0, channel_axis=-1)
    assert mm.mixed_forward(net, method, tokens, torch.arange(4) % 3).logits.shape == (8, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": "layer3"}, "layers must"),
        ({"layers": (None, "a")}, "layers must"),
        ({"layers": ()}, "layers must"),
        ({"input_share": 2}, "input_share must"),
        ({"direction": "both"}, "direction"),
        ({"channel_axis": 2}, "channel_axis"),
        ({"eps": 0}, "eps must"),
        ({"tolerance": -1}, "tolerance must"),
        ({"rounds": 0}, "rounds must"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        AlignMixup(**{"layers": ("a",), **options})


def test_too_many_places_are_refused():
    z = features(batch=2, size=(33, 32), channels=1)
    with pytest.raises(ValueError, match="1024 places, got 1056 at layer 'body'"):
        aligned(z)[0].mix(z)


@pytest.mark.parametrize(
    ("inputs", "features", "asks"),
    [
        ((2, 3, 32, 32), (2, 5, 7), True),  # tokens of ViT
        ((2, 9), (2, 9, 7), True),  # tokens of words
        ((2, 3, 32, 32), (2, 4, 4, 6), True),  # maps of Swin
        ((2, 3, 32, 32), (2, 6, 4, 4), False),
        ((2, 3, 32, 16), (2, 4, 4, 2), False),  # four channels, as many as rows
        ((2, 1, 50), (2, 8, 25), False),  # signals
        ((2, 3, 32, 32), (2, 6), False),
    ],
)
def test_features_that_may_have_their_channels_last_are_asked_about(inputs, features, asks):
    x, z = torch.randn(inputs), torch.randn(features)
    for axis in (None, 1, -1):
        plan = AlignMixup(layers=("blocks.3",), input_share=0.0, channel_axis=axis).plan(x)
        if asks and axis is None:
            with pytest.raises(ValueError, match=r"layer 'blocks.3'.*channel_axis=-1"):
                plan.mix(z)
        else:
            assert plan.mix(z).shape == z.shape
