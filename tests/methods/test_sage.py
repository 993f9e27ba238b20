"""SAGE: against loops, its translation, its masks, and the step that is part clean, part mixed."""

import math
import re
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

import multimix as mm
import saliency_family_oracles as slow
from batches import batch
from multimix.geometry.translated import _with_mean_1 as with_mean_1
from multimix.geometry.translated import covered, translated
from multimix.methods import sage_kernel
from multimix.methods.sage import SAGE, best_shift, by_cell, cell_sides, random_shifts
from oracles import seeded
from salient import CLASSES, Network, images, labels

LAM = [0.05, 0.3, 0.5, 0.8, 0.97]


def maps(batch, size, seed=0, holes=0.0):
    values = torch.rand(batch, *size, generator=seeded(seed)) ** 4
    return torch.where(torch.rand(batch, *size, generator=seeded(seed + 50)) < holes, 0.0, values)


def inputs(batch=4, size=(5, 7), seed=0, **kwargs):
    return torch.randn(batch, 2, *size, generator=seeded(seed)).to(**kwargs)


OPTIONS = [
    {},
    {"bound": 1.0, "positions": 0.3},
    {"positions": 0.2, "stay": False, "blur_size": 1},
    {"blur_size": 3, "blur_sigma": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("size", [(5, 7), (9,), (2, 3, 4), (1,)], ids=str)
@pytest.mark.parametrize("holes", [0.0, 0.7])
@pytest.mark.parametrize("lam", [[0.4], LAM], ids=["K = 1", "K = 5"])
def test_agrees_with_loops(options, size, holes, lam):
    x, s, partner = inputs(size=size), maps(4, size, holes=holes), torch.tensor([2, 1, 3, 0])
    plan = SAGE(k=len(lam), **options).plan(x, saliency=s, partner=partner, lam=lam, generator=seeded(3))
    mixed, shares = slow.sage_path(x, partner.tolist(), lam, s, seeded(3), **options)
    torch.testing.assert_close(plan.mix(x), mixed, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plan.lam, torch.tensor(shares, dtype=torch.float64), atol=1e-6, rtol=0)
    assert torch.equal(plan.mix(x)[1::4], x[1].expand(len(lam), *x.shape[1:])), "its own partner"


def test_the_chosen_offset_is_the_best_of_all_candidates():
    size = (6, 5)
    own, pair = with_mean_1(maps(8, size, 1)), with_mean_1(maps(8, size, 2))
    rho = torch.tensor([[0.6], [0.3], [0.05]], dtype=torch.float64)
    shifts = [(0, 0), *random_shifts(25, torch.Size(size), seeded(4))]
    found = torch.tensor(shifts)[best_shift(own, pair, rho, shifts)]
    for i in range(8):
        _, _, scores = slow.sage_pair(own[i] / own[i].sum(), pair[i] / pair[i].sum(), rho.flatten().tolist(), shifts)
        chosen = scores[shifts.index(tuple(found[i].tolist()))]
        assert chosen >= max(scores) - 1e-6
        assert chosen >= scores[0] - 1e-6, "never worse than staying, if staying is among them"
    assert any(shift != (0, 0) for shift in map(tuple, found.tolist()))


CUTS = [((9, 14), (3, 4)), ((8, 8), (2, 2)), ((13,), (4,)), ((3, 6, 9), (1, 2, 3)), ((4, 3), (1, 1))]


@pytest.mark.parametrize(("size", "sides"), CUTS, ids=str)
@pytest.mark.parametrize("lam", [[0.4], LAM], ids=["K = 1", "K = 5"])
@pytest.mark.parametrize("stay", [True, False])
def test_by_cells_the_best_candidate_on_the_pooled_grid_is_found(monkeypatch, size, sides, lam, stay):
    monkeypatch.setattr("multimix.methods.sage.MAX_CELLS", 4)
    assert cell_sides(torch.Size(size)) == sides
    drawn = []
    monkeypatch.setattr("multimix.methods.sage.random_shifts", lambda *given: drawn.append(random_shifts(*given)) or drawn[-1])
    x, s, partner = inputs(size=size), maps(4, size, holes=0.4), torch.tensor([2, 1, 3, 0])
    method = SAGE(k=len(lam), positions=0.3, stay=stay, bound=0.9)
    given = {"saliency": s, "partner": partner, "lam": lam}
    plan = method.plan(x, generator=seeded(3), **given)
    in_pixels = replace(method, search="pixels").plan(x, generator=seeded(3), **given)
    assert drawn[0] == drawn[1], "the candidates are those of the published search"
    candidates = [(0,) * len(size)] * stay + drawn[0]
    smooth = [slow.smooth_map(of, 5, 1.0) for of in s]
    rhos = [0.9 * (1 - step) for step in lam]
    for i in (0, 2, 3):
        found = candidates.index(tuple(plan.shift[i].tolist()))
        scores = slow.best_by_cells(smooth[i], smooth[partner[i]], rhos, candidates, sides)
        assert scores[found] >= max(scores) - 1e-6
        cell = slow.nearest_cells(candidates[found], sides)
        assert found == min(n for n, shift in enumerate(candidates) if slow.nearest_cells(shift, sides) == cell), (
            "the first drawn"
        )
        of_pixels = slow.sage_pair(smooth[i], smooth[partner[i]], rhos, candidates)[2]
        assert of_pixels[candidates.index(tuple(in_pixels.shift[i].tolist()))] >= max(of_pixels) - 1e-6
    if max(sides) == 1:
        assert torch.equal(plan.shift, in_pixels.shift)


@pytest.mark.parametrize("pairs", [1, 70])
@pytest.mark.parametrize("rho", [[[0.4]], [[0.6], [0.3], [0.05]]], ids=["K = 1", "K = 3"])
def test_scores_of_all_translations_of_any_number_of_pairs(pairs, rho):
    size, rho = (3, 4), torch.tensor(rho, dtype=torch.float64)
    shifts = [(a, b) for a in range(-3, 4) for b in range(-4, 5)]
    own, pair = with_mean_1(maps(pairs, size, 1, holes=0.3)), with_mean_1(maps(pairs, size, 2, holes=0.3))
    found = sage_kernel.gains(own, pair, rho, shifts) / 12  # maps of the oracle sum to 1
    for i in {0, pairs // 2, pairs - 1}:
        _, _, scores = slow.sage_pair(own[i] / own[i].sum(), pair[i] / pair[i].sum(), rho.flatten().tolist(), shifts)
        torch.testing.assert_close(found[:, i], torch.tensor(scores).double() - float(rho.sum()), atol=1e-6, rtol=1e-5)


def test_both_ways_of_searching_agree(monkeypatch):
    """The compiled search, and that of other devices and of installations without numba."""
    own, pair = with_mean_1(maps(9, (6, 5), 1)), with_mean_1(maps(9, (6, 5), 2))
    rho, shifts = torch.rand(3, 9, generator=seeded(2)), random_shifts(40, torch.Size((6, 5)), seeded(3))
    compiled = best_shift(own, pair, rho, shifts)
    monkeypatch.setattr("multimix.methods.sage.has_numba", lambda: False)
    assert torch.equal(best_shift(own, pair, rho, shifts), compiled)


@pytest.mark.parametrize("size", [(5, 7), (9,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_samples_are_mixed_pair_by_pair(monkeypatch, size, last, dtype):
    monkeypatch.setattr("multimix.core.mixing.LARGE_SAMPLE", 1)
    x, s, partner = inputs(batch=5, size=size, dtype=dtype), maps(5, size, holes=0.4), torch.tensor([2, 1, 3, 0, 2])
    if last and len(size) > 1:
        x = x.contiguous(memory_format=torch.channels_last if len(size) == 2 else torch.channels_last_3d)
    for per_pair in (False, True):
        plan = SAGE(k=3, bound=1.0, per_pair=per_pair).plan(x, saliency=s, partner=partner, generator=seeded(3))
        moves = torch.tensor([[1, -1, 2], [0, 0, 0], [-1, 2, -3], [0, 2, 0], [1, 0, -1]])
        plan = replace(plan, shift=moves[:, -len(size) :])
        found = plan.mix(x)
        assert found.stride()[1:] == x.stride()[1:]
        torch.testing.assert_close(found, plan.mix(x.clone().requires_grad_()).detach())
        away = ~covered(plan.shift, plan.size)
        for step in found.chunk(3):
            assert torch.equal(step.movedim(1, -1)[away], x.movedim(1, -1)[away])


def test_masks_are_ordered_and_the_target_is_their_mean():
    for seed in range(20):
        x, s = inputs(batch=5, size=(9, 6), seed=seed), maps(5, (9, 6), seed, holes=0.3 * (seed % 3))
        plan = SAGE(k=6, per_pair=bool(seed % 2), bound=0.7, positions=0.05).plan(x, saliency=s, generator=seeded(seed))
        assert (plan.mask.diff(dim=0) >= 0).all()
        assert (plan.mask >= 0).all()
        assert (plan.mask <= 1).all()
        torch.testing.assert_close(plan.lam, plan.mask.double().mean((2, 3, 4)))
        target = plan.mix_target(torch.arange(5), 5)
        torch.testing.assert_close(target.sum(1), torch.ones(30))


def test_even_maps_give_input_mixup():
    """Below ρ = ½ an even partner is best left where it is."""
    x, partner = inputs(), torch.tensor([1, 2, 3, 0])
    plan = SAGE(k=5).plan(x, saliency=torch.ones(4, 5, 7), partner=partner, lam=[0.2, 0.4, 0.6, 0.8, 1.0], generator=seeded(0))
    assert not plan.shift.any()
    for lam, step in zip([0.2, 0.4, 0.6, 0.8, 1.0], plan.mix(x).chunk(5), strict=True):
        rho = 0.6 * (1 - lam)
        torch.testing.assert_close(step, rho * x + (1 - rho) * x[partner])
    none = SAGE(k=5).plan(x, saliency=torch.zeros(4, 5, 7), partner=partner, lam=[0.2, 0.4, 0.6, 0.8, 1.0], generator=seeded(0))
    assert torch.equal(none.mix(x), plan.mix(x)), "a map of zeros counts as even"


def test_no_black_holes():
    """Where the moved partner has nothing to show the sample stays, bit for bit, however little it is salient there."""
    x = inputs(batch=6, size=(8, 11)).abs() + 1
    s = maps(6, (8, 11), 5, holes=0.8)
    plan = SAGE(k=3, positions=0.05, stay=False, blur_size=1, bound=1.0).plan(x, saliency=s, generator=seeded(2))
    absent = ~covered(plan.shift, plan.size)
    assert absent.any(dim=(1, 2)).sum() >= 3
    for step in plan.mix(x).chunk(3):
        assert (step >= 1).all()
        assert torch.equal(step.movedim(1, -1)[absent], x.movedim(1, -1)[absent])
    assert not plan.mask[:, absent.unsqueeze(1)].any()


def test_both_ends():
    x, s = inputs(batch=5), maps(5, (5, 7), holes=0.5)
    plan = SAGE(bound=1.0, positions=0.1, blur_size=1).plan(x, saliency=s, lam=[0.0, 1.0], generator=seeded(1))
    at_0, at_1 = plan.mix(x).chunk(2)
    assert torch.equal(at_0, x)
    moved, here = translated(x[plan.partner], plan.shift), covered(plan.shift, plan.size).unsqueeze(1)
    assert torch.equal(at_1, torch.where(here, moved, x))
    assert SAGE(bound=0.5).plan(x, saliency=s, lam=[0.0], generator=seeded(1)).lam.min() > 0.2, "x has at most about half"


def test_how_many_offsets(monkeypatch):
    counts = []
    monkeypatch.setattr(
        "multimix.methods.sage.by_cell", lambda shifts, sides: counts.append(len(shifts)) or by_cell(shifts, sides)
    )
    for size, options in (
        ((32, 32), {}),
        ((32, 32), {"stay": False}),
        ((2, 2), {"stay": False}),
        ((4, 6), {"positions": 1.0}),
        ((4, 6), {"positions": 0}),
    ):
        x = torch.zeros(1, 1, *size)
        SAGE(**options).plan(x, saliency=torch.ones(1, *size), generator=seeded(0))
    assert counts == [40, 39, 1, 78, 2]


def test_cells_are_pixels_up_to_32_and_then_as_small_as_can_be():
    assert [cell_sides(torch.Size((side,)))[0] for side in (1, 32, 33, 64, 65, 224, 299)] == [1, 1, 2, 2, 3, 7, 10]


def test_law_of_the_share():
    """With even maps λ̂ = 1 − c (1 − λ), λ uniform: mean 1 − c/2, variance c²/12."""
    n = 3000
    x, even, partner = torch.zeros(n, 1, 2, 2), torch.ones(n, 2, 2), torch.arange(n).roll(1)
    found = SAGE(bound=0.5, per_pair=True).plan(x, saliency=even, partner=partner, generator=seeded(7)).lam[0]
    assert abs(float(found.mean()) - 0.75) < 4.5 * 0.5 / math.sqrt(12 * n)
    assert stats.kstest(found.numpy(), stats.uniform(0.5, 0.5).cdf).pvalue > 1e-3


def test_steps_share_the_translation_and_plans_can_be_cut():
    x, s = inputs(batch=5), maps(5, (5, 7))
    plan = SAGE(k=5, positions=0.2, stay=False).plan(x, saliency=s, generator=seeded(8))
    whole = plan.mix(x)
    assert plan.shift.any()
    assert torch.equal(torch.cat([part.mix(x) for part in plan.split(2)]), whole)
    assert torch.equal(plan[3].mix(x), whole[15:20])
    rows = x.clone().requires_grad_()
    torch.testing.assert_close(plan.mix(rows).detach(), whole)
    (grad,) = torch.autograd.grad(plan.mix(rows).sum(), rows)
    assert torch.isfinite(grad).all()
    assert float(grad.sum()) == pytest.approx(whole.numel(), rel=1e-5), "every pixel's weights sum to 1"


def test_a_dense_target_moves_along():
    x, s = inputs(batch=4), maps(4, (5, 7))
    plan = SAGE(k=2, positions=0.2, stay=False).plan(x, saliency=s, generator=seeded(8))
    dense = torch.rand(4, 3, 5, 7, generator=seeded(9))
    torch.testing.assert_close(plan.mix_target(dense), plan.mix(dense))


def test_saliency_is_the_mean_absolute_gradient_in_the_models_own_mode():
    x, y = images(), labels()
    for mode, training in (("train", True), ("eval", False)):
        model, twin = Network(dropout=0), Network(dropout=0)
        twin.train(training)
        told = SAGE(saliency_mode=mode).inputs(batch(model, x, y))
        assert set(told) == {"saliency"}
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(twin(leaf), y, reduction="sum"), leaf)
        torch.testing.assert_close(told["saliency"], gradient.abs().mean(1))
        assert model.seen == [(6, training)]
        assert bool(model.norm.num_batches_tracked) == training
    model = Network()
    assert SAGE().inputs(batch(model, x, y, saliency=x[:, 0])) == {}
    assert model.seen == []


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()))


def hinge(logits, target):
    return (logits - 3 * target.to(logits.dtype)).square().mean()  # a multiple of a float32 would be rounded


@pytest.mark.parametrize("loss", [mm.losses.soft_cross_entropy, mm.losses.softmax_bce, hinge])
@pytest.mark.parametrize("u", [0.7, 0.25, 1.0])
@pytest.mark.parametrize("steps", [None, 1])
def test_two_part_update(u, steps, loss):
    """The gradient is (1 − u) times that of the clean loss and u times that of the mixed one, the clean one not K times."""
    x, y = images(dtype=torch.float64), labels()
    model = Network(dropout=0).double()
    model.norm = nn.Identity()
    method = SAGE(k=3, update_ratio=u)
    saliency = method.inputs(batch(model, x, y))["saliency"]
    plan = method.plan(x, saliency=saliency, generator=seeded(1))
    mixed = gradients(model, loss(model(plan.mix(x)), plan.mix_target(y, CLASSES).double()))
    clean = gradients(model, loss(model(x), one_hot(y, CLASSES).double()))
    model.seen.clear()
    parts = mm.mixed_parts(model, method, x, y, steps=steps, generator=seeded(1))
    by_part = [gradients(model, part.loss(loss)) for part in parts]
    found = [sum(values) for values in zip(*by_part, strict=True)]
    for ours, of_clean, of_mixed in zip(found, clean, mixed, strict=True):
        torch.testing.assert_close(ours, (1 - u) * of_clean + u * of_mixed, atol=1e-9, rtol=1e-6)
    assert model.seen == [(6, True)] + ([(18, True)] if steps is None else [(6, True)] * 3)


def test_two_parts_for_labels_that_are_no_classes_with_a_map_of_their_own():
    x, model = images(dtype=torch.float64), Network(dropout=0).double()
    model.norm = nn.Identity()
    y = (torch.rand(len(x), CLASSES, generator=seeded(3)) < 0.5).double()
    given = {"saliency": torch.rand(len(x), *x.shape[2:], generator=seeded(4), dtype=torch.float64)}
    method, bce = SAGE(k=2, update_ratio=0.6), binary_cross_entropy_with_logits
    plan = method.plan(x, generator=seeded(1), **given)
    expected = 0.4 * bce(model(x), y) + 0.6 * bce(model(plan.mix(x)), plan.mix_target(y))
    torch.testing.assert_close(mm.mixed_forward(model, method, x, y, generator=seeded(1), **given).loss(bce), expected)


def test_the_weights_of_both_parts():
    x, y, model = images(), labels(), Network(dropout=0)
    assert SAGE().traits.own_loss is None
    assert SAGE(update_ratio=0.7).traits.own_loss == "adds a clean loss of weight 0.3"
    for skipped in (SAGE(update_ratio=0.7, p=0.0), SAGE(update_ratio=0.7, alpha=0.0)):
        model.norm.eval()
        plain = cross_entropy(model(x), y)
        torch.testing.assert_close(mm.mixed_forward(model, skipped, x, y).loss(), plain)
    with pytest.raises(ValueError, match="SAGE adds a clean loss.*mixed_forward"):
        mm.Mix(SAGE(update_ratio=0.7), CLASSES)
    chosen = mm.OneOf((SAGE(update_ratio=0.5), SAGE(update_ratio=0.5)))
    given = {"saliency": torch.ones(6, 5, 7), "lam": [0.3], "partner": torch.arange(6)}
    direct, drawn = (
        mm.mixed_forward(model, method, x, y, generator=seeded(0), **given).loss() for method in (SAGE(update_ratio=0.5), chosen)
    )
    torch.testing.assert_close(drawn, direct)


def test_batch_of_one_and_constant_images():
    x = torch.full((1, 3, 5, 4), 0.25)
    plan = SAGE(k=3).plan(x, saliency=torch.zeros(1, 5, 4), generator=seeded(0))
    assert torch.equal(plan.mix(x), x.repeat(3, 1, 1, 1))
    huge = SAGE(k=2).plan(inputs(), saliency=maps(4, (5, 7)) * 3e38, generator=seeded(0))
    tiny = SAGE(k=2).plan(inputs(), saliency=(maps(4, (5, 7)).double() * 1e-200), generator=seeded(0))
    assert torch.isfinite(huge.mask).all()
    torch.testing.assert_close(huge.mask, tiny.mask, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bound": 0}, "bound must"),
        ({"bound": 1.5}, "bound must"),
        ({"update_ratio": 0.0}, "update_ratio must"),
        ({"positions": -0.1}, "positions must"),
        ({"blur_size": 4}, "blur_size must"),
        ({"blur_sigma": 0.0}, "blur_sigma must"),
        ({"search": "blocks"}, "search"),
        ({"saliency_mode": "both"}, "saliency_mode"),
        ({"saliency_mode": "eval", "update_ratio": 0.5}, "update_ratio"),
        ({"saliency_mode": "eval", "clean_weight": 1.0}, "clean_weight"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        SAGE(**options)


def test_places_are_needed():
    with pytest.raises(ValueError, match="SAGE needs x of shape"):
        SAGE().plan(torch.zeros(2, 3), saliency=torch.ones(2))
