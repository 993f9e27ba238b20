"""The mixing equation (1 − m) ⊙ z + m ⊙ z', and the layout of its K·B results."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import memory
from .checks import is_transformed

LARGE_SAMPLE = 20_000
"""Minimum values per sample for mixing pairs one by one on the CPU, so that they fit the cache."""


def mix(z: Tensor, z_pair: Tensor, m: Tensor) -> Tensor:
    """Compute (1 − m) ⊙ z + m ⊙ z'.

    m = 0 gives exactly ``z`` and m = 1 gives exactly ``z_pair``. Half-precision samples are mixed
    in float32, since a λ rounded to eight bits would no longer match the target.

    Args:
        z: Samples, floating point.
        z_pair: Partners, in the dtype of ``z``.
        m: The partner's share in [0, 1]. The three arguments broadcast.

    Returns:
        The mixture in the dtype of ``z``.
    """
    if z.dtype in (torch.float16, torch.bfloat16):
        return torch.lerp(z.float(), z_pair.float(), m.to(torch.float32)).to(z.dtype)
    return torch.lerp(z, z_pair, m.to(z.dtype))


def mixed_batch(z: Tensor, partner: Tensor, m: Tensor) -> Tensor:
    """Mix ``z`` with ``z[partner]`` at K points.

    Args:
        z: ``[B, …]`` samples, floating point.
        partner: ``[B]`` indices into the batch.
        m: ``[K, 1 or B, …]``, broadcast over the rest of ``z``.

    Returns:
        ``[K·B, …]``, k-major, in the memory format of ``z``.

    Raises:
        TypeError: If ``z`` is not floating point.
    """
    if not z.is_floating_point():
        raise TypeError(f"z must be floating point, got {z.dtype}: pass z.float()")
    if m.requires_grad or not is_plain_cpu(z):
        return like(mix(z, z.index_select(0, partner), m).flatten(0, 1), z)
    k, batch = m.shape[0], z.shape[0]
    out = _empty_rows(z, k)
    steps, m = out.view(k, batch, *z.shape[1:]), m.to(z.dtype)
    if z.numel() < batch * LARGE_SAMPLE:
        # Gather the partners into the memory of the last step, which is then mixed in place.
        torch.index_select(z, 0, partner, out=steps[-1])
        if k > 1:
            torch.lerp(z, steps[-1], m[:-1], out=steps[:-1])
        torch.lerp(z, steps[-1], m[-1], out=steps[-1])
        return out
    weight = m.expand(k, batch, *m.shape[2:]).unbind(1)
    for sample, i, m_i, rows in zip(z, partner.tolist(), weight, steps.unbind(1), strict=True):
        torch.lerp(sample, z[i], m_i, out=rows)
    return out


def stacked(steps: Sequence[Tensor], z: Tensor) -> Tensor:
    """Concatenate K steps.

    Args:
        steps: K tensors ``[B, …]``.
        z: Tensor whose dtype and memory format the result has.

    Returns:
        ``[K·B, …]``, k-major.
    """
    return like(torch.cat(list(steps)).to(z.dtype), z)


def like(mixed: Tensor, z: Tensor) -> Tensor:
    """Convert a tensor to the memory format of another.

    Args:
        mixed: Tensor to convert.
        z: Tensor whose memory format the result has.

    Returns:
        ``mixed`` in the memory format of ``z``.
    """
    return mixed.contiguous(memory_format=memory_format(z))


def memory_format(z: Tensor) -> torch.memory_format:
    """Return the memory format of a tensor.

    Args:
        z: Any tensor.

    Returns:
        Channels-last (2-D or 3-D) if ``z`` is stored so, otherwise contiguous.
    """
    if not torch.compiler.is_compiling() and is_transformed(z):
        return torch.contiguous_format  # vmap cannot query the layout
    if z.is_contiguous():
        return torch.contiguous_format
    if z.ndim == 4 and z.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    if z.ndim == 5 and z.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return torch.contiguous_format


def is_plain_cpu(z: Tensor) -> bool:
    """Whether results may be written to existing memory.

    Args:
        z: Samples.

    Returns:
        True for a float32 or float64 CPU tensor without gradient, transform or compiler.
    """
    return (
        type(z) is Tensor
        and z.is_cpu
        and z.dtype in memory.NUMPY_DTYPES
        and not (z.requires_grad and torch.is_grad_enabled())
        and not torch.compiler.is_compiling()
        and not is_transformed(z)
        and forward_ad._current_level < 0
    )


def _empty_rows(z: Tensor, k: int) -> Tensor:
    """Allocate ``[K·B, …]`` for ``z [B, …]``, pinned if ``z`` is pinned."""
    shape, layout = (k * z.shape[0], *z.shape[1:]), memory_format(z)
    if torch.cuda.is_initialized() and z.is_pinned():  # type: ignore[no-untyped-call]
        # Pinned batches are copied to a GPU next, asynchronously only from pinned memory.
        return torch.empty(
            shape, dtype=z.dtype, device="cpu", memory_format=layout, pin_memory=True
        )
    return memory.empty(shape, z.dtype, layout)
