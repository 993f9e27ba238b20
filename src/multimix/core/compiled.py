"""Solvers compiled by numba, an optional dependency that is imported when a solver first runs."""

import hashlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger("multimix")
_loading = threading.RLock()
_held_while_forking: list[Any] = []


@cache
def has_numba() -> bool:
    """Whether numba can be imported, as with ``multimix[solvers]``. A broken one is logged."""
    if find_spec("numba") is None:
        return False
    try:
        with _loading:
            importlib.import_module("numba")
    except Exception as error:  # numba raises ImportError and SystemError for a NumPy it rejects
        log.warning("numba is installed, but cannot be imported: %s", error)
        return False
    return True


def load_kernels(module: str, user: str) -> Any:
    """Import a module of compiled functions.

    Args:
        module: Full name of the module.
        user: The method or option that needs it, for the error message.

    Returns:
        The module.

    Raises:
        ImportError: If numba cannot be imported.
    """
    if not has_numba():
        raise ImportError(f"{user} needs numba: pip install multimix[solvers]")
    with _loading:
        return importlib.import_module(module)


def _before_fork() -> None:
    """Wait while a thread imports or compiles: its locks would stay locked in the child."""
    _loading.acquire()
    _held_while_forking.append(_loading)
    module = sys.modules.get("numba.core.compiler_lock")
    if module is not None:
        module.global_compiler_lock.acquire()
        _held_while_forking.append(module.global_compiler_lock)


def _after_fork() -> None:
    while _held_while_forking:
        _held_while_forking.pop().release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` at its first call, without the interpreter lock, cached on disk."""
    compiled = _njit(function)
    try:
        compiled._cache = _cache_class()(function)
    except RuntimeError:
        log.warning(
            "numba has no folder to write to: %s is compiled in every process", function.__name__
        )
    return compiled


def inner(function: Callable[..., Any]) -> Any:
    """Compile ``function`` as a part of the kernels that call it. Python cannot call it."""
    return _njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Callable[..., Any]) -> Any:
    """:func:`inner` without calls: passing arrays takes longer than short work on them."""
    return _njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    njit: Any = importlib.import_module("numba").njit
    return njit(nogil=True, error_model="numpy", **options)(function)


@cache
def _cache_class() -> Any:
    base: Any = importlib.import_module("numba.core.caching").FunctionCache

    class KernelCache(base):  # type: ignore[misc]
        """numba's cache, which survives damaged files and depends on all files with kernels."""

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            # numba only checks the file of the kernel, not the files of the functions it calls.
            self._cache_file._source_stamp = (self._cache_file._source_stamp, sources())

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                loaded = super().load_overload(sig, target_context)
            except Exception as error:  # unpickling a damaged file can raise anything
                log.warning("damaged cache file in %s (%r)", self.cache_path, error)
                with suppress(OSError):
                    self.flush()
                loaded = None
            if loaded is None:
                log.warning("compiling %s (once, then cached on disk)", self._py_func.__name__)
            return loaded

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except OSError as error:  # such as a full disk
                log.warning("%s is not cached: %s", self._py_func.__name__, error)

    return KernelCache


@cache
def sources() -> str:
    """Return a digest of all files of this package with compiled functions."""
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    texts = (path.read_bytes() for path in files if path.is_file())
    return hashlib.sha256(
        b"".join(text for text in texts if b"compiled import" in text)
    ).hexdigest()


def in_chunks(
    work: Callable[[int, int], object],
    count: int,
    threads: int | None = None,
    min_chunk: int = 1,
) -> None:
    """Call ``work(start, stop)`` on equal parts of ``range(count)`` in several threads.

    The pool lives for one call: a pool that stays would hang processes forked later, such as
    data-loader workers.

    Args:
        work: Function without the interpreter lock.
        count: Number of items.
        threads: Maximum number of threads. None is torch's.
        min_chunk: Items of work that pay for a thread.
    """
    threads = torch.get_num_threads() if threads is None else threads
    parts = max(1, min(threads, count // max(min_chunk, 1)))
    if parts == 1:
        work(0, count)
        return
    edges = [count * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))
