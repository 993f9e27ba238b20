"""What the first process does beside training: checkpoints, log, progress, and an orderly stop on a signal."""

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich import progress
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.text import Text

from ..recipes.settings import Running
from ..terminal import duration
from .checkpoint import Checkpoint, only, write_best, write_checkpoint
from .log import Epoch, Log, Step, is_best

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RECENT = 100  # updates whose mean loss and accuracy are shown
EPOCHS = 10  # whose time the time left is estimated from
LEAST = 10.0  # seconds between two plain lines


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


class Progress(progress.Progress):
    """How far a run is: a bar on the error stream if a person is looking at it, else a line for an epoch now and then.

    Shown while the context is open. ``done_updates`` were done before, so they say nothing about speed.

    Accuracy and error are in per cent. The time left is by the mean time of an update in the last epochs, evaluation included.
    """

    def __init__(
        self,
        title: str,
        total_updates: int,
        epochs: int,
        done_updates: int = 0,
        *,
        note: Callable[[str], None] = print,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        console = Console(stderr=True) if console is None else console
        columns = BarColumn(None), TextColumn("update {task.completed}/{task.total}")
        super().__init__(
            *columns,
            console=console,
            transient=True,
            refresh_per_second=4,
            # The standard stream may go to a file: redirected, what is printed meanwhile would land on the terminal.
            redirect_stdout=sys.stdout.isatty(),
            get_time=clock,
            disable=not console.is_terminal,
            expand=True,
        )
        self.title, self.epochs, self.note = title, epochs, note
        self.add_task(title, total=total_updates, completed=done_updates)
        self._epoch, self._images, self._speed, self._doing = 0, 0, 0.0, ""
        self._ends = deque([(clock(), done_updates)], maxlen=EPOCHS)
        self._recent = deque[tuple[float, float]](maxlen=RECENT)
        self._evaluated: Epoch | None = None
        self._noted = -LEAST

    def step(self, update: int, epoch: int, loss: float, accuracy: float, images: int) -> None:
        """``update`` is done, in the epoch with this number (from 1 on); ``images`` were loaded for it since the last call."""
        self._epoch, self._doing = epoch, ""
        self._images += images
        self._recent.append((loss, accuracy))
        self.update(self.task_ids[0], completed=update)

    def epoch(self, epoch: Epoch) -> None:
        """An epoch is finished, with its evaluation if it has one."""
        self._epoch, self._doing = epoch.number, ""
        if epoch.error is not None:
            self._evaluated = epoch
        self._speed = epoch.images / epoch.seconds if epoch.seconds else 0.0
        self.update(self.task_ids[0], completed=epoch.updates)
        now = self.get_time()
        if self.disable and (epoch.number == self.epochs or now - self._noted >= LEAST):
            self._noted = now
            self.note(f"{self.title}: {self._where()}, {self._numbers(epoch.loss, epoch.accuracy)}")
        self._ends.append((now, epoch.updates))

    def doing(self, what: str) -> None:
        """Something other than updates takes time until the next call. A signal handler may say so, too."""
        self._doing = what

    def get_renderables(self) -> Iterable[RenderableType]:
        """Three lines for rich: where it is, the bar, and numbers."""
        for task in self.tasks:  # the only one, or none while rich sets itself up
            words = [self.title, self._where() if self._epoch else "", self._doing]
            yield Text(", ".join(filter(None, words)), no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])
            if self._recent:
                loss, accuracy = (sum(values) / len(values) for values in zip(*self._recent, strict=True))
                yield Text(self._numbers(loss, accuracy), no_wrap=True, overflow="ellipsis")

    def _where(self) -> str:
        return f"epoch {self._epoch}/{self.epochs}"

    def _numbers(self, loss: float, accuracy: float) -> str:
        """Numbers in words. The error is that of the last evaluation, images per second those of the last epoch."""
        words = [f"loss {loss:.4g}", f"train accuracy {accuracy:.1f} %"]
        if self._evaluated is not None:
            of = f" (epoch {self._evaluated.number})" if self._evaluated.number != self._epoch else ""
            words.append(f"error {self._evaluated.error:.2f} %{of}")
        (task,), (start, before) = self.tasks, self._ends[0]
        seconds, updates = self.get_time() - start, task.completed - before
        if speed := self._speed or (self._images / seconds if seconds else 0.0):
            words.append(f"{speed:.0f} images/s" if speed >= 10 else f"{speed:.2g} images/s")
        if updates > 0 and task.remaining:
            words.append(f"{duration(seconds / updates * task.remaining)} left")
        return ", ".join(words)


class Recorder:
    """Writes the log and the checkpoints of a run into its folder, and shows its progress.

    ``check`` is called before anything is written; it raises an error if the folder is not this training's own any more.
    """

    def __init__(
        self, folder: Path, running: Running, log: Log, progress: Progress, check: Callable[[], None] = lambda: None
    ) -> None:
        self.folder, self.running, self.log, self.progress, self.check = folder, running, log, progress, check
        self.last_written = time.monotonic()
        self.best_now = False

    def step(self, row: Step, images: int) -> None:
        """One update is done."""
        if row.update % self.running.log_every == 0:
            self.check()
            self.log.step(row)
        self.progress.step(row.update, row.epoch, row.loss, row.accuracy, images)

    def epoch(self, history: list[Epoch]) -> None:
        """An epoch is finished."""
        self.check()
        self.log.epoch(history)
        self.progress.epoch(history[-1])
        self.best_now = is_best(history)

    def doing(self, what: str) -> None:
        """Something other than updates takes time now."""
        self.progress.doing(what)

    def due(self, updates: int) -> bool:
        """Whether the state after these updates should be written."""
        every = self.running.checkpoint_updates
        late = time.monotonic() - self.last_written >= 60 * self.running.checkpoint_minutes
        return late or (every is not None and updates % every == 0)

    def between(self, updates: int, state: Callable[[], Checkpoint], due: bool) -> None:
        """Between two updates, when the state is complete; ``due`` if it must be written now."""
        if self.best_now:
            self.check()
            # Before the state: if the process were killed in between, the epoch would be trained and this file written again.
            write_best(self.folder, only(state(), "network", "method"))
            self.best_now = False
        if due:
            self.write(updates, state)

    def write(self, updates: int, state: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint now, after the log has reached the disk: lines before a checkpoint are not written again."""
        self.check()
        self.log.flush()
        write_checkpoint(self.folder, updates, state())
        self.last_written = time.monotonic()
