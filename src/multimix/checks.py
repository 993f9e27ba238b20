"""What may come in at the public edge: one sentence each, with name, rule and value."""

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from . import one_pass
from .devices import constant

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # torch stores them, and can do little else


class NotFiniteError(ValueError):
    """A model's own numbers are not finite any more: it has diverged."""


def is_whole(value: object) -> bool:
    """Whether ``value`` is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number, of Python or NumPy; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_batch(x: Tensor, layers: tuple[str | None, ...] = (None,)) -> None:
    """Raise unless ``x`` is a batch that can be mixed at ``layers``: floating point if the input (None) is among them."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    if x.is_nested:
        raise ValueError("x must be a dense tensor, got a nested one; use torch.nested.to_padded_tensor")
    if x.ndim == 0 or x.numel() == 0:
        raise ValueError(f"x must hold at least 1 sample, none of them empty, got shape {list(x.shape)}")
    if x.layout != torch.strided:
        raise ValueError(f"x must be a dense tensor, got {x.layout}; use x.to_dense()")
    if None in layers and not x.is_floating_point():
        raise ValueError(
            f"x must be floating point to be mixed, got {x.dtype}: use x.float() / 255 for images in 0 … 255, or "
            "Mix(…, uint8=True), or mix at a hidden layer for indices such as tokens"
        )
    check_precision("x", x)


def check_precision(name: str, values: Tensor) -> None:
    """Raise ValueError if ``values`` are floating point that torch stores but does not calculate with, such as float8."""
    if values.is_floating_point() and values.dtype not in FLOATS:
        raise ValueError(f"{name} must be float16, bfloat16, float32 or float64, got {values.dtype}")


def plain(values: Tensor) -> Tensor:
    """``values`` as a plain tensor if they are of a class that only marks them, such as fastai's and torchvision's.

    Two of such classes in one call, one for images and one for labels, are refused by torch. Classes that hold their numbers
    in a way of their own, such as distributed tensors, stay as they are.
    """
    kind = type(values)
    if kind is Tensor or kind is torch.nn.Parameter or kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return values
    return values.as_subclass(Tensor)


def plain_labels(y: Tensor) -> Tensor:
    """``y`` as a plain tensor that can be compared: of the unsigned types torch can compare bytes only."""
    y = plain(y)
    return y.long() if y.dtype in UNSIGNED else y


def check_target(y: Tensor) -> None:
    """Raise unless ``y`` is a tensor of real numbers, finite ones if they are floating point."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if y.is_complex():
        raise ValueError(f"y must be real, got {y.dtype}")
    check_precision("y", y)
    if y.is_floating_point() and can_inspect(y) and not bool(torch.isfinite(y).all()):
        raise ValueError("y must be finite, got NaN or infinity")


def check_labels(y: Tensor, x: Tensor) -> None:
    """Raise unless ``y`` is a finite tensor with one row per sample of ``x``."""
    check_target(y)
    if y.ndim == 0 or len(y) != len(x):
        raise ValueError(f"x and y must have one row per sample, got shapes {list(x.shape)} and {list(y.shape)}")
    if y.device != x.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")


def check_finite(x: Tensor, name: str = "x") -> bool:
    """Raise if ``x``, called ``name``, holds NaN or infinity; else whether it is large as in :func:`is_large`. One read of it."""
    largest = _largest(x)
    if largest <= _limit(x):
        return False
    bad = (~torch.isfinite(x.detach())).reshape(len(x), -1).any(1).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"{name} must be finite, got NaN or infinity in sample {', '.join(map(str, bad[:5]))} of the batch")
    return True


def is_large(x: Tensor) -> bool:
    """Whether the difference of two numbers such as those in ``x`` may overflow; accelerators are not stalled to find out."""
    return _largest(x) > _limit(x)


def _largest(x: Tensor) -> float:
    """The largest number of ``x`` without its sign, NaN if there is one; 0 where it is not looked for."""
    if not x.is_floating_point() or x.numel() == 0 or not can_inspect(x):
        return 0.0
    found = one_pass.largest(x)
    if found is None:
        low, high = x.detach().aminmax()
        found = max(-low.item(), high.item())
    return found


def _limit(x: Tensor) -> float:
    if not x.is_floating_point():
        return 0.0
    most = torch.finfo(x.dtype).max
    return most if x.dtype == torch.float16 else most / 2  # float16 is mixed in float32, where it cannot overflow


def checked_result(mixed: Tensor, method: str) -> Tensor:
    """``mixed`` by a method that squares numbers, which overflows long before they do; or an error."""
    if can_inspect(mixed) and not bool(torch.isfinite(mixed.detach()).all()):
        raise NotFiniteError(f"{method} squares numbers on the way: those of this batch are too large, or not finite")
    return mixed


def check_spatial(x: Tensor, method: str) -> None:
    """Raise unless ``x`` has places to cut: ``[B, C, length]``, ``[B, C, H, W]`` or ``[B, C, D, H, W]``."""
    if not 3 <= x.ndim <= 5:
        hint = "; x.unsqueeze(1) adds a channel axis" if x.ndim == 2 else ""
        raise ValueError(f"{method} needs x of shape [B, C, length], [B, C, H, W] or [B, C, D, H, W], got {list(x.shape)}{hint}")


def checked_saliency(saliency: Tensor, x: Tensor) -> Tensor:
    """``saliency`` as ``[B, *size]`` on the device of ``x [B, C, *size]``; ``[B, 1, *size]`` will do."""
    wanted = [len(x), *x.shape[2:]]
    if not isinstance(saliency, Tensor):
        raise TypeError(f"saliency must be a torch.Tensor, got {type(saliency).__name__}")
    if list(saliency.shape) not in (wanted, [len(x), 1, *x.shape[2:]]) or saliency.is_complex():
        raise ValueError(f"saliency must be real, of shape {wanted} like x without channels, got {list(saliency.shape)}")
    check_precision("saliency", saliency)
    saliency = saliency.detach().reshape(wanted).to(x.device)
    if saliency.is_meta:
        raise ValueError("saliency must hold numbers, and on the device 'meta' there are none")
    saliency = saliency if saliency.is_floating_point() else saliency.float()
    low, high = (float(end) for end in saliency.aminmax()) if can_inspect(saliency) else (0.0, 0.0)
    if not 0 <= low <= high < math.inf:
        hint = ": the model's own numbers, its weights or its statistics, are not finite any more" if low != low else ""
        raise NotFiniteError(f"saliency must be finite and at least 0 everywhere, got values from {low:g} to {high:g}{hint}")
    return saliency


def checked_noise(noise: Tensor, x: Tensor) -> Tensor:
    """``noise`` as something that can be added to ``x``, or an error."""
    if not isinstance(noise, Tensor):
        raise TypeError(f"noise must be a torch.Tensor, got {type(noise).__name__}")
    if noise.shape != x.shape or not noise.is_floating_point():
        raise ValueError(f"noise must be floating point of shape {list(x.shape)} like x, got {noise.dtype} {list(noise.shape)}")
    noise = noise.detach().to(x.device)
    if can_inspect(noise) and not bool(torch.isfinite(noise).all()):
        raise NotFiniteError("noise must be finite, got NaN or infinity")
    return noise


def check_whole(name: str, value: Any, least: int = 1, *, none: bool = False) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``; or None, where that is allowed."""
    if not (none and value is None) and not (is_whole(value) and value >= least):
        raise ValueError(f"{name} must be a whole number, at least {least}{', or None' * none}, got {value!r}")


def check_number(name: str, value: Any, *, above: float | None = None, none: bool = False) -> None:
    """Raise unless ``value`` is finite and at least 0, or more than ``above``; or None, where that is allowed."""
    if not (none and value is None) and not (is_number(value) and (value >= 0 if above is None else value > above)):
        bound = "at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {bound}{', or None' * none}, got {value!r}")


def check_share(name: str, value: float, most: float = 1) -> None:
    """Raise unless ``value`` lies in 0 … ``most``."""
    if not isinstance(value, Real) or not 0 <= value <= most:
        raise ValueError(f"{name} must lie in 0 … {most:g}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise a sentence that lists what exists unless ``value`` is among ``choices``."""
    if value not in choices:
        raise ValueError(f"no {name} {value!r}; there are {', '.join(map(str, choices))}")


def nearest(wrong: object, names: Iterable[str]) -> str:
    """A hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(str(wrong), list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def can_inspect(values: Tensor) -> bool:
    """Whether looking at values is free: it would stall an accelerator, break a compiled graph, and fail in torch.func.vmap."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed(values)


def is_transformed(values: Tensor) -> bool:
    """Whether a transform of torch.func, such as vmap, goes on: results cannot be written to memory of before."""
    return is_functorch_wrapped_tensor(values)


Range = tuple[float, float]


def checked_range(name: str, value: Any, least: float, most: float) -> Range:
    """``value`` as (low, high) with ``least`` ≤ low ≤ high ≤ ``most``; one number is a range of no width."""
    ends = tuple(value) if isinstance(value, tuple | list) else (value, value)
    numbers = len(ends) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)
    if not numbers or not least <= ends[0] <= ends[1] <= most or math.isinf(ends[1]):
        bounds = f"at least {least:g}" if math.isinf(most) else f"in {least:g} … {most:g}"
        raise ValueError(f"{name} must be a number or a pair (low, high), {bounds}, got {value!r}")
    return ends[0], ends[1]


def between(ends: Range, uniform: Tensor) -> Tensor:
    """``uniform`` in 0 … 1 stretched over the range, which it never leaves."""
    return (ends[0] + (ends[1] - ends[0]) * uniform).clamp(*ends)


def checked_numbers(name: str, value: Any, *, positive: bool = False) -> float | tuple[float, ...]:
    """``value`` as a number or a tuple of numbers, whether it came as a list, a tensor or an array."""
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or not all(isinstance(part, Real) and math.isfinite(part) for part in parts):
        raise ValueError(f"{name} must be a number or one for each channel, got {value!r}")
    if positive and not all(part > 0 for part in parts):
        raise ValueError(f"{name} must be positive, got {value!r}")
    return tuple(float(part) for part in parts) if isinstance(value, list | tuple) else float(value)


def check_channels(name: str, value: Any, x: Tensor) -> None:
    """Raise unless ``value`` is one value or one for each channel of ``x [B, C, *size]``."""
    count = len(value) if isinstance(value, tuple) else 1
    if count not in (1, x.shape[1]):
        raise ValueError(
            f"{name} must have one value or one for each of {x.shape[1]} channels, the second axis of x, got {count}"
        )


def per_channel(name: str, value: float | tuple[float, ...], x: Tensor) -> Tensor:
    """``value`` in float64, where there is one, such that it can be multiplied with ``x [B, C, *size]``."""
    check_channels(name, value, x)
    return constant(value if isinstance(value, tuple) else (value,), x.device).reshape(-1, *[1] * (x.ndim - 2))
