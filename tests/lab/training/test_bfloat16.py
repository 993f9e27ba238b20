"""Convolutions in bfloat16 where the CPU has no instructions for it."""

import copy
import pickle

import pytest
import torch
from torch import nn

from multimix.lab.training import bfloat16


def products_of_rounded(conv, x):
    """What a convolution of numbers rounded to bfloat16 is, in float64, rounded once at the end."""
    exact = copy.deepcopy(conv).double()
    with torch.no_grad():
        for weight in exact.parameters():
            weight.copy_(weight.bfloat16())
    z = x.bfloat16().double().requires_grad_()
    out = exact(z).bfloat16()
    out.double().square().sum().backward()
    return out, z.grad, *(weight.grad for weight in exact.parameters())


CONVOLUTIONS = {
    "stem": ((9, 7), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "no bias": ((8, 8), {"kernel_size": 3, "padding": 1, "bias": False}),
    "groups": ((5, 6), {"kernel_size": (3, 1), "groups": 2, "padding": (1, 0)}),
    "same": ((5, 6), {"kernel_size": 3, "padding": "same"}),
    "reflect": ((5, 6), {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}),
    "one place": ((1, 1), {"kernel_size": 3, "padding": 1}),
    "one place, stride": ((2, 2), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "one place, odd": ((2, 1), {"kernel_size": 5, "stride": 2, "padding": 2}),
    "one place, groups": ((1, 2), {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2}),
    "one place, part of x": ((4, 4), {"kernel_size": 3, "stride": 4, "padding": 0}),
    "one place, dilated": ((2, 2), {"kernel_size": 3, "stride": 3, "padding": 2, "dilation": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_it_is_a_convolution_of_rounded_numbers(name):
    size, options = CONVOLUTIONS[name]
    torch.manual_seed(0)
    conv, x = nn.Conv2d(4, 6, **options), torch.randn(5, 4, *size)
    wanted = products_of_rounded(conv, x)
    bfloat16.convolve_in_float32(conv)
    z = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(z)
    assert out.dtype == torch.bfloat16
    out.double().square().sum().backward()
    found = out, z.grad, *(weight.grad for weight in conv.parameters())
    for ours, exact in zip(found, wanted, strict=True):
        # Gradients are rounded to bfloat16, too, 8 bits: half a unit in the last of them.
        torch.testing.assert_close(ours.double(), exact.double(), rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize(("size", "padding", "is_one"), [((1, 1), 1, True), ((2, 2), 1, False), ((3, 3), 0, True)])
def test_only_kernels_on_the_padding_are_cut(size, padding, is_one):
    assert bfloat16._has_one_place(nn.Conv2d(1, 1, 3, padding=padding), torch.zeros(1, 1, *size)) == is_one


def test_what_torch_refuses_is_refused():
    conv = nn.Conv2d(2, 2, 3)
    bfloat16.convolve_in_float32(conv)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        conv(torch.randn(1, 2, 1, 1))


def test_one_image_without_a_batch():
    conv, x = nn.Conv2d(2, 3, 3, stride=2, padding=1), torch.randn(2, 2, 2)
    bfloat16.convolve_in_float32(conv)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(conv(x), conv(x.unsqueeze(0)).squeeze(0))


def test_a_pickled_network_is_an_ordinary_one():
    conv, x = nn.Conv2d(2, 3, 3), torch.randn(1, 2, 5, 5)
    bfloat16.convolve_in_float32(conv)
    assert torch.equal(pickle.loads(pickle.dumps(conv))(x), conv(x))


def test_convolutions_of_ones_own_are_left_alone():
    class Doubled(nn.Conv2d):
        def _conv_forward(self, x, weight, bias):
            return 2 * super()._conv_forward(x, weight, bias)

    conv = Doubled(2, 3, 3)
    bfloat16.convolve_in_float32(conv)
    assert "_conv_forward" not in vars(conv)


def test_without_autocast_nothing_changes():
    conv, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    plain = conv(x)
    bfloat16.convolve_in_float32(conv)
    assert torch.equal(conv(x), plain)


def test_a_copy_convolves_with_its_own_weights():
    conv = nn.Conv2d(3, 4, 3)
    bfloat16.convolve_in_float32(conv)
    twin = copy.deepcopy(conv)
    nn.init.zeros_(twin.weight)
    nn.init.zeros_(twin.bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert not twin(torch.randn(2, 3, 8, 8)).any()
