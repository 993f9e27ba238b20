"""Reused CPU memory for mixed batches.

Page faults of new memory cost more than the mixing. A block is reused only after the tensor storage
on top of it is destroyed, so every reference to the batch keeps its block: a view, a NumPy array, a
DLPack capsule, an autograd graph, or another thread.
"""

import ctypes
import math
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

MIN_POOL_BYTES = 1 << 16
"""Smaller tensors use torch's allocator, because the C library already reuses their memory."""
MAX_FREE_BLOCKS = 4
"""Enough for two alternating batches and their dense targets."""
MAX_MISSES = 8
"""Drop a free block after this many requests that it did not fit."""

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4

NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
Block = np.ndarray[tuple[int], np.dtype[np.uint8]]

# Deque operations are atomic and need no lock, which another thread could hold during a fork.
_free: deque[tuple[Block, int]] = deque(maxlen=MAX_FREE_BLOCKS)
_leases: dict[int, "_Lease"] = {}


class _Lease(weakref.ref[Any]):
    """Weak reference to the array over a block. Its callback frees the block for reuse."""

    __slots__ = ("block",)
    block: Block


def empty(shape: tuple[int, ...], dtype: torch.dtype, memory_format: torch.memory_format) -> Tensor:
    """Allocate an uninitialized CPU tensor, in reused memory if it is large.

    Args:
        shape: Shape of the tensor.
        dtype: float32 or float64.
        memory_format: Contiguous or channels-last.

    Returns:
        The tensor.
    """
    numpy_dtype = NUMPY_DTYPES[dtype]
    size = math.prod(shape) * numpy_dtype.itemsize
    if size < MIN_POOL_BYTES:
        return torch.empty(shape, dtype=dtype, device="cpu", memory_format=memory_format)
    channels_last = memory_format != torch.contiguous_format
    if channels_last:
        shape = (shape[0], *shape[2:], shape[1])
    block: Block | None = None
    for _ in range(len(_free)):
        try:
            block, misses = _free.popleft()
        except IndexError:  # another thread took it
            break
        if size <= len(block) <= 2 * size:
            break
        if misses < MAX_MISSES:
            _free.append((block, misses + 1))
        block = None
    if block is None:
        block = torch.empty(size, dtype=torch.uint8, device="cpu").numpy()  # aligned by torch
    array = np.ndarray(shape, numpy_dtype, block)
    if channels_last:
        array = array.transpose(0, -1, *range(1, len(shape) - 1))
    lease = _Lease(array, _give_back)
    lease.block = block
    _leases[id(lease)] = lease
    return torch.from_numpy(array)


def keep_memory() -> bool:
    """Let the C library keep freed memory for the whole process (glibc only).

    By default glibc returns the memory of every large tensor to the system, and the next step
    spends time on page faults: at K = 5, about a third of a CPU training step. Results do not
    change. The environment variables ``MALLOC_MMAP_MAX_=0`` and
    ``MALLOC_TRIM_THRESHOLD_=18446744073709551615`` have the same effect.

    Returns:
        Whether the C library accepted the setting.
    """
    mallopt = _libc_function("mallopt")
    if mallopt is None:
        return False
    accepted = [mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1)]
    return accepted == [1, 1]


def release_memory() -> None:
    """Free cached blocks of mixed batches, and return the memory of :func:`keep_memory`."""
    _free.clear()
    trim = _libc_function("malloc_trim")
    if trim is not None:
        trim(0)


def _give_back(lease: _Lease) -> None:
    """Add the block of a destroyed array to the free blocks."""
    del _leases[id(lease)]
    _free.append((lease.block, 0))


def _libc_function(name: str) -> "ctypes._NamedFuncPointer | None":
    """Return a function of the C library, or None if it does not exist."""
    try:
        function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None
    return function
