"""A small encoder and decoder for pictures of StyleMix where no data is at hand."""

from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from ..core.sampling import make_generator, seeded
from ..methods.style.adain import StylePair
from ..methods.style.small_pair import train_style_pair


@dataclass(frozen=True)
class SketchPair:
    """A pair that needs no data: at first use it trains on synthetic images in [0, 1].

    Training takes seconds, once per process. The same options give the same pair.

    Args:
        channels: Channels of the images.
        side: Side of the synthetic images. The pair takes images of any size.
        width: Half the number of channels of the features.
        steps: Number of optimizer steps, at least 2.
        seed: Seed of images, weights and batches.
    """

    channels: int = 3
    side: int = 16
    width: int = 16
    steps: int = 600
    seed: int = 0

    def encode(self, x: Tensor) -> Tensor:
        """Return the features of images."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            shape = list(x.shape)
            raise ValueError(f"SketchPair needs images [B, {self.channels}, H, W], got {shape}")
        return self.trained(x.device).encode(x)

    def decode(self, features: Tensor) -> Tensor:
        """Return images from features."""
        return self.trained(features.device).decode(features)

    def layers(self, x: Tensor) -> list[Tensor]:
        """Return the features at the taps: see :meth:`.adain.StylePair.layers`."""
        return self.trained(x.device).layers(x)

    def trained(self, device: torch.device | str = "cpu") -> StylePair:
        """Return the trained pair on ``device``."""
        return _trained_sketch(self, str(device))


def sketch_images(count: int, channels: int, side: int, *, generator: Generator | None = None) -> Tensor:
    """Draw synthetic images: smooth or sharp shapes on plain or noisy backgrounds.

    Args:
        count: Number of images.
        channels: Channels.
        side: Height and width.
        generator: A CPU generator.

    Returns:
        ``[count, channels, side, side]`` in [0, 1].
    """
    generator = make_generator(generator)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cpu")

    coarse, fine = (interpolate(uniform(count, 1, n, n), (side, side), mode="bilinear") for n in (4, max(4, side // 2)))
    field = torch.lerp(coarse, fine, uniform(count, 1, 1, 1))
    shape = torch.sigmoid((5 + 40 * uniform(count, 1, 1, 1)) * (field - 0.5))
    background, color = uniform(2, count, channels, 1, 1)
    amplitude = 0.3 * uniform(count, 1, 1, 1) ** 2
    noise = amplitude * (uniform(count, channels, side, side) - 0.5)
    return (torch.lerp(background, color, shape) + noise).clamp(0, 1)


@lru_cache(maxsize=8)
def _trained_sketch(options: SketchPair, device: str) -> StylePair:
    if device != "cpu":
        pair = _trained_sketch(options, "cpu")
        return StylePair(deepcopy(pair.encoder), deepcopy(pair.decoder), pair.taps).to(device)
    generator = seeded(options.seed)
    with torch.inference_mode(False):
        images = sketch_images(512, options.channels, options.side, generator=generator)
        return train_style_pair(images, steps=options.steps, width=options.width, generator=generator)
