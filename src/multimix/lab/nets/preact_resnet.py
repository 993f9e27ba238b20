"""PreActResNet18 as the code of manifold mixup, puzzle mix and co-mixup has it, and a small sibling."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu


def preact_resnet18(num_classes: int, *, in_channels: int = 3, stem_stride: int = 1, final_norm: bool = False) -> "PreActResNet":
    """Two blocks in each of four stages of 64, 128, 256 and 512 channels: 11,217,316 parameters with 100 classes."""
    return PreActResNet(num_classes, in_channels, (64, 128, 256, 512), 2, stem_stride, final_norm)


def preact_resnet18_small(
    num_classes: int, *, in_channels: int = 3, stem_stride: int = 1, final_norm: bool = False
) -> "PreActResNet":
    """One block in each of four stages of 16, 32, 64 and 128 channels."""
    return PreActResNet(num_classes, in_channels, (16, 32, 64, 128), 1, stem_stride, final_norm)


class PreActResNet(nn.Module):
    """A bare 3×3 stem, four stages with strides 1, 2, 2, 2, the mean over all places, a linear head; torch's start values.

    The reference pools what the last stage puts out as it is; ``final_norm`` puts the BN-ReLU of He et al. in between.
    With ``stem_stride=2`` the 64×64 images of Tiny-ImageNet have maps of the same sizes as 32×32 ones.
    """

    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")

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
        first, second, third, fourth = widths
        self.stem = nn.Conv2d(in_channels, first, 3, stem_stride, padding=1, bias=False)
        self.stage1 = _stage(first, first, blocks, stride=1)
        self.stage2 = _stage(first, second, blocks, stride=2)
        self.stage3 = _stage(second, third, blocks, stride=2)
        self.stage4 = _stage(third, fourth, blocks, stride=2)
        self.norm = nn.BatchNorm2d(fourth) if final_norm else None
        self.head = nn.Linear(fourth, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.stage4(self.stage3(self.stage2(self.stage1(self.stem(x)))))
        if self.norm is not None:
            z = relu(self.norm(z))
        logits: Tensor = self.head(z.mean((2, 3)))
        return logits


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


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    return nn.Sequential(PreActBlock(inputs, outputs, stride), *(PreActBlock(outputs, outputs) for _ in range(blocks - 1)))
