"""The encoder and decoder of the AdaIN release: VGG-19 up to relu4_1 and its mirror image.

The weights are not part of this project; ``load_adain_pair`` reads the two published files.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from .adain import StylePair

Step = int | Literal["halve", "double"]

# Channels after each 3 × 3 convolution. Positions in the nn.Sequential match those in the files.
ENCODER: tuple[Step, ...] = (64, 64, "halve", 128, 128, "halve", 256, 256, 256, 256, "halve", 512)
DECODER: tuple[Step, ...] = (256, "double", 256, 256, 256, 128, "double", 128, 64, "double", 64, 3)
RELU_X_1 = (3, 10, 17, 30)
BEYOND_RELU_4_1 = 31
"""Position of the first unused VGG layer in the published file."""
MIN_SIDE = 9
"""Features of smaller images would have a side of 1, which reflection padding rejects."""


class SizeGate(nn.Conv2d):
    """The first layer, a 1 × 1 convolution that normalizes colors; rejects unsupported images."""

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[1] != 3 or min(input.shape[2:]) < MIN_SIDE:
            raise ValueError(
                f"the AdaIN encoder needs images [B, 3, H, W] of at least {MIN_SIDE} pixels a "
                f"side, got {list(input.shape)}: pass side=224 for small images, "
                "x.expand(-1, 3, -1, -1) for gray ones"
            )
        return super().forward(input)


def adain_encoder() -> nn.Sequential:
    """Create VGG-19 up to relu4_1 with reflection padding, without initialized weights.

    Returns:
        A module that maps ``[B, 3, H, W]`` in [0, 1] to ``[B, 512, ⌈H/8⌉, ⌈W/8⌉]``.
    """
    with torch.device("cpu"):
        return nn.Sequential(_unset(SizeGate, 3, 3, 1), *_layers(3, ENCODER))


def adain_decoder() -> nn.Sequential:
    """Create the decoder, without initialized weights.

    Returns:
        A module that maps ``[B, 512, h, w]`` to ``[B, 3, 8h, 8w]``, not clamped.
    """
    with torch.device("cpu"):
        return nn.Sequential(*_layers(512, DECODER)[:-1])


def load_adain_pair(encoder: str | Path, decoder: str | Path) -> StylePair:
    """Load the published AdaIN weights as a style pair.

    Args:
        encoder: Path of ``vgg_normalised.pth``.
        decoder: Path of ``decoder.pth``.

    Returns:
        The pair on the CPU.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is damaged, unsafe to load, or holds other weights.

    Example::

        StyleMix(k=5, pair=load_adain_pair("vgg_normalised.pth", "decoder.pth"))
    """
    pair = StylePair(adain_encoder(), adain_decoder(), taps=RELU_X_1)
    _load(pair.encoder, encoder, "encoder")
    _load(pair.decoder, decoder, "decoder")
    return pair


def _layers(channels: int, steps: tuple[Step, ...]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for step in steps:
        if step == "halve":
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        elif step == "double":
            layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
        else:
            assert isinstance(step, int)
            layers += [nn.ReflectionPad2d(1), _unset(nn.Conv2d, channels, step, 3), nn.ReLU()]
            channels = step
    return layers


def _unset(kind: type[nn.Conv2d], *sizes: int) -> nn.Module:
    layer: nn.Module = nn.utils.skip_init(kind, *sizes)  # type: ignore[no-untyped-call]
    return layer


def _load(module: nn.Module, path: str | Path, name: str) -> None:
    """Load the weights in a file, without those of layers beyond relu4_1."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{name} weights: no file {path}")
    try:
        # weights_only rejects files that would run code.
        state = torch.load(path, map_location="cpu", weights_only=True)
        if name == "encoder":
            state = {key: state[key] for key in state if _position(key) < BEYOND_RELU_4_1}
        for key, value in state.items():
            if not _is_dense(value) or not bool(value.isfinite().all()):
                raise TypeError(f"{key} must be a dense tensor of finite floating-point numbers")
        module.load_state_dict(state)
    except Exception as error:  # torch raises almost any type on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name} weights in {path} cannot be loaded: {reason}") from error


def _is_dense(value: object) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return value.layout == torch.strided and value.is_cpu


def _position(key: str) -> int:
    first = key.partition(".")[0]
    return int(first) if first.isdecimal() else -1
