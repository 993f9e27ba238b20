"""Argument validation. Public functions validate once; internal code trusts its arguments."""

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
    """Raised if the outputs of a model are NaN or infinite, because it diverged."""


def is_whole(value: object) -> bool:
    """Whether ``value`` is a Python or NumPy integer; bool is rejected."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite Python or NumPy number; bool is rejected."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_batch(x: Tensor, layers: tuple[str | None, ...] = (None,)) -> None:
    """Check that ``x`` can be mixed.

    Args:
        x: ``[B, …]`` samples.
        layers: Layers at which the method may mix. None is the input, which must be floating point.

    Raises:
        TypeError: If ``x`` is not a tensor.
        ValueError: If ``x`` is empty, not dense, or not floating point although it may be mixed.
    """
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
    """Convert a tensor subclass that only tags its data, as in fastai and torchvision, to a Tensor.

    torch raises if an operation receives two such subclasses. Subclasses with custom storage, such
    as distributed tensors, are returned unchanged.

    Args:
        values: Any tensor.

    Returns:
        A view as a plain tensor, or ``values``.
    """
    tensor_type = type(values)
    if tensor_type is Tensor or tensor_type is torch.nn.Parameter:
        return values
    if tensor_type.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return values
    return values.as_subclass(Tensor)


def checked_labels(y: Tensor, x: Tensor) -> Tensor:
    """Check that ``y`` has one row per sample of ``x`` and is on the same device.

    Args:
        y: ``[B, …]`` labels.
        x: ``[B, …]`` samples.

    Returns:
        ``y`` as a plain tensor.

    Raises:
        TypeError: If ``y`` is not a tensor.
        ValueError: If the number of rows or the device differs.
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if y.shape[:1] != x.shape[:1]:
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise ValueError(f"x and y must have one row per sample, got shapes {shapes}")
    if y.device != x.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")
    return y if type(y) is Tensor else plain(y)


def check_spatial(x: Tensor, method: str) -> None:
    """Check that ``x`` is ``[B, C, length]``, ``[B, C, H, W]`` or ``[B, C, D, H, W]``.

    Args:
        x: Samples.
        method: Name of the method, for the error message.

    Raises:
        ValueError: If ``x`` has another number of axes.
    """
    if not 3 <= x.ndim <= 5:
        hint = "; x.unsqueeze(1) adds a channel axis" if x.ndim == 2 else ""
        raise ValueError(
            f"{method} needs x of shape [B, C, length], [B, C, H, W] or [B, C, D, H, W], "
            f"got {list(x.shape)}{hint}"
        )


def checked_saliency(saliency: Tensor, x: Tensor) -> Tensor:
    """Check a saliency map. Values are checked on the CPU, because a solver could hang on NaN.

    Args:
        saliency: ``[B, *size]`` or ``[B, 1, *size]``, finite and at least 0.
        x: ``[B, C, *size]`` samples.

    Returns:
        ``[B, *size]``, detached, on the device of ``x``.

    Raises:
        TypeError: If ``saliency`` is not a tensor.
        ValueError: If its shape or dtype is invalid.
        NotFiniteError: If values are negative, NaN or infinite.
    """
    expected = [len(x), *x.shape[2:]]
    if not isinstance(saliency, Tensor):
        raise TypeError(f"saliency must be a torch.Tensor, got {type(saliency).__name__}")
    if list(saliency.shape) not in (expected, [len(x), 1, *x.shape[2:]]) or saliency.is_complex():
        raise ValueError(f"saliency must be real, of shape {expected}, got {list(saliency.shape)}")
    if saliency.is_meta:
        raise ValueError("saliency must not be on the device 'meta', which stores no values")
    saliency = saliency.detach().reshape(expected).to(x.device)
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
    """Check noise that is added to ``x``.

    Args:
        noise: Floating point, in the shape of ``x``.
        x: Samples.

    Returns:
        ``noise``, detached, on the device of ``x``.

    Raises:
        TypeError: If ``noise`` is not a tensor.
        ValueError: If its shape or dtype is invalid.
    """
    if not isinstance(noise, Tensor):
        raise TypeError(f"noise must be a torch.Tensor, got {type(noise).__name__}")
    if noise.shape != x.shape or not noise.is_floating_point():
        got = f"{noise.dtype} {list(noise.shape)}"
        raise ValueError(f"noise must be floating point of shape {list(x.shape)}, got {got}")
    return noise.detach().to(x.device)


def check_whole(name: str, value: Any, least: int = 1, *, none: bool = False) -> None:
    """Check an integer option.

    Args:
        name: Name of the option, for the error message.
        value: Value of the option.
        least: Minimum.
        none: Allow None.

    Raises:
        ValueError: If ``value`` is not an integer of at least ``least``.
    """
    if not (none and value is None) and not (is_whole(value) and value >= least):
        rule = f"an integer of at least {least}{', or None' * none}"
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def check_number(name: str, value: Any, *, above: float | None = None, none: bool = False) -> None:
    """Check a real option.

    Args:
        name: Name of the option, for the error message.
        value: Value of the option.
        above: Exclusive lower bound. None requires at least 0.
        none: Allow None.

    Raises:
        ValueError: If ``value`` is not a finite number within the bound.
    """
    valid = is_number(value) and (value >= 0 if above is None else value > above)
    if not valid and not (none and value is None):
        bound = "at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {bound}{', or None' * none}, got {value!r}")


def check_share(name: str, value: float, most: float = 1) -> None:
    """Check an option that must be in [0, ``most``].

    Args:
        name: Name of the option, for the error message.
        value: Value of the option.
        most: Maximum.

    Raises:
        ValueError: If ``value`` is not a number in the interval.
    """
    if not isinstance(value, Real) or not 0 <= value <= most:
        raise ValueError(f"{name} must be in 0 … {most:g}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check an option with a fixed set of values.

    Args:
        name: Name of the option, for the error message.
        value: Value of the option.
        choices: Allowed values.

    Raises:
        ValueError: If ``value`` is not among ``choices``.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def nearest(wrong: object, names: Iterable[str]) -> str:
    """Suggest the closest valid name, for error messages.

    Args:
        wrong: The unknown name.
        names: Valid names.

    Returns:
        `` (did you mean 'name'?)``, or an empty string if no name is close.
    """
    close = difflib.get_close_matches(str(wrong), list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def can_inspect(values: Tensor) -> bool:
    """Whether values can be read without a sync: on the CPU, not compiled, not under vmap."""
    return values.is_cpu and not torch.compiler.is_compiling() and not is_transformed(values)


def checked_range(name: str, value: Any, least: float, most: float) -> Range:
    """Check an option that is a range.

    Args:
        name: Name of the option, for the error message.
        value: A pair (low, high), or a number, which stands for (number, number).
        least: Minimum of low.
        most: Maximum of high; may be infinite.

    Returns:
        ``(low, high)``.

    Raises:
        ValueError: If ``value`` is not a finite, ordered pair within the bounds.
    """
    ends = tuple(value) if isinstance(value, tuple | list) else (value, value)
    numbers = len(ends) == 2 and all(
        isinstance(end, Real) and not isinstance(end, bool) for end in ends
    )
    if not numbers or not least <= ends[0] <= ends[1] <= most or math.isinf(ends[1]):
        bounds = f"at least {least:g}" if math.isinf(most) else f"in {least:g} … {most:g}"
        raise ValueError(f"{name} must be a number or a pair (low, high), {bounds}, got {value!r}")
    return ends[0], ends[1]


def between(ends: Range, uniform: Tensor) -> Tensor:
    """Scale uniform draws to a range, clamped so that rounding cannot leave the range.

    Args:
        ends: ``(low, high)``.
        uniform: Values in [0, 1].

    Returns:
        Values in [low, high], in the shape of ``uniform``.
    """
    return (ends[0] + (ends[1] - ends[0]) * uniform).clamp(*ends)


def checked_numbers(name: str, value: Any, *, positive: bool = False) -> float | tuple[float, ...]:
    """Check an option that is a number or one number per channel.

    Args:
        name: Name of the option, for the error message.
        value: A number, list, tuple, tensor or array.
        positive: Require values above 0.

    Returns:
        A float, or a tuple of floats.

    Raises:
        ValueError: If values are missing, not finite, or not positive as required.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or not all(isinstance(part, Real) and math.isfinite(part) for part in parts):
        raise ValueError(f"{name} must be a number or one per channel, got {value!r}")
    if positive and not all(part > 0 for part in parts):
        raise ValueError(f"{name} must be positive, got {value!r}")
    return tuple(float(part) for part in parts) if parts is value else float(value)


def check_channels(name: str, value: Any, x: Tensor) -> None:
    """Check that an option has one value, or one value per channel of ``x``.

    Args:
        name: Name of the option, for the error message.
        value: A number or a tuple.
        x: ``[B, C, *size]`` samples.

    Raises:
        ValueError: If the number of values is neither 1 nor C.
    """
    count = len(value) if isinstance(value, tuple) else 1
    if count not in (1, x.shape[1]):
        raise ValueError(f"{name} must have 1 or {x.shape[1]} values (channels), got {count}")


def per_channel(name: str, value: float | tuple[float, ...], x: Tensor) -> Tensor:
    """Convert an option to a tensor that broadcasts over ``x``.

    Args:
        name: Name of the option, for the error message.
        value: A number, or a tuple with one number per channel.
        x: ``[B, C, *size]`` samples.

    Returns:
        ``[1 or C, 1, …]`` in float64, or in float32 on a device without float64.

    Raises:
        ValueError: If the number of values is neither 1 nor C.
    """
    check_channels(name, value, x)
    values = constant(value if isinstance(value, tuple) else (value,), x.device)
    return values.reshape(-1, *[1] * (x.ndim - 2))
