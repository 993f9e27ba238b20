from dataclasses import replace

import pytest
import torch

import multimix as mm
from multimix import one_pass
from oracles import seeded

X = torch.randn(4, 3, 6, 7, generator=seeded(0))


def plan(k=4, **options):
    return mm.CutMix(k=k, **options).plan(X, generator=seeded(1))


def test_steps_can_be_taken_out():
    whole = plan()
    assert torch.equal(whole[-1].mix(X), whole.mix(X)[12:])
    assert torch.equal(whole[1:3].lam, whole.lam[1:3])
    assert torch.equal(whole[::2].mix(X), torch.cat([whole[0].mix(X), whole[2].mix(X)]))
    assert [part.k for part in whole.split(3)] == [3, 1]
    assert torch.equal(torch.cat([part.mix(X) for part in whole.split(3)]), whole.mix(X))


@pytest.mark.parametrize("step", [4, -5])
def test_a_step_that_is_not_there(step):
    with pytest.raises(IndexError, match=f"a plan of 4 steps has no step {step}"):
        plan()[step]


def test_a_plan_shows_itself_briefly():
    assert len(plan()) == 4
    assert repr(plan()) == "BoxPlan(k=4, batch=4, size=[6, 7])"
    assert repr(mm.ManifoldMixup(layers=("a",)).plan(X)) == "SharePlan(k=1, batch=4, size=[], layer='a')"


@pytest.mark.parametrize("step", [slice(4, None), slice(None, None, -1)])
def test_steps_must_be_some_and_ascend(step):
    with pytest.raises(IndexError, match="the steps left must ascend"):
        plan()[step]


def test_a_plan_is_frozen():
    with pytest.raises(AttributeError):
        plan().partner = torch.arange(4)


def test_a_plan_moves_between_devices():
    """Real accelerators are not at hand; a meta plan at least takes every tensor along."""
    for method in (mm.InputMixup(k=2), mm.CutMix(k=2), mm.FMix(k=2), mm.Cutout(k=2), mm.NoMix()):
        moved = method.plan(X).to("meta")
        for value in vars(moved).values():
            assert not isinstance(value, torch.Tensor) or value.device.type == "meta"
        mixed = moved.mix(X.to("meta"))
        assert mixed.device.type == "meta"
        assert mixed.shape == (moved.k * 4, 3, 6, 7)
        target = moved.mix_target(torch.zeros(4, 5, device="meta"))
        assert target.shape == (moved.k * 4, 5)


def test_a_plan_for_x_on_a_device_is_on_that_device():
    drawn = mm.CutMix(k=2).plan(X.to("meta"))
    assert drawn.low.device.type == drawn.partner.device.type == "meta"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plan().mix(X[:3]), "z has 3 samples, the plan was made for a batch of 4"),
        (lambda: plan().mix(X[..., :5]), r"z has shape \[4, 3, 6, 5\], the plan was made for size \[6, 7\]"),
        (lambda: plan().mix_target(torch.arange(3), 5), "y has 3 rows, the plan was made for a batch of 4"),
        (lambda: plan().mix(X, out=torch.empty(4, 3, 6, 7)), r"out must be torch.float32 \[16, 3, 6, 7\] on cpu"),
        (lambda: plan(k=1).mix(X, out=X), "out must not share memory with z"),
        (
            lambda: plan(k=1).mix(X.clone().requires_grad_(), out=torch.empty(4, 3, 6, 7)),
            "out cannot be used while gradients flow",
        ),
        (lambda: plan().mix(X.to("meta")), r"z is on meta, the plan on cpu: move one of them"),
        (lambda: plan().to("meta").mix_target(torch.arange(4), 5), r"y is on cpu, the plan on meta: move one of them"),
        (lambda: plan().split(0), "steps must be a whole number, at least 1, got 0"),
        (lambda: mm.CutMix().plan(X, lam=[0.5, 0.2]), "lam must ascend along the path"),
        (lambda: mm.CutMix().plan(X, lam=[0.5, 1.2]), "lam must lie in 0 … 1"),
        (lambda: mm.CutMix().plan(X, lam=torch.rand(2, 3)), r"lam must have shape \[K\], \[K, 1\] or \[K, 4\], got \[2, 3\]"),
        (lambda: mm.CutMix().plan(X, partner=torch.tensor([0, 1, 2, 4])), "partner must index the batch, 0 to 3, got 0 to 4"),
        (lambda: mm.CutMix().plan(X, partner=torch.tensor([0, 1])), r"one index per sample, shape \[4\]"),
        (lambda: mm.CutMix().plan(X[:, 0, 0]), r"CutMix needs x of shape .* got \[4, 7\]; x.unsqueeze\(1\) adds"),
        (lambda: mm.FMix().plan(X[:, 0, 0]), "FMix needs x of shape"),
        (lambda: mm.Cutout().plan(X[:, 0, 0]), "Cutout needs x of shape"),
        (lambda: mm.FMix(spectrum="reference").plan(X[:, 0]), "spectrum='reference' needs images"),
    ],
)
def test_bad_calls_are_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_misspelt_keyword_is_an_error():
    with pytest.raises(TypeError, match="CutMix.plan takes no 'lamb'; it takes partner, lam"):
        mm.CutMix().plan(X, lamb=[0.5])


class NeedsSaliency(mm.InputMixup):
    """What a later method looks like to the base class."""

    def build(self, x, partner, lam, *, generator, saliency):
        assert saliency.shape == (len(x), *x.shape[2:])
        return super().build(x, partner, lam, generator=generator)


def test_what_a_method_needs_must_be_given():
    with pytest.raises(TypeError, match="NeedsSaliency.plan needs saliency="):
        NeedsSaliency(k=2).plan(X)
    assert NeedsSaliency(k=2).plan(X, saliency=torch.rand(4, 6, 7)).k == 2
    both = mm.OneOf((NeedsSaliency(k=2), mm.NoMix()))
    assert both.traits.needs == ("saliency",)
    assert {both.plan(X, saliency=torch.rand(4, 6, 7), generator=seeded(s)).k for s in range(20)} == {1, 2}


@pytest.mark.parametrize("method", [mm.InputMixup(k=2), mm.CutMix(k=2), mm.CutMix(k=2, per_pair=True), mm.FMix(k=2)], ids=str)
@pytest.mark.parametrize("off", [10**6, -1], ids=["above", "below"])
def test_partners_outside_the_batch_are_refused(method, off, monkeypatch):
    """By a plan that somebody changed, too: compiled kernels, which take addresses, would read other memory."""
    monkeypatch.setattr(one_pass, "_loaded", one_pass._import())
    x, y = torch.rand(4, 3, 8, 8), torch.rand(4, 5)
    plan = method.plan(x)
    plan = replace(plan, partner=torch.full_like(plan.partner, off))
    for call in (lambda: plan.mix(x), lambda: plan.mix_target(y), lambda: plan.mix_target(torch.arange(4), 5)):
        with pytest.raises(ValueError, match="partner must index the batch, 0 to 3, got"):
            call()
