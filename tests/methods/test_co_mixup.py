"""Co-Mixup: against plain loops, the plan of many samples, the laws of its priors, options and their refusals."""

import itertools

import pytest
import torch
from torch import nn

import comixup_oracle as oracle
import multimix as mm
from multimix.methods.comixup.method import CoMixup, GroupPlan, tilted_priors
from oracles import seeded


def images(batch, size, channels=2, seed=0):
    return torch.randn(batch, channels, *size, generator=seeded(seed))


def maps(batch, size, seed=7):
    coarse = torch.rand(batch, 1, 6, 6, generator=seeded(seed)) ** 5
    return torch.nn.functional.interpolate(coarse, size=size, mode="bilinear").squeeze(1) + 1e-3


def some_plan(batch=9, size=(17, 11), k=3, seed=0, **options):
    x = images(batch, size)
    return x, CoMixup(k=k, **options).plan(x, saliency=maps(batch, size), generator=seeded(seed))


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(
    ("batch", "size", "options"),
    [
        (7, (9, 13), {"part": 3, "blocks": (3,)}),
        (5, (8, 8), {"blocks": (2, (3, 2), (1, 4))}),
        (1, (5, 3), {}),
        (4, (3, 20), {"part": 3, "blocks": (3,), "rule": "soft", "alpha": 0.5}),
        (6, (12, 12), {"part": 3, "blocks": (3,), "precedence": "reference", "borders": "reference", "descent": 0}),
    ],
    ids=str,
)
def test_against_plain_loops(batch, size, options, k):
    for seed in range(3):
        x, plan = some_plan(batch, size, k=k, seed=seed, **options)
        mixed, weights = oracle.in_order(
            *oracle.co_mixup(x, maps(batch, size), seeded(seed), k=k, **options), options.get("part", 20)
        )
        torch.testing.assert_close(plan.mix(x).double(), mixed.flatten(0, 1), atol=1e-6, rtol=0)
        torch.testing.assert_close(plan.weights, weights)


def test_default_settings_against_plain_loops():
    """Maps with clear peaks, so that every output is solved exactly."""
    for seed in range(2):
        x, plan = some_plan(6, (16, 16), k=2, seed=seed)
        mixed, weights = oracle.in_order(*oracle.co_mixup(x, maps(6, (16, 16)), seeded(seed), k=2))
        torch.testing.assert_close(plan.mix(x).double(), mixed.flatten(0, 1), atol=1e-6, rtol=0)
        torch.testing.assert_close(plan.weights, weights)


@pytest.mark.parametrize(("batch", "size"), [(9, (17, 11)), (23, (8, 8)), (1, (4, 6)), (5, (3, 3)), (6, (13,))], ids=str)
def test_every_place_shows_one_sample_or_two_half_and_half(batch, size):
    channels = max(batch, 2)
    x = torch.eye(batch, channels).reshape(batch, channels, *[1] * len(size)).expand(-1, -1, *size).contiguous()
    salient = maps(batch, (1, size[0]) if len(size) == 1 else size).reshape(batch, *size)
    plan = CoMixup(k=3, part=10).plan(x, saliency=salient, generator=seeded(0))
    shares = plan.mix(x)
    assert set(shares.unique().tolist()) <= {0.0, 0.5, 1.0}
    assert (shares.sum(1) == 1).all()
    assert ((shares > 0).sum(1) <= 2).all()
    assert (plan.weights >= 0).all()
    torch.testing.assert_close(plan.weights.sum(2), torch.ones(3, batch, dtype=torch.float64))
    target = plan.mix_target(torch.arange(batch), channels)
    torch.testing.assert_close(target, shares.flatten(2).mean(2))
    own = shares.reshape(3, batch, channels, *size)[:, torch.arange(batch), torch.arange(batch)].unsqueeze(2)
    torch.testing.assert_close(plan.mask, 1 - own)
    torch.testing.assert_close(plan.lam, plan.mask.flatten(2).mean(2, dtype=torch.float64))
    torch.testing.assert_close(plan.mix_target(x), shares)  # a target with places goes where its pixels go


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("size", "grid"), [((9, 14), (4, 3)), ((7, 5), (1, 1)), ((3, 11), (3, 5))], ids=str)
def test_mixing_against_every_block_by_itself(size, grid, dtype, order):
    """Also runs of equal neighbors, complete lines, and two samples in either order."""
    k, batch, draws = 3, 5, seeded(0)
    x = torch.randn(batch, 4, *size, dtype=dtype, generator=draws).contiguous(memory_format=order)
    first, second = torch.randint(3, (2, k, batch, *grid), generator=draws)
    first[0], second[0] = first[0, :, :1, :1], second[0, :, :1, :1]
    first[1] = first[1, :, :, :1]
    second[1] = first[1]
    plan = GroupPlan(partner=torch.arange(batch), first=first, second=second, size=torch.Size(size))
    expected = torch.empty(k, batch, 4, *size, dtype=torch.float64)
    for row, column in itertools.product(range(size[0]), range(size[1])):
        r, c = (max(b for b in range(n) if s * b // n <= at) for s, n, at in zip(size, grid, (row, column), strict=True))
        places = x[:, :, row, column].double()
        expected[..., row, column] = 0.5 * (places[first[:, :, r, c]] + places[second[:, :, r, c]])
    expected = expected.flatten(0, 1)
    mixed = plan.mix(x)
    assert mixed.is_contiguous(memory_format=order)
    torch.testing.assert_close(mixed.double(), expected, atol=1e-6, rtol=0)
    watched = x.clone().requires_grad_()
    assert torch.equal(plan.mix(watched), mixed)
    with torch.no_grad():
        assert torch.equal(plan.mix(watched), mixed)


def test_samples_of_other_parts_do_not_show():
    _, plan = some_plan(11, (12, 12), part=4)
    part = torch.arange(11) // 4
    assert (plan.weights[:, part[:, None] != part] == 0).all()
    assert (part[plan.partner] == part).all()


def test_rows_hold_their_own_sample_and_the_partner_comes_next():
    _, plan = some_plan(20, (16, 16))
    share = plan.weights.sum(0)
    assert float(share.diagonal().mean()) > 2 * float(share.mean())
    others = share.clone().fill_diagonal_(0)
    torch.testing.assert_close(others.gather(1, plan.partner[:, None]).squeeze(1), others.max(1).values)
    _, alone = some_plan(1, (5, 5))
    assert alone.partner.tolist() == [0]
    assert alone.lam.tolist() == [[0.0]] * 3


def test_a_plan_can_be_cut_moved_and_reused():
    x, plan = some_plan(9, (17, 11), k=5)
    assert len(plan) == 5
    assert repr(plan) == "GroupPlan(k=5, batch=9, size=[17, 11])"
    whole = plan.mix(x).view(5, 9, *x.shape[1:])
    assert torch.equal(plan[2].mix(x), whole[2])
    assert [part.k for part in plan.split(2)] == [2, 2, 1]
    assert torch.equal(
        torch.cat([part.mix_target(torch.arange(9), 9) for part in plan.split(2)]), plan.mix_target(torch.arange(9), 9)
    )
    assert plan.to("meta").first.device.type == "meta"
    with pytest.raises(ValueError, match="z has shape"):
        plan.mix(x[..., :10])
    with pytest.raises(ValueError, match="z has shape"):
        plan.mix(x[:8])


def test_gradients_flow_to_every_sample_shown():
    x, plan = some_plan(6, (8, 8), k=2)
    source = x.double().requires_grad_()
    plan.mix(source).sum().backward()
    held = plan.weights.sum((0, 1)) * 64
    torch.testing.assert_close(source.grad.sum((2, 3)), held[:, None].expand(6, 2))
    small = CoMixup().plan(images(3, (5, 4)), saliency=maps(3, (5, 4)), generator=seeded(0))
    assert torch.autograd.gradcheck(small.mix, (torch.randn(3, 1, 5, 4, dtype=torch.float64, requires_grad=True),))


def test_it_works_wherever_methods_do():
    x, y = images(8, (12, 12)), torch.arange(8) % 3
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(400, 3))
    out = mm.mixed_forward(model, CoMixup(k=2), x, y, generator=seeded(0))
    logits, target = out.logits, out.target
    assert logits.shape == target.shape == (16, 3)
    mixed, target = mm.Mix(CoMixup(k=2), 3, model=model, seed=0)(x, y)
    assert mixed.shape == (16, 2, 12, 12)
    torch.testing.assert_close(target.sum(1), torch.ones(16))
    loss = mm.mixed_forward(model, CoMixup(k=2, clean_weight=1.0), x, y, generator=seeded(0)).loss(mm.losses.softmax_bce)
    loss.backward()
    parts = mm.mixed_parts(model, CoMixup(k=3), x, y, steps=2, generator=seeded(0))
    assert [len(part.logits) for part in parts] == [16, 8]


def test_signals_and_unmixed_batches():
    x = images(6, (30,))
    plan = CoMixup(k=2).plan(x, saliency=maps(6, (1, 30)).squeeze(1), generator=seeded(0))
    assert isinstance(plan, GroupPlan)
    assert plan.mix(x).shape == (12, 2, 30)
    for method in (CoMixup(k=3, p=0.0), CoMixup(k=3, alpha=0.0)):
        assert torch.equal(method.plan(x, saliency=x[:, 0].abs()).mix(x), x)


def test_no_saliency_at_all_and_equal_samples():
    x = torch.ones(5, 1, 9, 7)
    for salient in (torch.zeros(5, 9, 7), torch.ones(5, 9, 7)):
        plan = CoMixup(k=2).plan(x, saliency=salient, generator=seeded(0))
        assert torch.isfinite(plan.weights).all()
        assert torch.equal(plan.mix(x), torch.ones(10, 1, 9, 7))


# The laws of the priors


def test_one_prior_is_dirichlet():
    """Means, variances and correlations of Dirichlet(α, …, α) with m weights, in pairs and across them, even and odd."""
    for m, alpha in ((4, 2.0), (5, 0.7), (1, 2.0), (2, 1.0)):
        draws = tilted_priors(1, alpha, tuple(range(0, 8001 * m, m)), sampler="iid", generator=seeded(m)).reshape(-1, m)
        n = len(draws)
        torch.testing.assert_close(draws.sum(1), torch.ones(n, dtype=torch.float64))
        variance = (m - 1) / m**2 / (m * alpha + 1)
        assert (draws.mean(0) - 1 / m).abs().max() <= 4.5 * (variance / n) ** 0.5 + 1e-12
        second = draws.T @ draws / n
        spread = ((draws[:, :, None] * draws[:, None]).var(0) / n).sqrt()
        base = m * alpha * (m * alpha + 1)
        expected = torch.full((m, m), alpha**2 / base, dtype=torch.float64)
        expected.fill_diagonal_(alpha * (alpha + 1) / base)
        assert ((second - expected).abs() <= 4.5 * spread + 1e-12).all()


def test_a_pair_is_a_path():
    """The share of the second input in its pair has the law of the path, ascends, and the pair's own weight is shared."""
    edges = tuple(range(0, 4001 * 5, 5))
    prior = tilted_priors(3, 2.0, edges, sampler="stratified", generator=seeded(0)).reshape(3, -1, 5)
    for i in range(2):
        share = prior[:, :, i + 2] / (prior[:, :, i] + prior[:, :, i + 2])
        assert (share.diff(dim=0) > 0).all()
        n = share.numel()
        assert abs(float(share.mean()) - 0.5) <= 4.5 * (0.05 / n) ** 0.5  # Var Beta(2, 2) = 1/20
        torch.testing.assert_close(share.var(), torch.tensor(0.05, dtype=torch.float64), atol=0.003, rtol=0)
    ratio = (prior[:, :, 0] + prior[:, :, 2]) / (prior[:, :, 1] + prior[:, :, 3])
    torch.testing.assert_close(ratio[0], ratio[2])
    torch.testing.assert_close(prior[0, :, 4], prior[2, :, 4])
    grid = tilted_priors(3, 2.0, (0, 2), sampler="grid", generator=seeded(0))
    torch.testing.assert_close(grid[:, 1], torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))


def test_the_grid_is_drawn():
    x, salient = images(40, (8, 8)), torch.ones(40, 8, 8)
    grids = [CoMixup(blocks=(2, 4)).plan(x, saliency=salient, generator=seeded(s)).first.shape[2:] for s in range(40)]
    assert 8 <= sum(grid == (2, 2) for grid in grids) <= 32


def test_small_alpha_and_many_steps():
    prior = tilted_priors(5, 1e-3, (0, 7, 8), sampler="iid", generator=seeded(0))
    assert torch.isfinite(prior).all()
    torch.testing.assert_close(prior[:, :7].sum(1), torch.ones(5, dtype=torch.float64))


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"part": 0}, "part must"),
        ({"part": 300}, "part must"),
        ({"sweeps": 1.5}, "sweeps must"),
        ({"descent": -1}, "descent must"),
        ({"gamma": -1}, "gamma must"),
        ({"beta": float("nan")}, "beta must"),
        ({"omega": 2}, "omega must"),
        ({"rule": "loud"}, "rule"),
        ({"blocks": 64}, "blocks must"),
        ({"alpha": -1}, "alpha must"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ValueError, match=words):
        CoMixup(**options)


def test_what_a_batch_must_be():
    with pytest.raises(TypeError, match="CoMixup.plan needs saliency="):
        CoMixup().plan(images(2, (4, 4)))
    with pytest.raises(ValueError, match="CoMixup needs x of shape"):
        CoMixup().plan(images(2, (4, 4, 4)), saliency=torch.ones(2, 4, 4, 4))
    with pytest.raises(ValueError, match="at least 0"):
        CoMixup().plan(images(2, (4, 4)), saliency=torch.full((2, 4, 4), float("nan")))


def test_autocast_does_not_round_targets():
    x, y = torch.randn(6, 3, 12, 12, generator=seeded(0)), 1000 * torch.rand(6, 4, generator=seeded(1))
    saliency = torch.rand(6, 12, 12, generator=seeded(2))
    plan = CoMixup(part=3, blocks=(3,), k=2).plan(x, saliency=saliency, generator=seeded(3))
    with torch.autocast("cpu", torch.bfloat16):
        found = plan.mix_target(y)
    torch.testing.assert_close(found, (plan.weights @ y.double()).flatten(0, 1).float(), rtol=1e-6, atol=1e-4)
