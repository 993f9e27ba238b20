"""The encoder and decoder of the AdaIN release: VGG-19 up to relu4_1 and its mirror image, with a loader for their weights.

The weights are those of another project and not part of this one; ``load_adain_pair`` reads its two state-dict files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from .adain import StylePair

Step = int | Literal["halve", "double"]

# Channels after each 3 × 3 convolution. Positions in the nn.Sequential below are those of the published files.
ENCODER: tuple[Step, ...] = (64, 64, "halve", 128, 128, "halve", 256, 256, 256, 256, "halve", 512)
DECODER: tuple[Step, ...] = (256, "double", 256, 256, 256, 128, "double", 128, 64, "double", 64, 3)
RELU_X_1 = (3, 10, 17, 30)
LEAST_SIDE = 9  # below, the last features have a side of 1, which cannot be reflected


class SizeGate(nn.Conv2d):
    """The first layer of the encoder, a 1 × 1 convolution that normalises colours; it refuses images VGG cannot take."""

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[1] != 3 or min(input.shape[2:]) < LEAST_SIDE:
            raise ValueError(
                f"the AdaIN encoder needs images [B, 3, H, W] of at least {LEAST_SIDE} pixels a side, got {list(input.shape)}; "
                "side=224 makes small ones large, x.expand(-1, 3, -1, -1) gives grey ones colours"
            )
        return super().forward(input)


def adain_encoder() -> nn.Sequential:
    """VGG-19 up to relu4_1, with reflected borders: ``[B, 3, H, W]`` in 0 … 1 → ``[B, 512, ⌈H/8⌉, ⌈W/8⌉]``. Weights are unset."""
    with torch.device("cpu"):
        return nn.Sequential(_unset(SizeGate, 3, 3, 1), *_layers(3, ENCODER))


def adain_decoder() -> nn.Sequential:
    """``[B, 512, h, w]`` → ``[B, 3, 8h, 8w]``; nothing bounds the colours. Weights are unset."""
    with torch.device("cpu"):
        return nn.Sequential(*_layers(512, DECODER)[:-1])


def load_adain_pair(encoder: str | Path, decoder: str | Path) -> StylePair:
    """The pair with the weights of two files: the published ``vgg_normalised.pth`` and ``decoder.pth``.

    Layers of VGG beyond relu4_1, which the first file holds as well, are left out.
    """
    made = StylePair(adain_encoder(), adain_decoder(), taps=RELU_X_1)
    _fill(made.encoder, encoder, "encoder", beyond=31)
    _fill(made.decoder, decoder, "decoder")
    return made


def _layers(channels: int, steps: tuple[Step, ...]) -> list[nn.Module]:
    made: list[nn.Module] = []
    for step in steps:
        if step == "halve":
            made.append(nn.MaxPool2d(2, ceil_mode=True))
        elif step == "double":
            made.append(nn.Upsample(scale_factor=2, mode="nearest"))
        else:
            assert isinstance(step, int)
            made += [nn.ReflectionPad2d(1), _unset(nn.Conv2d, channels, step, 3), nn.ReLU()]
            channels = step
    return made


def _unset(kind: type[nn.Conv2d], *sizes: int) -> nn.Module:
    made: nn.Module = nn.utils.skip_init(kind, *sizes)  # type: ignore[no-untyped-call]
    return made


def _fill(module: nn.Module, path: str | Path, name: str, beyond: int | None = None) -> None:
    """The weights in ``path`` copied into ``module``, or an error; layers from position ``beyond`` on are not wanted."""
    held = _state(path, name)
    if beyond is not None:
        held = {key: value for key, value in held.items() if not _position(key) >= beyond}
    wanted = module.state_dict()
    for what, keys in (("lacks", wanted.keys() - held.keys()), ("also has", held.keys() - wanted.keys())):
        if keys:
            raise ValueError(f"{name} weights in {path} do not fit: the file {what} {', '.join(sorted(keys)[:5])}")
    for key, value in wanted.items():
        if held[key].shape != value.shape:
            raise ValueError(f"{name} weights in {path} do not fit: {key} is {list(held[key].shape)}, not {list(value.shape)}")
        if not bool(held[key].isfinite().all()):
            raise ValueError(f"{name} weights in {path} must be finite, {key} holds NaN or infinity")
    module.load_state_dict(held)


def _state(path: str | Path, name: str) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{name} weights: no file {path}")
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)  # a file that would run code is refused
    except Exception as error:  # on damaged files torch raises almost anything, from struct.error to AssertionError
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{name} weights in {path} are not a state dict that loads safely: {reason}") from error
    if not isinstance(held, Mapping) or not all(map(_is_plain, held.values())):
        raise ValueError(f"{name} weights in {path} must be a state dict of plain tensors, got {type(held).__name__}")
    return {str(key): value for key, value in held.items()}


def _is_plain(value: object) -> bool:
    """Whether it is a tensor of numbers in memory; sparse, quantised and empty shells of tensors are not."""
    return (
        isinstance(value, Tensor) and value.layout == torch.strided and value.is_floating_point() and value.device.type == "cpu"
    )


def _position(key: str) -> int:
    first = key.partition(".")[0]
    return int(first) if first.isdecimal() else -1
