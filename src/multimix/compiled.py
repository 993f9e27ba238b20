"""Compiled kernels: numba is loaded, and a kernel compiled, only when the kernel is first called."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch

NOTICE_AFTER = 1.0  # seconds
PACE = 10.0  # seconds between two lines about one kernel
log = logging.getLogger("multimix")
_used: set[Callable[..., Any]] = set()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by numba on its first call: without the interpreter lock, kept on disk for later processes."""
    import numba

    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that numba may write to: compile in every process
        return inner(function)
    # Numba looks at the file of a kernel alone, and would go on with what it kept after a part from another file has changed.
    kept: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(kept, "_source_stamp"):
        kept._source_stamp = (kept._source_stamp, sources())
    return cast(Callable[..., Any], compiled)


@cache
def sources() -> str:
    """A digest of all files of this package with compiled code."""
    files = (path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")) if path.is_file())
    return hashlib.sha256(b"".join(text for text in files if b"compiled import" in text)).hexdigest()


def kernel_for(signature: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """:func:`kernel` for arguments of one type, compiled, or loaded from disk, right away; all its parts must be in one file."""
    import numba

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return cast(Callable[..., Any], numba.njit(signature, nogil=True, cache=True, **options)(function))
        except RuntimeError:  # as above
            return cast(Callable[..., Any], numba.njit(signature, nogil=True, **options)(function))

    return compiled


def inner(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` compiled as a part of the kernel that calls it, not kept on disk on its own."""
    import numba

    return cast(Callable[..., Any], numba.njit(nogil=True, **options)(function))


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`inner` put where it is called: handing arrays over and counting who holds them takes longer than short work."""
    return inner(function, forceinline=True)


@contextmanager
def noticed(function: Callable[..., Any], seconds: float = 5.0) -> Iterator[None]:
    """Tells that a kernel is being compiled, if its first use in this process takes long for that reason, and how far it is.

    ``seconds`` is about what the compilation takes of a processor.
    """
    if function in _used:
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_tell, args=(function, seconds, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        _used.add(function)


def _tell(function: Any, seconds: float, ended: threading.Event) -> None:
    """One line after a moment, and one every now and then until it has ended."""
    start, spent, pause = time.monotonic(), time.process_time(), NOTICE_AFTER
    while not ended.wait(pause):
        if not any(function.stats.cache_misses.values()):  # loading from disk may be slow too
            continue
        if pause == NOTICE_AFTER:
            _tell_once()
            pause = PACE
            continue
        share = min(0.95, (time.process_time() - spent) / seconds)
        left = (time.monotonic() - start) * (1 - share) / share
        log.warning("multimix is compiling %s: about %.0f %% done, %.0f s left", function.__name__, 100 * share, left)


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
