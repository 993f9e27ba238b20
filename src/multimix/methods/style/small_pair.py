"""A small encoder and decoder that train in seconds, for small images and CPUs."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import mse_loss

from ...core.checks import check_number, check_whole
from ...core.sampling import make_generator
from ..base import NewNetwork
from .adain import StylePair, adain, resized


def small_style_pair(
    channels: int = 3, width: int = 16, *, generator: Generator | None = None
) -> StylePair:
    """Create an untrained pair whose features have half the side of the images.

    Args:
        channels: Channels of the images.
        width: Half the number of channels of the features.
        generator: A CPU generator for initial weights.

    Returns:
        The pair.
    """
    generator = make_generator(generator, same_on_all_ranks=True)

    def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
        options = {"stride": stride, "padding": 1, "padding_mode": "replicate", "device": "cpu"}
        # skip_init, because torch's initialization draws from the global stream.
        layer: nn.Module = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Conv2d, inputs, outputs, 3, **options
        )
        weight, bias = layer.parameters()
        nn.init.kaiming_normal_(weight, generator=generator)
        nn.init.zeros_(bias)
        return layer

    encoder = nn.Sequential(conv(channels, width), nn.ReLU(), conv(width, 2 * width, 2), nn.ReLU())
    decoder = nn.Sequential(
        conv(2 * width, width),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        conv(width, width),
        nn.ReLU(),
        conv(width, channels),
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
    """Train a :func:`small_style_pair`.

    For half of the steps, encoder and decoder learn to reconstruct images. Then the encoder is
    frozen, and the decoder also learns to reconstruct features in a partner's style:
    E(D(t)) ≈ t = AdaIN(f, f').

    Args:
        images: ``[N, C, H, W]``, floating point, N ≥ 2. If they are normalized, omit ``mean`` and
            ``std`` of the method.
        steps: Number of optimizer steps, at least 2.
        batch: Images per step.
        width: Half the number of channels of the features.
        rate: Learning rate of Adam.
        generator: A CPU generator for weights and batches.

    Returns:
        The pair, on the device of ``images``.

    Raises:
        ValueError: If ``images`` or ``steps`` is invalid.

    Example::

        StyleMix(k=5, pair=train_style_pair(x), side=None)
    """
    if images.ndim != 4 or len(images) < 2 or not images.is_floating_point():
        got = f"{images.dtype} {list(images.shape)}"
        raise ValueError(f"images must be at least 2, floating point, [N, C, H, W], got {got}")
    check_whole("steps", steps, 2)
    generator = make_generator(generator, same_on_all_ranks=True)
    pair = small_style_pair(images.shape[1], width, generator=generator)
    modules = nn.ModuleList([pair.encoder, pair.decoder]).to(images.device)
    images = images.detach().float()
    for stylize in (False, True):
        modules.requires_grad_(True)
        if stylize:
            pair.encoder.requires_grad_(False)
        weights = [weight for weight in modules.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(weights, lr=rate)
        shape = (2, min(batch, len(images)))
        for _ in range(steps // 2):
            index = torch.randint(len(images), shape, generator=generator, device="cpu")
            with torch.enable_grad():
                x, x_pair = images[index.to(images.device)].unbind(0)
                loss = _pair_loss(pair, x, x_pair, stylize)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return StylePair(pair.encoder, pair.decoder, pair.taps)


@dataclass(frozen=True)
class NewPair(NewNetwork):
    """The description of a pair that ``method.bind(model, images)`` trains on the images.

    Args:
        width: Half the number of channels of the features.
        steps: Number of optimizer steps, at least 2.
        batch: Images per step.
        rate: Learning rate of Adam.
    """

    width: int = 16
    steps: int = 300
    batch: int = 32
    rate: float = 5e-3

    def __post_init__(self) -> None:
        for name, minimum in (("width", 1), ("steps", 2), ("batch", 1)):
            check_whole(name, getattr(self, name), minimum)
        check_number("rate", self.rate, above=0)

    def make(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None,
        generator: Generator,
        learn: bool = True,
    ) -> StylePair:
        if not learn:
            pair = small_style_pair(images.shape[1], self.width, generator=generator)
            return pair.to(images.device)
        return train_style_pair(
            images,
            steps=self.steps,
            batch=self.batch,
            width=self.width,
            rate=self.rate,
            generator=generator,
        )


@dataclass(frozen=True)
class IdentityPair:
    """A pair whose features are the pixels, for tests."""

    def encode(self, x: Tensor) -> Tensor:
        """Return the images."""
        return x

    decode = encode


def _pair_loss(pair: StylePair, x: Tensor, x_pair: Tensor, stylize: bool) -> Tensor:
    """Compute reconstruction errors relative to variances, independent of scale."""
    features = pair.encode(x)
    loss = mse_loss(resized(pair.decode(features), x.shape[2:]), x) / _variance(x)
    if stylize:
        mixed = adain(features, pair.encode(x_pair))
        encoded = pair.encode(resized(pair.decode(mixed), x.shape[2:]))
        loss = loss + mse_loss(encoded, mixed) / _variance(mixed)
    return loss


def _variance(z: Tensor) -> Tensor:
    return z.detach().var(correction=0) + 1e-6
