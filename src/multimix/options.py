"""Options that are more than one number: a range to draw from, a number for each channel."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

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


def checked_numbers(name: str, value: Any) -> float | tuple[float, ...]:
    """``value`` as a number or a tuple of numbers, whether it came as a list, a tensor or an array."""
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or not all(isinstance(part, Real) and math.isfinite(part) for part in parts):
        raise ValueError(f"{name} must be a number or one for each channel, got {value!r}")
    return tuple(float(part) for part in parts) if isinstance(value, list | tuple) else float(value)


def per_channel(name: str, value: float | tuple[float, ...], x: Tensor) -> Tensor:
    """``value`` in float64, such that it can be multiplied with ``x [B, C, *size]``."""
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) not in (1, x.shape[1]):
        raise ValueError(
            f"{name} must have one value or one for each of {x.shape[1]} channels, the second axis of x, got {len(parts)}"
        )
    return torch.tensor(parts, dtype=torch.float64, device=x.device).reshape(-1, *[1] * (x.ndim - 2))
