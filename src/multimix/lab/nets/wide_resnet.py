"""WRN-16-8 as the code of puzzle mix and co-mixup has it, and a small sibling."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu


def wrn16_8(num_classes: int, *, in_channels: int = 3, bias: bool = True) -> "WideResNet":
    """Two blocks in each of three stages of 128, 256 and 512 channels: 11,012,036 parameters with 100 classes."""
    return WideResNet(num_classes, in_channels, (128, 256, 512), 2, bias)


def wrn16_8_small(num_classes: int, *, in_channels: int = 3, bias: bool = True) -> "WideResNet":
    """WRN-10-1: one block in each of three stages of 16, 32 and 64 channels."""
    return WideResNet(num_classes, in_channels, (16, 32, 64), 1, bias)


class WideResNet(nn.Module):
    """A bare 3×3 stem of 16 channels, three stages with strides 1, 2, 2, BN-ReLU, the mean over all places, a linear head.

    Start values are torch's. All convolutions have a bias in the reference; the original network has none (``bias=False``).
    """

    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")

    def __init__(self, num_classes: int, in_channels: int, widths: tuple[int, int, int], blocks: int, bias: bool = True) -> None:
        super().__init__()
        stem = 16
        first, second, third = widths
        self.stem = nn.Conv2d(in_channels, stem, 3, padding=1, bias=bias)
        self.stage1 = _stage(stem, first, blocks, 1, bias)
        self.stage2 = _stage(first, second, blocks, 2, bias)
        self.stage3 = _stage(second, third, blocks, 2, bias)
        # 0.9 is what the reference passes to torch, where it is the weight of the new batch: the running statistics of this
        # one layer are nearly those of the last batch. (Elsewhere momentum is the weight of the old value; it may be a slip.)
        self.norm = nn.BatchNorm2d(third, momentum=0.9)
        self.relu = nn.ReLU()  # a layer, so that what the head is given the mean of has a name
        self.head = nn.Linear(third, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.stage3(self.stage2(self.stage1(self.stem(x))))
        logits: Tensor = self.head(self.relu(self.norm(z)).mean((2, 3)))
        return logits


class WideBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-conv beside a shortcut; the stride sits on the second convolution.

    A projection (1×1, no batch norm) takes the raw input, as the identity does where the shape stays.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, padding=1, bias=bias)
        projected = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=bias) if projected else None

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(x)
        z: Tensor = self.conv1(relu(self.norm1(x)))
        z = self.conv2(relu(self.norm2(z)))
        return shortcut + z


def _stage(inputs: int, outputs: int, blocks: int, stride: int, bias: bool) -> nn.Sequential:
    rest = (WideBlock(outputs, outputs, 1, bias) for _ in range(blocks - 1))
    return nn.Sequential(WideBlock(inputs, outputs, stride, bias), *rest)
