"""Compiled kernels: numba where it is there, loaded and compiled only when a kernel is first called."""

import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, cast

import torch

from .checks import check_choice

Backend = Literal["auto", "numba", "torch"]

NOTICE_AFTER = 1.0  # seconds
log = logging.getLogger("multimix")
_used: set[Callable[..., Any]] = set()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by numba on its first call: without the interpreter lock, kept on disk for later processes."""
    import numba

    try:
        return cast(Callable[..., Any], numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder that numba may write to: compile in every process
        return cast(Callable[..., Any], numba.njit(nogil=True)(function))


def uses_numba(backend: Backend) -> bool:
    """Whether ``backend`` means the compiled kernels; ``auto`` takes them where numba is installed."""
    check_choice("backend", backend, ("auto", "numba", "torch"))
    if backend == "auto":
        return _numba_is_there()
    if backend == "numba" and importlib.util.find_spec("numba") is None:
        raise ValueError("backend='numba' needs numba: pip install numba, or use backend='auto'")
    return backend == "numba"


@contextmanager
def noticed(function: Callable[..., Any]) -> Iterator[None]:
    """Tells in one line that a kernel is being compiled, if its first use in this process takes long for that reason."""
    if function in _used:
        yield
        return

    def tell() -> None:
        if any(function.stats.cache_misses.values()):  # type: ignore[attr-defined]  # a numba dispatcher; loading may be slow too
            _say("multimix is compiling its kernels (once, then kept on disk; multimix.warmup() does it ahead of time)")

    timer = threading.Timer(NOTICE_AFTER, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _used.add(function)


def in_chunks(work: Callable[[int, int], object], count: int, threads: int | None = None, least: int = 1) -> None:
    """Call ``work(start, stop)`` on equal parts of ``range(count)``, each at least ``least`` long, in up to ``threads`` threads.

    ``threads=None`` means as many as torch uses. The pool lives for one call only: a pool that stays would hang processes
    forked later, such as data-loader workers.
    """
    threads = torch.get_num_threads() if threads is None else threads
    parts = max(1, min(threads, count // max(least, 1)))
    if parts == 1:
        work(0, count)
        return
    edges = [count * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


@cache
def _numba_is_there() -> bool:
    if importlib.util.find_spec("numba") is not None:
        return True
    _say("numba is not installed: multimix falls back to slower kernels in torch (pip install numba)")
    return False


@cache
def _say(sentence: str) -> None:
    """Once per process."""
    log.warning(sentence)
