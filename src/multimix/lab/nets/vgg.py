"""VGG-11 with batch norm for spectrograms of one-second words, and a small sibling."""

from typing import ClassVar

from torch import Tensor, nn

PLACES = (5, 3)  # what five poolings leave of 161×101 and of 160×101


def vgg11(num_classes: int, *, in_channels: int = 1) -> "SpeechVGG":
    """Eight convolutions of 64 to 512 channels, 7,680 → 512 → classes: 13,172,894 parameters with 30 classes."""
    return SpeechVGG(num_classes, in_channels, (64, 128, 256, 512, 512))


def vgg11_small(num_classes: int, *, in_channels: int = 1) -> "SpeechVGG":
    """Eight convolutions of 4 to 32 channels, 480 → 32 → classes."""
    return SpeechVGG(num_classes, in_channels, (4, 8, 16, 32, 32))


class SpeechVGG(nn.Module):
    """3×3 convolutions (with bias, batch norm, ReLU) and max-pools after the 1st, 2nd, 4th, 6th and 8th; two linear layers.

    As in the public code for the Google commands nothing stands between the linear layers, neither ReLU nor dropout; that code's
    log-softmax is left to the loss. Start values are torch's. It flattens, so the size of the spectrograms is fixed.
    """

    # That code does not mix; counted as in the other networks, with the first convolution and its pooling as the stem.
    mix_layers: ClassVar[tuple[str | None, ...]] = (None, "stage1", "stage2")

    def __init__(self, num_classes: int, in_channels: int, widths: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        first, second, third, fourth, fifth = widths
        self.stem = _stage(in_channels, first)
        self.stage1 = _stage(first, second)
        self.stage2 = _stage(second, third, third)
        self.stage3 = _stage(third, fourth, fourth)
        self.stage4 = _stage(fourth, fifth, fifth)
        places = PLACES[0] * PLACES[1]
        self.head = nn.Sequential(nn.Linear(fifth * places, fifth), nn.Linear(fifth, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        # 96×160 would also leave 15 places, so the head alone would not notice.
        if (x.shape[-2] // 32, x.shape[-1] // 32) != PLACES:
            raise ValueError(f"x must be a batch of spectrograms of 161×101 or 160×101 values, got shape {list(x.shape)}")
        z: Tensor = self.stage4(self.stage3(self.stage2(self.stage1(self.stem(x)))))
        logits: Tensor = self.head(z.flatten(1))
        return logits


def _stage(inputs: int, *outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *outputs), outputs, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))
