import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d

from multimix.lab.nets import network


@pytest.mark.parametrize("bins", [161, 160])
def test_features_have_the_reference_shapes(bins, shapes):
    with torch.device("meta"):
        net = network("vgg11", 30)
    assert shapes(net, 1, bins, 101) == {
        "stem": (64, 80, 50),
        "stage1": (128, 40, 25),
        "stage2": (256, 20, 12),
        "stage3": (512, 10, 6),
        "stage4": (512, 5, 3),
    }
    assert [tuple(linear.weight.shape) for linear in net.head] == [(512, 7680), (30, 512)]


def test_the_convolutional_part_has_its_count():
    with torch.device("meta"):
        net = network("vgg11", 30)
    assert sum(weight.numel() for name, weight in net.named_parameters() if not name.startswith("head")) == 9_224_832


@pytest.mark.parametrize("training", [True, False])
def test_it_is_what_its_weights_say(training, scrambled, normed):
    net = scrambled(network("vgg11_small", 5)).train(training)
    x = torch.randn(3, 1, 161, 101)
    layers = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    z = x
    for number, (convolution, norm) in enumerate(zip(layers[::2], layers[1::2], strict=True), start=1):
        z = conv2d(z, convolution.weight, convolution.bias, 1, 1)
        z = normed(z, norm, training).clamp(min=0)
        if number in (1, 2, 4, 6, 8):
            z = max_pool2d(z, 2)
        if number == 2:
            second = z
    assert number == 8
    first, last = net.head
    # Two linear layers and nothing between them: one matrix.
    weight = last.weight @ first.weight
    expected = z.reshape(3, -1) @ weight.T + (last.weight @ first.bias + last.bias)
    torch.testing.assert_close(net.stage1(net.stem(x)), second, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(net(x), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("shape", [(2, 1, 161, 95), (2, 1, 101, 161), (2, 1, 32, 32), (2, 1, 192, 101), (1, 161)])
def test_other_sizes_are_refused_in_one_sentence(shape):
    net = network("vgg11_small", 5).eval()
    with pytest.raises(ValueError, match=r"spectrograms of 161×101 or 160×101 values, got shape \[[\d, ]+\]$"):
        net(torch.zeros(shape))


def test_the_start_is_torchs(is_torch_default):
    net = network("vgg11", 30)
    weights = [module.weight for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(weights) == 10
    assert all(is_torch_default(weight) for weight in weights if weight.numel() > 5000)
    assert all(module.bias.abs().max() > 0 for module in net.modules() if isinstance(module, nn.Conv2d))
