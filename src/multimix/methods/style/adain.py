"""Content and style of images: AdaIN, pairs of an encoder and a decoder, and how far apart the styles of classes lie.

Style is the mean and the deviation of every channel of an encoder's features, content is what is left of them.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...checks import per_channel
from ...precision import float32_or_better, full_precision
from ..base import NewNetwork

EPS = 1e-5
SAME_CLASS = 2.0  # what the authors add to the distance of a class from itself, which would be 0


@runtime_checkable
class EncoderDecoder(Protocol):
    """Anything that turns images ``[B, C, H, W]`` into features ``[B, F, h, w]`` and features into images."""

    def encode(self, x: Tensor) -> Tensor: ...

    def decode(self, features: Tensor) -> Tensor: ...


def style_of(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation ``[B, F, 1, 1]`` of every channel: √(unbiased variance + 1e−5)."""
    # A single place has no unbiased variance; its deviation is that of something constant.
    correction = 1 if features.shape[2:].numel() > 1 else 0
    variance, mean = torch.var_mean(features, dim=(2, 3), correction=correction, keepdim=True)
    return mean, (variance + EPS).sqrt()


def adain(content: Tensor, style: Tensor) -> Tensor:
    """σ(g) (f − μ(f)) / σ(f) + μ(g): the features f = ``content`` with the channel statistics of g = ``style``."""
    mean, deviation = style_of(content)
    new_mean, new_deviation = style_of(style)
    return (content - mean) / deviation * new_deviation + new_mean


class StylePair:
    """An encoder and a decoder as one frozen pair. Both modules are put into eval mode and their weights ask for no gradient.

    ``taps`` are positions in an encoder that is an ``nn.Sequential``: after these layers, styles are compared (:meth:`layers`).
    Images are in 0 … 1.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, taps: tuple[int, ...] = ()) -> None:
        for name, module in (("encoder", encoder), ("decoder", decoder)):
            if not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be a torch.nn.Module, got {type(module).__name__}")
        if taps and not (isinstance(encoder, nn.Sequential) and all(0 <= tap < len(encoder) for tap in taps)):
            raise ValueError(f"taps must be positions in an encoder that is an nn.Sequential, got {taps!r}")
        self.encoder = encoder.eval().requires_grad_(False)
        self.decoder = decoder.eval().requires_grad_(False)
        self.taps = tuple(taps)

    def encode(self, x: Tensor) -> Tensor:
        """Features of images."""
        features: Tensor = self.encoder(self._fitting(x, self.encoder))
        return features

    def decode(self, features: Tensor) -> Tensor:
        """Images from features; of another size than those encoded where the encoder rounds sizes."""
        images: Tensor = self.decoder(self._fitting(features, self.decoder))
        return images

    def layers(self, x: Tensor) -> list[Tensor]:
        """Features after each of ``taps``; those of :meth:`encode` if there are none."""
        if not self.taps:
            return [self.encode(x)]
        assert isinstance(self.encoder, nn.Sequential)
        found, z = [], self._fitting(x, self.encoder)
        for position, layer in enumerate(self.encoder):
            z = layer(z)
            if position in self.taps:
                found.append(z)
        return found

    def to(self, device: torch.device | str) -> "StylePair":
        """A pair with the weights on ``device``; these modules themselves are moved, as ``nn.Module.to`` does."""
        return StylePair(self.encoder.to(device), self.decoder.to(device), self.taps)

    @cached_property
    def digest(self) -> str:
        """Sixteen characters that stand for all weights."""
        whole = hashlib.sha256()
        for module in (self.encoder, self.decoder):
            for name, value in module.state_dict().items():
                whole.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                whole.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return whole.hexdigest()[:16]

    def __repr__(self) -> str:
        # By its weights and not by its place in memory: results are filed under what a method says about itself.
        return f"StylePair({type(self.encoder).__name__}, {type(self.decoder).__name__}, weights {self.digest})"

    @staticmethod
    def _fitting(z: Tensor, module: nn.Module) -> Tensor:
        weight = next(module.parameters(), None)
        if weight is None:
            return z
        if weight.device != z.device:
            raise ValueError(f"x is on {z.device}, the style pair on {weight.device}: move one of them with .to(device)")
        return z.to(weight.dtype)


def check_pair(pair: Any) -> None:
    """Raise ValueError unless ``pair`` can encode and decode, and is not in training mode; or is still to be made."""
    if isinstance(pair, type) or not isinstance(pair, EncoderDecoder | NewNetwork):
        raise TypeError(
            "pair must have encode(x) and decode(features), such as multimix.methods.style.adain.StylePair(encoder, decoder), "
            f"got {type(pair).__name__}"
        )
    modules = (pair.encoder, pair.decoder) if isinstance(pair, StylePair) else (pair,)
    if any(isinstance(module, nn.Module) and module.training for module in modules):
        raise ValueError("pair must be in eval mode, got a module in training mode: call eval() on it first")


@dataclass(frozen=True, kw_only=True)
class StyleSpace:
    """A pair as normalised images of any size see it: x · ``std`` + ``mean`` and a shorter side of ``side`` on the way in.

    What comes out is normalised and resized back. ``side`` None keeps the size. ``clamp`` cuts decoded images to 0 … 1 first.
    """

    pair: EncoderDecoder
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    side: int | None = None
    clamp: bool = False

    def encode(self, x: Tensor) -> Tensor:
        """Features of ``x [B, C, H, W]``, in float32 or better, without a gradient."""
        with torch.no_grad(), full_precision(x):
            features = self.pair.encode(self.inward(float32_or_better(x.detach())))
            if features.ndim != 4 or len(features) != len(x):
                raise ValueError(f"pair.encode must return features [{len(x)}, F, h, w] here, got {list(features.shape)}")
            return float32_or_better(features)

    def decode(self, features: Tensor, like: Tensor) -> Tensor:
        """Images of the size and normalisation of ``like [B, C, H, W]``, in the precision of ``features``, without a gradient."""
        with torch.no_grad(), full_precision(like):
            images = self.pair.decode(features)
            if images.ndim != 4 or images.shape[:2] != (len(features), like.shape[1]):
                wanted = f"[{len(features)}, {like.shape[1]}, H, W]"
                raise ValueError(f"pair.decode must return images {wanted} here, got {list(images.shape)}")
            images = float32_or_better(images).to(float32_or_better(like.detach()).dtype)
            images = images.clamp(0, 1) if self.clamp else images
            if images.shape[2:] != like.shape[2:]:
                images = interpolate(images, like.shape[2:], mode="bilinear", align_corners=False)
            mean, std = (per_channel(name, getattr(self, name), like).to(images.dtype) for name in ("mean", "std"))
            return (images - mean) / std

    def styles(self, x: Tensor) -> Tensor:
        """``[B, S]``: means and deviations of all channels at the layers where the pair compares styles."""
        with torch.no_grad(), full_precision(x):
            inward = self.inward(float32_or_better(x.detach()))
            found = self.pair.layers(inward) if hasattr(self.pair, "layers") else [self.pair.encode(inward)]
            return torch.cat([part.flatten(1) for layer in found for part in style_of(float32_or_better(layer))], dim=1)

    def inward(self, x: Tensor) -> Tensor:
        """``x [B, C, H, W]`` as the pair is given it."""
        mean, std = (per_channel(name, getattr(self, name), x).to(x.dtype) for name in ("mean", "std"))
        x = x * std + mean
        if self.side is None:
            return x
        height, width = x.shape[2:]
        scale = self.side / min(height, width)
        size = (round(height * scale), round(width * scale))
        return x if size == (height, width) else interpolate(x, size, mode="bilinear", align_corners=False)


class ClassDistances:
    """``values [C, C]``: how far apart the styles of two classes are. Compared and shown by its content."""

    def __init__(self, values: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise TypeError(f"distances must be a torch.Tensor [C, C], got {type(values).__name__}")
        values = torch.as_tensor(values).detach().to("cpu", torch.float64)
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not bool((values >= 0).all() & values.isfinite().all()):
            raise ValueError(f"distances must be [C, C], finite and at least 0, got shape {list(values.shape)}")
        self.values = values

    def between(self, label: Tensor, label_pair: Tensor) -> Tensor:
        """``[B]``: distances of the classes of two rows of labels; between probabilities ``[B, C]`` the mean distance."""
        label, label_pair = label.cpu(), label_pair.cpu()
        if label.ndim == 1 and not label.is_floating_point():
            if not 0 <= int(label.min()) <= int(label.max()) < len(self.values):
                raise ValueError(f"label must lie in 0 … {len(self.values) - 1}, the classes of distances, got {label.tolist()}")
            return self.values[label.long(), label_pair.long()]
        if label.ndim != 2 or label.shape[1] != len(self.values):
            raise ValueError(f"label must be class indices [B] or rows [B, {len(self.values)}], got {list(label.shape)}")
        return ((label.double() @ self.values) * label_pair.double()).sum(1)

    @cached_property
    def digest(self) -> str:
        """Sixteen characters that stand for all distances."""
        return hashlib.sha256(self.values.contiguous().numpy().tobytes()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassDistances) and torch.equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"ClassDistances({len(self.values)} classes, {self.digest})"


def class_distances(
    space: StyleSpace, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int, same_class: float = SAME_CLASS
) -> ClassDistances:
    """Mean squared differences between the mean styles of classes, over ``batches`` of (x, label).

    ``same_class`` is added on the diagonal. Every image counts, however often its class occurs in a batch.
    """
    total: Tensor | None = None
    count = torch.zeros(num_classes, dtype=torch.float64, device="cpu")
    for x, label in batches:
        if label.ndim != 1 or label.is_floating_point() or not 0 <= int(label.min()) <= int(label.max()) < num_classes:
            raise ValueError(f"labels must be class indices in 0 … {num_classes - 1}, got {label.tolist()}")
        styles = space.styles(x).double().cpu()
        total = styles.new_zeros(num_classes, styles.shape[1]) if total is None else total
        total.index_add_(0, label.long().cpu(), styles)
        count.index_add_(0, label.long().cpu(), torch.ones(len(label)).to(count))
    if total is None or bool((count == 0).any()):
        raise ValueError(f"class distances need an image of every class, got none of {(count == 0).nonzero().flatten().tolist()}")
    mean = total / count.unsqueeze(1)
    apart = torch.stack([(mean - row).square().mean(1) for row in mean])
    return ClassDistances(apart + same_class * torch.eye(num_classes).to(apart))
