"""Residual networks, and a small sibling of each: PreActResNet18 as the code of manifold mixup, puzzle mix and co-mixup has it,
WRN-16-8 and ResNeXt-29 4×24 as that of co-mixup, and ResNet-50 in its usual form ("v1.5": the stride sits on the 3×3).
"""

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

EXPANSION = 4


def preact_resnet18(num_classes: int, *, in_channels: int = 3, stem_stride: int = 1, final_norm: bool = False) -> "PreActResNet":
    """Two blocks in each of four stages of 64, 128, 256 and 512 channels: 11,217,316 parameters with 100 classes."""
    return PreActResNet(num_classes, in_channels, (64, 128, 256, 512), 2, stem_stride, final_norm)


def preact_resnet18_small(
    num_classes: int, *, in_channels: int = 3, stem_stride: int = 1, final_norm: bool = False
) -> "PreActResNet":
    """One block in each of four stages of 16, 32, 64 and 128 channels."""
    return PreActResNet(num_classes, in_channels, (16, 32, 64, 128), 1, stem_stride, final_norm)


def wrn16_8(num_classes: int, *, in_channels: int = 3, bias: bool = True) -> "WideResNet":
    """Two blocks in each of three stages of 128, 256 and 512 channels: 11,012,036 parameters with 100 classes."""
    return WideResNet(num_classes, in_channels, (128, 256, 512), 2, bias)


def wrn16_8_small(num_classes: int, *, in_channels: int = 3, bias: bool = True) -> "WideResNet":
    """WRN-10-1: one block in each of three stages of 16, 32 and 64 channels."""
    return WideResNet(num_classes, in_channels, (16, 32, 64), 1, bias)


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


class Staged(nn.Module):
    """``stem``, ``stage1``, ``stage2``, … one after the other, perhaps a last activation, the mean over all places, ``head``."""

    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")
    stem: nn.Module
    head: nn.Linear

    def add_stage(self, number: int, block: type[nn.Module], inputs: int, outputs: int, blocks: int, *options: Any) -> None:
        """Stage ``number`` of ``blocks`` blocks; the first block of all stages but stage 1 has stride 2."""
        layers = (block(outputs if i else inputs, outputs, 2 if i == 0 and number > 1 else 1, *options) for i in range(blocks))
        self.add_module(f"stage{number}", nn.Sequential(*layers))

    def activate(self, z: Tensor) -> Tensor:
        """What comes between the last stage and the mean."""
        return z

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.stem(x)
        for name, stage in self.named_children():
            if name.startswith("stage"):
                z = stage(z)
        logits: Tensor = self.head(self.activate(z).mean((2, 3)))
        return logits


class PreActResNet(Staged):
    """A bare 3×3 stem, four stages with strides 1, 2, 2, 2, the mean over all places, a linear head; torch's start values.

    The reference pools what the last stage puts out as it is; ``final_norm`` puts the BN-ReLU of He et al. in between.
    With ``stem_stride=2`` the 64×64 images of Tiny-ImageNet have maps of the same sizes as 32×32 ones.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        widths: tuple[int, int, int, int],
        blocks: int,
        stem_stride: int = 1,
        final_norm: bool = False,
    ) -> None:
        super().__init__()
        if stem_stride < 1:
            raise ValueError(f"stem_stride must be at least 1, got {stem_stride}")
        self.stem = nn.Conv2d(in_channels, widths[0], 3, stem_stride, padding=1, bias=False)
        for number, (inputs, outputs) in enumerate(zip((widths[0], *widths), widths, strict=False), start=1):
            self.add_stage(number, PreActBlock, inputs, outputs, blocks)
        self.norm = nn.BatchNorm2d(widths[-1]) if final_norm else None
        self.head = nn.Linear(widths[-1], num_classes)

    def activate(self, z: Tensor) -> Tensor:
        return z if self.norm is None else relu(self.norm(z))


class WideResNet(Staged):
    """A bare 3×3 stem of 16 channels, three stages with strides 1, 2, 2, BN-ReLU, the mean over all places, a linear head.

    Start values are torch's. All convolutions have a bias in the reference; the original network has none (``bias=False``).
    """

    def __init__(self, num_classes: int, in_channels: int, widths: tuple[int, int, int], blocks: int, bias: bool = True) -> None:
        super().__init__()
        stem = 16
        self.stem = nn.Conv2d(in_channels, stem, 3, padding=1, bias=bias)
        for number, (inputs, outputs) in enumerate(zip((stem, *widths), widths, strict=False), start=1):
            self.add_stage(number, WideBlock, inputs, outputs, blocks, bias)
        # 0.9 is what the reference passes to torch, where it is the weight of the new batch: the running statistics of this
        # one layer are nearly those of the last batch. (Elsewhere momentum is the weight of the old value; it may be a slip.)
        self.norm = nn.BatchNorm2d(widths[-1], momentum=0.9)
        self.relu = nn.ReLU()  # a layer, so that what the head is given the mean of has a name
        self.head = nn.Linear(widths[-1], num_classes)

    def activate(self, z: Tensor) -> Tensor:
        activated: Tensor = self.relu(self.norm(z))
        return activated


class ResNet(Staged):
    """A 7×7 stem and a max-pool that leave a quarter of the side, four stages, the mean over all places, a linear head.

    ``width`` is the number of channels of the stem and inside the first stage. Convolutions start from N(0, 2/(k²·outputs)).
    ``zero_init`` is the start of the fast ImageNet recipe: every block begins as its shortcut (its last batch norm has scale 0),
    and the linear weights are N(0, 0.01²).
    """

    def __init__(
        self, num_classes: int, in_channels: int, width: int, blocks: tuple[int, int, int, int], zero_init: bool = False
    ) -> None:
        super().__init__()
        stem = nn.Conv2d(in_channels, width, 7, 2, padding=3, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        inputs = width
        for number, count in enumerate(blocks, start=1):
            inner = width * 2 ** (number - 1)
            self.add_stage(number, Bottleneck, inputs, EXPANSION * inner, count, inner)
            inputs = EXPANSION * inner
        self.head = nn.Linear(inputs, num_classes)
        _start_convolutions(self)
        if zero_init:
            for module in self.modules():
                if isinstance(module, Bottleneck):
                    nn.init.zeros_(module.norm3.weight)
            nn.init.normal_(self.head.weight, std=0.01)


class ResNeXt(Staged):
    """A 3×3 stem with BN-ReLU, three stages of grouped bottlenecks ("type C"), the mean over all places, a linear head.

    ``width`` is the number of channels of the stem; a stage of ``planes`` = 1, 2, 4 times as many puts out 4·``planes`` and has
    ``cardinality`` groups of ⌊planes·``base_width``/64⌋ channels inside. Convolutions start from N(0, 2/(k²·outputs)), linear
    weights from N(0, 2/inputs), their biases at 0.
    """

    def __init__(self, num_classes: int, in_channels: int, *, width: int, blocks: int, cardinality: int, base_width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        inputs = width
        for number, planes in enumerate((width, 2 * width, 4 * width), start=1):
            inner = cardinality * (planes * base_width // 64)
            self.add_stage(number, Bottleneck, inputs, EXPANSION * planes, blocks, inner, cardinality)
            inputs = EXPANSION * planes
        self.head = nn.Linear(inputs, num_classes)
        _start_convolutions(self)
        nn.init.kaiming_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class PreActBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-conv beside a shortcut; the stride sits on the first convolution.

    A projection (1×1, no batch norm) takes the activated input; where the shape stays, the raw input is added.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        projected = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if projected else None

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = relu(self.norm1(x))
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(z)
        z = self.conv2(relu(self.norm2(self.conv1(z))))
        return shortcut + z


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


class Bottleneck(nn.Module):
    """1×1, 3×3 with the stride (and the groups), 1×1, each with batch norm, beside a shortcut; ReLU after the sum.

    A projection (1×1 and batch norm) stands in the shortcut where the shape changes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, inner: int, groups: int = 1) -> None:
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


def _start_convolutions(net: nn.Module) -> None:
    """Draw the weights of all convolutions from N(0, 2/(k²·outputs)), outputs being those of all groups together."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
