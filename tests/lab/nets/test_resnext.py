import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d

from multimix.lab.nets import network


def test_inner_widths_groups_and_strides_are_type_c():
    with torch.device("meta"):
        net = network("resnext29_4_24", 10)
    for number, (stage, inner) in enumerate(zip((net.stage1, net.stage2, net.stage3), (96, 192, 384), strict=True)):
        assert len(stage) == 3
        for block in stage:
            assert block.conv1.out_channels == block.conv2.in_channels == block.conv2.out_channels == inner
            assert block.conv2.groups == 4
            assert (block.conv1.groups, block.conv3.groups) == (1, 1)
        assert [block.conv2.stride[0] for block in stage] == [2 if number else 1, 1, 1]
        assert [block.shortcut is None for block in stage] == [False, True, True]


@pytest.mark.parametrize("side", [32, 64])
def test_features_have_the_reference_shapes(side, shapes):
    assert shapes(network("resnext29_4_24", 10), 3, side, side) == {
        "stem": (64, side, side),
        "stage1": (256, side, side),
        "stage2": (512, side // 2, side // 2),
        "stage3": (1024, side // 4, side // 4),
    }


def test_the_first_stage_and_the_head_are_what_their_weights_say(scrambled, normed):
    net = scrambled(network("resnext29_4_24_small", 7)).eval()
    x = torch.randn(3, 3, 32, 32)
    stem = normed(conv2d(x, net.stem[0].weight, None, 1, 1), net.stem[1], False).clamp(min=0)
    block = net.stage1[0]
    z = normed(conv2d(stem, block.conv1.weight), block.norm1, False).clamp(min=0)
    # Four groups of four channels, one after the other.
    groups = [conv2d(z[:, 4 * g : 4 * g + 4], block.conv2.weight[4 * g : 4 * g + 4], None, 1, 1) for g in range(4)]
    z = normed(torch.cat(groups, 1), block.norm2, False).clamp(min=0)
    z = normed(conv2d(z, block.conv3.weight), block.norm3, False)
    projection, norm = block.shortcut
    first = (normed(conv2d(stem, projection.weight), norm, False) + z).clamp(min=0)
    torch.testing.assert_close(net.stage1(net.stem(x)), first, atol=1e-4, rtol=1e-4)
    last = net.stage3(net.stage2(first))
    expected = avg_pool2d(last, 8).reshape(3, 128) @ net.head.weight.T + net.head.bias
    torch.testing.assert_close(net(x), expected, atol=1e-3, rtol=1e-4)


def test_start_values_follow_the_reference():
    net = network("resnext29_4_24", 100)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            # The outputs of all groups count, also in the grouped convolution.
            unit = module.weight / (2 / (module.kernel_size[0] ** 2 * module.out_channels)) ** 0.5
            n = unit.numel()
            assert unit.std().item() == pytest.approx(1, abs=5 / (2 * n) ** 0.5)
            assert unit.mean().item() == pytest.approx(0, abs=5 / n**0.5)
    assert net.head.weight.std().item() == pytest.approx((2 / 1024) ** 0.5, rel=0.01)
    assert net.head.weight.abs().max() > 3 * (2 / 1024) ** 0.5  # normal, not uniform
    assert (net.head.bias == 0).all()
