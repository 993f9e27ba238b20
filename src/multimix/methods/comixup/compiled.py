"""How the Co-Mixup kernel is compiled: many functions in several files, kept on disk as one.

numba takes what it has kept for fresh as long as the file of the outermost function is the same, whatever has become of files
that it imports. So only the outermost function is kept, and a digest of all files is part of its identity.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

FILES = ("blocks.py", "kernel.py", "moves.py", "part.py")


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by numba as a part of the kernel that calls it, not kept on its own."""
    import numba

    return cast(Callable[..., Any], numba.njit(nogil=True)(function))


def digest() -> str:
    """What changes with any file of the kernel."""
    return sha256(b"".join((Path(__file__).parent / name).read_bytes() for name in FILES)).hexdigest()
