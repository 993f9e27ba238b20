"""Locks between processes: the operating system releases one when its process ends, however it ends."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def held(path: Path, *, wait: float = 0.0, passing: bool = False) -> Iterator[Callable[[], bool]]:
    """Hold the lock that is the file ``path``; a BlockingIOError if another process does after ``wait`` seconds (−1: for ever).

    What it yields tells whether the lock is still ours: whoever deletes or replaces its file lets others in. A ``passing`` one is
    deleted at the end. A forked process does not inherit it. On a file system without locks there is none.
    """
    handles: list[int] = []

    def sign(handle: int) -> None:
        handles.append(handle)
        with suppress(OSError):  # who holds it, for the error of others; on a full disk that says less
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())

    def ours() -> bool:
        try:
            return not handles or os.path.samestat(os.fstat(handles[-1]), os.stat(path))
        except FileNotFoundError:
            return False

    # No lock that is only a file: it would outlive a killed process.
    lock = FileLock(path, timeout=wait, fallback_to_soft=False, preserve_lock_file=True, on_acquired=sign)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process{holder(path)}") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error
    try:
        yield ours
    finally:
        if passing and handles and ours():
            path.unlink()  # while it is held: whoever waits sees that, and makes a new one
        lock.release()


def holder(path: Path) -> str:
    """Who holds a lock, as far as its file tells: `` (pid 12)``."""
    try:
        pid, _, host = path.read_text(errors="replace").strip().partition(" ")
    except OSError:  # Windows lets nobody else read it
        return ""
    if not pid.isdecimal():
        return ""
    return f" (pid {pid})" if host in ("", socket.gethostname()) else f" (pid {pid} on {host})"
