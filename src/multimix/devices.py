"""The way between the host, where plans are drawn, and an accelerator: one copy each way, and on the way there nobody waits."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that has none, such as Apple's MPS."""
    return torch.float64 if device.type in ("cpu", "cuda", "meta") or _has_float64(device.type) else torch.float32


@lru_cache
def _has_float64(kind: str) -> bool:
    try:
        torch.empty(0, dtype=torch.float64, device=kind)
    except (RuntimeError, TypeError):
        return False
    return True


def uploaded(device: torch.device, *values: Tensor) -> list[Tensor]:
    """``values`` on ``device``; those on the CPU by one copy, for which the host does not wait.

    float64 becomes float32 on a device that has none. What is on ``device`` already stays as it is.
    """
    if device.type == "cpu":
        return [value.to(device) for value in values]
    wide = widest_float(device)
    found = [value.to(wide) if value.dtype == torch.float64 else value for value in values]
    here = [i for i, value in enumerate(found) if value.device.type == "cpu"]
    if len(here) > 1:
        packed = _packed([found[i] for i in here], pinned=device.type == "cuda")
        there = packed.to(device, non_blocking=_copies_alone(device))
        for i, value in zip(here, _unpacked(there, [found[i] for i in here]), strict=True):
            found[i] = value
    return [value.to(device, non_blocking=_copies_alone(device)) for value in found]


def downloaded(*values: Tensor) -> list[Tensor]:
    """``values``, all on one device, on the CPU: by one copy, for which the host waits; detached."""
    if values[0].device.type == "cpu":
        return [value.detach() for value in values]
    return _unpacked(_packed(values).cpu(), values)


def constant(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """``numbers`` in the widest floating point of ``device``, to which they are copied once."""
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=torch.float64, device=device)
    return _kept_constant(numbers, device)


@lru_cache(maxsize=64)
def _kept_constant(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # made in inference mode it could not be used in training
        return torch.tensor(numbers, dtype=widest_float(device), device=device)


def uniform_like(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers in the shape of ``x``: from ``generator`` on the CPU, elsewhere from the device's own, which it seeds."""
    if x.device.type == "cpu":
        return torch.rand(x.shape, generator=generator, dtype=x.dtype, device="cpu")
    # As many numbers as the batch has are not sent to an accelerator.
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    return torch.rand(x.shape, generator=torch.Generator(x.device).manual_seed(seed), dtype=x.dtype, device=x.device)


def _copies_alone(device: torch.device) -> bool:
    """Whether the host may go on, and free the source, while ``device`` copies."""
    # MPS would read memory that is freed or overwritten meanwhile (pytorch issues 139550 and 189690).
    return device.type != "mps"


def _packed(values: Sequence[Tensor], *, pinned: bool = False) -> Tensor:
    """All ``values`` byte by byte, large numbers first, so that each begins where one of its type may.

    ``pinned`` memory is what a GPU copies from without the host.
    """
    parts = [values[i].detach().contiguous().flatten().view(torch.uint8) for i in _large_first(values)]
    if not pinned:
        return torch.cat(parts)
    return torch.cat(parts, out=torch.empty(sum(map(len, parts)), dtype=torch.uint8, device="cpu", pin_memory=True))


def _unpacked(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    found: list[Tensor] = [packed] * len(like)
    start = 0
    for i in _large_first(like):
        end = start + like[i].numel() * like[i].element_size()
        found[i] = packed[start:end].view(like[i].dtype).view(like[i].shape)
        start = end
    return found


def _large_first(values: Sequence[Tensor]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: -values[i].element_size())
