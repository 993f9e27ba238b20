"""A run folder for one process alone."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..storage import make_folder

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows: there is no lock
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_held: set[int] = set()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else trains in ``folder`` meanwhile; if somebody does already, a ValueError says who.

    The system keeps the lock for the process, so it is gone with it, however it ended. Where the system or the file system has
    no locks, there is none.
    """
    make_folder(folder)
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error
    _held.add(handle)
    try:
        _take(handle, folder)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)  # the file stays: deleting it would let two processes lock two files of one name


def _take(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{folder} is being trained by another process{_who(handle)}") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise OSError(f"cannot lock {str(folder)!r}: {error.strerror}") from error
    # Only for the sentence above; on a full disk it says less.
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    except OSError:
        pass


def _who(handle: int) -> str:
    """The holder as it wrote itself down, if it did."""
    pid, _, host = os.pread(handle, 200, 0).decode(errors="replace").strip().partition(" ")
    if not pid.isdecimal():
        return ""
    return f" (pid {pid})" if host in ("", socket.gethostname()) else f" (pid {pid} on {host})"


def _let_go() -> None:
    """In a forked child, a worker of the loader say: without this it would keep the lock when its parent is killed."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if fcntl is not None:
    os.register_at_fork(after_in_child=_let_go)
