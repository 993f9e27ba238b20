"""What the first process does beside training: checkpoints, logs, progress, and an orderly stop when it is told to."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from .checkpoint import Checkpoint, only, write_best, write_checkpoint
from .history import Epoch, is_best
from .log import Log, Step
from .progress import Progress
from .settings import Running

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Keeper:
    """Watches one run in its folder. A signal lets the running update end, then the state is written and the run stops."""

    def __init__(self, folder: Path, running: Running, log: Log, progress: Progress) -> None:
        self.folder, self.running, self.log, self.progress = folder, running, log, progress
        self.last_written = time.monotonic()
        self.asked_to_stop = self.best_now = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Keeper":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._stop) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.asked_to_stop:
            raise KeyboardInterrupt  # the second time at once
        self.asked_to_stop = True
        self.progress.doing("stopping after this update")

    def step(self, row: Step, images: int) -> None:
        """One update was done."""
        if row.update % self.running.log_every == 0:
            self.log.step(row)
        self.progress.step(row.update, row.epoch, row.loss, row.accuracy, images)

    def epoch(self, history: list[Epoch]) -> None:
        """An epoch was finished."""
        self.log.epoch(history)
        self.progress.epoch(history[-1])
        self.best_now = is_best(history)

    def doing(self, what: str) -> None:
        """Something else than updates takes its time now."""
        self.progress.doing(what)

    def between(self, updates: int, state: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if it is time, and stop if asked to."""
        if self.best_now:
            # Before the state: were it killed in between, the epoch would be done again, and this file written again.
            write_best(self.folder, only(state(), "network"))
            self.best_now = False
        every = self.running.checkpoint_updates
        due = every is not None and updates % every == 0
        if due or self.asked_to_stop or time.monotonic() - self.last_written >= 60 * self.running.checkpoint_minutes:
            self.write(updates, state)
        if self.asked_to_stop:
            raise KeyboardInterrupt

    def write(self, updates: int, state: Callable[[], Checkpoint]) -> None:
        """A checkpoint now; what the log says before it must be on the disk, too, since it is not written again."""
        self.log.flush()
        write_checkpoint(self.folder, updates, state())
        self.last_written = time.monotonic()
