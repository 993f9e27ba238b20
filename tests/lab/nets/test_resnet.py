import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from multimix.lab.nets import network
from multimix.lab.nets.resnet import Bottleneck


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("inputs", "stride", "groups"), [(8, 1, 1), (8, 2, 2), (3, 1, 2), (3, 2, 1)])
def test_a_block_is_what_its_weights_say(inputs, stride, groups, training, scrambled, normed):
    block = scrambled(Bottleneck(inputs, 8, stride, 4, groups)).train(training)
    x = torch.randn(5, inputs, 7, 6)
    z = normed(conv2d(x, block.conv1.weight), block.norm1, training).clamp(min=0)
    # Groups written out: each has its own channels in and out.
    parts = zip(z.chunk(groups, 1), block.conv2.weight.chunk(groups), strict=True)
    z = torch.cat([conv2d(part, weight, None, stride, 1) for part, weight in parts], 1)
    z = normed(z, block.norm2, training).clamp(min=0)
    z = normed(conv2d(z, block.conv3.weight), block.norm3, training)
    shortcut = x
    if (inputs, stride) != (8, 1):
        projection, norm = block.shortcut
        shortcut = normed(conv2d(x, projection.weight, None, stride), norm, training)
    torch.testing.assert_close(block(x), (shortcut + z).clamp(min=0), atol=1e-5, rtol=1e-4)


def test_the_stride_sits_on_the_3x3_of_the_first_block():
    with torch.device("meta"):
        net = network("resnet50", 10)
    stages = (net.stage1, net.stage2, net.stage3, net.stage4)
    assert [len(stage) for stage in stages] == [3, 4, 6, 3]
    for number, stage in enumerate(stages):
        assert [block.conv2.stride[0] for block in stage] == [2 if number else 1] + [1] * (len(stage) - 1)
        assert all(block.conv1.stride == block.conv3.stride == (1, 1) for block in stage)
        assert [block.shortcut is None for block in stage] == [False] + [True] * (len(stage) - 1)


@pytest.mark.parametrize(("side", "first"), [(32, 8), (64, 16), (224, 56), (128, 32)])
def test_features_have_the_usual_shapes(side, first, shapes):
    with torch.device("meta"):
        net = network("resnet50", 10)
    assert shapes(net, 3, side, side) == {
        "stem": (64, first, first),
        **{f"stage{n + 1}": (256 * 2**n, first // 2**n, first // 2**n) for n in range(4)},
    }


def test_the_stem_is_what_its_weights_say(scrambled, normed):
    net = scrambled(network("resnet50_small", 7)).eval()
    x = torch.randn(3, 3, 33, 40)
    z = normed(conv2d(x, net.stem[0].weight, None, 2, 3), net.stem[1], False).clamp(min=0)
    torch.testing.assert_close(net.stem(x), max_pool2d(z, 3, 2, 1), atol=1e-5, rtol=1e-4)
    last = net.stage4(net.stage3(net.stage2(net.stage1(net.stem(x)))))
    torch.testing.assert_close(net(x), last.sum((2, 3)) / last[0, 0].numel() @ net.head.weight.T + net.head.bias)


def test_convolutions_start_normal_with_the_he_deviation_of_their_outputs():
    for module in network("resnet50_small", 10).modules():
        if isinstance(module, nn.Conv2d):
            outputs, _, side, _ = module.weight.shape
            unit = module.weight / (2 / (side**2 * outputs)) ** 0.5
            n = unit.numel()
            assert unit.std().item() == pytest.approx(1, abs=5 / (2 * n) ** 0.5)
            assert unit.mean().item() == pytest.approx(0, abs=5 / n**0.5)
            assert (unit**4).mean().item() == pytest.approx(3, abs=5 * (96 / n) ** 0.5)  # 3 for a normal law, 1.8 for a uniform
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


def test_with_zero_init_every_block_begins_as_its_shortcut():
    net = network("resnet50_small", 1000, zero_init=True)
    blocks = [module for module in net.modules() if isinstance(module, Bottleneck)]
    assert len(blocks) == 4
    for block in blocks:
        assert (block.norm3.weight == 0).all()
        assert (block.norm1.weight == 1).all()
        assert (block.norm2.weight == 1).all()
        x = torch.rand(3, block.conv1.in_channels, 6, 6)
        torch.testing.assert_close(block(x), block.shortcut(x).clamp(min=0))
    assert net.head.weight.std().item() == pytest.approx(0.01, rel=0.01)
    plain = network("resnet50_small", 1000)
    assert all((module.weight == 1).all() for module in plain.modules() if isinstance(module, nn.BatchNorm2d))
    assert plain.head.weight.std().item() == pytest.approx((1 / 3 / plain.head.in_features) ** 0.5, rel=0.01)


def test_resnext_inner_widths_groups_and_strides_are_type_c():
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
def test_resnext_features_have_the_reference_shapes(side, shapes):
    assert shapes(network("resnext29_4_24", 10), 3, side, side) == {
        "stem": (64, side, side),
        "stage1": (256, side, side),
        "stage2": (512, side // 2, side // 2),
        "stage3": (1024, side // 4, side // 4),
    }


def test_resnext_the_first_stage_and_the_head_are_what_their_weights_say(scrambled, normed):
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


def test_resnext_start_values_follow_the_reference():
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
