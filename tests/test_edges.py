"""The public edge: what is odd is refused in one sentence of ours, what is large is mixed without overflow."""

import copy
import itertools
import pickle
import re
from fractions import Fraction

import numpy
import pytest
import torch
from torch import nn

import fuzzing
import multimix as mm
from multimix.methods.style.small_pair import IdentityPair
from multimix.testing import cases, past, saliency
from oracles import seeded

LARGEST = torch.finfo(torch.float32).max
ODD = [0.0, -0.0, 1.0, 3e38, -3e38, LARGEST, -LARGEST, float("inf"), float("-inf"), float("nan"), 1e-42]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_ends_are_bit_for_bit(dtype):
    z, pair = (torch.tensor(part).to(dtype) for part in zip(*itertools.product(ODD, ODD), strict=True))
    for m, end in ((0.0, z), (1.0, pair)):
        for share in (m, torch.tensor(m), torch.full(z.shape, m, dtype=torch.float64)):
            mixed = mm.mix(z, pair, share)
            assert mixed.dtype == dtype
            assert torch.equal(mixed.view(torch.uint8), end.view(torch.uint8))
    assert mm.mix(3e38, -3e38, 0.0) == torch.tensor(3e38)
    assert mm.mix(float("-inf"), 1.0, 0.0) == float("-inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_between_finite_numbers_lie_finite_numbers(dtype):
    """Against exact fractions."""
    largest = torch.finfo(dtype).max
    finite = [0.0, 1.0, largest, -largest, largest / 3, -largest / 2]
    for a, b in itertools.product(finite, finite):
        for m in (0.1, 0.5, 0.75):
            mixed = float(mm.mix(torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), m))
            share = Fraction(float(torch.tensor(m, dtype=dtype)))
            exact = (1 - share) * Fraction(float(torch.tensor(a, dtype=dtype))) + share * Fraction(
                float(torch.tensor(b, dtype=dtype))
            )
            assert abs(Fraction(mixed) - exact) <= max(abs(Fraction(a)), abs(Fraction(b))) * Fraction(1, 10**6)


@pytest.mark.parametrize(
    "name",
    [
        "mixup",
        "cutmix",
        "attentivemix",
        "fmix",
        "smoothmix",
        "stylecutmix",
        "resizemix",
        "recursivemix",
        "gridmix",
        "saliencymix",
    ],
)
@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 3e38), (torch.float64, 1.7e308), (torch.bfloat16, 3e38)], ids=str)
def test_large_numbers_are_mixed_as_small_ones_are(name, dtype, large):
    """Signs times the largest power of two: the same as signs mixed, then scaled."""
    if (name, dtype) == ("saliencymix", torch.float64):
        pytest.skip("its map adds up numbers, which overflows beyond 1e300: boxes then lie elsewhere")
    case = next(cases(next(known for known in mm.entries() if known.name == name)))
    scale = 2.0 ** (1023 if dtype == torch.float64 else 127)
    x = torch.randn(4, 2, 6, 7, generator=seeded(0)).sign().to(dtype)
    method = case.make(3)
    given = {need: saliency(x) for need in method.traits.needs}

    def mixed(x):
        plan = method.plan(x, generator=seeded(1), **given, **past(method, x))
        return plan, plan.mix(x)

    (plan, small), (large_plan, found) = mixed(x), mixed(x * scale)
    assert torch.equal(plan.lam, large_plan.lam)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double() / scale, small.double(), rtol=0.02 if dtype == torch.bfloat16 else 1e-6, atol=1e-6)
    x_mix, _ = mm.Mix(mm.InputMixup(k=3), 3)(x * scale, torch.zeros(4, dtype=torch.long))
    assert torch.isfinite(x_mix).all()
    out = torch.empty(3 * 4, 2, 6, 7, dtype=dtype)
    assert torch.equal(large_plan.mix(x * scale, out=out), found)
    target = mm.InputMixup(k=3).plan(x, generator=seeded(1)).mix_target(x[:, :, 0, 0] * scale)
    assert torch.isfinite(target).all()


NET, MODEL = fuzzing.Network(), nn.Conv2d(3, 3, 1)
X, Y = torch.randn(3, 2, 4, 4, generator=seeded(3)), torch.tensor([0, 2, 1])
FLOATS, SHAPED = "float16, bfloat16, float32 or float64", "of shape [2, 4, 4], torch.float32"
PLAN = mm.InputMixup(k=2).plan(X, generator=seeded(4))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mm.InputMixup().plan(X, partner="x"), "partner must be a tensor or a list of indices, got 'x'"),
        (lambda: mm.InputMixup().plan(X, partner=[0, 1, 1j]), "partner must hold one index per sample"),
        (lambda: mm.InputMixup().plan(X, lam="x"), "lam must be a tensor or a list of real numbers, got 'x'"),
        (lambda: mm.InputMixup().plan(X, lam=torch.tensor([0.5j])), "lam must be real, got torch.complex64"),
        (
            lambda: mm.mixed_terms(NET, mm.InputMixup(), X, Y, steps=1.5),
            "steps must be a whole number, at least 1, or None, got 1.5",
        ),
        (
            lambda: list(mm.mixed_chunks(NET, mm.InputMixup(), X, Y, steps=1.5)),
            "steps must be a whole number, at least 1, got 1.5",
        ),
        (lambda: PLAN.split(1.5), "steps must be a whole number, at least 1, got 1.5"),
        (lambda: PLAN[1.5], "a plan is cut by a whole number or a slice, got 1.5"),
        (lambda: PLAN.mix(X.numpy()), "z must be a torch.Tensor, got ndarray"),
        (lambda: PLAN.mix_target(Y.numpy(), 3), "y must be a torch.Tensor, got ndarray"),
        (lambda: PLAN.mix_target(None), "y must be a torch.Tensor, got NoneType"),
        (lambda: mm.soft_target(None), "y must be a torch.Tensor, got NoneType"),
        (lambda: PLAN.mix_target(torch.ones(3, 2, dtype=torch.complex64)), "y must be real, got torch.complex64"),
        (lambda: PLAN.mix_target(torch.full((3, 2), float("nan"))), "y must be finite, got NaN or infinity"),
        (lambda: PLAN.mix_target(torch.ones(3, 2).to(torch.float8_e5m2)), f"y must be {FLOATS}, got torch.float8_e5m2"),
        (lambda: mm.InputMixup().plan(X.to(torch.float8_e4m3fn)), f"x must be {FLOATS}, got torch.float8_e4m3fn"),
        (lambda: mm.Mix(mm.CutMix(), 3)(X.to(torch.float8_e4m3fn), Y), f"x must be {FLOATS}, got torch.float8_e4m3fn"),
        (lambda: mm.GuidedMixup().plan(X.to("meta"), saliency=saliency(X)), "on the device 'meta' there are none"),
        (
            lambda: mm.mixed_logits(MODEL, mm.CutMix(k=2), X, Y),
            f"the model failed on 2 × 3 mixed samples {SHAPED}: Given groups=1",
        ),
        (
            lambda: mm.mixed_logits(MODEL, mm.AttentiveMix(), X, Y),
            f"the model failed on 3 clean samples {SHAPED}: Given groups=1",
        ),
        (
            lambda: mm.mixed_logits(nn.Sequential(MODEL), mm.ManifoldMixup(layers=("0",)), X, Y),
            f"failed on 3 samples {SHAPED}: Given",
        ),
        (lambda: mm.SaliencyMix().plan(X.to("meta")), "on the device 'meta' there are none"),
        (lambda: mm.mixed_logits("model", mm.CutMix(), X, Y), "model must be an nn.Module or a function of x, got str"),
        (lambda: mm.mix(X, "x", 0.5), "z_pair must be a torch.Tensor or a number, got str"),
        (lambda: mm.mix(X, X.double(), 0.5), "z and z_pair must have one floating-point type"),
        (lambda: mm.mix(X, X[:, :, :3], 0.5), "the shapes of z, z_pair and m must broadcast"),
        (lambda: mm.random_partner(float("nan")), "batch must be a whole number, at least 1, got nan"),
        (lambda: mm.sample_path(2, 1.0, rows="x"), "rows must be a whole number, at least 1, got 'x'"),
        (lambda: mm.soft_cross_entropy(X[:, :, 0, 0], Y), "target must be a floating-point tensor, got torch.int64"),
        (lambda: mm.input_saliency(NET, X.to_sparse(), Y), "x must be a dense tensor"),
    ],
)
def test_odd_arguments_are_told_in_one_sentence(call, sentence):
    with pytest.raises((TypeError, ValueError, mm.MixingError), match=re.escape(sentence)):
        call()


@pytest.mark.parametrize(
    "method",
    [
        mm.StyleMix(pair=IdentityPair(), side=None),
        mm.StyleCutMix(pair=IdentityPair(), side=None, gamma=0.3),
        mm.AlignMixup(layers=("body",), input_share=0.0),
    ],
    ids=lambda method: method.name,
)
def test_numbers_whose_squares_overflow_are_mixed_or_told(method):
    for scale in (1e15, 1e25, 3e38):
        x = X.sign() * scale
        plan, said = method.plan(x, partner=[1, 2, 0], lam=[0.3], generator=seeded(1)), None
        try:
            assert torch.isfinite(plan.mix(x)).all()
        except ValueError as error:
            said = str(error)
        told = f"{type(method).__name__} squares numbers on the way: those of this batch are too large, or not finite"
        assert said in ((None, told) if scale > 1e18 else (None,))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8])
def test_labels_of_every_whole_type(dtype):
    expected = PLAN.mix_target(Y, 3)
    assert torch.equal(PLAN.mix_target(Y.to(dtype), 3), expected)
    for method in (mm.InputMixup(k=2), mm.AttentiveMix(k=2)):
        logits, target = mm.mixed_logits(fuzzing.Network(), method, X, Y.to(dtype), generator=seeded(4))
        wanted = mm.mixed_logits(fuzzing.Network(), method, X, Y, generator=seeded(4))
        assert torch.equal(target, wanted[1])
        assert torch.equal(logits, wanted[0])
    assert torch.equal(mm.Mix(mm.CutMix(), 3, seed=1)(X, Y.to(dtype))[1], mm.Mix(mm.CutMix(), 3, seed=1)(X, Y)[1])


@pytest.mark.parametrize("method", [mm.ManifoldMixup(layers=(None, "body")), mm.AlignMixup(layers=("body",))], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_nan_is_refused_at_hidden_layers_too(method, dtype, value):
    x = X.to(dtype, copy=True)
    x[1, 0, 2, 2] = float(value)
    for call in (mm.mixed_logits, mm.mixed_loss, lambda *given: mm.mixed_terms(*given)[0]()):
        with pytest.raises(ValueError, match="x must be finite, got NaN or infinity in sample 1 of the batch"):
            call(fuzzing.Network(), method, x, Y)


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


def test_errors_of_other_kinds_stay_what_they_are():
    def full(x):
        raise OutOfMemoryError("no memory")

    with pytest.raises(OutOfMemoryError, match="no memory"):
        mm.mixed_logits(full, mm.InputMixup(), X, Y)


@pytest.mark.parametrize("first", range(0, 600, 150))
def test_random_calls_are_right_or_refused(first):
    """``tests/fuzzing.py`` makes any of them again by its number; ``make soak`` makes very many."""
    faults = []
    counts = fuzzing.campaign(first, 150, lambda found, number: faults.append(f"{number}: {' | '.join(found)}"))
    assert faults == []
    assert counts[fuzzing.RIGHT] > 40
    assert counts[fuzzing.REFUSED] > 20


def test_the_fuzzer_tells_faults(monkeypatch):
    """A broken check, and a foreign error, are seen."""
    monkeypatch.setattr("multimix.mixing.torch.lerp", lambda z, *rest, **out: z / 0)
    assert fuzzing.campaign(0, 60)[fuzzing.NOT_FINITE] > 0
    monkeypatch.setattr("multimix.methods.base.check_given", lambda *given: {}["x"])
    assert fuzzing.campaign(0, 60)[fuzzing.FOREIGN] > 0


def test_a_path_given_as_a_list_is_taken_as_written():
    lam = [0.1, 0.2, 0.7]
    assert mm.InputMixup(k=3).plan(X, lam=lam).lam[:, 0].tolist() == lam
    assert mm.CutMix(k=3).plan(X, lam=torch.tensor(lam, dtype=torch.float64)).k == 3


def test_numpy_scalars_and_arrays_serve_where_numbers_do():
    assert len(mm.InputMixup(k=numpy.int64(3)).plan(X, lam=numpy.array([0.1, 0.2]), partner=numpy.array([1, 2, 0]))) == 2
    assert len(PLAN[numpy.int64(1)]) == 1


MIX = mm.Mix(mm.CutMix(k=2), num_classes=3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mm.CutMix(5), "CutMix takes its options by name, such as CutMix(k=5), got CutMix(5)"),
        (lambda: MIX([(torch.rand(3, 8, 8), 1)] * 4), "as a data loader's collate_fn it is mix.collate"),
        (
            lambda: MIX(torch.rand(4, 3, 8, 8), torch.tensor([0.0, 1.0, 2.0, 1.0])),
            "got torch.float32 [4]; y.long() makes class indices",
        ),
        (lambda: mm.ManifoldMixup(layers=(0, 1)), "layers are names from model.named_modules(), not numbers"),
    ],
)
def test_what_newcomers_try_gets_the_sentence_that_helps(call, sentence):
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call()


def test_methods_are_copied_and_pickled_as_before():
    method = mm.CutMix(k=3, alpha=0.5)
    assert copy.copy(method) == copy.deepcopy(method) == pickle.loads(pickle.dumps(method)) == method
