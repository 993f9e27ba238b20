"""A slow copy of the model: the momentum encoder that SAMix reads features from."""

import math
from copy import deepcopy

import torch
from torch import Tensor, nn

from ...core.checks import check_share, check_whole
from ...core.devices import float32_or_better, widest_float
from ...core.hooks import MixingError, captured, named_layer, run, unwrapped
from ...core.logits import Output, logits_of


class MomentumEncoder(nn.Module):
    """A slow copy of a model: w ← m_t w + (1 − m_t) w_model at each :meth:`update`.

    Batch-norm statistics are averaged like weights; integer buffers are copied. The copy stays in
    evaluation mode. ``state_dict`` holds the copy and the number of updates.

    Args:
        model: The model to copy.
        layer: Name of the layer whose output :meth:`features` returns.
        momentum: Initial momentum m_0.
        last: Momentum after ``steps`` updates, reached by a cosine schedule.
        steps: Number of updates of the schedule. None keeps ``momentum`` constant.

    Raises:
        ValueError: If the model has no such layer or cannot be copied, or an option is invalid.
    """

    updates: Tensor

    def __init__(
        self,
        model: nn.Module,
        layer: str,
        *,
        momentum: float = 0.999,
        last: float = 0.999999,
        steps: int | None = None,
    ) -> None:
        super().__init__()
        core, _ = unwrapped(model)
        named_layer(core, layer)
        check_share("momentum", momentum)
        check_share("last", last)
        if momentum > last:
            raise ValueError(f"momentum must be at most last={last!r}, got {momentum!r}")
        check_whole("steps", steps, none=True)
        self.layer, self.first, self.last, self.steps = layer, float(momentum), float(last), steps
        try:
            copied = deepcopy(core)
        except (TypeError, RuntimeError) as error:
            raise ValueError(
                f"model cannot be copied ({error}): copy it before its first forward pass"
            ) from error
        values = copied.state_dict().values()
        if any(value.dtype in (torch.float16, torch.bfloat16) for value in values):
            copied.float()  # steps of 0.001 would vanish in half precision
        self.copy = copied.requires_grad_(False).eval()
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def train(self, mode: bool = True) -> "MomentumEncoder":
        """Set the mode, except that the copy stays in evaluation mode."""
        super().train(mode)
        self.copy.eval()
        return self

    def _step(self) -> Tensor:
        """1 − m_t, on the device of ``updates``."""
        done = self.updates.to(widest_float(self.updates.device))
        if self.steps is None:
            return torch.full_like(done, 1 - self.first)
        rest = (1 + (done.clamp(max=self.steps) * (math.pi / self.steps)).cos()) / 2
        return 1 - self.last + (self.last - self.first) * rest

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the copy toward ``model``. Call it after each optimizer step.

        Args:
            model: The model that was copied.

        Raises:
            ValueError: If names or shapes of its weights differ from the copy's.
        """
        copied, current = _values(self.copy), _values(unwrapped(model)[0])
        shapes = ({name: value.shape for name, value in part.items()} for part in (copied, current))
        if next(shapes) != next(shapes):
            raise ValueError("model must be the one that was copied: names or shapes differ")
        step = self._step()
        for name, value in copied.items():
            if value.is_floating_point():
                value.lerp_(current[name].to(value.device, value.dtype), step.to(value.dtype))
            else:
                value.copy_(current[name])
        self.updates += 1

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Return the output of ``layer``, detached.

        Args:
            x: ``[B, …]`` samples.

        Returns:
            ``[B, …]`` in float32 or better.

        Raises:
            MixingError: If the model fails, or the layer does not run once or returns no
                floating-point tensor.
        """
        with captured(self.copy, self.layer, copy=True) as outputs:
            # Clone, because the first layer may modify its input in place.
            run(self.copy, self._cast(x).clone(), f"{len(x)} clean samples")
        (z,) = outputs
        if not isinstance(z, Tensor) or not z.is_floating_point():
            got = type(z).__name__
            raise MixingError(
                f"layer {self.layer!r} must return one floating-point tensor, got {got}"
            )
        return float32_or_better(z)

    def logits(self, x: Tensor, output: Output | None = None) -> Tensor:
        """Return the copy's logits. Gradients reach ``x``, not the weights.

        Args:
            x: ``[B, …]`` samples.
            output: Selects the logits if the model returns more.

        Returns:
            ``[B, C]`` in float32 or better.

        Raises:
            MixingError: If the model fails.
        """
        result = run(self.copy, self._cast(x), f"{len(x)} mixed samples")
        return float32_or_better(logits_of(result, output))

    def _cast(self, x: Tensor) -> Tensor:
        floats = (weight for weight in self.copy.parameters() if weight.is_floating_point())
        weight = next(floats, None)
        return x if weight is None else x.to(weight.dtype)


def _values(model: nn.Module) -> dict[str, Tensor]:
    """Return weights and buffers by name. Tied weights appear once, so they are updated once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
