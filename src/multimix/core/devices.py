"""Copies between the CPU, which draws plans, and an accelerator; numeric precision."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest floating-point dtype of a device.

    Args:
        device: Any device.

    Returns:
        float64, or float32 on a device without float64, such as MPS.
    """
    # Known devices first: torch.compile warns about functions with a cache.
    is_known = device.type in ("cpu", "cuda", "meta")
    return torch.float64 if is_known or _has_float64(device.type) else torch.float32


@lru_cache
def _has_float64(kind: str) -> bool:
    """Whether a device type supports float64."""
    try:
        torch.empty(0, dtype=torch.float64, device=kind)
    except (RuntimeError, TypeError):
        return False
    return True


def uploaded(device: torch.device, *values: Tensor) -> list[Tensor]:
    """Copy tensors to a device. CPU tensors are packed into one copy without a host sync.

    Args:
        device: The target device.
        *values: Tensors on the CPU or on ``device``.

    Returns:
        The tensors on ``device``. float64 becomes float32 on a device without float64.
    """
    if device.type == "cpu":
        return [value.to(device) for value in values]
    wide = widest_float(device)
    # An asynchronous copy to MPS may read freed memory (pytorch issues 139550 and 189690).
    asynchronous = device.type != "mps"
    moved = [value.to(wide) if value.dtype == torch.float64 else value for value in values]
    on_cpu = [i for i, value in enumerate(moved) if value.is_cpu]
    if on_cpu:
        sources = [moved[i] for i in on_cpu]
        packed = _packed(sources, pinned=device.type == "cuda")
        copied = packed.to(device, non_blocking=asynchronous)
        for i, value in zip(on_cpu, _unpacked(copied, sources), strict=True):
            moved[i] = value
    return [value.to(device, non_blocking=asynchronous) for value in moved]


def downloaded(*values: Tensor) -> list[Tensor]:
    """Copy tensors from one device to the CPU in a single blocking copy.

    Args:
        *values: Tensors on one device.

    Returns:
        The tensors on the CPU, detached.
    """
    if values[0].device.type == "cpu":
        return [value.detach() for value in values]
    return _unpacked(_packed(values).cpu(), values)


def constant(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Create a constant tensor. Accelerators cache it, so it is copied once.

    Args:
        numbers: The values.
        device: Device of the result.

    Returns:
        ``[len(numbers)]`` in the widest floating-point dtype of ``device``.
    """
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=torch.float64, device=device)
    return _cached_constant(numbers, device)


@lru_cache(maxsize=64)
def _cached_constant(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # autograd cannot use an inference tensor
        return torch.tensor(numbers, dtype=widest_float(device), device=device)


def uniform_like(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw uniform numbers with the shape, dtype and device of ``x``.

    On an accelerator, ``generator`` seeds a generator on that device, so nothing is copied.

    Args:
        x: A floating-point tensor.
        generator: A CPU generator.

    Returns:
        Numbers in [0, 1).
    """
    if x.device.type == "cpu":
        return torch.rand(x.shape, generator=generator, dtype=x.dtype, device="cpu")
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    on_device = torch.Generator(x.device).manual_seed(seed)
    return torch.rand(x.shape, generator=on_device, dtype=x.dtype, device=x.device)


def _packed(values: Sequence[Tensor], *, pinned: bool = False) -> Tensor:
    """Concatenate the bytes of all tensors, largest item size first, so that each is aligned."""
    flat = [values[i].detach().contiguous().flatten() for i in _by_item_size(values)]
    packed = torch.cat([part.view(torch.uint8) for part in flat])
    return packed.pin_memory() if pinned else packed


def _unpacked(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Split the result of ``_packed`` into tensors with the shapes and dtypes of ``like``."""
    values: list[Tensor] = [packed] * len(like)
    start = 0
    for i in _by_item_size(like):
        end = start + like[i].numel() * like[i].element_size()
        values[i] = packed[start:end].view(like[i].dtype).view(like[i].shape)
        start = end
    return values


def _by_item_size(values: Sequence[Tensor]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: -values[i].element_size())


def float32_or_better(z: Tensor) -> Tensor:
    """Convert to float32 unless the tensor is float64.

    Args:
        z: A real tensor.

    Returns:
        ``z`` in float32 or float64.
    """
    return z if z.dtype == torch.float64 else z.float()


def full_precision(z: Tensor) -> AbstractContextManager[Any]:
    """Disable autocast on the device of ``z``.

    Args:
        z: Any tensor.

    Returns:
        A context manager.
    """
    device_type = z.device.type
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
