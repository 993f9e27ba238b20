from dataclasses import dataclass, replace

import numpy
import pytest
import torch

import multimix as mm
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
    with pytest.raises(IndexError, match=f"step {step} is out of range"):
        plan()[step]


def test_a_plan_shows_itself_briefly():
    assert len(plan()) == 4
    assert repr(plan()) == "BoxPlan(k=4, batch=4, size=[6, 7])"
    assert repr(mm.ManifoldMixup(layers=("a",)).plan(X)) == "SharePlan(k=1, batch=4, size=[], layer='a')"


@pytest.mark.parametrize("step", [slice(4, None), slice(None, None, -1)])
def test_steps_must_be_some_and_ascend(step):
    with pytest.raises(IndexError, match="ascending steps"):
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
        (lambda: plan().mix(X[:3]), "z has shape"),
        (lambda: plan().mix(X[..., :5]), "z has shape"),
        (lambda: plan().mix_target(torch.arange(3), 5), "y has shape"),
        (lambda: plan().mix(X.to("meta")), "z is on meta"),
        (lambda: plan().to("meta").mix_target(torch.arange(4), 5), "y is on cpu"),
        (lambda: plan().split(1.5), "steps must"),
        (lambda: plan().split(0), "steps must"),
        (lambda: mm.CutMix().plan(X, lam=[0.5, 0.2]), "lam must ascend"),
        (lambda: mm.CutMix().plan(X, lam=[0.5, 1.2]), "lam must be in"),
        (lambda: mm.CutMix().plan(X, lam=torch.rand(2, 3)), "lam must have shape"),
        (
            lambda: mm.CutMix().plan(X, partner=torch.tensor([0, 1, 2, 4])),
            "partner must index the batch",
        ),
        (lambda: mm.CutMix().plan(X, partner=torch.tensor([0, 1])), "partner must hold"),
        (lambda: mm.CutMix().plan(X, partner=[0, 1, 1j, 2]), "partner must"),
        (lambda: mm.CutMix().plan(X, lam=torch.tensor([0.5j])), "lam must be real"),
        (
            lambda: mm.CutMix().plan(X[:, 0, 0]),
            r"CutMix needs x of shape .* got \[4, 7\]; x.unsqueeze\(1\) adds",
        ),
        (lambda: mm.FMix().plan(X[:, 0, 0]), "FMix needs x of shape"),
        (lambda: mm.Cutout().plan(X[:, 0, 0]), "Cutout needs x of shape"),
        (lambda: mm.FMix(spectrum="reference").plan(X[:, 0]), "spectrum='reference' needs images"),
    ],
)
def test_bad_calls_raise(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plan()[1.5], "a plan is indexed by"),
        (lambda: plan().mix(X.numpy()), "z must"),
        (lambda: plan().mix_target(None), "y must"),
        (lambda: mm.CutMix().plan(X, partner="x"), "partner must"),
        (lambda: mm.CutMix().plan(X, lam="x"), "lam must"),
    ],
)
def test_wrong_types_raise(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


def test_a_path_passed_as_a_list_keeps_its_float64_values():
    lam = [0.1, 0.2, 0.7]
    assert mm.InputMixup(k=3).plan(X, lam=lam).lam[:, 0].tolist() == lam


def test_numpy_scalars_and_arrays_are_numbers():
    drawn = mm.InputMixup(k=numpy.int64(3)).plan(X, lam=numpy.array([0.1, 0.2]), partner=numpy.array([1, 2, 3, 0]))
    assert len(drawn) == 2
    assert len(drawn[numpy.int64(1)]) == 1


def test_a_misspelt_keyword_is_an_error():
    with pytest.raises(TypeError, match="CutMix.plan.*'lamb'.*partner, lam"):
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


@dataclass(frozen=True, kw_only=True)
class OutsideTheBatch(mm.PairMethod):
    """A method of a user whose hook returns indices that are not in the batch."""

    offset: int

    def draw_partner(self, x, partner, generator):
        return super().draw_partner(x, partner, generator) + self.offset

    def build(self, x, partner, lam, *, generator):
        return mm.plans.SharePlan(partner=partner, share=lam, size=x.shape[2:])


class Probe(torch.nn.Module):
    def forward(self, x):
        raise AssertionError("the model must not run")


@pytest.mark.parametrize("offset", [10**6, 1, -1])
@pytest.mark.parametrize("call", ["plan", "Mix", "mixed_forward", "mixed_parts"])
def test_partners_outside_the_batch_raise_before_anything_is_mixed(offset, call):
    method, y = OutsideTheBatch(offset=offset), torch.arange(4)
    calls = {
        "plan": lambda: method.plan(X),
        "Mix": lambda: mm.Mix(method, 5)(X, y),
        "mixed_forward": lambda: mm.mixed_forward(Probe(), method, X, y),
        "mixed_parts": lambda: mm.mixed_parts(Probe(), method, X, y),
    }
    with pytest.raises(ValueError, match="partner must index the batch"):
        calls[call]()


WRONG_PARTNERS = (
    torch.zeros(4),
    torch.zeros(4, 1, dtype=torch.long),
    torch.zeros(3, dtype=torch.long),
    torch.zeros(8, dtype=torch.long),
    torch.zeros(0, dtype=torch.long),
    [0, 1, 2, 3],
)


@pytest.mark.parametrize("partner", WRONG_PARTNERS)
def test_partners_of_another_type_or_shape_raise(partner):
    with pytest.raises(ValueError, match="partner must"):
        replace(plan(), partner=partner).check(4)


@dataclass(frozen=True, kw_only=True)
class WrongCount(mm.InputMixup):
    """A method of a user that draws too many or too few partners."""

    count: int

    def draw_partner(self, x, partner, generator):
        return torch.arange(self.count) % len(x)


@pytest.mark.parametrize("count", [0, 3, 5, 8])
def test_a_wrong_number_of_partners_raises(count):
    with pytest.raises(ValueError, match="partner must have shape"):
        mm.Mix(WrongCount(count=count), 5)(X, torch.arange(4))


def test_integer_samples_are_rejected():
    for method in (mm.CutMix(), mm.InputMixup(), mm.FMix()):
        with pytest.raises(TypeError, match="z must be floating point"):
            method.plan(X).mix((X * 255).to(torch.uint8))


@dataclass(frozen=True, kw_only=True)
class Boxes(mm.PairMethod):
    """A method of a user that computes boxes."""

    low: tuple[int, int]
    high: tuple[int, int]

    def build(self, x, partner, lam, *, generator):
        low, high = (torch.tensor(edge).reshape(1, 1, 2) for edge in (self.low, self.high))
        return mm.plans.BoxPlan(partner=partner, low=low, high=high, size=x.shape[2:])


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((-1, 0), (2, 2)),
        ((0, 0), (7, 2)),
        ((0, 0), (2, 8)),
        ((3, 3), (2, 5)),
        ((10**6, 0), (10**6, 1)),
    ],
)
def test_boxes_outside_the_image_raise(low, high):
    method = Boxes(low=low, high=high)
    for call in (lambda: method.plan(X), lambda: mm.Mix(method, 4)(X, torch.arange(4))):
        with pytest.raises(ValueError, match="low and high must"):
            call()
    assert float(Boxes(low=(0, 0), high=(6, 7)).plan(X).lam.min()) == 1


def test_boxes_of_another_shape_raise():
    drawn = plan()
    with pytest.raises(ValueError, match="low and high must"):
        replace(drawn, high=drawn.high[:1]).check(4)
