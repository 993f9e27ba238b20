"""RecursiveMix, one batch with a history: equal to the slow loops, its laws, what is refused. Chance below 1e-3."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, one_hot

import multimix as mm
import recursive_oracle as slow
from multimix.methods.recursive_mix import PastedPlan, RecursiveMix
from oracles import seeded
from recursive_cases import CLASSES, LINKED, Network, images, labels, past


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
    model, method = Network(dtype=torch.float32), RecursiveMix(**LINKED)
    value = mm.mixed_forward(model, method, x, y, lam=[0.05], generator=seeded(1), **history).loss()
    torch.testing.assert_close(value, cross_entropy(Network(dtype=torch.float32)(x), y))


def test_roads_to_the_same_place():
    for shape in [(5, 3, 9, 7), (3, 3, 130, 129)]:
        x, history = images(*shape), past(*shape)
        before = {name: value.clone() for name, value in history.items()}
        for per_pair in (False, True):
            plan = RecursiveMix(k=3, resize="bilinear", per_pair=per_pair).plan(x, generator=seeded(4), **history)
            expected = plan.mix(x.clone().requires_grad_()).detach()
            torch.testing.assert_close(plan.mix(x), expected, atol=1e-6, rtol=1e-6)
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
    with pytest.raises(ValueError, match="RecursiveMix.*state=None"):
        mm.mixed_forward(model, RecursiveMix(), x, y)
    with pytest.raises(ValueError, match="RecursiveMix.*layer 'body'"):
        mm.Mix(RecursiveMix(**LINKED), CLASSES)
    with pytest.raises(ValueError, match="no layer 'bodi'"):
        mm.mixed_forward(model, RecursiveMix(features="bodi", head="head"), x, y, **history).loss()
    for name in ("history_x", "history_target"):
        with pytest.raises(TypeError, match="history_x=.*history_target="):
            RecursiveMix().plan(x, **{name: history[name]})
    with pytest.raises(ValueError, match=r"history_x must"):
        RecursiveMix().plan(x, **{**history, "history_x": images(4, 2, 9, 8)})
    with pytest.raises(ValueError, match="history_logits must"):
        RecursiveMix().plan(x, **{**history, "history_logits": torch.zeros(3, 4)})
    with pytest.raises(TypeError, match="history_target must"):
        RecursiveMix().plan(x, **{**history, "history_target": y})
    with pytest.raises(ValueError, match=r"history_target.*\[4, 7\] and \[4, 4\]"):
        RecursiveMix().plan(x, **history).mix_target(y, 7)
    with pytest.raises(ValueError, match="z has shape"):
        RecursiveMix().plan(x, **history).mix(images(4, 3, 9, 9))
    with pytest.raises(ValueError, match=r"layer 'head' must"):
        mm.mixed_forward(model, RecursiveMix(features="head", head="head"), x, y, **history).loss()
    wrong = replace(RecursiveMix(**LINKED), head="wide")
    model.wide = nn.Linear(5, 9)
    with pytest.raises(ValueError, match=r"layer 'wide' must"):
        mm.mixed_forward(model, wrong, x, y, **history).loss()
    model.narrow = nn.Linear(3, CLASSES)
    with pytest.raises(ValueError, match=r"layer 'narrow' must"):
        mm.mixed_forward(model, replace(wrong, head="narrow"), x, y, **history).loss()
    for options, words in [
        ({"area": 1.5}, "area must"),
        ({"omega": -1.0}, "omega must"),
        ({"features": "body"}, "features and head"),
        ({"keep": "best"}, "keep"),
        ({"k": 0}, "k must"),
    ]:
        with pytest.raises(ValueError, match=words):
            RecursiveMix(**options)
