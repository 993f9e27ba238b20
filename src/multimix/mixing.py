"""The one line that mixes, and the quickest way to lay out its K·B results."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from . import one_pass, pool
from .checks import check_precision, is_transformed

# Samples of this many numbers and more are quicker mixed pair by pair than after gathering all partners (measured on CPU).
PAIR_BY_PAIR = 20_000

AtOnce = tuple[Tensor, Tensor | None]
"""A mixed batch, and its targets if they were asked for."""


def mix(z: Tensor, z_pair: Tensor, m: Tensor) -> Tensor:
    """(1 − m) ⊙ z + m ⊙ z': 0 gives ``z`` and 1 gives ``z_pair``, bit for bit. ``m`` broadcasts.

    Half-precision ``z`` is mixed in float32: rounding λ to eight bits would part the sample from its target.
    """
    if z.dtype in (torch.float16, torch.bfloat16):
        return torch.lerp(z.float(), z_pair.float(), m.to(torch.float32)).to(z.dtype)
    return torch.lerp(z, z_pair, m.to(z.dtype))


def exact_mix(z: Tensor | float, z_pair: Tensor | float, m: Tensor | float) -> Tensor:
    """(1 − m) ⊙ z + m ⊙ z': 0 gives ``z`` and 1 gives ``z_pair``, bit for bit, infinities included. All three broadcast.

    Between two finite numbers lie finite numbers, also where their difference is none. Half-precision ``z`` is mixed in float32.
    """
    z, z_pair, m = (_as_numbers(name, value) for name, value in (("z", z), ("z_pair", z_pair), ("m", m)))
    if z.dtype != z_pair.dtype or not z.is_floating_point() or m.is_complex():
        raise ValueError(
            f"z and z_pair must have one floating-point type, m be real, got {z.dtype}, {z_pair.dtype} and {m.dtype}"
        )
    # A single number goes with any device.
    m = m.to(z.device) if m.ndim == 0 else m
    if not z.device == z_pair.device == m.device:
        raise ValueError(f"z, z_pair and m must be on one device, got {z.device}, {z_pair.device} and {m.device}")
    try:
        torch.broadcast_shapes(z.shape, z_pair.shape, m.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = ", ".join(str(list(part.shape)) for part in (z, z_pair, m))
        raise ValueError(f"the shapes of z, z_pair and m must broadcast, got {shapes}") from None
    mixed = mix(z, z_pair, m)
    m = m.to(mixed.dtype if mixed.dtype in (torch.float32, torch.float64) else torch.float32)
    mixed = torch.where(torch.isfinite(mixed), mixed, ((1 - m) * z + m * z_pair).to(mixed.dtype))
    return torch.where(m == 0, z, torch.where(m == 1, z_pair, mixed))


def _as_numbers(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor | Real):
        raise TypeError(f"{name} must be a torch.Tensor or a number, got {type(value).__name__}")
    if isinstance(value, Tensor) and value.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor, got {value.layout}; use {name}.to_dense()")
    numbers = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.get_default_dtype())
    check_precision(name, numbers)
    return numbers


def mixed_batch(z: Tensor, partner: Tensor, m: Tensor, out: Tensor | None = None) -> Tensor:
    """``[K·B, …]``, k-major: ``z`` mixed with ``z[partner]`` by each of the K weights ``m [K, 1 or B, …]``.

    ``out`` is filled and returned if given. The memory format of ``z`` is kept.
    """
    if m.requires_grad or not can_write_in_place(z):
        return into(mix(z, z[partner], m).flatten(0, 1), z, out)
    k, batch = m.shape[0], z.shape[0]
    out = rows_like(z, k) if out is None else out
    if is_small(z):
        # The partners are gathered where the last step will be, which is then mixed in place: no third buffer.
        last = out if k == 1 else out[-batch:]
        torch.index_select(z, 0, partner, out=last)
        if m.numel() == 1:
            torch.lerp(z, last, m.item(), out=last)
            return out
        m = m.to(z.dtype)
        if k > 1:
            torch.lerp(z, last, m[:-1], out=by_step(out[:-batch], k - 1))
        torch.lerp(z, last, m[-1], out=last)
        return out
    pairs, m = partner.tolist(), m.to(z.dtype)
    order = chain(pairs)
    if _can_stream(z, m, out):
        from .streamed_kernel import lerp_pairs

        lerp_pairs(z, partner, order, m.contiguous(), out)
        return out
    own, of_pair, weight = z.unbind(0), by_step(out, k).unbind(1), m.expand(k, batch, *m.shape[2:]).unbind(1)
    for i in order:
        torch.lerp(own[i], own[pairs[i]], weight[i], out=of_pair[i])
    return out


def _can_stream(z: Tensor, m: Tensor, out: Tensor) -> bool:
    """Whether compiled code that writes past the cache can mix large samples by masks."""
    return (
        z.ndim > 2
        and m.shape[1] in (1, z.shape[0])
        and m.shape[2:] == (1, *z.shape[2:])
        and z.is_contiguous()
        and is_worth_compiling(z, out)
    )


def is_worth_compiling(z: Tensor, out: Tensor) -> bool:
    """Whether compiled code can turn ``z`` into ``out``, laid out alike and watched by nobody, and is worth loading."""
    alike = all(rows.is_contiguous(memory_format=memory_format(z)) for rows in (z, out))
    return alike and torch._C._len_torch_dispatch_stack() == 0 and one_pass.is_time()


def blended_batch(z: Tensor, partner: Tensor, share: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`mixed_batch` by one number for all of a sample: ``share [K, 1 or B]``."""
    if is_small(z) and not share.requires_grad and can_write_in_place(z):
        out = _pooled(z, len(share)) if out is None else out
        if one_pass.blend(z, partner, share, out):
            return out
    return mixed_batch(z, partner, share.reshape(*share.shape, *[1] * (z.ndim - 1)), out)


def filled_at_once(z: Tensor, k: int, fill: Callable[..., bool], label: Tensor | None, classes: int) -> AtOnce | None:
    """What ``fill``, such as :func:`.one_pass.blend`, fills; None where it cannot, or ``z`` is large."""
    if not is_small(z) or one_pass.loaded() is None:
        return None
    out = _pooled(z, k)
    if label is None:
        return (out, None) if fill(out) else None
    target = pool.rows((k * z.shape[0], classes), torch.float32)
    return (out, target) if fill(out, label, target) else None


def is_small(z: Tensor) -> bool:
    """Whether calls cost more than memory, so that the fewest of them are best."""
    return z.numel() < z.shape[0] * PAIR_BY_PAIR


def can_write_in_place(z: Tensor) -> bool:
    """Whether to write results in place: plain CPU tensors that no gradient, transform, compiler or tensor subclass watches."""
    return (
        z.device.type == "cpu"
        and z.dtype in (torch.float32, torch.float64)
        and type(z) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
        and not is_transformed(z)
        and not (z.requires_grad and torch.is_grad_enabled())
        and one_pass.is_all_in_memory(z)
    )


def chain(partner: list[int]) -> list[int]:
    """All indices, each followed by its partner where possible: a sample is still in the cache when it is needed again."""
    order, seen = [], [False] * len(partner)
    for start in range(len(partner)):
        i = start
        while not seen[i]:
            seen[i] = True
            order.append(i)
            i = partner[i]
    return order


def rows_like(z: Tensor, k: int) -> Tensor:
    """Uninitialised ``[K·B, …]`` in the memory format of ``z``: memory that is used again once nobody holds it any more."""
    if can_write_in_place(z):
        return _pooled(z, k)
    return torch.empty((k * z.shape[0], *z.shape[1:]), dtype=z.dtype, device=z.device, memory_format=memory_format(z))


def _pooled(z: Tensor, k: int) -> Tensor:
    """:func:`rows_like` for a ``z`` that :func:`can_write_in_place` allows."""
    shape, order = (k * z.shape[0], *z.shape[1:]), memory_format(z)
    if torch.cuda.is_initialized() and z.is_pinned():  # type: ignore[no-untyped-call]
        # The batch goes to a GPU next, which reads such memory while the host goes on; torch uses it again by itself.
        return torch.empty(shape, dtype=z.dtype, device="cpu", memory_format=order, pin_memory=True)
    if k * z.nbytes < pool.LEAST_BYTES:
        return torch.empty(shape, dtype=z.dtype, device="cpu", memory_format=order)
    return pool.empty(shape, z.dtype, channels_last=order != torch.contiguous_format)


def by_step(rows: Tensor, k: int) -> Tensor:
    """``[K·B, …]`` seen as ``[K, B, …]``, in any memory format."""
    return rows.view(k, rows.shape[0] // k, *rows.shape[1:])


def memory_format(z: Tensor) -> torch.memory_format:
    """Contiguous or channels-last, as ``z`` is."""
    if not z.is_contiguous():
        if z.ndim == 4 and z.is_contiguous(memory_format=torch.channels_last):
            return torch.channels_last
        if z.ndim == 5 and z.is_contiguous(memory_format=torch.channels_last_3d):
            return torch.channels_last_3d
    return torch.contiguous_format


def into(mixed: Tensor, z: Tensor, out: Tensor | None) -> Tensor:
    """``mixed`` in the memory format of ``z``, copied into ``out`` if there is one."""
    return mixed.contiguous(memory_format=memory_format(z)) if out is None else out.copy_(mixed)
