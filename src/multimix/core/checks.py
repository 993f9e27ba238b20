"""Validation of arguments. Public functions call these once; internal code trusts its values."""

import difflib
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from .devices import constant

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Range = tuple[float, float]

is_transformed: Callable[[Tensor], bool] = is_functorch_wrapped_tensor
"""Whether a tensor is inside a torch.func transform such as vmap."""


class NotFiniteError(ValueError):
    """A model's outputs are no longer finite: it has diverged."""


def is_whole(value: object) -> bool:
    """Whether ``value`` is a Python or NumPy integer; bool is rejected."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite Python or NumPy number; bool is rejected."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_batch(x: Tensor, layers: tuple[str | None, ...] = (None,)) -> None:
    """Raise unless ``x`` can be mixed at ``layers``: floating point if the input is among them."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested:
        raise ValueError(f"x must be a dense tensor, got layout {x.layout}")
    if x.ndim == 0 or x.numel() == 0:
        raise ValueError(f"x must hold at least one non-empty sample, got shape {list(x.shape)}")
    if None in layers and x.dtype not in FLOATS:
        raise ValueError(
            f"x must be float16, bfloat16, float32 or float64 to be mixed, got {x.dtype}: use "
            "x.float() / 255 for images in 0 … 255, Mix(…, uint8=True), or a hidden layer for "
            "indices such as tokens"
        )


def plain(values: Tensor) -> Tensor:
    """Return ``values`` as a plain tensor if its class only marks it (fastai, torchvision).

    torch rejects two such classes in one call. Classes with their own storage, such as distributed
    tensors, stay as they are.
    """
    kind = type(values)
    if kind is Tensor or kind is torch.nn.Parameter:
        return values
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return values
    return values.as_subclass(Tensor)


def checked_labels(y: Tensor, x: Tensor) -> Tensor:
    """Return ``y`` as a plain tensor with one row per sample of ``x``, on its device, or raise."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if y.shape[:1] != x.shape[:1]:
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise ValueError(f"x and y must have one row per sample, got shapes {shapes}")
    if y.device != x.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")
    return y if type(y) is Tensor else plain(y)


def check_spatial(x: Tensor, method: str) -> None:
    """Raise unless ``x`` is ``[B, C, length]``, ``[B, C, H, W]`` or ``[B, C, D, H, W]``."""
    if not 3 <= x.ndim <= 5:
        hint = "; x.unsqueeze(1) adds a channel axis" if x.ndim == 2 else ""
        raise ValueError(
            f"{method} needs x of shape [B, C, length], [B, C, H, W] or [B, C, D, H, W], "
            f"got {list(x.shape)}{hint}"
        )


def checked_saliency(saliency: Tensor, x: Tensor) -> Tensor:
    """Return ``saliency`` as ``[B, *size]`` on the device of ``x [B, C, *size]``.

    Values are checked on the CPU, because a solver could hang on NaN.
    """
    wanted = [len(x), *x.shape[2:]]
    if not isinstance(saliency, Tensor):
        raise TypeError(f"saliency must be a torch.Tensor, got {type(saliency).__name__}")
    if list(saliency.shape) not in (wanted, [len(x), 1, *x.shape[2:]]) or saliency.is_complex():
        raise ValueError(f"saliency must be real, of shape {wanted}, got {list(saliency.shape)}")
    if saliency.is_meta:
        raise ValueError("saliency must hold values, which the device 'meta' does not have")
    saliency = saliency.detach().reshape(wanted).to(x.device)
    saliency = saliency if saliency.is_floating_point() else saliency.float()
    if can_inspect(saliency):
        low, high = (float(end) for end in saliency.aminmax())
        if not 0 <= low <= high < math.inf:
            raise NotFiniteError(
                f"saliency must be finite and at least 0, got values from {low:g} to {high:g}"
                + (": the model's outputs are no longer finite" if low != low else "")
            )
    return saliency


def checked_noise(noise: Tensor, x: Tensor) -> Tensor:
    """Return ``noise`` detached on the device of ``x``, or raise if it cannot be added to it."""
    if not isinstance(noise, Tensor):
        raise TypeError(f"noise must be a torch.Tensor, got {type(noise).__name__}")
    if noise.shape != x.shape or not noise.is_floating_point():
        got = f"{noise.dtype} {list(noise.shape)}"
        raise ValueError(f"noise must be floating point of shape {list(x.shape)}, got {got}")
    return noise.detach().to(x.device)


def check_whole(name: str, value: Any, least: int = 1, *, none: bool = False) -> None:
    """Raise unless ``value`` is an integer of at least ``least``, or None where that is allowed."""
    if not (none and value is None) and not (is_whole(value) and value >= least):
        rule = f"an integer of at least {least}{', or None' * none}"
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def check_number(name: str, value: Any, *, above: float | None = None, none: bool = False) -> None:
    """Raise unless ``value`` is finite and at least 0, or more than ``above``, or allowed None."""
    valid = is_number(value) and (value >= 0 if above is None else value > above)
    if not valid and not (none and value is None):
        bound = "at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {bound}{', or None' * none}, got {value!r}")


def check_share(name: str, value: float, most: float = 1) -> None:
    """Raise unless ``value`` is in [0, ``most``]."""
    if not isinstance(value, Real) or not 0 <= value <= most:
        raise ValueError(f"{name} must be in 0 … {most:g}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise unless ``value`` is among ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def nearest(wrong: object, names: Iterable[str]) -> str:
    """A hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(str(wrong), list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def can_inspect(values: Tensor) -> bool:
    """Whether reading values is free: not on an accelerator, in a compiled graph or under vmap."""
    return values.is_cpu and not torch.compiler.is_compiling() and not is_transformed(values)


def checked_range(name: str, value: Any, least: float, most: float) -> Range:
    """Return ``value`` as (low, high) within ``least`` and ``most``; a number is a range, too."""
    ends = tuple(value) if isinstance(value, tuple | list) else (value, value)
    numbers = len(ends) == 2 and all(
        isinstance(end, Real) and not isinstance(end, bool) for end in ends
    )
    if not numbers or not least <= ends[0] <= ends[1] <= most or math.isinf(ends[1]):
        bounds = f"at least {least:g}" if math.isinf(most) else f"in {least:g} … {most:g}"
        raise ValueError(f"{name} must be a number or a pair (low, high), {bounds}, got {value!r}")
    return ends[0], ends[1]


def between(ends: Range, uniform: Tensor) -> Tensor:
    """Stretch ``uniform`` in [0, 1] over a range, without leaving it by rounding."""
    return (ends[0] + (ends[1] - ends[0]) * uniform).clamp(*ends)


def checked_numbers(name: str, value: Any, *, positive: bool = False) -> float | tuple[float, ...]:
    """Return a number, list, tensor or array as a number or a tuple of numbers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or not all(isinstance(part, Real) and math.isfinite(part) for part in parts):
        raise ValueError(f"{name} must be a number or one per channel, got {value!r}")
    if positive and not all(part > 0 for part in parts):
        raise ValueError(f"{name} must be positive, got {value!r}")
    return tuple(float(part) for part in parts) if parts is value else float(value)


def check_channels(name: str, value: Any, x: Tensor) -> None:
    """Raise unless ``value`` is one value or one per channel of ``x [B, C, *size]``."""
    count = len(value) if isinstance(value, tuple) else 1
    if count not in (1, x.shape[1]):
        raise ValueError(f"{name} must have 1 or {x.shape[1]} values (channels), got {count}")


def per_channel(name: str, value: float | tuple[float, ...], x: Tensor) -> Tensor:
    """Return ``value`` such that it broadcasts over ``x [B, C, *size]``, float64 if possible."""
    check_channels(name, value, x)
    values = constant(value if isinstance(value, tuple) else (value,), x.device)
    return values.reshape(-1, *[1] * (x.ndim - 2))
