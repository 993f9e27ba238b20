"""At K = 1 the drop-in is timm's mixing bit for bit; at K > 1 it has the order and the nesting of multi-mix."""

import itertools

import numpy as np
import pytest
import torch

from multimix.compat.timm import Mixup
from peers import peer

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
KINDS = (
    {"mixup_alpha": 0.8},
    {"mixup_alpha": 0.0, "cutmix_alpha": 1.0},
    {"mixup_alpha": 0.2, "cutmix_alpha": 1.0},
    {"mixup_alpha": 0.0, "cutmix_minmax": (0.2, 0.8)},
    {"mixup_alpha": 0.5, "cutmix_minmax": (0.3, 0.9)},
)


def state():
    return np.random.get_state()[1:3]


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_interpolation_is_timms_bit_for_bit(mode, kind):
    theirs = peer("timm.data").Mixup
    cases = itertools.product(DTYPES, (1.0, 0.6), (True, False), ((8, 3, 16, 16), (2, 1, 7, 12)), range(6))
    for number, (dtype, prob, correct, shape, seed) in enumerate(cases):
        options = dict(mode=mode, prob=prob, correct_lam=correct, label_smoothing=0.1 * (seed % 2), num_classes=11, **kind)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number)).to(dtype)
        y = torch.randint(0, 11, (len(x),), generator=torch.Generator().manual_seed(number))
        found = []
        for make in (theirs, Mixup):
            np.random.seed(seed)
            mix, own = make(**options), x.clone()
            mix.mixup_enabled = seed != 5
            out, target = mix(own, y)
            assert out is own  # in place, as timm does it
            found.append((out, target, state()))
        (a, ta, sa), (b, tb, sb) = found
        assert same_bits(a, b), (dtype, options)
        assert same_bits(ta, tb), (dtype, options)
        assert sa[1] == sb[1], (dtype, options)
        assert (sa[0] == sb[0]).all(), (dtype, options)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem", "half"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_collating_one_interpolation_is_timms_bit_for_bit(mode, kind):
    theirs = peer("timm.data").FastCollateMixup
    from multimix.compat.timm import FastCollateMixup

    assert issubclass(FastCollateMixup, theirs)  # timm's loader asks
    for seed, tensors in itertools.product(range(6), (False, True)):
        found = []
        for make in (theirs, FastCollateMixup):
            pixels = np.random.default_rng(seed).integers(0, 256, (6, 3, 9, 14), dtype=np.uint8)
            batch = [(torch.from_numpy(one) if tensors else one, i % 5) for i, one in enumerate(pixels)]
            np.random.seed(seed)
            found.append((*make(mode=mode, num_classes=5, **kind)(batch), state()))
        (a, ta, sa), (b, tb, sb) = found
        assert same_bits(a, b)
        assert same_bits(ta, tb)
        assert sa[1] == sb[1]
        assert (sa[0] == sb[0]).all()


def drawn(k, mode, seed=0, **kind):
    """Mixtures of black and white pictures, and the share of white in the pixels and in the targets."""
    np.random.seed(seed)
    x = torch.zeros(2, 1, 24, 30)
    x[1] = 1
    mix = Mixup(mode=mode, k=k, label_smoothing=0.0, num_classes=2, **kind)
    out, target = mix(x, torch.tensor([0, 1]))
    return out.view(k, 2, 24, 30), target.view(k, 2, 2)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("kind", KINDS[:4], ids=str)
def test_interpolations_ascend_and_targets_say_what_the_pixels_hold(mode, kind):
    for seed in range(20):
        out, target = drawn(4, mode, seed, **kind)
        white = out[:, 0]  # sample 0 is black, so white is its partner
        assert (white[1:] >= white[:-1] - 1e-6).all()  # nested, or blended further
        assert torch.allclose(out.mean((2, 3)), target[:, :, 1], atol=1e-5)
        assert torch.allclose(target.sum(2), torch.ones(4, 2))


def test_the_weights_of_k_steps_are_sorted_draws_of_one_beta_law():
    stats = pytest.importorskip("scipy.stats")
    np.random.seed(0)
    mix = Mixup(mixup_alpha=0.4, k=3, label_smoothing=0.0, num_classes=2)
    shares = np.array([mix(torch.zeros(2, 1, 1, 1), torch.tensor([0, 1]))[1].view(3, 2, 2)[:, 0, 1].numpy() for _ in range(3000)])
    assert (np.diff(shares, axis=1) >= 0).all()
    # A random one of the three has the law of a single draw.
    chosen = shares[np.arange(3000), np.random.default_rng(1).integers(0, 3, 3000)]
    assert stats.kstest(chosen, stats.beta(0.4, 0.4).cdf).pvalue > 1e-4


def test_boxes_between_least_and_largest_start_anywhere_with_equal_chance():
    stats = pytest.importorskip("scipy.stats")
    np.random.seed(0)
    kind = {"mixup_alpha": 0.0, "cutmix_minmax": (0.5, 0.51 + 1 / 24)}  # 12 rows of 24: sizes are all but fixed
    tops = np.zeros(13)
    for _ in range(2600):
        out = Mixup(k=2, num_classes=2, **kind)(
            torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).repeat(1, 1, 24, 30), torch.tensor([0, 1])
        )[0]
        tops[int(out[0, 0].amax(1).argmax())] += 1
    assert stats.chisquare(tops).pvalue > 1e-4


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_several_interpolations_leave_the_batch_and_are_those_of_a_slow_loop(order):
    np.random.seed(3)
    x = torch.randn(6, 3, 5, 4, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=order)
    before, y = x.clone(), torch.tensor([0, 1, 2, 3, 3, 0])
    out, target = Mixup(k=3, label_smoothing=0.1, num_classes=5)(x, y)
    assert torch.equal(x, before)
    assert out.is_contiguous(memory_format=order)
    hot = 0.9 * torch.nn.functional.one_hot(y, 5) + 0.02
    np.random.seed(3)
    np.random.rand()
    for k, own in enumerate(sorted(np.random.beta(1.0, 1.0, size=3), reverse=True)):
        for i in range(6):
            torch.testing.assert_close(out[6 * k + i], own.item() * x[i] + (1 - own.item()) * x[5 - i])
            torch.testing.assert_close(target[6 * k + i], own.item() * hot[i] + (1 - own.item()) * hot[5 - i])


def test_gradients_pass_through_several_interpolations():
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    Mixup(k=2, num_classes=3)(x, torch.tensor([0, 1, 2, 0]))[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))  # the shares of a sample in all rows sum to K


def test_a_label_that_is_no_class_is_refused_before_the_batch_is_mixed():
    x = torch.randn(2, 3, 5, 5)
    before = x.clone()
    with pytest.raises(RuntimeError, match="out of bounds"):
        Mixup(num_classes=3)(x, torch.tensor([0, 3]))
    assert torch.equal(x, before)


def test_a_batch_that_is_not_mixed_has_its_own_rows():
    mix = Mixup(k=5, prob=0.0, num_classes=3)
    x, y = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    out, target = mix(x.clone(), y)
    assert torch.equal(out, x)
    assert target.shape == (4, 3)


@pytest.mark.parametrize(
    ("options", "batch", "target", "words"),
    [
        ({"k": 0}, None, None, "k must"),
        ({"mode": "half"}, None, None, "mode"),
        ({"mixup_alpha": 0.0}, None, None, "must be above 0"),
        ({"cutmix_minmax": (0.2,)}, None, None, "two shares"),
        ({}, torch.zeros(3, 3, 4, 4), torch.zeros(3).long(), "even number"),
        ({}, torch.zeros(4, 3, 4, 4), torch.zeros(4, 10), "class indices"),
    ],
)
def test_bad_input_gets_a_sentence(options, batch, target, words):
    with pytest.raises(ValueError, match=words):
        Mixup(**options)(batch, target)
