import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d

from multimix.lab.nets import network
from multimix.lab.nets.resnet import PreActBlock, PreActResNet


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("inputs", "stride"), [(5, 1), (5, 2), (3, 1), (3, 2)])
def test_a_block_is_what_its_weights_say(inputs, stride, training, scrambled, normed):
    block = scrambled(PreActBlock(inputs, 5, stride)).train(training)
    x = torch.randn(4, inputs, 7, 6)
    active = normed(x, block.norm1, training).clamp(min=0)
    z = conv2d(active, block.conv1.weight, None, stride, 1)
    z = conv2d(normed(z, block.norm2, training).clamp(min=0), block.conv2.weight, None, 1, 1)
    # The projection sees the activated input; only where the shape stays, the raw input passes.
    shortcut = x if (inputs, stride) == (5, 1) else conv2d(active, block.shortcut.weight, None, stride)
    torch.testing.assert_close(block(x), shortcut + z, atol=1e-5, rtol=1e-4)


def test_only_the_first_block_of_a_later_stage_is_strided_and_projected():
    net = network("preact_resnet18", 10)
    for number, stage in enumerate((net.stage1, net.stage2, net.stage3, net.stage4)):
        assert len(stage) == 2
        assert [block.conv1.stride[0] for block in stage] == [2 if number else 1, 1]
        assert [block.conv2.stride[0] for block in stage] == [1, 1]
        assert [block.shortcut is None for block in stage] == [number == 0, True]


@pytest.mark.parametrize(
    ("side", "stem_stride", "sides"), [(32, 1, (32, 16, 8, 4)), (64, 1, (64, 32, 16, 8)), (64, 2, (32, 16, 8, 4))]
)
def test_features_have_the_reference_shapes(side, stem_stride, sides, shapes):
    found = shapes(network("preact_resnet18", 10, stem_stride=stem_stride), 3, side, side)
    assert found == {
        "stem": (64, sides[0], sides[0]),
        "stage1": (64, sides[0], sides[0]),
        "stage2": (128, sides[1], sides[1]),
        "stage3": (256, sides[2], sides[2]),
        "stage4": (512, sides[3], sides[3]),
    }


def test_the_last_stage_is_pooled_as_it_is(scrambled):
    net = scrambled(network("preact_resnet18_small", 7)).eval()
    x = torch.randn(3, 3, 32, 32)
    last = net.stage4(net.stage3(net.stage2(net.stage1(net.stem(x)))))
    assert last.min() < 0  # a ReLU would be seen
    expected = avg_pool2d(last, 4).reshape(3, 128) @ net.head.weight.T + net.head.bias
    torch.testing.assert_close(net(x), expected)


def test_with_final_norm_it_is_normed_and_cut_at_zero_first(scrambled, normed):
    net = scrambled(network("preact_resnet18_small", 7, final_norm=True)).eval()
    x = torch.randn(3, 3, 32, 32)
    last = net.stage4(net.stage3(net.stage2(net.stage1(net.stem(x)))))
    expected = net.head(normed(last, net.norm, False).clamp(min=0).mean((2, 3)))
    torch.testing.assert_close(net(x), expected, atol=1e-5, rtol=1e-4)


def test_no_convolution_has_a_bias_and_the_start_is_torchs(is_torch_default):
    net = network("preact_resnet18", 100)
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 1 + 16 + 3
    assert all(convolution.bias is None and is_torch_default(convolution.weight) for convolution in convolutions)
    assert is_torch_default(net.head.weight)


def test_a_stem_stride_of_0_is_refused():
    with pytest.raises(ValueError, match="stem_stride must be at least 1, got 0"):
        PreActResNet(10, 3, (4, 4, 4, 4), 1, stem_stride=0)
