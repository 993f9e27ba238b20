"""Networks of bottlenecks, and a small sibling of each: ResNet-50 in its usual form ("v1.5": the stride sits on the 3×3), and
ResNeXt-29 4×24 for small images as the code of co-mixup has it.
"""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

EXPANSION = 4


def resnet50(num_classes: int, *, in_channels: int = 3, zero_init: bool = False) -> "ResNet":
    """Stages of 3, 4, 6 and 3 bottlenecks, 256 to 2,048 channels: 25,557,032 parameters with 1,000 classes."""
    return ResNet(num_classes, in_channels, 64, (3, 4, 6, 3), zero_init)


def resnet50_small(num_classes: int, *, in_channels: int = 3, zero_init: bool = False) -> "ResNet":
    """One bottleneck in each of four stages, 128 to 1,024 channels."""
    return ResNet(num_classes, in_channels, 32, (1, 1, 1, 1), zero_init)


def resnext29_4_24(num_classes: int, *, in_channels: int = 3) -> "ResNeXt":
    """Three stages of three blocks, 256, 512 and 1,024 channels, 4 groups of 24: 4,937,252 parameters with 100 classes."""
    return ResNeXt(num_classes, in_channels, width=64, blocks=3, cardinality=4, base_width=24)


def resnext29_4_24_small(num_classes: int, *, in_channels: int = 3) -> "ResNeXt":
    """Three stages of one block, 32, 64 and 128 channels, 4 groups of 4."""
    return ResNeXt(num_classes, in_channels, width=8, blocks=1, cardinality=4, base_width=32)


class ResNet(nn.Module):
    """A 7×7 stem and a max-pool that leave a quarter of the side, four stages, the mean over all places, a linear head.

    ``width`` is the number of channels of the stem and inside the first stage. Convolutions start from N(0, 2/(k²·outputs)).
    ``zero_init`` is the start of the fast ImageNet recipe: every block begins as its shortcut (its last batch norm has scale 0),
    and the linear weights are N(0, 0.01²).
    """

    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")

    def __init__(
        self, num_classes: int, in_channels: int, width: int, blocks: tuple[int, int, int, int], zero_init: bool = False
    ) -> None:
        super().__init__()
        first, second, third, fourth = (width * EXPANSION * 2**stage for stage in range(4))
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        )
        self.stage1 = bottlenecks(width, first // EXPANSION, first, blocks[0], stride=1)
        self.stage2 = bottlenecks(first, second // EXPANSION, second, blocks[1], stride=2)
        self.stage3 = bottlenecks(second, third // EXPANSION, third, blocks[2], stride=2)
        self.stage4 = bottlenecks(third, fourth // EXPANSION, fourth, blocks[3], stride=2)
        self.head = nn.Linear(fourth, num_classes)
        start_convolutions(self)
        if zero_init:
            for module in self.modules():
                if isinstance(module, Bottleneck):
                    nn.init.zeros_(module.norm3.weight)
            nn.init.normal_(self.head.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.stage4(self.stage3(self.stage2(self.stage1(self.stem(x)))))
        logits: Tensor = self.head(z.mean((2, 3)))
        return logits


class ResNeXt(nn.Module):
    """A 3×3 stem with BN-ReLU, three stages of grouped bottlenecks ("type C"), the mean over all places, a linear head.

    ``width`` is the number of channels of the stem; a stage of ``planes`` = 1, 2, 4 times as many puts out 4·``planes`` and has
    ``cardinality`` groups of ⌊planes·``base_width``/64⌋ channels inside. Convolutions start from N(0, 2/(k²·outputs)), linear
    weights from N(0, 2/inputs), their biases at 0.
    """

    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")

    def __init__(self, num_classes: int, in_channels: int, *, width: int, blocks: int, cardinality: int, base_width: int) -> None:
        super().__init__()
        first, second, third = planes = (width, 2 * width, 4 * width)
        inner = [cardinality * (count * base_width // 64) for count in planes]
        self.stem = nn.Sequential(nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = bottlenecks(width, inner[0], EXPANSION * first, blocks, 1, cardinality)
        self.stage2 = bottlenecks(EXPANSION * first, inner[1], EXPANSION * second, blocks, 2, cardinality)
        self.stage3 = bottlenecks(EXPANSION * second, inner[2], EXPANSION * third, blocks, 2, cardinality)
        self.head = nn.Linear(EXPANSION * third, num_classes)
        start_convolutions(self)
        nn.init.kaiming_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.stage3(self.stage2(self.stage1(self.stem(x))))
        logits: Tensor = self.head(z.mean((2, 3)))
        return logits


class Bottleneck(nn.Module):
    """1×1, 3×3 with the stride (and the groups), 1×1, each with batch norm, beside a shortcut; ReLU after the sum.

    A projection (1×1 and batch norm) stands in the shortcut where the shape changes.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(x)
        z = relu(self.norm1(self.conv1(x)))
        z = relu(self.norm2(self.conv2(z)))
        return relu(shortcut + self.norm3(self.conv3(z)))


def bottlenecks(inputs: int, inner: int, outputs: int, blocks: int, stride: int, groups: int = 1) -> nn.Sequential:
    """One stage; the stride is that of its first block."""
    rest = (Bottleneck(outputs, inner, outputs, 1, groups) for _ in range(blocks - 1))
    return nn.Sequential(Bottleneck(inputs, inner, outputs, stride, groups), *rest)


def start_convolutions(net: nn.Module) -> None:
    """Draw the weights of all convolutions from N(0, 2/(k²·outputs)), outputs being those of all groups together."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
