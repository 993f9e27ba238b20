"""Small batches in one compiled pass: what torch's calls give, refused alike, drawn alike; loaded only once it pays."""

import itertools
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import multimix as mm
from multimix import one_pass, one_pass_kernel
from oracles import seeded

SHAPES = [(5, 3, 7, 6), (1, 2, 3, 3), (4, 1, 9), (3, 2, 3, 4, 5), (6, 11)]
X = torch.randn(12, 3, 9, 7, generator=seeded(0))
Y = torch.arange(12) % 5


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(one_pass, "_loaded", one_pass_kernel)


def without(call):
    """What ``call`` gives by torch's calls alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_pass, "_loaded", None)
        patch.setattr(one_pass, "_import", lambda: None)
        return call()


def one_ulp_apart(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == torch.float32
    assert found.stride() == expected.stride()
    down, up = (torch.nextafter(expected, torch.full_like(expected, end)) for end in (-torch.inf, torch.inf))
    assert bool(((found == expected) | (found == down) | (found == up)).all())


def orders(x):
    yield x
    if x.ndim in (4, 5):
        yield x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_pair", [False, True])
def test_blends_are_those_of_a_slow_loop(shape, per_pair):
    x = torch.randn(shape, generator=seeded(1))
    partner = torch.randint(shape[0], (shape[0],), generator=seeded(2))  # any pairs, not only a permutation
    share = torch.tensor([[0.0], [0.2], [0.5], [0.9], [1.0]], dtype=torch.float64)
    share = share.repeat(1, shape[0]) if per_pair else share
    for z in orders(x):
        plan = mm.InputMixup(k=5, per_pair=per_pair).plan(z, partner=partner, lam=share)
        assert plan._mix_at_once(z) is not None, "this is about the kernel"
        mixed = plan.mix(z)
        one_ulp_apart(mixed, without(lambda plan=plan, z=z: plan.mix(z)))
        for k, i in np.ndindex(5, shape[0]):
            w = np.float64(np.float32(share[k, i % share.shape[1]]))
            a, b = (z[row].double().numpy() for row in (i, partner[i]))
            np.testing.assert_allclose(mixed[k * shape[0] + i].numpy(), (1 - w) * a + w * b, rtol=0, atol=1e-6)
        assert torch.equal(mixed[: shape[0]], z), "λ = 0 is the sample"
        assert torch.equal(mixed[-shape[0] :], z[partner]), "λ = 1 is the partner"


@pytest.mark.parametrize("shape", [(6, 3, 7, 6), (2, 5), (4, 2, 3, 4, 5), (8,)])
def test_a_batch_and_its_reverse_are_blended_to_the_last_bit(shape):
    x = torch.randn(shape, generator=seeded(10))
    for z, own in itertools.product(orders(x), (0.0, 0.3, 1 / 3, 0.9999999, 1.0)):
        expected = z.numpy() * np.float32(own) + z.numpy()[::-1] * np.float32(1 - own)
        found = z.clone()
        assert one_pass.blend_reversed(found, own), "this is about the kernel"
        np.testing.assert_array_equal(found.numpy(), expected)


def test_a_batch_that_a_gradient_needs_is_known_to_have_changed():
    x, weight = X.clone(), torch.ones(1, requires_grad=True)
    loss = (x * weight).sum()
    assert one_pass.blend_reversed(x, 0.3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_reversed_batch_that_the_kernels_do_not_take_stays_as_it_is():
    with torch.inference_mode():
        inference = X.clone()
    for x in (inference, X.double(), torch.randn(4, 6)[:, ::2], torch._neg_view(X.clone()), torch.empty(0, 3)):
        before = x.clone()
        assert not one_pass.blend_reversed(x, 0.3)
        assert torch.equal(x, before)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) > 2])
@pytest.mark.parametrize("per_pair", [False, True])
def test_boxes_are_those_of_a_slow_loop(shape, per_pair):
    x = torch.randn(shape, generator=seeded(3))
    for z in orders(x):
        plan = mm.CutMix(k=3, per_pair=per_pair).plan(z, generator=seeded(4))
        found = plan._mix_at_once(z, torch.arange(shape[0]), shape[0])
        assert found is not None, "this is about the kernel"
        expected, target = torch.empty_like(found[0]), torch.zeros(3 * shape[0], shape[0])
        for k, i in np.ndindex(3, shape[0]):
            low, high = plan.low[k, i % plan.low.shape[1]], plan.high[k, i % plan.low.shape[1]]
            count = 0
            for place in np.ndindex(shape[2:]):
                is_inside = all(low[axis] <= at < high[axis] for axis, at in enumerate(place))
                count += is_inside
                source = int(plan.partner[i]) if is_inside else i
                expected[(k * shape[0] + i, slice(None), *place)] = z[(source, slice(None), *place)]
            target[k * shape[0] + i, i] += 1 - np.float32(count / np.prod(shape[2:]))
            target[k * shape[0] + i, int(plan.partner[i])] += np.float32(count / np.prod(shape[2:]))
        assert torch.equal(found[0], expected)
        assert torch.equal(found[1], target)
        assert found[0].stride() == without(lambda plan=plan, z=z: plan.mix(z)).stride()


METHODS = [mm.InputMixup(k=3), mm.InputMixup(k=2, per_pair=True, sampler="stratified"), mm.CutMix(k=2), mm.CutMix(box="shift")]


@pytest.mark.parametrize("method", [*METHODS, mm.InputMixup(p=0.5), mm.InputMixup(alpha=0), mm.FMix()], ids=repr)
@pytest.mark.parametrize("seed", [None, 3])
def test_mix_draws_and_gives_what_it_does_without(method, seed):
    def epoch():
        torch.manual_seed(1)
        mix = mm.Mix(method, 5, seed=seed)
        return [mix(X, Y) for _ in range(4)], torch.rand(3), mix.state_dict()["generator"]

    (found, after, position), (expected, after_expected, position_expected) = epoch(), without(epoch)
    for (x, target), (x_expected, target_expected) in zip(found, expected, strict=True):
        one_ulp_apart(x, x_expected)
        assert torch.equal(target, target_expected)
    assert torch.equal(after, after_expected)
    assert torch.equal(position, position_expected)


def said_by(mix, x, y):
    torch.manual_seed(5)
    before = mix.state_dict()["generator"], torch.get_rng_state()
    with pytest.raises(ValueError) as error:  # noqa: PT011  the sentence is compared
        mix(x, y)
    assert torch.equal(before[0], mix.state_dict()["generator"]), "nothing was drawn"
    assert torch.equal(before[1], torch.get_rng_state())
    return str(error.value)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("seed", [None, 3])
def test_what_is_wrong_is_refused_before_anything_is_drawn(method, seed):
    mix = mm.Mix(method, 5, seed=seed)
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = X.clone()
        x[4, 1, 8, 6] = bad
        assert said_by(mix, x, Y) == "x must be finite, got NaN or infinity in sample 4 of the batch"
    for label in (-1, 5):
        y = Y.clone()
        y[-1] = label
        assert "class indices must lie in 0 … 4" in said_by(mix, X, y)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_large_numbers_do_not_overflow(method):
    x = torch.full_like(X, 3e38) * torch.where(torch.arange(12) % 2 == 0, 1, -1).reshape(-1, 1, 1, 1)
    mixed, _ = mm.Mix(method, 5, seed=1)(x, Y)
    assert bool(torch.isfinite(mixed).all())
    assert torch.equal(mixed, without(lambda: mm.Mix(method, 5, seed=1)(x, Y))[0])


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_what_the_kernels_do_not_take_is_mixed_by_torch(method):
    wide = torch.randn(12, 3, 9, 14, generator=seeded(6))
    others = {
        "float64": X.double(),
        "with a gradient": X.clone().requires_grad_(),
        "with gaps": wide[..., ::2],
        "negated when read": torch._neg_view(X),
        "large images": torch.randn(2, 3, 90, 80, generator=seeded(7)),
    }
    for name, x in others.items():
        plan = method.plan(x, generator=seeded(8))
        expected = x.detach().unsqueeze(0) * (1 - plan.mask) + x.detach()[plan.partner] * plan.mask
        torch.testing.assert_close(plan.mix(x).detach(), expected.to(x.dtype).flatten(0, 1), msg=name)
    plan = method.plan(X, generator=seeded(8))
    expected = plan.mix(X)
    with Watching():
        torch.testing.assert_close(plan.mix(X), expected)
    out = torch.empty(len(expected), *X.shape[1:]).contiguous(memory_format=torch.channels_last)
    assert torch.equal(plan.mix(X, out=out), expected), "another order than that of x"
    in_vmap = torch.func.vmap(plan.mix)(torch.stack([X, -X]))
    torch.testing.assert_close(in_vmap, torch.stack([expected, -expected]))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_what_is_no_batch_or_no_number_of_classes_is_refused_as_it_is_without(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both are beta
        others = [X.to_sparse(), X.to_mkldnn(), torch.nested.nested_tensor(list(X))]
    for x in others:
        with pytest.raises(ValueError, match="x must be a dense tensor"):
            mm.Mix(method, 5)(x, Y)
    for classes in (1, 0, -3):
        with pytest.raises(ValueError, match=f"num_classes must be a whole number, at least 2, got {classes}"):
            mm.Mix(method, classes)(X, torch.zeros_like(Y))


@pytest.mark.parametrize("method", [*METHODS, mm.ResizeMix(k=2), mm.CoMixup(k=2)], ids=repr)
def test_a_derivative_of_forward_mode_is_not_lost(method):
    given = {"saliency": X.abs().sum(1)} if method.traits.needs else {}
    plan = method.plan(X, generator=seeded(8), **given)
    with forward_ad.dual_level():
        mixed, tangent = forward_ad.unpack_dual(plan.mix(forward_ad.make_dual(X, X + 1)))
    torch.testing.assert_close(mixed, plan.mix(X))
    torch.testing.assert_close(tangent, plan.mix(X + 1))  # mixing is linear


def test_zeros_without_memory_are_not_looked_for_there():
    zeros = torch._efficientzerotensor(X.shape)
    assert one_pass.largest(zeros) is None
    plan = METHODS[0].plan(zeros)
    assert plan._mix_at_once(zeros) is None
    assert not plan.mix(zeros).any()


def test_plans_whose_parts_do_not_fit_are_left_to_torch():
    shares, boxes = METHODS[0].plan(X), METHODS[2].plan(X)
    others = [
        replace(shares, share=torch.rand(3, 4, dtype=torch.float64)),
        replace(boxes, low=boxes.low.repeat(1, 4, 1), high=boxes.high.repeat(1, 4, 1)),
        replace(boxes, low=boxes.low.int(), high=boxes.high.int()),
        replace(boxes, high=boxes.high[:1]),
        replace(boxes, low=boxes.low[..., :1].contiguous(), high=boxes.high[..., :1].contiguous()),
    ]
    for plan in others:
        assert plan._mix_at_once(X) is None, "it would read past the end"


@pytest.mark.parametrize("method", [*METHODS, mm.ResizeMix()], ids=repr)
def test_a_buffer_that_a_gradient_needs_is_known_to_have_changed(method):
    plan = method.plan(X)
    out, weight = plan.mix(X), torch.ones(1, requires_grad=True)
    loss = (out * weight).sum()
    plan.mix(X, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_batch_that_is_kept_never_changes():
    x, y = torch.randn(32, 3, 24, 20, generator=seeded(9)), torch.arange(32)  # large enough for the pool
    mix = mm.Mix(mm.InputMixup(k=5), 700, seed=0)
    kept, copies = [], []
    for _ in range(12):
        mixed, target = mix(x, y)
        kept.append((mixed[3:5], target.numpy()))
        copies.append((mixed[3:5].clone(), target.numpy().copy()))
    for (part, target), (part_before, target_before) in zip(kept, copies, strict=True):
        assert torch.equal(part, part_before)
        assert np.array_equal(target, target_before)


CHECKED = """
import torch, multimix as mm
from multimix import one_pass, one_pass_kernel
one_pass._loaded = one_pass_kernel
for method in (mm.InputMixup(k=3), mm.InputMixup(k=2, per_pair=True), mm.CutMix(k=2), mm.CutMix(k=3, per_pair=True)):
    for x in (torch.rand(5, 3, 7, 6), torch.rand(1, 2, 9), torch.rand(4, 2, 3, 4, 5), torch.rand(3, 4, 5, 6).mT.contiguous().mT):
        mm.Mix(method, 5)(x, torch.arange(len(x)))
        plan = method.plan(x, partner=torch.zeros(len(x), dtype=torch.int64))
        plan.mix(x)
"""


def test_no_index_leaves_its_array(tmp_path):
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CHECKED], env=environment, check=True)


LATER = """
import sys, torch, multimix as mm
from multimix import one_pass
one_pass.WORTH_IT = 3
mix, x, y = mm.Mix(mm.CutMix(), 4), torch.rand(4, 3, 8, 8), torch.arange(4)
for batch in range(1, 6):
    mix(x, y)
    print(batch, "numba" in sys.modules, one_pass.loaded() is not None)
"""


@pytest.mark.parametrize("broken", [False, True])
def test_numba_is_loaded_only_after_many_batches_and_not_missed(broken):
    code = ("import sys; sys.modules['numba'] = None\n" if broken else "") + LATER
    if broken:
        code = code.replace('"numba" in sys.modules', "False")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loads = not broken
    assert run.stdout.split("\n")[:-1] == [f"{batch} {loads and batch > 3} {loads and batch > 3}" for batch in range(1, 6)]
