"""ResNeXt-29 4×24 for small images as the code of co-mixup has it, and a small sibling."""

from typing import ClassVar

from torch import Tensor, nn

from .resnet import EXPANSION, bottlenecks, start_convolutions


def resnext29_4_24(num_classes: int, *, in_channels: int = 3) -> "ResNeXt":
    """Three stages of three blocks, 256, 512 and 1,024 channels, 4 groups of 24: 4,937,252 parameters with 100 classes."""
    return ResNeXt(num_classes, in_channels, width=64, blocks=3, cardinality=4, base_width=24)


def resnext29_4_24_small(num_classes: int, *, in_channels: int = 3) -> "ResNeXt":
    """Three stages of one block, 32, 64 and 128 channels, 4 groups of 4."""
    return ResNeXt(num_classes, in_channels, width=8, blocks=1, cardinality=4, base_width=32)


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
