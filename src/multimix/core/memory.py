"""Reused CPU memory for mixed batches.

Page faults of fresh memory cost more than the mixing itself. A block is reused once the storage
laid over it has been destroyed, so whoever holds the batch (a view, a NumPy array, a DLPack
capsule, an autograd graph, another thread) also keeps its block.
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
"""Smaller tensors come from torch: the C library keeps their memory anyway."""
MAX_FREE_BLOCKS = 4
"""Two batches in turn, and their dense targets."""
MAX_MISSES = 8
"""Drop a free block after this many requests that it did not fit."""

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4

NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
Block = np.ndarray[tuple[int], np.dtype[np.uint8]]

# Only single deque operations, which are atomic: a lock could be held while a process forks.
_free: deque[tuple[Block, int]] = deque(maxlen=MAX_FREE_BLOCKS)
_leases: dict[int, "_Lease"] = {}


class _Lease(weakref.ref[Any]):
    """Returns its block when the array that a storage was laid over dies."""

    __slots__ = ("block",)
    block: Block


def empty(shape: tuple[int, ...], dtype: torch.dtype, memory_format: torch.memory_format) -> Tensor:
    """Return an uninitialized float32 or float64 CPU tensor, in reused memory if it is large."""
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

    By default glibc returns every large tensor to the system, and the next step pays for page
    faults: at K = 5 about a third of a CPU training step. Results do not change. The same from
    outside: ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=18446744073709551615``.

    Returns:
        Whether the C library accepted the setting.
    """
    mallopt = _libc_function("mallopt")
    if mallopt is None:
        return False
    accepted = [mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1)]
    return accepted == [1, 1]


def release_memory() -> None:
    """Return the memory kept for mixed batches, and by :func:`keep_memory`, to the system."""
    _free.clear()
    trim = _libc_function("malloc_trim")
    if trim is not None:
        trim(0)


def _give_back(lease: _Lease) -> None:
    del _leases[id(lease)]
    _free.append((lease.block, 0))


def _libc_function(name: str) -> "ctypes._NamedFuncPointer | None":
    try:
        function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None
    return function
