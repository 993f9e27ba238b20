"""A small pair of an encoder and a decoder, trained in seconds on the images at hand: for tests, small images and CPUs."""

from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import interpolate, mse_loss

from ...checks import check_number, check_whole
from ...sampling import resolved, seeded
from ..base import NewNetwork
from .adain import StylePair, adain


def small_style_pair(channels: int = 3, width: int = 16, *, generator: Generator | None = None) -> StylePair:
    """An untrained pair for small images and CPUs: features of half the side, with ``2 · width`` channels."""
    generator = resolved(generator, ranks_alike=True)

    def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
        options = {"stride": stride, "padding": 1, "padding_mode": "replicate", "device": "cpu"}
        made: nn.Module = nn.utils.skip_init(nn.Conv2d, inputs, outputs, 3, **options)  # type: ignore[no-untyped-call]
        weight, bias = made.parameters()
        nn.init.kaiming_normal_(weight, generator=generator)  # torch's own start would move its global stream
        nn.init.zeros_(bias)
        return made

    encoder = nn.Sequential(conv(channels, width), nn.ReLU(), conv(width, 2 * width, 2), nn.ReLU())
    decoder = nn.Sequential(
        conv(2 * width, width), nn.ReLU(), nn.Upsample(scale_factor=2), conv(width, width), nn.ReLU(), conv(width, channels)
    )
    return StylePair(encoder, decoder, taps=(1, 3))


def train_style_pair(
    images: Tensor,
    *,
    steps: int = 300,
    batch: int = 32,
    width: int = 16,
    rate: float = 5e-3,
    generator: Generator | None = None,
) -> StylePair:
    """A :func:`small_style_pair` trained on ``images [N, C, H, W]``: seconds for small ones.

    It takes images in the range of these: train it on normalised ones, and the methods need no ``mean`` and ``std``.

    For half of the steps encoder and decoder learn to give images back; then the encoder stays, and the decoder learns to give
    features in a partner's style back, too: E(D(t)) ≈ t = AdaIN(f, f').
    """
    if images.ndim != 4 or len(images) < 2 or not images.is_floating_point():
        raise ValueError(f"images must be at least 2, floating point, [N, C, H, W], got {images.dtype} {list(images.shape)}")
    if steps < 2 or batch < 1:
        raise ValueError(f"steps must be at least 2 and batch at least 1, got {steps} and {batch}")
    generator = resolved(generator, ranks_alike=True)
    pair = small_style_pair(images.shape[1], width, generator=generator)
    modules = nn.ModuleList([pair.encoder, pair.decoder]).to(images.device)
    images = images.detach().float()
    for stylise in (False, True):
        modules.requires_grad_(True)
        if stylise:
            pair.encoder.requires_grad_(False)
        optimiser = torch.optim.Adam([p for p in modules.parameters() if p.requires_grad], lr=rate)
        for _ in range(steps // 2):
            drawn = torch.randint(len(images), (2, min(batch, len(images))), generator=generator, device="cpu")
            with torch.enable_grad():
                x, x_pair = images[drawn.to(images.device)].unbind(0)
                loss = _pair_loss(pair, x, x_pair, stylise)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return StylePair(pair.encoder, pair.decoder, pair.taps)


@dataclass(frozen=True)
class NewPair(NewNetwork):
    """A pair still to be made: :func:`train_style_pair` on the images at hand, with these options."""

    width: int = 16
    steps: int = 300
    batch: int = 32
    rate: float = 5e-3

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("steps", 2), ("batch", 1)):
            check_whole(name, getattr(self, name), least)
        check_number("rate", self.rate, above=0)

    def make(
        self, model: nn.Module, images: Tensor, *, updates: int | None, generator: Generator, learn: bool = True
    ) -> StylePair:
        if not learn:
            return small_style_pair(images.shape[1], self.width, generator=generator).to(images.device)
        return train_style_pair(images, steps=self.steps, batch=self.batch, width=self.width, rate=self.rate, generator=generator)


@dataclass(frozen=True)
class IdentityPair:
    """Features are the pixels. For tests and examples."""

    def encode(self, x: Tensor) -> Tensor:
        """The images themselves."""
        return x

    decode = encode


@dataclass(frozen=True)
class SketchPair:
    """A pair that needs no data: trained on made-up images in 0 … 1 when it is first used, once per process, in seconds.

    It takes images of any size; ``side`` is that of the made-up ones. The same options give the same pair.
    """

    channels: int = 3
    side: int = 16
    width: int = 16
    steps: int = 600
    seed: int = 0

    def encode(self, x: Tensor) -> Tensor:
        """Features of images."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(f"SketchPair(channels={self.channels}) takes images [B, {self.channels}, H, W], got {list(x.shape)}")
        return self.trained(x.device).encode(x)

    def decode(self, features: Tensor) -> Tensor:
        """Images from features."""
        return self.trained(features.device).decode(features)

    def layers(self, x: Tensor) -> list[Tensor]:
        """Features where styles are compared."""
        return self.trained(x.device).layers(x)

    def trained(self, device: torch.device | str = "cpu") -> StylePair:
        """The pair itself, on ``device``."""
        return _trained_sketch(self, str(device))


def made_up_images(count: int, channels: int, side: int, *, generator: Generator | None = None) -> Tensor:
    """``[count, channels, side, side]`` in 0 … 1: smooth shapes, some with sharp edges, on plain grounds, some of them rough."""
    generator = resolved(generator)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cpu")

    coarse, fine = (interpolate(drawn(count, 1, n, n), (side, side), mode="bilinear") for n in (4, max(4, side // 2)))
    field = torch.lerp(coarse, fine, drawn(count, 1, 1, 1))
    shape = torch.sigmoid((5 + 40 * drawn(count, 1, 1, 1)) * (field - 0.5))
    ground, colour = drawn(2, count, channels, 1, 1)
    rough = 0.3 * drawn(count, 1, 1, 1) ** 2 * (drawn(count, channels, side, side) - 0.5)
    return (torch.lerp(ground, colour, shape) + rough).clamp(0, 1)


@lru_cache(maxsize=8)
def _trained_sketch(options: SketchPair, device: str) -> StylePair:
    if device != "cpu":
        home = _trained_sketch(options, "cpu")
        return StylePair(deepcopy(home.encoder), deepcopy(home.decoder), home.taps).to(device)
    generator = seeded(options.seed)
    with torch.inference_mode(False):
        images = made_up_images(512, options.channels, options.side, generator=generator)
        return train_style_pair(images, steps=options.steps, width=options.width, generator=generator)


def _pair_loss(pair: StylePair, x: Tensor, x_pair: Tensor, stylise: bool) -> Tensor:
    """Each term in units of the variance it can explain: neither the range of images nor the scale of features matters."""
    features = pair.encode(x)
    loss = mse_loss(_fitted(pair.decode(features), x), x) / _variance(x)
    if stylise:
        mixed = adain(features, pair.encode(x_pair))
        loss = loss + mse_loss(pair.encode(_fitted(pair.decode(mixed), x)), mixed) / _variance(mixed)
    return loss


def _variance(z: Tensor) -> Tensor:
    return z.detach().var(correction=0) + 1e-6


def _fitted(images: Tensor, x: Tensor) -> Tensor:
    return images if images.shape == x.shape else interpolate(images, x.shape[2:], mode="bilinear", align_corners=False)
