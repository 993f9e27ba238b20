"""AdaIN, pairs of an encoder and a decoder, and distances between the styles of classes.

The style of an image is the mean and the deviation of every channel of an encoder's features.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...core.checks import per_channel
from ...core.devices import float32_or_better, full_precision
from ...core.targets import are_indices, soft_target
from ..base import NewNetwork

EPS = 1e-5
SAME_CLASS = 2.0
"""Distance of a class from itself in the published code; the formula gives 0."""


@runtime_checkable
class EncoderDecoder(Protocol):
    """Maps images ``[B, C, H, W]`` to features ``[B, F, h, w]``, and features to images."""

    def encode(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to features ``[B, F, h, w]``."""
        ...

    def decode(self, features: Tensor) -> Tensor:
        """Map features ``[B, F, h, w]`` to images."""
        ...


def style_of(features: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean and the deviation √(unbiased variance + 1e−5) of every channel.

    Args:
        features: ``[B, F, h, w]``.

    Returns:
        Two tensors ``[B, F, 1, 1]``.
    """
    # A single place has no unbiased variance; use a variance of 0.
    correction = 1 if features.shape[2:].numel() > 1 else 0
    variance, mean = torch.var_mean(features, dim=(2, 3), correction=correction, keepdim=True)
    return mean, (variance + EPS).sqrt()


def adain(content: Tensor, style: Tensor) -> Tensor:
    """Compute σ(g) (f − μ(f)) / σ(f) + μ(g): features f with the channel statistics of g.

    Args:
        content: ``[B, F, h, w]``, f.
        style: ``[B, F, h, w]``, g.

    Returns:
        ``[B, F, h, w]``.
    """
    mean, deviation = style_of(content)
    new_mean, new_deviation = style_of(style)
    return (content - mean) / deviation * new_deviation + new_mean


class StylePair:
    """A frozen encoder and decoder for images in [0, 1]. Both modules are set to evaluation mode.

    Args:
        encoder: Maps images to features.
        decoder: Maps features to images.
        taps: Positions in an ``nn.Sequential`` encoder after which styles are compared
            (:meth:`layers`).

    Raises:
        TypeError: If ``encoder`` or ``decoder`` is not a module.
        ValueError: If a tap is not a position in the encoder.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, taps: tuple[int, ...] = ()) -> None:
        for name, module in (("encoder", encoder), ("decoder", decoder)):
            if not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be a torch.nn.Module, got {type(module).__name__}")
        length = len(encoder) if isinstance(encoder, nn.Sequential) else 0
        if not all(0 <= tap < length for tap in taps):
            raise ValueError(f"taps must be positions in an nn.Sequential encoder, got {taps!r}")
        self.encoder = encoder.eval().requires_grad_(False)
        self.decoder = decoder.eval().requires_grad_(False)
        self.taps = tuple(taps)

    def encode(self, x: Tensor) -> Tensor:
        """Return the features of images.

        Args:
            x: ``[B, C, H, W]`` in [0, 1].

        Returns:
            ``[B, F, h, w]``, in the precision of the encoder.

        Raises:
            ValueError: If ``x`` is not on the device of the pair.
        """
        features: Tensor = self.encoder(self._fitting(x, self.encoder))
        return features

    def decode(self, features: Tensor) -> Tensor:
        """Return images from features.

        Args:
            features: ``[B, F, h, w]``.

        Returns:
            ``[B, C, H, W]``. H and W differ from the encoded images' if the encoder rounds sizes.

        Raises:
            ValueError: If ``features`` is not on the device of the pair.
        """
        images: Tensor = self.decoder(self._fitting(features, self.decoder))
        return images

    def layers(self, x: Tensor) -> list[Tensor]:
        """Return the features after each tap, or those of :meth:`encode` without taps.

        Args:
            x: ``[B, C, H, W]`` in [0, 1].

        Returns:
            ``[B, F, h, w]`` for each tap; F, h and w differ.

        Raises:
            ValueError: If ``x`` is not on the device of the pair.
        """
        if not self.taps:
            return [self.encode(x)]
        assert isinstance(self.encoder, nn.Sequential)
        features, z = [], self._fitting(x, self.encoder)
        for position, layer in enumerate(self.encoder):
            z = layer(z)
            if position in self.taps:
                features.append(z)
        return features

    def to(self, device: torch.device | str) -> "StylePair":
        """Move both modules in place.

        Args:
            device: The new device.

        Returns:
            A new pair of the same modules.
        """
        return StylePair(self.encoder.to(device), self.decoder.to(device), self.taps)

    @staticmethod
    def _fitting(z: Tensor, module: nn.Module) -> Tensor:
        weight = next(module.parameters(), None)
        if weight is None:
            return z
        if weight.device != z.device:
            raise ValueError(
                f"x is on {z.device}, the style pair on {weight.device}: move one of them with "
                ".to(device)"
            )
        return z.to(weight.dtype)


def check_pair(pair: Any) -> None:
    """Raise unless ``pair`` can encode and decode in evaluation mode, or is a description."""
    if isinstance(pair, type) or not isinstance(pair, EncoderDecoder | NewNetwork):
        raise TypeError(
            "pair must have encode(x) and decode(features), such as StylePair(encoder, decoder) of "
            f"multimix.methods.style.adain, got {type(pair).__name__}"
        )
    modules = (pair.encoder, pair.decoder) if isinstance(pair, StylePair) else (pair,)
    if any(isinstance(module, nn.Module) and module.training for module in modules):
        raise ValueError("pair must be in eval mode, got a module in training mode: call eval()")


@dataclass(frozen=True, kw_only=True)
class StyleSpace:
    """An encoder-decoder pair for normalized images of any size.

    Images are denormalized and resized for the encoder; decoded images are resized and normalized
    again.

    Args:
        pair: Encoder and decoder.
        mean: Mean by which images were normalized: a number, or one per channel.
        std: Standard deviation by which images were normalized.
        side: Length to which the shorter side is resized for the encoder; None keeps the size.
        clamp: Clamp decoded images to [0, 1].
    """

    pair: EncoderDecoder
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    side: int | None = None
    clamp: bool = False

    def encode(self, x: Tensor) -> Tensor:
        """Return the features of images.

        Args:
            x: ``[B, C, H, W]``.

        Returns:
            ``[B, F, h, w]``, in float32 or better, detached.

        Raises:
            ValueError: If the pair returns features of the wrong shape.
        """
        with torch.no_grad(), full_precision(x):
            features = self.pair.encode(self.inward(float32_or_better(x.detach())))
            if features.ndim != 4 or len(features) != len(x):
                shape = list(features.shape)
                raise ValueError(f"pair.encode must return [{len(x)}, F, h, w], got {shape}")
            return float32_or_better(features)

    def decode(self, features: Tensor, like: Tensor) -> Tensor:
        """Return images from features.

        Args:
            features: ``[B, F, h, w]``.
            like: ``[B, C, H, W]`` images that define the size and precision of the result.

        Returns:
            ``[B, C, H, W]``, in float32 or better, detached.

        Raises:
            ValueError: If the pair returns images of the wrong shape.
        """
        with torch.no_grad(), full_precision(like):
            images = self.pair.decode(features)
            if images.ndim != 4 or images.shape[:2] != (len(features), like.shape[1]):
                expected = f"[{len(features)}, {like.shape[1]}, H, W]"
                shape = list(images.shape)
                raise ValueError(f"pair.decode must return images {expected}, got {shape}")
            images = float32_or_better(images).to(float32_or_better(like.detach()).dtype)
            images = images.clamp(0, 1) if self.clamp else images
            images = resized(images, like.shape[2:])
            mean, std = self._statistics(like, images.dtype)
            return (images - mean) / std

    def styles(self, x: Tensor) -> Tensor:
        """Return means and deviations of all channels at the taps of the pair.

        Args:
            x: ``[B, C, H, W]``.

        Returns:
            ``[B, S]``, the S statistics of each image.
        """
        with torch.no_grad(), full_precision(x):
            images = self.inward(float32_or_better(x.detach()))
            tapped = getattr(self.pair, "layers", None)
            layers = [self.pair.encode(images)] if tapped is None else tapped(images)
            statistics = [part for z in layers for part in style_of(float32_or_better(z))]
            return torch.cat([part.flatten(1) for part in statistics], dim=1)

    def inward(self, x: Tensor) -> Tensor:
        """Return ``x [B, C, H, W]`` denormalized and resized for the pair."""
        mean, std = self._statistics(x, x.dtype)
        x = x * std + mean
        if self.side is None:
            return x
        height, width = x.shape[2:]
        scale = self.side / min(height, width)
        size = (round(height * scale), round(width * scale))
        return resized(x, torch.Size(size))

    def _statistics(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        mean, std = per_channel("mean", self.mean, x), per_channel("std", self.std, x)
        return mean.to(dtype), std.to(dtype)


def resized(images: Tensor, size: torch.Size) -> Tensor:
    """Resize images ``[B, C, H, W]`` to ``size`` by bilinear interpolation."""
    if images.shape[2:] == size:
        return images
    return interpolate(images, size, mode="bilinear", align_corners=False)


class ClassDistances:
    """Distances between the styles of classes. Instances are compared by value.

    Args:
        values: ``[C, C]``, finite and at least 0.

    Raises:
        TypeError: If ``values`` is not a tensor.
        ValueError: If ``values`` has the wrong shape, or is negative or not finite somewhere.
    """

    def __init__(self, values: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise TypeError(f"distances must be a torch.Tensor [C, C], got {type(values).__name__}")
        values = values.detach().to("cpu", torch.float64)
        is_square = values.ndim == 2 and values.shape[0] == values.shape[1]
        if not is_square or not bool(((values >= 0) & values.isfinite()).all()):
            shape = list(values.shape)
            raise ValueError(f"distances must be [C, C], finite and at least 0, got shape {shape}")
        self.values = values

    def between(self, label: Tensor, label_pair: Tensor) -> Tensor:
        """Return the distances between the classes of samples and of their partners.

        Args:
            label: Class indices ``[B]``, or probabilities ``[B, C]`` for expected distances.
            label_pair: Labels of the partners.

        Returns:
            ``[B]``.

        Raises:
            ValueError: If the labels do not fit the number of classes.
        """
        classes = len(self.values)
        label, label_pair = label.cpu(), label_pair.cpu()
        if are_indices(label):
            if not 0 <= int(label.min()) <= int(label.max()) < classes:
                raise ValueError(f"label must be in 0 … {classes - 1}, got {label.tolist()}")
            return self.values[label.long(), label_pair.long()]
        if label.ndim != 2 or label.shape[1] != classes:
            shape = list(label.shape)
            raise ValueError(f"label must be indices [B] or rows [B, {classes}], got {shape}")
        return ((label.double() @ self.values) * label_pair.double()).sum(1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassDistances) and torch.equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(tuple(self.values.flatten().tolist()))

    def __repr__(self) -> str:
        return f"ClassDistances({len(self.values)} classes)"


def class_distances(
    space: StyleSpace, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int
) -> ClassDistances:
    """Compute the mean squared differences between the mean styles of classes.

    Args:
        space: Encoder and decoder, such as ``method.space``.
        batches: Pairs of images and class indices, with an image of every class.
        num_classes: Number of classes.

    Returns:
        The distances. The distance of a class from itself is ``SAME_CLASS``.

    Raises:
        ValueError: If a label is out of range or a class has no image.
    """
    total = torch.zeros((), dtype=torch.float64, device="cpu")
    count = torch.zeros(num_classes, dtype=torch.float64, device="cpu")
    for x, label in batches:
        one_hot = soft_target(label.cpu(), num_classes).double()
        styles = space.styles(x).double().cpu()
        total = total + one_hot.T @ styles
        count += one_hot.sum(0)
    missing = (count == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"batches must hold an image of every class, got none of {missing}")
    mean = total / count.unsqueeze(1)
    distances = torch.stack([(mean - row).square().mean(1) for row in mean])
    return ClassDistances(distances + SAME_CLASS * torch.eye(num_classes, device="cpu"))
