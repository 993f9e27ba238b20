"""The C library's memory, for training on the CPU: what a step frees is kept for the next one."""

import ctypes

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_memory() -> bool:
    """Whether the C library will keep memory that is freed, from now on and in the whole process; for glibc, so on Linux.

    It hands every large tensor back to the system otherwise, and the next step pays page by page to have the memory again: at
    K = 5, where all tensors are large, a third of the time of a step. The results are the same. :func:`release_memory` hands
    back what is free. The same from outside: ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=18446744073709551615``.
    """
    mallopt = _function("mallopt")
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1


def trim_memory() -> None:
    """Hand all free memory back to the system."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> "ctypes._NamedFuncPointer | None":
    try:
        found: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None
    return found
