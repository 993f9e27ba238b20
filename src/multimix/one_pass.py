"""Small batches on the CPU mixed in one pass over memory by compiled kernels, once they are worth loading.

Torch's calls are what everything falls back to, with the same results: to the last bit where the CPU multiplies and adds at
once, as torch and the kernels then do, else within one unit in the last place.
"""

import sys
from functools import cache
from itertools import count
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

WORTH_IT = 1000
"""Batches after which a process loads the kernels: that takes half a second, and saves a tenth of a millisecond or more each."""
ONE_THREAD = 1 << 20
"""Numbers of a result from which torch is quicker where it has several threads."""

PLAIN = (Tensor, torch.nn.Parameter)
LIMIT = torch.finfo(torch.float32).max / 2  # above, the difference of two numbers may overflow
NONE = torch.empty(0, 0, device="cpu")
_batches = count(1)
_loaded: ModuleType | None = None


def loaded() -> ModuleType | None:
    """The kernels, if this process has them already."""
    return _loaded


def is_time() -> bool:
    """Whether this process has the kernels, or has asked often enough for them to be loaded; every call is one batch."""
    return _loaded is not None or ((next(_batches) > WORTH_IT or "numba" in sys.modules) and _has_numba())


@cache
def _has_numba() -> bool:
    """Whether numba can be loaded. One that does not go with this NumPy cannot, say: mixing can do without."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def is_usual(x: Any, y: Any) -> bool:
    """Whether ``x [B, …]`` and class indices ``y [B]`` are plain tensors, of the usual types, that nothing else watches."""
    return (
        _loaded is not None
        and not torch.compiler.is_compiling()
        and type(x) is Tensor
        and type(y) is Tensor
        and x.is_cpu
        and x.layout == torch.strided
        and not x.is_nested
        and y.is_cpu
        and x.dtype == torch.float32 == torch.get_default_dtype()
        and not x.requires_grad
        and x.ndim > 0
        and y.shape == x.shape[:1]
        and _are_indices(y)
        and torch._C._len_torch_function_stack() == 0
        and not is_functorch_wrapped_tensor(x)
        and not is_functorch_wrapped_tensor(y)
        and is_all_in_memory(x)
    )


def is_all_in_memory(z: Tensor) -> bool:
    """Whether the memory of ``z`` says all about it: no sign that is kept elsewhere, no zeros without any memory, and no
    derivative of torch's forward mode beside it, which whoever reads memory would lose.
    """
    return not (z.is_neg() or z._is_zerotensor() or forward_ad._current_level >= 0)


def largest(x: Tensor) -> float | None:
    """The largest number of ``x`` on the CPU without its sign, NaN if there is one; None where torch has to look for it."""
    if _loaded is None or x.dtype != torch.float32 or type(x) not in PLAIN or not _is_dense(x):
        return None
    return float(_loaded.largest(x.data_ptr(), x.numel()))


def blend(z: Tensor, partner: Tensor, share: Tensor, out: Tensor, label: Tensor = NONE, target: Tensor = NONE) -> bool:
    """Whether ``out [K·B, …]`` could be filled with ``z`` and ``z[partner]`` mixed by ``share [K, 1 or B]``.

    ``target [K·B, C]`` is filled with 1 − λ for the class ``label [B]`` of a sample and λ for its partner's, if given. Torch has
    to do it, or to complain, where ``z`` is large or not finite, or a label not one of C. ``z`` is one that
    :func:`.mixing.can_write_in_place` allows; all are on the CPU.
    """
    steps, paths = share.shape
    kernels = _kernels(z, out, steps)
    if kernels is None or share.dtype != torch.float64 or paths not in (1, len(z)) or not _are_indices(partner):
        return False
    batch, (to_step, to_pair) = z.shape[0], share.stride()
    addresses = z.data_ptr(), out.data_ptr(), partner.data_ptr(), label.data_ptr(), target.data_ptr(), target.shape[1]
    path = share.data_ptr(), to_step, to_pair if paths > 1 else 0
    return bool(kernels.blend(*addresses, batch, z.numel() // batch, steps, *path) <= LIMIT)


def blend_reversed(x: Tensor, own: float) -> bool:
    """Whether ``x [B, …]``, B even, could be mixed in place with itself in reverse order: ``own`` is the share of the sample.

    All bits are those of torch's products and sums. ``x`` is as for :func:`blend`.
    """
    kernels = None if x.is_inference() else _kernels(x, x, 1)
    if kernels is None:
        return False
    kernels.blend_reversed(x.data_ptr(), x.shape[0], x.numel() // x.shape[0], own)
    increment_version(x)  # for whoever needs the numbers that were there, and must not compute with these
    return True


def paste(
    z: Tensor, partner: Tensor, low: Tensor, high: Tensor, out: Tensor, label: Tensor = NONE, target: Tensor = NONE
) -> bool:
    """:func:`blend` for ``z[partner]`` in boxes ``low, high [K, 1 or B, d]`` and ``z [B, C, *size]`` around them."""
    steps, boxes, axes = low.shape
    kernels = _kernels(z, out, steps)
    if kernels is None or not (_are_indices(partner) and low.is_contiguous() and high.is_contiguous()):
        return False
    if not (low.dtype == high.dtype == torch.int64 and low.shape == high.shape and boxes in (1, len(z)) and axes == z.ndim - 2):
        return False
    batch, channels = z.shape[:2]
    unit = 1 if z.is_contiguous() else channels  # numbers of one place that lie side by side
    planes = channels // unit
    addresses = z.data_ptr(), out.data_ptr(), partner.data_ptr(), label.data_ptr(), target.data_ptr(), target.shape[1]
    shape = batch, planes, z.numel() // (batch * planes), steps
    size = z.shape[-2] if axes > 1 else 1, z.shape[-1], unit
    largest = kernels.paste(*addresses, *shape, low.data_ptr(), high.data_ptr(), boxes, axes, *size)
    return bool(largest <= LIMIT)


def _kernels(z: Tensor, out: Tensor, k: int) -> ModuleType | None:
    """The kernels, loaded if it is time, to mix ``z`` into ``out`` in ``k`` steps; None if torch has to do it."""
    global _loaded
    if z.dtype != torch.float32 or (k * z.numel() > ONE_THREAD and torch.get_num_threads() > 1):
        return None
    if not _is_dense(z) or not _is_dense(out) or z.is_contiguous() != out.is_contiguous():
        return None
    if _loaded is None and is_time():
        _loaded = _import()
    return _loaded


@cache
def _import() -> ModuleType | None:
    try:
        from . import one_pass_kernel
    except ImportError:  # a numba that does not go with this NumPy, say: mixing can do without
        return None
    return one_pass_kernel


def _is_dense(z: Tensor) -> bool:
    """Whether the memory of ``z`` is its numbers, all of them, channels first or last, and nobody else watches calls."""
    if z.numel() == 0 or not is_all_in_memory(z) or torch._C._len_torch_dispatch_stack() > 0:
        return False
    return z.is_contiguous() or (z.ndim in (4, 5) and z.movedim(1, -1).is_contiguous())


def _are_indices(values: Tensor) -> bool:
    return values.dtype == torch.int64 and values.ndim == 1 and values.is_contiguous() and not values.is_neg()
