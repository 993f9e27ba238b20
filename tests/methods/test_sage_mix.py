"""SageMix against plain loops, its invariants, the laws of its anchors; and what the conformance suite asks, on clouds."""

import math
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import multimix as mm
from multimix.methods.sagemix.method import PointPlan, SageMix, drawn_points, point_saliency
from oracles import seeded
from points_oracle import cheapest_order, distance, numbers_drawn, sage_mix

SIGMAS = [0.3, 2.0, math.inf]


def clouds(batch, n, seed=0, d=3, **kwargs):
    """Clouds in the unit sphere."""
    x = torch.randn(batch, n, d, dtype=torch.float64, generator=seeded(seed))
    return (x / x.norm(dim=2, keepdim=True).amax(1, keepdim=True)).float().to(**kwargs)


def salient(x, seed=77):
    return torch.rand(x.shape[:2], generator=seeded(seed)) ** 3


def planned(x, *, seed=0, saliency=None, options=(), **given):
    return SageMix(**dict(options)).plan(
        x, saliency=salient(x) if saliency is None else saliency, generator=seeded(seed), **given
    )


def path(k, batch, seed=1):
    return mm.random.sample_path(k, 1.0, rows=batch, generator=seeded(seed))


def classifier(d=3, classes=4):
    torch.manual_seed(0)
    layers = OrderedDict(lift=nn.Linear(d, 16), norm=nn.LayerNorm(16), act=nn.Tanh(), pool=MaxPool(), head=nn.Linear(16, classes))
    return nn.Sequential(layers)


class MaxPool(nn.Module):
    def forward(self, z):
        return z.amax(1)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(("batch", "n", "d"), [(3, 6, 3), (1, 5, 3), (4, 20, 3), (3, 1, 3), (5, 9, 2), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_agrees_with_plain_loops(k, batch, n, d, sigma):
    x = clouds(batch, n, seed=n, d=d, dtype=torch.float64)
    for seed in range(3):
        partner, lam = torch.randperm(batch, generator=seeded(seed)), path(k, batch, seed)
        plan = planned(x, seed=seed, partner=partner, lam=lam, options={"sigma": sigma})
        expected, share = sage_mix(x, partner.tolist(), lam.tolist(), salient(x), numbers_drawn(batch, seeded(seed)), sigma)
        torch.testing.assert_close(plan.mix(x).view(k, batch, n, d), expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(plan.lam, share, atol=1e-12, rtol=0)


def test_draws_come_in_the_order_pair_path_geometry():
    x, generator = clouds(4, 6), seeded(3)
    partner = torch.randperm(4, generator=generator)
    lam = mm.random.sample_path(5, 0.2, rows=4, generator=generator)
    expected, share = sage_mix(x, partner.tolist(), lam.tolist(), salient(x), numbers_drawn(4, generator))
    plan = planned(x, seed=3, options={"k": 5})
    torch.testing.assert_close(plan.mix(x).view(5, 4, 6, 3), expected.float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(plan.lam, share, atol=1e-9, rtol=0)


def test_the_path_is_per_pair_unless_asked_otherwise():
    x = clouds(6, 8)
    options = {"k": 3, "sigma": math.inf}  # shows λ itself
    assert not torch.allclose(planned(x, options=options).lam, planned(x, options=options).lam[:, :1])
    shared = planned(x, options={**options, "per_pair": False}).lam
    torch.testing.assert_close(shared, shared[:, :1].expand(3, 6))


def test_shape_and_kind_of_what_comes_out():
    x = clouds(4, 7)
    plan = planned(x, options={"k": 5})
    assert isinstance(plan, PointPlan)
    assert plan.mix(x).shape == (20, 7, 3)
    assert plan.mix(x).is_contiguous()
    assert plan.size == torch.Size([7])
    assert plan.mask.shape == (5, 4, 1, 7)
    assert plan.lam.shape == (5, 4)
    assert plan.lam.dtype == torch.float64
    assert repr(plan) == "PointPlan(k=5, batch=4, size=[7])"
    torch.testing.assert_close(plan.mask.double().mean((2, 3)), plan.lam)


@pytest.mark.parametrize("assignment", ["exact", "auction"])
def test_the_assignment_is_a_permutation_and_exact_where_it_says_so(assignment):
    x = clouds(4, 30)
    plan = planned(x, partner=torch.tensor([1, 2, 3, 0]), options={"assignment": assignment})
    assert torch.equal(plan.order.sort(1).values, torch.arange(30).expand(4, 30))
    same = [plan.order[i].tolist() == cheapest_order(x[i].tolist(), x[(i + 1) % 4].tolist()) for i in range(4)]
    assert all(same) if assignment == "exact" else True


def test_coarse_auctions_reach_the_solver():
    x = clouds(4, 60)
    orders = [planned(x, options={"assignment": "auction", "eps": eps}).order for eps in (0.5, 1e-5)]
    assert not torch.equal(*orders)
    assert torch.equal(orders[1], planned(x).order)


def test_every_point_lies_on_its_segment():
    x = clouds(5, 11, dtype=torch.float64)
    plan = planned(x, options={"k": 5})
    mixed = plan.mix(x).view(5, 5, 11, 3)
    for i in range(5):
        for a in range(11):
            p, q = x[i, a], x[plan.partner[i], plan.order[i, a]]
            for k in range(5):
                there = distance(p, mixed[k, i, a]) + distance(mixed[k, i, a], q)
                assert there == pytest.approx(distance(p, q), abs=1e-12)


def test_shares_rise_strictly_at_every_point():
    x = clouds(6, 25)
    for seed in range(5):
        plan = planned(x, seed=seed, lam=torch.linspace(0.01, 0.99, 7), options={"k": 7, "sigma": 0.5})
        assert (plan.share.diff(dim=0) > 0).all()
        assert (plan.lam.diff(dim=0) > 0).all()
    drawn = planned(x, options={"k": 5})
    assert (drawn.mask.diff(dim=0) >= 0).all()
    assert (drawn.lam.diff(dim=0) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("sigma", [1e-6, 0.05, *SIGMAS])
def test_end_points(sigma, dtype):
    x = clouds(4, 9, dtype=dtype)
    plan = planned(x, lam=[0.0, 1.0], options={"sigma": sigma})
    at_0, at_1 = plan.mix(x).chunk(2)
    assert torch.equal(at_0, x)
    expected = torch.stack([x[plan.partner[i]][plan.order[i]] for i in range(4)])
    assert torch.equal(at_1, expected)
    assert torch.equal(plan.lam, torch.tensor([0.0, 1.0], dtype=torch.float64).unsqueeze(1).expand(2, 4))


def test_an_endless_sigma_is_plain_point_mixup():
    x, lam = clouds(4, 9, dtype=torch.float64), path(5, 4)
    for sigma, atol in ((math.inf, 1e-15), (1e6, 1e-11)):
        plan = planned(x, lam=lam, options={"sigma": sigma})
        torch.testing.assert_close(plan.lam, lam, atol=atol, rtol=0)
        pair = torch.stack([x[plan.partner[i]][plan.order[i]] for i in range(4)])
        torch.testing.assert_close(plan.mix(x).view(5, 4, 9, 3), torch.lerp(x, pair, lam[..., None, None]), atol=atol, rtol=0)


def test_a_small_sigma_keeps_the_parts_around_both_anchors():
    """Two far clusters each; all saliency is in one: near q the cloud is x, near q' it is x', whatever λ."""
    x = torch.zeros(2, 8, 3, dtype=torch.float64)
    x[:, :4, 0], x[:, 4:, 0] = -1, 1
    x += 0.01 * torch.randn(x.shape, dtype=torch.float64, generator=seeded(0))
    saliency = torch.zeros(2, 8)
    saliency[0, :4], saliency[1, 4:] = 1, 1
    plan = planned(x, saliency=saliency, partner=torch.tensor([1, 0]), lam=[0.5], options={"sigma": 0.2})
    torch.testing.assert_close(plan.share[0, 0], torch.tensor([0.0] * 4 + [1.0] * 4, dtype=torch.float64), atol=1e-3, rtol=0)
    torch.testing.assert_close(plan.share[0, 1], torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64), atol=1e-3, rtol=0)


def test_the_order_of_points_does_not_matter():
    """Anchors are settled by saliency that only one point has; then shuffled clouds give the same cloud as a set."""
    x = clouds(3, 15, dtype=torch.float64)
    saliency = torch.zeros(3, 15)
    saliency[:, 4] = 1
    partner, lam = torch.tensor([1, 2, 0]), path(5, 3)
    plan = planned(x, saliency=saliency, partner=partner, lam=lam)
    shuffle = torch.stack([torch.randperm(15, generator=seeded(i)) for i in range(3)])
    moved = x.gather(1, shuffle[..., None].expand_as(x))
    other = planned(moved, saliency=saliency.gather(1, shuffle), partner=partner, lam=lam)
    torch.testing.assert_close(other.lam, plan.lam, atol=1e-12, rtol=0)
    for a, b in zip(plan.mix(x), other.mix(moved), strict=True):
        torch.testing.assert_close(torch.tensor(sorted(a.tolist())), torch.tensor(sorted(b.tolist())), atol=1e-9, rtol=0)


def test_laws_of_the_anchors():
    """q by saliency; q' by saliency times distance from q. Each pair of anchors leaves its own mark on the shares."""
    n, draws = 5, 20_000
    a, b = clouds(2, n, seed=5, dtype=torch.float64)
    x = torch.stack([a, b]).repeat(draws, 1, 1)
    s, s_pair = [0.0, 1.0, 3.0, 0.5, 2.0], [1.0, 0.0, 2.0, 4.0, 0.2]
    saliency = torch.tensor([s, s_pair]).repeat(draws, 1)
    partner = torch.arange(2 * draws).view(-1, 2).flip(1).flatten()
    plan = planned(x, saliency=saliency, partner=partner, lam=[0.5], options={"sigma": 0.5, "threads": 1})
    order = plan.order[0].tolist()
    tilt = plan.share[0, ::2].logit() * 2 * 0.5**2  # ‖p − q‖² − ‖p' − q'‖² at every point, for the pairs (a, b)
    counts = np.zeros((n, n))
    for q in range(n):
        for q_pair in range(n):
            own = (a - a[q]).square().sum(1) - (b[order] - b[q_pair]).square().sum(1)
            counts[q, q_pair] = int(((tilt - own).abs() < 1e-9).all(1).sum())
    assert counts.sum() == draws
    expected = np.array([[s[q] / sum(s) * s_pair[j] * distance(a[q], b[j]) for j in range(n)] for q in range(n)])
    expected /= np.array([[sum(s_pair[j] * distance(a[q], b[j]) for j in range(n))] for q in range(n)])
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    assert stats.chisquare(counts[possible], draws * expected[possible]).pvalue > 1e-3


def test_law_of_the_path():
    """1 − ρ ~ Beta(0.2, 0.2), one draw for each pair."""
    x = torch.zeros(4_000, 1, 3)
    lam = planned(x, saliency=torch.ones(4_000, 1), options={"sigma": math.inf}).lam[0]
    assert len(lam.unique()) > 3_500  # not one for all; some meet where the path is clamped
    inner = (lam > 1e-5) & (lam < 1 - 1e-5)  # the path is clamped at its ends
    mean, sigma = 0.5, math.sqrt(1 / (4 * (2 * 0.2 + 1)) / 4_000)
    assert abs(float(lam.mean()) - mean) < 4.5 * sigma
    edge = stats.beta(0.2, 0.2).cdf(1e-5)
    assert stats.binomtest(int((~inner).sum()), 4_000, 2 * edge).pvalue > 1e-3
    assert stats.kstest(lam[inner].numpy(), lambda v: (stats.beta(0.2, 0.2).cdf(v) - edge) / (1 - 2 * edge)).pvalue > 1e-3


def test_draws_at_the_borders_of_the_weights():
    weight = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]], dtype=torch.float64)
    last = 1 - 2.0**-53
    for uniform, point in ((0.0, 1), (0.25 - 1e-12, 1), (0.25, 3), (last, 3)):
        assert drawn_points(weight, torch.tensor([uniform], dtype=torch.float64)).tolist() == [point]
        assert drawn_points(weight * 1e-310, torch.tensor([uniform], dtype=torch.float64)).tolist() == [point]
    nothing = torch.zeros(1, 4, dtype=torch.float64)
    assert [int(drawn_points(nothing, torch.tensor([u], dtype=torch.float64))) for u in (0.0, 0.3, 0.6, last)] == [0, 1, 2, 3]


def test_nothing_salient_and_all_points_in_one_place():
    x = clouds(4, 6)
    for saliency in (torch.zeros(4, 6), torch.full((4, 6), 1e-30), torch.full((4, 6), 3e38)):
        plan = planned(x, saliency=saliency, options={"k": 5})
        assert torch.isfinite(plan.mix(x)).all()
    zero, tiny = (planned(x, saliency=torch.full((4, 6), s)) for s in (0.0, 1e-30))
    torch.testing.assert_close(zero.share, tiny.share)
    constant = torch.full((3, 5, 3), 0.25)
    for saliency in (torch.zeros(3, 5), torch.ones(3, 5)):
        assert torch.equal(planned(constant, saliency=saliency, options={"k": 2}).mix(constant), constant.repeat(2, 1, 1))


def test_a_partner_whose_salient_point_is_the_anchor():
    """Then saliency times distance is 0 everywhere, and q' is drawn by saliency alone."""
    x = clouds(1, 4, dtype=torch.float64).repeat(2, 1, 1)
    saliency = torch.tensor([[0.0, 0.0, 1.0, 0.0]]).repeat(2, 1)
    plan = planned(x, saliency=saliency, partner=torch.tensor([1, 0]), lam=[0.3])
    torch.testing.assert_close(plan.lam, torch.full((1, 2), 0.3, dtype=torch.float64))


@pytest.mark.parametrize("assignment", ["exact", "auction"])
def test_own_partners_stay_as_they_are(assignment):
    x = clouds(3, 20).repeat(1, 2, 1)  # every point twice, so that there are many optima
    for batch, partner in ((1, [0]), (3, [0, 2, 1])):
        part = x[:batch]
        plan = planned(part, partner=torch.tensor(partner), options={"k": 5, "assignment": assignment, "eps": 0.5})
        assert torch.equal(plan.order[0], torch.arange(40))
        assert torch.equal(plan.mix(part)[::batch], part[:1].repeat(5, 1, 1))


def test_a_step_of_k_5_is_k_1_at_its_lam():
    x, lam, partner = clouds(6, 12), path(5, 6), torch.randperm(6, generator=seeded(2))
    whole = planned(x, lam=lam, partner=partner, options={"k": 5})
    for k in range(5):
        single = planned(x, lam=lam[k : k + 1], partner=partner)
        assert torch.equal(single.mix(x), whole.mix(x)[6 * k : 6 * (k + 1)])
        assert torch.equal(single.lam[0], whole.lam[k])
        assert torch.equal(whole[k].mix(x), single.mix(x))
    assert torch.equal(torch.cat([part.mix(x) for part in whole.split(2)]), whole.mix(x))
    assert torch.equal(whole.to("cpu").mix(x), whole.mix(x))


def test_k_never_changes_the_pairing_and_the_generator_settles_all():
    x = clouds(16, 5)
    plans = [planned(x, seed=7, options={"k": k}) for k in (1, 2, 5)]
    assert all(torch.equal(plan.partner, plans[0].partner) for plan in plans)
    again, other = planned(x, seed=7), planned(x, seed=8)
    assert torch.equal(again.share, plans[0].share)
    assert not torch.equal(other.share, plans[0].share)


def test_geometry_differs_between_pairs_and_seeds():
    x = clouds(1, 10).repeat(6, 1, 1)
    saliency = salient(x[:1]).repeat(6, 1)
    partner = torch.arange(6).roll(1)
    plans = [planned(x, seed=seed, saliency=saliency, partner=partner, lam=[0.3]) for seed in range(2)]
    assert not torch.equal(plans[0].share, plans[1].share)
    assert not torch.equal(plans[0].share[0, 0].expand(6, 10), plans[0].share[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision(dtype):
    x = clouds(5, 11, dtype=dtype)
    plan = planned(x, options={"k": 5})
    assert plan.mix(x).dtype == dtype
    expected = plan.mix(x.double()).to(dtype)
    torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=torch.finfo(dtype).eps)


def test_all_roads_lead_to_the_same_place():
    x = clouds(4, 9)
    plan = planned(x, options={"k": 3})
    expected = plan.mix(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(plan.mix(leaf).detach(), expected)
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(plan.mix(turned), expected)


def test_gradients_flow_to_both_clouds():
    x = clouds(3, 4, dtype=torch.float64).requires_grad_()
    plan = planned(x, options={"k": 2})
    assert not plan.share.requires_grad
    torch.autograd.gradcheck(plan.mix, (x,))


def test_what_belongs_to_points_goes_with_them():
    x = clouds(3, 8)
    plan = planned(x, lam=[0.0, 0.4, 1.0])
    normals = torch.randn(3, 8, 5, generator=seeded(1))
    assert plan.mix(torch.cat([x, normals], dim=2)).shape == (9, 8, 8)
    torch.testing.assert_close(plan.mix(torch.cat([x, normals], dim=2))[..., :3], plan.mix(x))
    part = nn.functional.one_hot(torch.randint(4, (3, 8), generator=seeded(2)), 4).float()
    target = plan.mix_target(part.transpose(1, 2))
    assert target.shape == (9, 4, 8)
    torch.testing.assert_close(target, plan.mix(part).transpose(1, 2))
    assert torch.equal(target[-3:], torch.stack([part[plan.partner[i]][plan.order[i]] for i in range(3)]).transpose(1, 2))
    torch.testing.assert_close(target[3:6].mean(2).sum(1), torch.ones(3))


def test_target_follows_the_mean_share():
    x = clouds(4, 9)
    plan = planned(x, options={"k": 5})
    target = plan.mix_target(torch.arange(4), 4).view(5, 4, 4)
    for k in range(5):
        for i in range(4):
            expected = torch.zeros(4, dtype=torch.float64)
            expected[i] += 1 - plan.share[k, i].mean()
            expected[plan.partner[i]] += plan.share[k, i].mean()
            torch.testing.assert_close(target[k, i].double(), expected, atol=1e-6, rtol=0)


def test_saliency_is_the_gradient_in_evaluation_mode():
    x, y = clouds(3, 7), torch.tensor([0, 3, 1])
    model = nn.Sequential(classifier(), nn.Dropout(0.5)).train()
    found = point_saliency(model, x, y)
    model.eval()
    for i in range(3):
        one = x[i : i + 1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(one), y[i : i + 1]), one)
        for a in range(7):
            expected = math.sqrt(sum(float(g) ** 2 for g in gradient[0, a]) / 3)
            assert float(found[i, a]) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_mixed_forward_asks_the_model_once():
    x, y, model = clouds(4, 7), torch.arange(4), classifier()
    rows = []
    model.register_forward_hook(lambda module, inputs, result: rows.append(len(result)))
    out = mm.mixed_forward(model, SageMix(k=5), x, y, generator=seeded(0))
    logits, target = out.logits, out.target
    assert rows == [4, 20]
    plan = SageMix(k=5).plan(x, saliency=point_saliency(model, x, y), generator=seeded(0))
    torch.testing.assert_close(logits, model(plan.mix(x)))
    torch.testing.assert_close(target, plan.mix_target(y, 4))
    rows.clear()
    mm.mixed_forward(model, SageMix(k=5), x, y, generator=seeded(0), saliency=salient(x))
    assert rows == [20]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_mix_and_parts_and_loss():
    x, y, model = clouds(4, 7), torch.arange(4), classifier()
    mixed, target = mm.Mix(SageMix(k=3), 4, model=model, seed=1)(x, y)
    assert mixed.shape == (12, 7, 3)
    torch.testing.assert_close(target.sum(1), torch.ones(12))
    mm.mixed_forward(model, SageMix(k=5), x, y, generator=seeded(5)).loss().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for part in mm.mixed_parts(model, SageMix(k=5), x, y, steps=2, generator=seeded(5)):
        part.loss(nn.functional.cross_entropy).backward()
    for grad, parameter in zip(expected, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, grad, atol=1e-6, rtol=1e-4)


def test_inputs_and_global_state_are_untouched():
    x, y, saliency = clouds(6, 7), torch.arange(6) % 2, salient(clouds(6, 7))
    before, model = (x.clone(), saliency.clone()), classifier()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    planned(x, saliency=saliency, options={"k": 5}).mix(x).fill_(9.0)
    SageMix(k=2).plan(x, saliency=saliency, generator=seeded(1))
    mm.mixed_forward(model, SageMix(k=2), x, y, generator=seeded(2))
    assert torch.equal(x, before[0])
    assert torch.equal(saliency, before[1])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]


def test_an_assignment_of_ones_own():
    x = clouds(2, 5)
    order = torch.stack([torch.arange(5).flip(0), torch.arange(5).roll(2)])
    plan = planned(x, order=order, partner=torch.tensor([1, 0]), lam=[1.0])
    assert torch.equal(plan.mix(x), torch.stack([x[1].flip(0), x[0].roll(2, 0)]))


def test_unmixed_batches():
    x = clouds(3, 5)
    for options in ({"p": 0.0}, {"alpha": 0.0}):
        plan = planned(x, options={"k": 5, **options})
        assert plan.k == 1
        assert torch.equal(plan.mix(x), x)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SageMix(sigma=0), "sigma must"),
        (lambda: SageMix(sigma=math.nan), "sigma must"),
        (lambda: SageMix(eps=0.0), "eps must"),
        (lambda: SageMix(threads=0), "threads must"),
        (lambda: SageMix(assignment="greedy"), "assignment"),
        (
            lambda: planned(torch.zeros(2, 3, 9), saliency=torch.ones(2, 9)),
            r"\[2, 3, 9\].*x.transpose\(1, 2\)",
        ),
        (lambda: planned(torch.zeros(2, 3, 8, 8), saliency=torch.ones(2, 8)), r"\[2, 3, 8, 8\]"),
        (
            lambda: planned(clouds(2, 9), saliency=torch.ones(2, 3)),
            "saliency must",
        ),
        (lambda: planned(clouds(2, 9), saliency=-torch.ones(2, 9)), "saliency must"),
        (lambda: planned(clouds(2, 9), order=torch.zeros(2, 9).long()), "order must"),
        (
            lambda: planned(clouds(2, 9), order=torch.zeros(2, 8).long()),
            "order must",
        ),
        (lambda: planned(clouds(2, 9)).mix(torch.zeros(2, 8, 3)), r"z has shape \[2, 8, 3\]"),
    ],
)
def test_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
