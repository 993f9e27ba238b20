"""Memory for mixed batches that is used again: fresh memory costs more than the mixing, because of its page faults.

A block is free again when the storage that was laid over it has been destroyed, which is when an allocator would have got it
back: whoever holds the batch, a view, a NumPy array, a DLPack capsule, a graph of autograd or another thread, holds the storage.
Each batch has a storage of its own, so nothing that happens to one (moved into shared memory by a data-loader worker, say)
reaches the next.
"""

import math
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .allocator import trim_memory

LEAST_BYTES = 1 << 16
"""Smaller tensors come from memory that the C library keeps anyway."""
MOST_FREE = 4
"""Free blocks that are kept: two batches in turn, and their dense targets."""
PATIENCE = 8
"""How many requests that it does not fit a free block survives."""

NUMPY: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}

Block = np.ndarray[tuple[int], np.dtype[np.uint8]]

# Taken and put back by single operations of the deque, which threads and the garbage collector cannot interrupt: no lock that
# a process could be forked with. A full deque drops the block that has been free for longest.
_free: deque[tuple[Block, int]] = deque(maxlen=MOST_FREE)
_leases: dict[int, "_Lease"] = {}


class _Lease(weakref.ref[Any]):
    """Gives its block back when the array dies that a storage was laid over."""

    __slots__ = ("block",)
    block: Block


def empty(shape: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool = False) -> Tensor:
    """An uninitialised float32 or float64 tensor on the CPU, contiguous or channels-last. It cannot grow by ``resize_``."""
    kind = NUMPY[dtype]
    if channels_last:
        shape = (shape[0], *shape[2:], shape[1])
    block = _block(math.prod(shape) * kind.itemsize)
    array = np.ndarray(shape, kind, block)
    if channels_last:
        array = array.transpose(0, -1, *range(1, len(shape) - 1))
    lease = _Lease(array, _give_back)
    lease.block = block
    _leases[id(lease)] = lease
    return torch.from_numpy(array)


def rows(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """:func:`empty`, or from torch where that is too small to be kept."""
    if math.prod(shape) * NUMPY[dtype].itemsize < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return empty(shape, dtype)


def release_memory() -> None:
    """Hand back the memory that is kept for the next mixed batches, and what :func:`keep_memory` has kept."""
    _free.clear()
    trim_memory()


def _block(size: int) -> Block:
    """A free block of at least ``size`` bytes and at most twice as many, or a new one."""
    for _ in range(len(_free)):
        try:
            block, passed = _free.popleft()
        except IndexError:  # another thread was quicker
            break
        if size <= len(block) <= 2 * size:
            return block
        if passed < PATIENCE:
            _free.append((block, passed + 1))
    made: Block = torch.empty(size, dtype=torch.uint8, device="cpu").numpy()  # aligned as torch likes it
    return made


def _give_back(lease: _Lease) -> None:
    del _leases[id(lease)]
    _free.append((lease.block, 0))
