"""What the first process does beside training: checkpoints, logs, progress, and an orderly stop when it is told to."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..recipes.settings import Running
from .checkpoint import Checkpoint, only, write_best, write_checkpoint
from .history import Epoch, is_best
from .log import Log, Step
from .progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a signal has asked to stop. It only notes it: all processes end the running update and stop together.

    Every process needs one, since torchrun passes signals on to all of them, and one that died would take the others along.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self.asked, self._tell = False, tell
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt  # the second time at once
        self.asked = True
        self._tell()


class Keeper:
    """Watches one run in its folder."""

    def __init__(self, folder: Path, running: Running, log: Log, progress: Progress) -> None:
        self.folder, self.running, self.log, self.progress = folder, running, log, progress
        self.last_written = time.monotonic()
        self.best_now = False

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

    def due(self, updates: int) -> bool:
        """Whether it is time for a checkpoint."""
        every = self.running.checkpoint_updates
        late = time.monotonic() - self.last_written >= 60 * self.running.checkpoint_minutes
        return late or (every is not None and updates % every == 0)

    def between(self, updates: int, state: Callable[[], Checkpoint], due: bool) -> None:
        """Write the network of the best epoch if this was it, and a checkpoint if it is due."""
        if self.best_now:
            # Before the state: were it killed in between, the epoch would be done again, and this file written again.
            write_best(self.folder, only(state(), "network", "method"))
            self.best_now = False
        if due:
            self.write(updates, state)

    def write(self, updates: int, state: Callable[[], Checkpoint]) -> None:
        """A checkpoint now; what the log says before it must be on the disk, too, since it is not written again."""
        self.log.flush()
        write_checkpoint(self.folder, updates, state())
        self.last_written = time.monotonic()
