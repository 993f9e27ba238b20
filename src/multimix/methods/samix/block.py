"""The mask network of SAMix (Li et al., 2021): who shows where, from the features of a slow copy of the model."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ...checks import NotFiniteError, can_inspect, check_number, check_share, check_whole, is_whole
from ...devices import widest_float
from ...hooks import MixingError, named_layer, unwrapped
from ...logits import Output, logits_of
from ...precision import float32_or_better, full_precision
from ...sampling import resolved
from ..base import NewNetwork

Average = Literal["pair", "batch"]
MOST_PLACES = 4096
# Sigmoids of more would round to exactly 0 or 1 in float32 sooner or later; masks lie between.
MOST_LOGIT = 15.0
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


class MaskNetwork(nn.Module, ABC):
    """What SAMix asks of its block: features of a batch, and masks from them. Subclasses say how logits come about.

    ``kappa`` shapes the embedding of ρ (:func:`embedded_share`), None takes ρ as it is.
    """

    def __init__(self, *, kappa: float | None = 0.25) -> None:
        super().__init__()
        check_number("kappa", kappa, none=True)
        self.kappa = kappa

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """``z [B, C, *places]`` of ``x``, detached."""

    @abstractmethod
    def mask_logits(self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool) -> Iterator[Tensor]:
        """``[B, *places]`` for each step; ``own`` and ``other [K, 1 or B]`` multiply the features of sample and partner."""

    def masks(self, z: Tensor, partner: Tensor, rho: Tensor, size: torch.Size, *, learning: bool = False) -> Tensor:
        """``m [K, B, 1, *size]`` in float32, 0 < m < 1: the partner's share, for ρ ``[K, 1 or B]``, the sample's.

            m = sigmoid(upsample(mask_logits)),  z_a = z (1 + ρ̃),  z_b = z' (1 + (1 − ρ̃))

        ``learning`` keeps the graph and lets batch norm learn its statistics; otherwise nothing changes in this module, and a
        step does not depend on the others.
        """
        _check_features(z, len(partner), size)
        embedded = embedded_share(rho, self.kappa).to(z.device, torch.float32)
        steps = []
        with torch.set_grad_enabled(learning and torch.is_grad_enabled()), full_precision(z):
            logits = self.mask_logits(z.float(), partner.to(z.device), 1 + embedded, 2 - embedded, learning=learning)
            for step in logits:
                wide = functional.interpolate(step.unsqueeze(1), size=list(size), mode=MODES[len(size)], align_corners=False)
                steps.append(wide.float().clamp(-MOST_LOGIT, MOST_LOGIT).sigmoid())
        return torch.stack(steps)


class MixBlock(MaskNetwork):
    """Attention of all places of a pair to each other, times a value of the partner's places; ``channels`` of ``layer``.

        m = sigmoid(upsample(softmax(q kᵀ / √(C/2)) v)),  q, k = linear maps of (z_a, z_b) to C/2,  v = value network of z_b

    z is what ``layer`` puts out in a slow copy of ``model`` (:class:`MomentumEncoder`, which takes
    ``momentum``, ``last`` and ``steps``): ``[B, channels, *places]``, as many axes of places as the input has. The maps start
    with weights from N(0, 0.01²), drawn from ``generator``.

    An optimiser trains those weights that require a gradient, which those of the slow copy do not; call :meth:`update` after
    each of its steps.
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
        if not is_whole(channels) or channels < 1:
            raise ValueError(f"channels must be those of layer {layer!r}, at least 1, got {channels!r}")
        self.channels, half = channels, max(channels // 2, 1)
        self.encoder = MomentumEncoder(model, layer, momentum=momentum, last=last, steps=steps)
        # Linear maps of channels, whatever the number of axes: 1×1 convolutions of places in a row.
        with torch.random.fork_rng(devices=[]):  # their first weights are drawn anew below
            self.query, self.key = nn.Conv1d(2 * channels, half, 1), nn.Conv1d(2 * channels, half, 1)
            self.value_in, self.norm = nn.Conv1d(channels, half, 1, bias=False), nn.BatchNorm1d(half)
            self.value_out = nn.Conv1d(half, 1, 1, bias=False)
        generator = resolved(generator, ranks_alike=True)
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
        return f"MixBlock(layer={self.encoder.layer!r}, channels={self.channels}, kappa={self.kappa})"

    def update(self, model: nn.Module) -> None:
        """The slow copy's step towards ``model``."""
        self.encoder.update(model)

    def features(self, x: Tensor) -> Tensor:
        return self.encoder.features(x)

    def logits(self, x: Tensor, output: Output | None = None) -> Tensor:
        """What the slow copy says about ``x``; gradients reach x only."""
        return self.encoder.logits(x, output)

    def mask_logits(self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool) -> Iterator[Tensor]:
        if z.shape[1] != self.channels:
            raise ValueError(f"the block was made for {self.channels} channels, layer {self.encoder.layer!r} has {z.shape[1]}")
        flat, count = z.flatten(2), z[0, 0].numel()
        if count > MOST_PLACES:
            raise ValueError(f"the block attends to at most {MOST_PLACES} places, got {count}: name a later layer")
        flat = flat.to(self.value_out.weight.dtype)
        query_parts, key_parts = self._parts(self.query, flat, partner), self._parts(self.key, flat, partner)
        inner = self.value_in(flat)[partner]
        for a, b in zip(own.to(flat.dtype), other.to(flat.dtype), strict=True):
            a, b = a.reshape(-1, 1, 1), b.reshape(-1, 1, 1)
            query, key = (a * first + b * second + bias for first, second, bias in (query_parts, key_parts))
            value = self.value_out(functional.elu(self._normed(b * inner, learning)))
            attention = (query.transpose(1, 2) @ key / query.shape[1] ** 0.5).softmax(2)
            yield (attention @ value.transpose(1, 2)).reshape(len(z), *z.shape[2:])

    def _parts(self, linear: nn.Conv1d, flat: Tensor, partner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """W_a z, W_b z' and the bias: W (a z, b z') = a W_a z + b W_b z', so the maps are paid for once, not K times."""
        assert linear.bias is not None
        first, second = linear.weight[:, : self.channels], linear.weight[:, self.channels :]
        return functional.conv1d(flat, first), functional.conv1d(flat, second)[partner], linear.bias.unsqueeze(1)

    def _normed(self, inner: Tensor, learning: bool) -> Tensor:
        """Batch norm: by the batch's own statistics while the block is in training mode, which are kept if it learns."""
        norm = self.norm
        own = self.training and len(inner) * inner.shape[2] > 1  # one number has no variance
        if learning and own:
            normed: Tensor = norm(inner)
            return normed
        mean, variance = (None, None) if own else (norm.running_mean, norm.running_var)
        return functional.batch_norm(inner, mean, variance, norm.weight, norm.bias, training=own, eps=norm.eps)


@dataclass(frozen=True)
class NewBlock(NewNetwork):
    """A :class:`MixBlock` still to be made, on the ``layer`` of the model that it will learn beside; with the block's options.

    ``momentum`` None is the published 0.999, less in trainings below 50,000 updates, 1 − 50 / updates, since the slow copy would
    stay near the weights the model started with; at least ½.
    """

    layer: str
    kappa: float | None = 0.25
    momentum: float | None = None
    last: float = 0.999999

    def __post_init__(self) -> None:
        if not isinstance(self.layer, str):
            raise TypeError(f"layer must be the name of a layer, got {self.layer!r}")
        if self.momentum is not None:
            check_share("momentum", self.momentum)
        check_share("last", self.last)

    def make(
        self, model: nn.Module, images: Tensor, *, updates: int | None, generator: Generator, learn: bool = True
    ) -> MixBlock:
        momentum = self.momentum
        if momentum is None:
            momentum = 0.999 if updates is None else min(0.999, max(0.5, 1 - 50 / updates))
        options: dict[str, Any] = {"kappa": self.kappa, "momentum": momentum, "last": self.last, "steps": updates}
        channels = MomentumEncoder(model, self.layer).features(images[:1]).shape[1]
        return MixBlock(model, self.layer, channels, **options, generator=generator)


class FixedBlock(MaskNetwork):
    """A block that learns nothing and needs no model: the partner shows where it is bright. For tests and pictures.

    Attention is the identity, the value is how far ``z_b`` lies above its mean; features are the mean over channels, in cells
    of ``cell`` places a side.
    """

    def __init__(self, *, kappa: float | None = 0.25, cell: int = 2, sharpness: float = 2.0) -> None:
        super().__init__(kappa=kappa)
        check_whole("cell", cell)
        self.cell, self.sharpness = cell, sharpness

    def __repr__(self) -> str:
        return f"FixedBlock(kappa={self.kappa}, cell={self.cell}, sharpness={self.sharpness})"

    def features(self, x: Tensor) -> Tensor:
        z = x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32).mean(1, keepdim=True)
        places = [-(-side // self.cell) for side in z.shape[2:]]
        if not 1 <= len(places) <= 3:
            return z
        pool: Any = (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)
        pooled: Tensor = pool[len(places) - 1](z, places)
        return pooled

    def mask_logits(self, z: Tensor, partner: Tensor, own: Tensor, other: Tensor, *, learning: bool) -> Iterator[Tensor]:
        even = z.flatten(1).mean(1).reshape(-1, *[1] * (z.ndim - 1))
        value = (self.sharpness * (z - even)).mean(1)[partner]
        for b in other:
            yield b.reshape(-1, *[1] * (value.ndim - 1)) * value


def embedded_share(rho: Tensor, kappa: float | None) -> Tensor:
    """ρ̃ = (4/3 ρ³ − 2 ρ² + (κ + 1) ρ) / (κ + 1/3): rising, with 0, ½ and 1 as they are, flat around ½ for small κ; None is ρ."""
    if kappa is None:
        return rho
    return ((4 / 3 * rho - 2) * rho + (kappa + 1)) * rho / (kappa + 1 / 3)


def rescaled(mask: Tensor, rho: Tensor) -> Tensor:
    """``mask [K, B, 1, *size]`` made smaller, or 1 − mask, by one factor each, such that the mean of 1 − mask is ρ ``[K, B]``."""
    exact = mask.to(widest_float(mask.device))
    rho = rho.to(exact).reshape(*rho.shape, *[1] * (mask.ndim - 2))
    tiny = torch.finfo(exact.dtype).tiny
    shown = exact.flatten(2).mean(2).reshape(*mask.shape[:2], *[1] * (mask.ndim - 2))
    less = exact * ((1 - rho) / shown.clamp(min=tiny))
    more = 1 - (1 - exact) * (rho / (1 - shown).clamp(min=tiny))
    return torch.where(1 - shown > rho, more, less).to(mask.dtype)


def mask_loss(mask: Tensor, rho: Tensor, *, slack: float = 0.1, variance: float = 2.0, average: Average = "pair") -> Tensor:
    """max(|mean(1 − m) − ρ| − ``slack``, 0) − ``variance`` · Var(m) of ``mask [B, 1, *size]`` at ρ ``[1 or B]``.

    Means and variances are those of each mask, then averaged, or with ``average="batch"`` those of all masks as one.
    """
    flat = mask.flatten(1)
    rho = rho.to(mask.device, mask.dtype).expand(len(mask))
    if average == "batch":
        flat, rho = flat.reshape(1, -1), rho.mean().reshape(1)
    area = ((1 - flat).mean(1) - rho).abs().sub(slack).clamp(min=0)
    return (area - variance * flat.var(1, correction=0)).mean()


def balanced_bce(logits: Tensor, target: Tensor, eta: float) -> Tensor:
    """Binary cross-entropy of each class's sigmoid, summed over classes; those outside the pair (target 0) weigh ``eta``."""
    weight = torch.where(target > 0, 1.0, eta)
    return (weight * functional.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum(1).mean()


def _check_features(z: Tensor, batch: int, size: torch.Size) -> None:
    if not isinstance(z, Tensor) or not z.is_floating_point():
        raise TypeError(f"features must be a floating-point tensor, got {z.dtype if isinstance(z, Tensor) else type(z).__name__}")
    if z.ndim != 2 + len(size) or len(z) != batch or z.numel() == 0:
        places = ", ".join("DHW"[3 - len(size) :]) if len(size) > 1 else "length"
        raise ValueError(f"features must have shape [{batch}, C, {places}] for this batch, got {list(z.shape)}")
    if can_inspect(z) and not bool(torch.isfinite(z).all()):
        raise NotFiniteError("features must be finite, got NaN or infinity")


class MomentumEncoder(nn.Module):
    """A copy of ``model`` whose weights follow it: w ← m_t w + (1 − m_t) w_model at each ``update``.

    m_t rises from ``momentum`` to ``last`` along half a cosine over ``steps`` updates and stays there; without ``steps`` it is
    ``momentum`` throughout. The statistics of batch norm are averaged like weights, whole numbers are taken over as they are.
    ``layer`` names the layer whose output :meth:`features` gives. The copy stays in evaluation mode, so that it can be asked
    without being changed and a sample's answer does not depend on the rest of its batch. ``state_dict`` holds everything.
    """

    updates: Tensor

    def __init__(
        self, model: nn.Module, layer: str, *, momentum: float = 0.999, last: float = 0.999999, steps: int | None = None
    ) -> None:
        super().__init__()
        core, _ = unwrapped(model)
        named_layer(core, layer)
        check_share("momentum", momentum)
        check_share("last", last)
        if momentum > last:
            raise ValueError(f"momentum must not be above last, to which it rises, got {momentum!r} and {last!r}")
        check_whole("steps", steps, none=True)
        self.layer, self.first, self.last, self.steps = layer, float(momentum), float(last), steps
        try:
            # In float32 at least: a step of a thousandth is lost on most weights in half precision.
            self.copy = at_least_single(deepcopy(core)).requires_grad_(False).eval()
        except (TypeError, RuntimeError) as error:
            raise ValueError(f"the model cannot be copied ({error}): copy it before a forward pass changes it") from error
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def train(self, mode: bool = True) -> "MomentumEncoder":
        """As for any module, except that the copy stays in evaluation mode."""
        super().train(mode)
        self.copy.eval()
        return self

    @property
    def momentum(self) -> float:
        """m_t of the next update."""
        if self.steps is None:
            return self.first
        left = (1 + math.cos(math.pi * min(int(self.updates), self.steps) / self.steps)) / 2
        return self.last - (self.last - self.first) * left

    def _step(self) -> Tensor | float:
        """1 − m_t; where the number of updates is on an accelerator it stays there."""
        if self.steps is None or can_inspect(self.updates):
            return 1 - self.momentum
        left = (1 + (self.updates.clamp(max=self.steps) * (math.pi / self.steps)).cos()) / 2
        return 1 - self.last + (self.last - self.first) * left

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """One step towards ``model``, to be made after each step of its optimiser."""
        core, _ = unwrapped(model)
        ours, theirs = _values(self.copy), _values(core)
        if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in ours):
            raise ValueError("update needs the model that this is a copy of; its weights have other names or shapes")
        share = self._step()
        for name, value in ours.items():
            if value.is_floating_point():
                weight = share.to(value.dtype) if isinstance(share, Tensor) else share
                value.lerp_(theirs[name].to(value.device, value.dtype), weight)
            else:
                value.copy_(theirs[name])
        self.updates += 1

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What ``layer`` puts out for ``x``, detached and in float32 or better."""
        seen: list[Any] = []
        layer = named_layer(self.copy, self.layer)
        # Copies, because the first layer and the one after this may work in place.
        handle = layer.register_forward_hook(lambda *of: seen.append(of[2].clone() if isinstance(of[2], Tensor) else of[2]))
        try:
            self.copy(self._fitting(x).clone())
        finally:
            handle.remove()
        if len(seen) != 1:
            times = "did not run" if not seen else "ran more than once"
            raise MixingError(f"layer {self.layer!r} {times} in a forward pass, so its features are not defined")
        if not isinstance(seen[0], Tensor) or not seen[0].is_floating_point():
            raise MixingError(f"layer {self.layer!r} must put out one floating-point tensor, got {type(seen[0]).__name__}")
        z = seen[0]
        return float32_or_better(z)

    def logits(self, x: Tensor, output: Output | None = None) -> Tensor:
        """The copy's logits, in float32 or better; gradients reach ``x`` but none of the weights."""
        logits = logits_of(self.copy(self._fitting(x)), output)
        return float32_or_better(logits)

    def _fitting(self, x: Tensor) -> Tensor:
        weight = next((value for value in self.copy.parameters() if value.is_floating_point()), None)
        return x if weight is None else x.to(weight.dtype)


def at_least_single(model: nn.Module) -> nn.Module:
    """``model`` itself, its weights and statistics of half precision turned into float32."""
    half = any(value.dtype in (torch.float16, torch.bfloat16) for value in model.state_dict().values())
    return model.float() if half else model


def _values(model: nn.Module) -> dict[str, Tensor]:
    """Weights and statistics by name, those that are tied once only: else they would move twice."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
