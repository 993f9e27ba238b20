"""What the first process does beside training: checkpoints, log, progress, and an orderly stop on a signal."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..recipes.settings import Running
from .checkpoint import Checkpoint, only, write_best, write_checkpoint
from .log import Epoch, Log, Step, is_best
from .progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Notes that a signal requested a stop; all processes then finish the current update and stop together.

    Every process needs one: torchrun passes signals on to all of them, and one that died would take the others with it.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.requested, self._on_request = False, on_request
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt  # a second signal stops at once
        self.requested = True
        self._on_request()


class Recorder:
    """Follows a training and records nothing; the base of what does."""

    def step(self, row: Step, images: int) -> None:
        """One update is done."""

    def epoch(self, history: list[Epoch]) -> None:
        """An epoch is finished."""

    def doing(self, what: str) -> None:
        """Something other than updates takes time now."""

    def due(self, updates: int) -> bool:
        """Whether the state after these updates should be written."""
        return False

    def between(self, updates: int, state: Callable[[], Checkpoint], due: bool) -> None:
        """Between two updates, when the state is complete; ``due`` if it must be written now."""


class RunRecorder(Recorder):
    """Writes the log and the checkpoints of a run into its folder, and shows its progress."""

    def __init__(self, folder: Path, running: Running, log: Log, progress: Progress) -> None:
        self.folder, self.running, self.log, self.progress = folder, running, log, progress
        self.last_written = time.monotonic()
        self.best_now = False

    def step(self, row: Step, images: int) -> None:
        if row.update % self.running.log_every == 0:
            self.log.step(row)
        self.progress.step(row.update, row.epoch, row.loss, row.accuracy, images)

    def epoch(self, history: list[Epoch]) -> None:
        self.log.epoch(history)
        self.progress.epoch(history[-1])
        self.best_now = is_best(history)

    def doing(self, what: str) -> None:
        self.progress.doing(what)

    def due(self, updates: int) -> bool:
        every = self.running.checkpoint_updates
        late = time.monotonic() - self.last_written >= 60 * self.running.checkpoint_minutes
        return late or (every is not None and updates % every == 0)

    def between(self, updates: int, state: Callable[[], Checkpoint], due: bool) -> None:
        if self.best_now:
            # Before the state: if the process were killed in between, the epoch would be trained and this file written again.
            write_best(self.folder, only(state(), "network", "method"))
            self.best_now = False
        if due:
            self.write(updates, state)

    def write(self, updates: int, state: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint now, after the log has reached the disk: lines before a checkpoint are not written again."""
        self.log.flush()
        write_checkpoint(self.folder, updates, state())
        self.last_written = time.monotonic()
