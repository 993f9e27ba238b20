"""The mask network of SAMix (Li et al., 2021)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ...core.checks import check_number, check_whole
from ...core.devices import float32_or_better, full_precision, widest_float
from ...core.logits import Output
from ...core.sampling import make_generator
from ..base import NewNetwork
from .momentum import MomentumEncoder

Average = Literal["pair", "batch"]
MAX_PLACES = 4096
MAX_LOGIT = 15.0
"""Logits are clamped here: larger ones round to masks of exactly 0 or 1 in float32."""
UPSAMPLING = {1: "linear", 2: "bilinear", 3: "trilinear"}


class MaskNetwork(nn.Module, ABC):
    """Base class of SAMix blocks, which compute features of a batch and masks from them.

    Subclasses define ``features`` and ``mask_logits``.

    Args:
        kappa: Parameter κ of the embedding of ρ (:func:`embedded_share`); None uses ρ itself.
    """

    def __init__(self, *, kappa: float | None = 0.25) -> None:
        super().__init__()
        check_number("kappa", kappa, none=True)
        self.kappa = kappa

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Compute the features of samples.

        Args:
            x: ``[B, C, *size]`` samples.

        Returns:
            ``[B, C, *places]``, detached.
        """

    @abstractmethod
    def mask_logits(
        self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool
    ) -> Iterator[Tensor]:
        """Yield the logits of the mask of each step.

        Args:
            z: ``[B, C, *places]`` features.
            partner: ``[B]`` indices.
            own: ``[K, 1 or B]`` factors of the samples' features.
            other: ``[K, 1 or B]`` factors of the partners' features.
            learning: Keep the graph and update batch-norm statistics.

        Yields:
            ``[B, *places]``.
        """

    def masks(
        self,
        z: Tensor,
        partner: Tensor,
        rho: Tensor,
        size: torch.Size,
        *,
        learning: bool = False,
    ) -> Tensor:
        """Compute m = sigmoid(upsample(mask_logits)) from z_a = (1 + ρ̃) z and z_b = (2 − ρ̃) z'.

        Args:
            z: ``[B, C, *places]`` features.
            partner: ``[B]``.
            rho: ``[K, 1 or B]`` shares of the sample.
            size: Sides of the masks.
            learning: Keep the graph and update batch-norm statistics. False leaves the module
                unchanged and makes steps independent of each other.

        Returns:
            ``[K, B, 1, *size]``, float32, in (0, 1): the partner's share.

        Raises:
            ValueError: If ``z`` does not have one row per sample and as many axes as ``size``.
        """
        if z.ndim != 2 + len(size) or len(z) != len(partner):
            raise ValueError(
                f"features must be [{len(partner)}, C, *places] with {len(size)} axes of places, "
                f"got {list(z.shape)}"
            )
        embedded = embedded_share(rho, self.kappa).to(z.device, torch.float32)
        own, other, partner = 1 + embedded, 2 - embedded, partner.to(z.device)
        upsample = partial(
            functional.interpolate,
            size=list(size),
            mode=UPSAMPLING[len(size)],
            align_corners=False,
        )
        steps = []
        with torch.set_grad_enabled(learning and torch.is_grad_enabled()), full_precision(z):
            for step in self.mask_logits(z.float(), partner, own, other, learning=learning):
                logits = upsample(step.unsqueeze(1)).float()
                steps.append(logits.clamp(-MAX_LOGIT, MAX_LOGIT).sigmoid())
        return torch.stack(steps)


class MixBlock(MaskNetwork):
    """Attention between all places of a pair, applied to values of the partner's places.

        m = sigmoid(upsample(softmax(q kᵀ / √(C/2)) v))

    q and k are linear maps of (z_a, z_b) to C/2 channels, v is a value network of z_b, and z is the
    output of ``layer`` in a slow copy of ``model``. Linear maps are initialized from N(0, 0.01²).

    Pass the weights that require a gradient to an optimizer; those of the slow copy do not. Call
    :meth:`update` after each optimizer step.

    Args:
        model: The model that is trained.
        layer: Name of a layer with outputs ``[B, channels, *places]`` that have as many axes as the
            input.
        channels: Number of channels of ``layer``.
        kappa: Parameter κ of the embedding of ρ: see :class:`MaskNetwork`.
        momentum: Initial momentum of the slow copy: see :class:`MomentumEncoder`.
        last: Momentum of the slow copy after ``steps`` updates.
        steps: Number of updates of the schedule; None keeps ``momentum`` constant.
        generator: A CPU generator for initial weights.

    Raises:
        ValueError: If the model has no such layer, or an option is invalid.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str,
        channels: int,
        *,
        kappa: float | None = 0.25,
        momentum: float = 0.999,
        last: float = 0.999999,
        steps: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(kappa=kappa)
        check_whole("channels", channels)
        self.channels, half = channels, max(channels // 2, 1)
        self.encoder = MomentumEncoder(model, layer, momentum=momentum, last=last, steps=steps)
        # Linear maps of channels for any number of axes: 1×1 convolutions of flattened places.
        with torch.random.fork_rng(devices=[]):  # keep torch's stream; weights are drawn below
            self.query = nn.Conv1d(2 * channels, half, 1)
            self.key = nn.Conv1d(2 * channels, half, 1)
            self.value_in = nn.Conv1d(channels, half, 1, bias=False)
            self.norm = nn.BatchNorm1d(half)
            self.value_out = nn.Conv1d(half, 1, 1, bias=False)
        generator = make_generator(generator, same_on_all_ranks=True)
        for linear in (self.query, self.key, self.value_in, self.value_out):
            drawn = torch.randn(linear.weight.shape, generator=generator, device="cpu")
            with torch.no_grad():
                linear.weight.copy_(0.01 * drawn)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        weight = next(self.encoder.copy.parameters(), None)
        if weight is not None:
            self.to(weight.device)

    def __repr__(self) -> str:
        layer = self.encoder.layer
        return f"MixBlock(layer={layer!r}, channels={self.channels}, kappa={self.kappa})"

    def update(self, model: nn.Module) -> None:
        """Move the slow copy toward ``model``. Call it after each optimizer step.

        Args:
            model: The model that was copied.

        Raises:
            ValueError: If names or shapes of its weights differ from the copy's.
        """
        self.encoder.update(model)

    def features(self, x: Tensor) -> Tensor:
        return self.encoder.features(x)

    def logits(self, x: Tensor, output: Output | None = None) -> Tensor:
        """Return the slow copy's logits. Gradients reach ``x``, not the weights.

        Args:
            x: ``[B, …]`` samples.
            output: Selects the logits if the model returns more.

        Returns:
            ``[B, C]`` in float32 or better.

        Raises:
            MixingError: If the model fails.
        """
        return self.encoder.logits(x, output)

    def mask_logits(
        self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool
    ) -> Iterator[Tensor]:
        if z.shape[1] != self.channels:
            raise ValueError(
                f"channels of layer {self.encoder.layer!r} must be {self.channels}, "
                f"got {z.shape[1]}"
            )
        flat = z.flatten(2).to(self.value_out.weight.dtype)
        if flat.shape[2] > MAX_PLACES:
            raise ValueError(
                f"the block supports at most {MAX_PLACES} places, got {flat.shape[2]}: "
                "choose a later layer"
            )
        queries, keys = (self._parts(linear, flat, partner) for linear in (self.query, self.key))
        inner = self.value_in(flat)[partner]
        for a, b in zip(own.to(flat.dtype), other.to(flat.dtype), strict=True):
            a, b = a.reshape(-1, 1, 1), b.reshape(-1, 1, 1)
            query, key = (a * first + b * second + bias for first, second, bias in (queries, keys))
            value = self.value_out(functional.elu(self._normalized(b * inner, learning)))
            attention = (query.transpose(1, 2) @ key / query.shape[1] ** 0.5).softmax(2)
            yield (attention @ value.transpose(1, 2)).reshape(len(z), *z.shape[2:])

    def _parts(
        self, linear: nn.Conv1d, flat: Tensor, partner: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute W_a z, W_b z' and the bias once for all K: W (a z, b z') = a W_a z + b W_b z'."""
        assert linear.bias is not None
        first, second = linear.weight.tensor_split(2, 1)
        mapped, mapped_pair = functional.conv1d(flat, first), functional.conv1d(flat, second)
        return mapped, mapped_pair[partner], linear.bias.unsqueeze(1)

    def _normalized(self, inner: Tensor, learning: bool) -> Tensor:
        """Apply batch norm, with batch statistics in training mode; update them if learning."""
        norm = self.norm
        by_batch = self.training and len(inner) * inner.shape[2] > 1  # one value has no variance
        if learning and by_batch:
            normalized: Tensor = norm(inner)
            return normalized
        mean, variance = (None, None) if by_batch else (norm.running_mean, norm.running_var)
        return functional.batch_norm(
            inner, mean, variance, norm.weight, norm.bias, training=by_batch, eps=norm.eps
        )


@dataclass(frozen=True)
class NewBlock(NewNetwork):
    """The description of a :class:`MixBlock` that ``method.bind(model, images)`` creates.

    Args:
        layer: Name of the layer of the model that provides the features.
        kappa: Parameter κ of the embedding of ρ: see :class:`MaskNetwork`.
        momentum: Initial momentum of the slow copy. None uses the published 0.999, and
            max(½, 1 − 50 / updates) for fewer than 50,000 updates; otherwise the slow copy would
            stay near the initial weights.
        last: Final momentum of the slow copy.
    """

    layer: str
    kappa: float | None = 0.25
    momentum: float | None = None
    last: float = 0.999999

    def make(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None,
        generator: Generator,
        learn: bool = True,
    ) -> MixBlock:
        momentum = self.momentum
        if momentum is None:
            momentum = 0.999 if updates is None else min(0.999, max(0.5, 1 - 50 / updates))
        channels = MomentumEncoder(model, self.layer).features(images[:1]).shape[1]
        return MixBlock(
            model,
            self.layer,
            channels,
            kappa=self.kappa,
            momentum=momentum,
            last=self.last,
            steps=updates,
            generator=generator,
        )


class FixedBlock(MaskNetwork):
    """A block without weights or model: the partner shows where it is bright.

    For tests and figures. Attention is the identity, and the value is ``sharpness`` times the
    difference of z_b from its mean. Features are means over channels and cells.

    Args:
        kappa: Parameter κ of the embedding of ρ: see :class:`MaskNetwork`.
        cell: Places per side of a cell.
        sharpness: Scale of the logits.
    """

    def __init__(
        self, *, kappa: float | None = 0.25, cell: int = 2, sharpness: float = 2.0
    ) -> None:
        super().__init__(kappa=kappa)
        check_whole("cell", cell)
        self.cell, self.sharpness = cell, sharpness

    def __repr__(self) -> str:
        return f"FixedBlock(kappa={self.kappa}, cell={self.cell}, sharpness={self.sharpness})"

    def features(self, x: Tensor) -> Tensor:
        z = float32_or_better(x.detach()).mean(1, keepdim=True)
        size = [math.ceil(side / self.cell) for side in z.shape[2:]]
        pool: Any = getattr(functional, f"adaptive_avg_pool{len(size)}d")
        pooled: Tensor = pool(z, size)
        return pooled

    def mask_logits(
        self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool
    ) -> Iterator[Tensor]:
        mean = z.flatten(1).mean(1).reshape(-1, *[1] * (z.ndim - 1))
        value = (self.sharpness * (z - mean)).mean(1)[partner]
        for b in other:
            yield b.reshape(-1, *[1] * (value.ndim - 1)) * value


def embedded_share(rho: Tensor, kappa: float | None) -> Tensor:
    """Compute ρ̃ = (4/3 ρ³ − 2 ρ² + (κ + 1) ρ) / (κ + 1/3).

    The function is increasing, maps 0, ½ and 1 to themselves, and is flat around ½ for small κ.

    Args:
        rho: Shares of the sample.
        kappa: κ; None returns ``rho``.

    Returns:
        ρ̃ in the shape of ``rho``.
    """
    if kappa is None:
        return rho
    return ((4 / 3 * rho - 2) * rho + (kappa + 1)) * rho / (kappa + 1 / 3)


def rescaled(mask: Tensor, rho: Tensor) -> Tensor:
    """Scale each mask, or 1 − mask, down by one factor such that the mean of 1 − mask is ρ.

    Args:
        mask: ``[K, B, 1, *size]``.
        rho: ``[K, B]``.

    Returns:
        ``[K, B, 1, *size]``.
    """
    exact = mask.to(widest_float(mask.device))
    rho = rho.to(exact).reshape(*rho.shape, *[1] * (mask.ndim - 2))
    tiny = torch.finfo(exact.dtype).tiny
    mean = exact.flatten(2).mean(2).reshape(*mask.shape[:2], *[1] * (mask.ndim - 2))
    less = exact * ((1 - rho) / mean.clamp(min=tiny))
    more = 1 - (1 - exact) * (rho / (1 - mean).clamp(min=tiny))
    return torch.where(1 - mean > rho, more, less).to(mask.dtype)


def mask_loss(
    mask: Tensor,
    rho: Tensor,
    *,
    slack: float = 0.1,
    variance: float = 2.0,
    average: Average = "pair",
) -> Tensor:
    """Compute max(|mean(1 − m) − ρ| − slack, 0) − variance · Var(m).

    Args:
        mask: ``[B, 1, *size]``.
        rho: ``[1 or B]``.
        slack: Deviation of the mean from ρ that is not penalized.
        variance: Weight of the variance.
        average: ``pair`` averages the loss over masks, ``batch`` treats all masks as one.

    Returns:
        A scalar.
    """
    flat = mask.flatten(1)
    rho = rho.to(mask.device, mask.dtype).expand(len(mask))
    if average == "batch":
        flat, rho = flat.reshape(1, -1), rho.mean().reshape(1)
    area = ((1 - flat).mean(1) - rho).abs().sub(slack).clamp(min=0)
    return (area - variance * flat.var(1, correction=0)).mean()


def balanced_bce(logits: Tensor, target: Tensor, eta: float) -> Tensor:
    """Compute the binary cross-entropy summed over classes and averaged over rows.

    Args:
        logits: ``[N, C]``.
        target: ``[N, C]``.
        eta: Weight of classes outside the pair, whose target is 0.

    Returns:
        A scalar.
    """
    weight = torch.where(target > 0, 1.0, eta)
    rows = functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="none")
    return rows.sum(1).mean()
