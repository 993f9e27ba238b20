"""Work in a process of its own: its output goes to a file, and whatever happens to it, the others go on."""

import faulthandler
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..storage import make_folder

GROUPS = hasattr(os, "setpgrp")  # not on Windows


class End(NamedTuple):
    """How it ended: ``done`` with its result, ``failed`` or ``stopped`` with a sentence."""

    how: Literal["done", "failed", "stopped"]
    value: Any = None


class Child:
    """A process that calls ``work(*arguments)``; both must be picklable. What it prints is added to ``log``.

    Ctrl-C in the terminal reaches only the parent: a second signal would make a training stop without a checkpoint. A child
    whose parent is gone stops by itself, as if it had been told to.
    """

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> None:
        self.log = log
        make_folder(log.parent)
        content = pickle.dumps((work, arguments))
        context = get_context("spawn")
        self._receives, sends = context.Pipe(duplex=False)
        self.process = context.Process(target=_main, args=(content, sends, str(log)))
        if GROUPS:  # the child is born with the mask, and so safe until it has left the group
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            if GROUPS:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sends.close()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return not self.process.is_alive()

    def stop(self) -> None:
        """Ask it to stop: a training ends its update and writes a checkpoint."""
        if self.process.is_alive():
            self.process.terminate()

    def end(self) -> End:
        """How it ended; waits for it."""
        self.process.join()
        said: End | None = None
        with suppress(EOFError, OSError):  # it could not say anything
            # Only what is there: a worker of its loader that outlives it holds the other end for a while.
            said = self._receives.recv() if self._receives.poll() else None
        self._receives.close()
        code = self.process.exitcode
        self.process.close()
        return End("failed", _fate(code)) if said is None else said


def _fate(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process exited with code {code} before its end"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{memory}"


def _main(content: bytes, sends: Connection, log: str) -> None:
    """What the process does."""
    if GROUPS:
        os.setpgrp()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came meanwhile
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(log)
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        work, arguments = pickle.loads(content)
        end = End("done", work(*arguments))
    except KeyboardInterrupt:
        end = End("stopped", "it was told to stop")
    except BaseException as error:
        traceback.print_exc()
        end = End("failed", " ".join(f"{type(error).__name__}: {error}".split()))
    sends.send(end)
    sends.close()


def _redirect(log: str) -> None:
    """Both streams into the file, those of compiled code, too."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    for text in (sys.stdout, sys.stderr):
        if isinstance(text, io.TextIOWrapper):
            text.reconfigure(line_buffering=True)  # a line is in the file when it is printed
    os.environ.pop("FORCE_COLOR", None)  # it would make a file pass for a terminal
    faulthandler.enable()
    print(f"# {time.strftime('%Y-%m-%d %H:%M:%S')}, pid {os.getpid()}")


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
