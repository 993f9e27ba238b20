"""Compiled kernels: numba is loaded, and a kernel compiled, only when the kernel is first called."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch

NOTICE_AFTER = 1.0  # seconds
log = logging.getLogger("multimix")
_used: set[Callable[..., Any]] = set()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by numba on its first call: without the interpreter lock, kept on disk for later processes."""
    import numba

    try:
        return cast(Callable[..., Any], numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder that numba may write to: compile in every process
        return inner(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled as a part of the kernel that calls it, not kept on disk on its own."""
    import numba

    return cast(Callable[..., Any], numba.njit(nogil=True)(function))


@contextmanager
def noticed(function: Callable[..., Any]) -> Iterator[None]:
    """Tells in one line that a kernel is being compiled, if its first use in this process takes long for that reason."""
    if function in _used:
        yield
        return

    def tell() -> None:
        if any(function.stats.cache_misses.values()):  # type: ignore[attr-defined]  # a numba dispatcher; loading may be slow too
            _tell_once()

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
def _tell_once() -> None:
    log.warning("multimix is compiling its kernels (once, then kept on disk; multimix.warmup() does it ahead of time)")
