"""RecursiveMix: equal to the slow loops, its laws, the recursion, the consistency term, what is carried. Chance below 1e-3."""

import copy
import math
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, one_hot

import multimix as mm
import recursive_oracle as slow
from multimix.forward import mixed_terms
from multimix.generator import seeded as keyed
from multimix.geometry.pasted import PastedPlan
from multimix.lab.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from multimix.lab.training.loop import Training
from multimix.lab.training.settings import Network as Named
from multimix.lab.training.step import MIXING
from multimix.lab.training.weights import weights_digest
from multimix.methods.recursive_mix import RecursiveMix
from multimix.plan import UnmixedPlan
from oracles import seeded
from trial import settings, splits

CLASSES = 4
LINKED = {"features": "body", "head": "head", "omega": 0.7}


def images(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def past(batch, *rest, seed=50, dtype=torch.float32):
    """A history as an earlier batch would have left it."""
    return {
        "history_x": images(batch, *rest, seed=seed, dtype=dtype),
        "history_target": images(batch, CLASSES, seed=seed + 1, dtype=dtype).softmax(1),
        "history_logits": images(batch, CLASSES, seed=seed + 2, dtype=dtype),
    }


class Network(nn.Module):
    """A feature map, its mean over places, a linear head."""

    def __init__(self, channels=2, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(channels, 5, 3, stride=2, padding=1), nn.Tanh())
        self.head = nn.Linear(5, CLASSES)
        self.other = nn.Linear(5, CLASSES)
        self.to(dtype)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def labels(batch, seed=9):
    return torch.randint(CLASSES, (batch,), generator=seeded(seed))


@pytest.mark.parametrize("box", ["clip", "shift"])
@pytest.mark.parametrize("grid", ["continuous", "integer"])
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((3, 1, 6, 9), "as many"),
        ((3, 1, 6, 9), "fewer"),
        ((1, 2, 5, 4), "more"),
        ((3, 2, 13), "fewer"),
        ((2, 1, 3, 4, 5), "more"),
    ],
    ids=str,
)
def test_equal_to_the_slow_loop(box, grid, resize, per_pair, shape, rows):
    x, batch = images(*shape), shape[0]
    there = {"as many": batch, "fewer": max(1, batch - 1), "more": batch + 2}[rows]
    history = past(there, *shape[1:])
    y = labels(batch)
    areas = [0.0, 0.02, 0.31, 0.65, 1.0]
    options = {"box": box, "grid": grid, "per_pair": per_pair}
    plan = RecursiveMix(k=5, resize=resize, **options).plan(x, lam=areas, generator=seeded(2), **history)
    edges = slow.boxes(areas, batch, there, shape[2:], seeded(2), **options)
    for k in range(5):
        expected, shares = slow.pasted(x, history["history_x"], edges[k], resize)
        own = plan[k]
        single = RecursiveMix(resize=resize, **options).plan(x, lam=areas[k : k + 1], generator=seeded(2), **history)
        assert torch.equal(single.mix(x), own.mix(x))
        assert torch.equal(own.mix(x), plan.mix(x)[k * batch : (k + 1) * batch])
        assert own.lam[0].tolist() == pytest.approx(shares, abs=1e-15)
        torch.testing.assert_close(own.mix(x), expected, atol=0 if resize == "nearest" else 1e-6, rtol=0)
        target = own.mix_target(y, CLASSES)
        for i, share in enumerate(shares):
            old = history["history_target"][i] if i < there else torch.zeros(CLASSES)
            torch.testing.assert_close(target[i], (1 - share) * one_hot(y[i], CLASSES) + share * old)


@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("side", [30, 100])
def test_the_patch_is_the_history_resized_by_torch(per_pair, side):
    x, history = images(4, 3, side, side + 6).double(), past(4, 3, side, side + 6, dtype=torch.float64)
    for resize in ("nearest", "bilinear"):
        plan = RecursiveMix(k=3, resize=resize, per_pair=per_pair).plan(x, generator=seeded(3), **history)
        mixed, mask = plan.mix(x).unflatten(0, (3, 4)), plan.mask.bool().expand(-1, -1, 3, -1, -1)
        for k in range(3):
            for i in range(4):
                (top, left), (bottom, right) = (e[k, i if per_pair else 0].tolist() for e in (plan.low, plan.high))
                assert bottom > top
                assert right > left
                small = interpolate(history["history_x"][i : i + 1], (bottom - top, right - left), mode=resize)[0]
                torch.testing.assert_close(mixed[k, i, :, top:bottom, left:right], small, atol=1e-9, rtol=1e-9)
                assert torch.equal(mixed[k, i][~mask[k, i]], x[i][~mask[k, i]])


def test_areas_are_uniform_and_sorted():
    """A signal that long loses nothing by rounding; in the middle half nothing is cut off."""
    x = torch.zeros(1).expand(4000, 1, 40_000)
    history = {"history_x": x, "history_target": torch.zeros(1).expand(4000, 2)}
    plan = RecursiveMix(k=1, per_pair=True, box="shift").plan(x, generator=seeded(4), **history)
    assert stats.kstest(plan.lam[0].numpy(), stats.uniform(0, 0.5).cdf).pvalue > 1e-3
    lam = RecursiveMix(k=3, per_pair=True, box="shift", area=0.8).plan(x, generator=seeded(5), **history).lam
    for k in range(3):
        assert stats.kstest(lam[k].numpy(), stats.beta(k + 1, 3 - k, 0, 0.8).cdf).pvalue > 1e-3
    found = RecursiveMix(k=3, sampler="grid", box="shift").plan(x[:2], generator=seeded(5), **history).lam[:, 0]
    assert found.tolist() == pytest.approx([0.125, 0.25, 0.375], abs=1e-4)


def test_the_mean_share():
    """a/2 − a^(3/2)/5 + a²/48 = 0.1845 for a = ½, in continuous geometry; rounding down moves edges, not widths."""
    x = torch.zeros(1).expand(20_000, 1, 500, 400)
    plan = RecursiveMix(per_pair=True, grid="continuous").plan(
        x, generator=seeded(6), history_x=x, history_target=torch.zeros(1).expand(20_000, 2)
    )
    lam = plan.lam
    expected = 0.5 / 2 - 0.5**1.5 / 5 + 0.5**2 / 48
    assert expected == pytest.approx(0.1845, abs=1e-4)
    assert float(lam.mean()) == pytest.approx(expected, abs=4.5 * float(lam.std()) / math.sqrt(20_000) + 1e-3)


def test_centres_are_uniform_up_to_the_border():
    """A box of 2 × 2 places around a whole centre: cut off at 0 only."""
    x = torch.zeros(1).expand(6000, 1, 6, 5)
    history = {"history_x": x, "history_target": torch.zeros(1).expand(6000, 2)}
    plan = RecursiveMix(per_pair=True).plan(x, lam=[0.3], generator=seeded(7), **history)
    for axis, side in enumerate((6, 5)):
        assert stats.chisquare(torch.bincount(plan.high[0, :, axis], minlength=side + 1)[1:].numpy()).pvalue > 1e-3
        cut = (plan.low[0, :, axis] == 0) & (plan.high[0, :, axis] == 1)
        assert float(cut.double().mean()) == pytest.approx(1 / side, abs=4.5 * math.sqrt(1 / side / 6000))


def test_boxes_nest_and_steps_agree():
    x, history = images(6, 2, 17, 12), past(6, 2, 17, 12)
    for seed in range(30):
        plan = RecursiveMix(k=5, per_pair=seed % 2 == 0).plan(x, generator=seeded(seed), **history)
        assert (plan.lam.diff(dim=0) >= 0).all()
        assert (plan.mask.diff(dim=0) >= 0).all()
        assert (plan.lam <= 0.5).all()
        torch.testing.assert_close(plan.mask.mean((2, 3, 4)).double(), plan.lam)
        assert torch.equal(plan.partner, torch.arange(6))


@pytest.mark.parametrize("area", [0.5, 0.9])
def test_old_samples_fade_and_labels_keep_their_mass(area):
    """Images of step t are 1 in channel t: how much a mixed image holds of each step is read off."""
    steps = 8
    carried, oldest = {}, 0.0
    method = RecursiveMix(k=3, area=area, keep="random", resize="bilinear")
    for t in range(steps):
        x = torch.zeros(5, steps, 12, 9)
        x[:, t] = 1
        plan = method.plan(x, generator=seeded(t), **carried)
        target = plan.mix_target(torch.full((5,), t), steps)
        mixed = plan.mix(x)
        torch.testing.assert_close(target.sum(1), torch.ones(len(target)))
        assert (target >= 0).all()
        for age in range(t + 1):
            assert float(target[:, t - age].max()) <= area**age + 1e-6
        oldest = max(oldest, float(target[:, max(0, t - 3)].max()) if t >= 3 else 0.0)
        if t == 1:  # a constant image stays what it is when it is resized, so the pixels have the target's shares
            torch.testing.assert_close(mixed.mean((2, 3)), target, atol=1e-6, rtol=0)
        carried = method.carried(plan, x, target, target)
    assert oldest > 0, "a batch is still there three steps later"


def test_the_first_batch_is_not_mixed():
    x, y = images(5, 2, 9, 7), labels(5)
    method = RecursiveMix(k=5, **LINKED)
    plan = method.plan(x, generator=seeded(0))
    assert isinstance(plan, UnmixedPlan)
    (term,) = mixed_terms(Network(dtype=torch.float32), method, x, y, generator=seeded(0))
    part = term()
    assert torch.equal(part.loss, mm.soft_cross_entropy(Network(dtype=torch.float32)(x), one_hot(y, CLASSES).float()))
    assert torch.equal(part.carried["history_x"], x)
    assert part.carried["history_x"].data_ptr() != x.data_ptr(), "a loader may fill its memory again"
    assert torch.equal(part.carried["history_target"], one_hot(y, CLASSES).float())
    assert torch.equal(part.carried["history_logits"], part.logits)


def test_zero_boxes_mix_nothing():
    """One side of the box may be empty alone, which stops the published code."""
    x, history = images(4, 2, 3, 40), past(4, 2, 3, 40)
    plan = RecursiveMix().plan(x, lam=[0.05], generator=seeded(1), **history)
    assert int((plan.high - plan.low)[..., 0].max()) == 0
    assert int((plan.high - plan.low)[..., 1].max()) > 0
    assert (plan.lam == 0).all()
    assert torch.equal(plan.mix(x), x)
    y = labels(4)
    assert torch.equal(plan.mix_target(y, CLASSES), one_hot(y, CLASSES).float())
    value = mm.mixed_loss(Network(dtype=torch.float32), RecursiveMix(**LINKED), x, y, lam=[0.05], generator=seeded(1), **history)
    torch.testing.assert_close(value, cross_entropy(Network(dtype=torch.float32)(x), y))


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize(("head", "there"), [("head", 4), ("head", 3), ("other", 6)])
def test_the_whole_loss_is_that_of_the_slow_loop(k, steps, per_pair, head, there):
    size = (9, 12)
    x, y = images(4, 2, *size, dtype=torch.float64), labels(4)
    history = past(there, 2, *size, dtype=torch.float64)
    areas = [0.4] if k == 1 else [0.01, 0.2, 0.45, 0.7, 1.0]
    method = RecursiveMix(k=k, features="body", head=head, omega=0.7, per_pair=per_pair)
    model, loops = Network(), Network()
    given = {"lam": areas, "generator": seeded(3), **history}
    parts = [term() for term in mixed_terms(model, method, x, y, steps=steps, **given)]
    total = sum(part.loss for part in parts)
    expected = terms = 0.0
    for edges in slow.boxes(areas, 4, there, size, seeded(3), per_pair=per_pair):
        mixed, shares = slow.pasted(x, history["history_x"], edges)
        for i, share in enumerate(shares):
            old = history["history_target"][i] if i < there else torch.zeros(CLASSES)
            target = (1 - share) * one_hot(y[i], CLASSES).double() + share * old
            expected = expected + slow.cross_entropy(loops(mixed[i : i + 1])[0], target) / (4 * k)
        to_logits = getattr(loops, head)
        own = slow.consistency(loops.body(mixed), to_logits, edges, history["history_logits"], size, 0.7)
        expected, terms = expected + own / k, terms + own
    assert terms.item() > 0
    torch.testing.assert_close(total, expected)
    total.backward()
    expected.backward()
    for ours, theirs in zip(model.parameters(), loops.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert (model.other.weight.grad is not None) == (head == "other"), "the head learns from the term"


def test_without_weight_layer_or_logits_there_is_no_term():
    x, y, history = images(4, 2, 9, 9, dtype=torch.float64), labels(4), past(4, 2, 9, 9, dtype=torch.float64)
    plan = RecursiveMix(k=2).plan(x, generator=seeded(1), **history)
    expected = cross_entropy(Network()(plan.mix(x)), plan.mix_target(y, CLASSES).double())
    for options in ({}, {**LINKED, "omega": 0.0}):
        assert RecursiveMix(**options).watches is None
        found = mm.mixed_loss(Network(), RecursiveMix(k=2, **options), x, y, generator=seeded(1), **history)
        torch.testing.assert_close(found, expected)
        mm.mixed_logits(Network(), RecursiveMix(k=2, **options), x, y, generator=seeded(1), **history)
    del history["history_logits"]
    found = mm.mixed_loss(Network(), RecursiveMix(k=2, **LINKED), x, y, generator=seeded(1), **history)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("keep", ["first", "middle", "last", "random"])
@pytest.mark.parametrize(("k", "middle", "steps"), [(1, 0, 1), (2, 0, None), (3, 1, 2), (4, 1, 1), (5, 2, 2), (5, 2, None)])
def test_one_step_is_handed_on_whatever_the_parts(keep, k, middle, steps):
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method, model = RecursiveMix(k=k, keep=keep, **LINKED), Network(dtype=torch.float32)
    plan = method.plan(x, generator=seeded(1), **history)
    assert plan.kept.sum() == 1
    step = int(plan.kept.nonzero())
    if keep != "random":
        assert step == {"first": 0, "middle": middle, "last": k - 1}[keep]
    parts = [term() for term in mixed_terms(model, method, x, y, steps=steps, generator=seeded(1), **history)]
    assert sum(len(part.carried) > 0 for part in parts) == 1
    carried = next(part.carried for part in parts if part.carried)
    assert tuple(carried) == method.carries
    assert torch.equal(carried["history_x"], plan[step].mix(x))
    assert torch.equal(carried["history_target"], plan[step].mix_target(y, CLASSES))
    torch.testing.assert_close(carried["history_logits"], model(plan[step].mix(x)).detach())
    assert not any(value.requires_grad for value in carried.values())


def test_a_random_step_is_drawn_evenly_and_last():
    x, history = images(1, 1, 2, 2), past(1, 1, 2, 2)
    generator = seeded(11)
    kept = [int(RecursiveMix(k=3, keep="random").plan(x, generator=generator, **history).kept.nonzero()) for _ in range(3000)]
    assert stats.chisquare(torch.bincount(torch.tensor(kept)).numpy()).pvalue > 1e-3
    boxes = [RecursiveMix(k=3, keep=keep).plan(x, generator=seeded(1), **history).high for keep in ("random", "last")]
    assert torch.equal(*boxes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_history_is_kept_in_full_precision(dtype):
    x, history = images(3, 2, 8, 8).to(dtype), past(3, 2, 8, 8)
    method = RecursiveMix(k=2)
    plan = method.plan(x, generator=seeded(1), **history)
    mixed = plan.mix(x)
    assert mixed.dtype == dtype
    exact = plan.mix(x.double()).to(dtype)
    assert torch.equal(mixed, exact)
    target = plan.mix_target(labels(3), CLASSES)
    carried = method.carried(plan, x, target, target.to(dtype))
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    assert [carried["history_x"].dtype, carried["history_logits"].dtype] == [wanted, wanted]


def test_no_gradient_flows_into_the_history():
    x, y, history = images(3, 2, 8, 8).requires_grad_(), labels(3), past(3, 2, 8, 8)
    history = {name: value.requires_grad_() for name, value in history.items()}
    plan = RecursiveMix(k=2).plan(x, generator=seeded(2), **history)
    plan.mix(x).sum().backward()
    torch.testing.assert_close(x.grad, (1 - plan.mask).sum(0).expand(-1, 2, -1, -1))
    value = mm.mixed_loss(Network(dtype=torch.float32), RecursiveMix(k=2, **LINKED), x, y, generator=seeded(2), **history)
    value.backward()
    assert all(value.grad is None for value in history.values())
    (term,) = mixed_terms(Network(dtype=torch.float32), RecursiveMix(), x, y, generator=seeded(2), **history)
    assert not any(value.requires_grad for value in term().carried.values())


def test_roads_to_the_same_place():
    for shape in [(5, 3, 9, 7), (3, 3, 130, 129)]:
        x, history = images(*shape), past(*shape)
        before = {name: value.clone() for name, value in history.items()}
        for per_pair in (False, True):
            plan = RecursiveMix(k=3, resize="bilinear", per_pair=per_pair).plan(x, generator=seeded(4), **history)
            expected = plan.mix(x.clone().requires_grad_()).detach()
            torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=1e-6)
            out = torch.full((3 * len(x), *x.shape[1:]), 7.0)
            assert plan.mix(x, out=out) is out
            assert torch.equal(out, plan.mix(x))
            last = x.contiguous(memory_format=torch.channels_last)
            assert plan.mix(last).is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(plan.mix(last), plan.mix(x))
        assert all(torch.equal(value, before[name]) for name, value in history.items())


def test_a_target_with_places_goes_where_its_pixels_go():
    x, maps = images(3, 1, 8, 10), torch.rand(3, CLASSES, 8, 10, generator=seeded(1)).softmax(1)
    old_x, old_maps = images(3, 1, 8, 10, seed=2), torch.rand(3, CLASSES, 8, 10, generator=seeded(3)).softmax(1)
    plan = RecursiveMix(k=2).plan(x, generator=seeded(13), history_x=old_x, history_target=old_maps)
    both = RecursiveMix(k=2).plan(
        torch.cat([x, maps], 1), generator=seeded(13), history_x=torch.cat([old_x, old_maps], 1), history_target=old_maps
    )
    assert torch.equal(plan.mix_target(maps), both.mix(torch.cat([x, maps], 1))[:, 1:])


def test_a_loop_as_on_the_card_with_odd_batches():
    """Batches of 6, 2, 5 and 1: as many rows are mixed as both have; all losses are finite, all labels have mass 1."""
    model, method, carried, mixed = Network(dtype=torch.float32), RecursiveMix(k=2, sampler="grid", **LINKED), {}, []
    for t, batch in enumerate([6, 2, 5, 1]):
        x, y = images(batch, 2, 15, 14, seed=t), labels(batch, seed=t)
        plan = method.plan(x, generator=seeded(t), **carried)
        mixed.append(int((plan.lam[-1] > 0).sum()))
        (term,) = mixed_terms(model, method, x, y, generator=seeded(t), **carried)
        part = term()
        part.loss.backward()
        carried = part.carried
        assert torch.isfinite(part.loss)
        assert len(carried["history_x"]) == batch
        torch.testing.assert_close(part.target.sum(1), torch.ones(len(part.target)))
    assert mixed == [0, 2, 2, 1]


def test_a_batch_that_a_coin_leaves_unmixed_is_the_next_history():
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    (term,) = mixed_terms(Network(dtype=torch.float32), RecursiveMix(k=3, p=0.0, **LINKED), x, y, generator=seeded(1), **history)
    assert torch.equal(term().carried["history_x"], x)


def test_mix_takes_its_last_output_as_history():
    mix = mm.Mix(RecursiveMix(), CLASSES, seed=1)
    x, y = images(4, 2, 9, 9), labels(4)
    first, target = mix(x, y)
    assert torch.equal(first, x)
    second, target_2 = mix(x.flip(0), y.flip(0), history_x=first, history_target=target)
    assert second.shape == x.shape
    assert not torch.equal(second, x.flip(0))
    torch.testing.assert_close(target_2.sum(1), torch.ones(4))


def test_cut_moved_and_constant_plans():
    x = torch.full((3, 1, 7, 5), 0.25)
    history = {**past(3, 1, 7, 5), "history_x": x}
    plan = RecursiveMix(k=4, resize="bilinear").plan(x, generator=seeded(1), **history)
    torch.testing.assert_close(plan.mix(x), torch.full((12, 1, 7, 5), 0.25))
    parts = plan.split(3)
    assert [part.k for part in parts] == [3, 1]
    assert torch.equal(torch.cat([part.mix(x) for part in parts]), plan.mix(x))
    assert torch.equal(torch.cat([part.kept for part in parts]), plan.kept)
    assert isinstance(plan.to("cpu"), PastedPlan)
    moved = plan.to("meta")
    assert moved.history_x.device.type == moved.history_logits.device.type == "meta"


def test_what_is_refused():
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    model = Network(dtype=torch.float32)
    for call in (mm.mixed_logits, lambda *args: list(mm.mixed_chunks(*args))):
        with pytest.raises(ValueError, match="RecursiveMix adds a loss of what layer 'body' puts out"):
            call(model, RecursiveMix(**LINKED), x, y)
    with pytest.raises(ValueError, match="which Mix cannot hand out"):
        mm.Mix(RecursiveMix(**LINKED), CLASSES)
    with pytest.raises(ValueError, match="no layer 'bodi'"):
        mm.mixed_loss(model, RecursiveMix(features="bodi", head="head"), x, y)
    for name in ("history_x", "history_target"):
        with pytest.raises(TypeError, match="history_x= and history_target= together"):
            RecursiveMix().plan(x, **{name: history[name]})
    with pytest.raises(ValueError, match=r"like x, got \[2, 9, 8\]"):
        RecursiveMix().plan(x, **{**history, "history_x": images(4, 2, 9, 8)})
    with pytest.raises(ValueError, match="history_logits must have one row for each of history_x, 4, got 3"):
        RecursiveMix().plan(x, **{**history, "history_logits": torch.zeros(3, 4)})
    with pytest.raises(TypeError, match=r"history_target must be a floating-point tensor, got torch.int64"):
        RecursiveMix().plan(x, **{**history, "history_target": y})
    with pytest.raises(ValueError, match=r"y makes a target \[4, 7\], history_target is \[4, 4\]"):
        RecursiveMix().plan(x, **history).mix_target(y, 7)
    with pytest.raises(ValueError, match="the history of the plan"):
        RecursiveMix().plan(x, **history).mix(images(4, 3, 9, 9))
    with pytest.raises(ValueError, match=r"'head' must put out \[B, C, \*places\] with 2 axes"):
        mm.mixed_loss(model, RecursiveMix(features="head", head="head"), x, y, **history)
    wrong = replace(RecursiveMix(**LINKED), head="wide")
    model.wide = nn.Linear(5, 9)
    with pytest.raises(ValueError, match=r"'wide' must make logits \[4, 4\] like the model, got \[4, 9\]"):
        mm.mixed_loss(model, wrong, x, y, **history)
    model.narrow = nn.Linear(3, CLASSES)
    with pytest.raises(ValueError, match=r"'narrow' must take the mean over places of 'body', \[4, 5\]: "):
        mm.mixed_loss(model, replace(wrong, head="narrow"), x, y, **history)
    for options, words in [
        ({"area": 1.5}, "area must lie in 0 … 1"),
        ({"omega": -1.0}, "omega must be finite"),
        ({"features": "body"}, "named together"),
        ({"keep": "best"}, "no keep 'best'"),
        ({"k": 0}, "k must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            RecursiveMix(**options)


def test_nothing_is_stored_and_the_model_is_left_alone():
    model, x, y, history = Network(dtype=torch.float32), images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method = RecursiveMix(k=2, **LINKED)
    before = copy.deepcopy(vars(method))
    first, again = (mm.mixed_loss(model, method, x, y, generator=seeded(1), **history) for _ in range(2))
    assert torch.equal(first, again)
    assert vars(method) == before
    assert not model.body._forward_hooks


def test_half_precision_features_and_wrapped_models():
    """Under autocast the map is bfloat16, the head float32: the term is close to that of full precision."""
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method = RecursiveMix(k=2, **LINKED)
    full = mm.mixed_loss(Network(dtype=torch.float32), method, x, y, generator=seeded(1), **history)
    model = Network(dtype=torch.float32)

    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, z):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(z).float()

    inner = replace(method, features="inner.body", head="inner.head")
    found = mm.mixed_loss(Rounded(), inner, x, y, generator=seeded(1), **history)
    found.backward()
    assert found.item() == pytest.approx(full.item(), rel=0.02)
    named = nn.Sequential(OrderedDict(net=Network(dtype=torch.float32)))
    same = mm.mixed_loss(named, replace(method, features="net.body", head="net.head"), x, y, generator=seeded(1), **history)
    assert torch.equal(same, full)


class Writing:
    """A watcher that writes every state to a file and keeps the losses."""

    def __init__(self, folder):
        self.folder, self.files, self.losses = folder, {}, []

    def step(self, row, images):
        self.losses.append(row.loss)

    def epoch(self, history):
        pass

    def doing(self, what):
        pass

    def between(self, updates, state, stopping):
        self.files[updates] = write_checkpoint(self.folder / str(updates), updates, state())


def trained(chosen, folder, checkpoint=None):
    training, watcher = Training(chosen, 0, splits(), Accelerator(cpu=True)), Writing(folder)
    if checkpoint is not None:
        training.load(checkpoint)
    training.run(watcher)
    return weights_digest(training.network), watcher


def test_a_training_goes_on_from_any_update_with_the_same_bits(tmp_path):
    method = RecursiveMix(k=3, keep="random", resize="bilinear", features="stage2", head="head", omega=0.5)
    network = Named("recursive_oracle:PooledNet")
    chosen = settings(network=network, method=method, accumulate=2, k_chunk=2, epochs=2)
    digest, watcher = trained(chosen, tmp_path / "whole")
    assert len(watcher.losses) == 10
    for updates, file in watcher.files.items():
        checkpoint = read_checkpoint(file)
        assert ("carried" in checkpoint.values) == (updates % 5 > 0), "an epoch begins without a history"
        if updates in (1, 3, 5, 8):
            again, rest = trained(chosen, tmp_path / f"from {updates}", checkpoint)
            assert (again, rest.losses) == (digest, watcher.losses[updates:])
    checkpoint = read_checkpoint(watcher.files[3])
    names = {name for name in checkpoint.tensors if name.startswith("carried/")}
    assert len(names) == 2 * 3, "of two shares"
    kept = {name: value for name, value in checkpoint.tensors.items() if name not in names}
    bare = Checkpoint(kept, {name: value for name, value in checkpoint.values.items() if name != "carried"})
    forgetful, rest = trained(chosen, tmp_path / "forgetful", bare)
    assert rest.losses[0] != watcher.losses[3]
    assert forgetful != digest


def test_the_history_of_training_is_that_of_a_plain_loop(tmp_path):
    """Of every share its own, from update to update; nothing of it where a method remembers nothing."""
    chosen = settings(network=Named("recursive_oracle:PooledNet"), method=RecursiveMix(k=3), accumulate=2, epochs=1)
    _, watcher = trained(chosen, tmp_path / "recursive")
    training = Training(chosen, 0, splits(), Accelerator(cpu=True))
    streams = [loader.epoch(0, 0) for loader in training.loaders(0)]
    past = [{}, {}]
    for updates, shares in enumerate(zip(*streams, strict=True), 1):
        for i, (x, y) in enumerate(shares):
            plan = chosen.method.plan(x, generator=keyed(MIXING, 0, 0, updates - 1, i), **past[i])
            rows = slice(len(x), 2 * len(x)) if plan.k == 3 else slice(None)
            past[i] = {"history_x": plan.mix(x)[rows], "history_target": plan.mix_target(y, 10)[rows]}
            if updates < 5:
                found = read_checkpoint(watcher.files[updates]).tensors
                for name, value in past[i].items():
                    assert torch.equal(found[f"carried/shares/{i}/{name}"], value)
    _, plain = trained(replace(chosen, method=mm.CutMix(k=3)), tmp_path / "cutmix")
    assert read_checkpoint(plain.files[3]).values.keys() == {"network", "optimizer", "seed", "settings", "samples", "at"}
