"""A run folder for one process alone."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..storage import make_folder

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in ``folder`` meanwhile; a ValueError names the one that does already.

    The operating system releases the lock when the process ends, however it ends; a forked worker does not inherit it. On a file
    system without locks there is none.
    """
    make_folder(folder)
    path = folder / LOCK
    # No lock that is only a file: it would outlive a killed process.
    lock = FileLock(path, timeout=0, fallback_to_soft=False, preserve_lock_file=True, on_acquired=_sign)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"{folder} is being trained by another process{_holder(path)}") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def _sign(handle: int) -> None:
    """Write down who holds the lock, for the error of others; on a full disk that says less."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())


def _holder(path: Path) -> str:
    try:
        pid, _, host = path.read_text(errors="replace").strip().partition(" ")
    except OSError:  # Windows lets nobody else read it
        return ""
    if not pid.isdecimal():
        return ""
    return f" (pid {pid})" if host in ("", socket.gethostname()) else f" (pid {pid} on {host})"
