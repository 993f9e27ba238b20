"""A slow copy of a model: the moving average of its weights, asked for features and logits, never trained by gradients."""

import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import check_share, check_whole
from ...hooks import MixingError, named_layer, unwrapped
from ...logits import Output, logits_of
from ...precision import float32_or_better


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
            raise ValueError(
                f"the model cannot be copied ({error}): copy it before MixPoints or a forward pass changes it"
            ) from error
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

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """One step towards ``model``, to be made after each step of its optimiser."""
        core, _ = unwrapped(model)
        ours, theirs = _values(self.copy), _values(core)
        if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in ours):
            raise ValueError("update needs the model that this is a copy of; its weights have other names or shapes")
        share = 1 - self.momentum
        for name, value in ours.items():
            if value.is_floating_point():
                value.lerp_(theirs[name].to(value.device, value.dtype), share)
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
