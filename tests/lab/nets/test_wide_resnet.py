import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d

from multimix.lab.nets import network
from multimix.lab.nets.resnet import WideBlock


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "stride"), [(5, 1), (5, 2), (3, 1), (3, 2)])
def test_a_block_is_what_its_weights_say(inputs, stride, bias, training, scrambled, normed):
    block = scrambled(WideBlock(inputs, 5, stride, bias)).train(training)
    assert all((module.bias is not None) == bias for module in block.modules() if isinstance(module, nn.Conv2d))
    x = torch.randn(4, inputs, 7, 6)
    z = conv2d(normed(x, block.norm1, training).clamp(min=0), block.conv1.weight, block.conv1.bias, 1, 1)
    z = conv2d(normed(z, block.norm2, training).clamp(min=0), block.conv2.weight, block.conv2.bias, stride, 1)
    # The shortcut always sees the raw input.
    shortcut = x if (inputs, stride) == (5, 1) else conv2d(x, block.shortcut.weight, block.shortcut.bias, stride)
    torch.testing.assert_close(block(x), shortcut + z, atol=1e-5, rtol=1e-4)


def test_the_stride_sits_on_the_second_convolution_of_the_first_block():
    net = network("wrn16_8", 10)
    for number, stage in enumerate((net.stage1, net.stage2, net.stage3)):
        assert len(stage) == 2
        assert [block.conv1.stride[0] for block in stage] == [1, 1]
        assert [block.conv2.stride[0] for block in stage] == [2 if number else 1, 1]
        assert [block.shortcut is None for block in stage] == [False, True]


@pytest.mark.parametrize("side", [32, 64])
def test_features_have_the_reference_shapes(side, shapes):
    assert shapes(network("wrn16_8", 10), 3, side, side) == {
        "stem": (16, side, side),
        "stage1": (128, side, side),
        "stage2": (256, side // 2, side // 2),
        "stage3": (512, side // 4, side // 4),
    }


def test_the_last_stage_is_normed_cut_at_zero_and_pooled(scrambled, normed):
    net = scrambled(network("wrn16_8_small", 7)).eval()
    x = torch.randn(3, 3, 32, 32)
    last = normed(net.stage3(net.stage2(net.stage1(net.stem(x)))), net.norm, False).clamp(min=0)
    expected = avg_pool2d(last, 8).reshape(3, 64) @ net.head.weight.T + net.head.bias
    torch.testing.assert_close(net(x), expected, atol=1e-5, rtol=1e-4)


def test_the_last_running_mean_is_nearly_that_of_the_last_batch():
    net = network("wrn16_8_small", 7)
    seen = []
    net.norm.register_forward_hook(lambda module, args, z: seen.append(args[0].mean((0, 2, 3))))
    for seed in (0, 1):
        net(torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(seed)))
    torch.testing.assert_close(net.norm.running_mean, 0.9 * seen[1] + 0.1 * 0.9 * seen[0])
    others = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d) and module is not net.norm]
    assert {norm.momentum for norm in others} == {0.1}


def test_the_start_is_torchs_and_nothing_drops_out(is_torch_default):
    net = network("wrn16_8", 100)
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 1 + 12 + 3
    # The stem and the first shortcut have too few weights for the statistics of the others.
    assert all(is_torch_default(module.weight) for module in convolutions if module.weight.numel() > 5000)
    assert all(module.bias.abs().max() <= module.weight[0].numel() ** -0.5 for module in convolutions)
    assert all(module.bias.abs().max() > 0 for module in convolutions)
    assert not any("Dropout" in type(module).__name__ for module in net.modules())
