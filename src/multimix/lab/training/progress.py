"""How far a run is: a bar on the error stream if a person is looking at it, else a line for an epoch now and then."""

import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .log import Epoch

WINDOW = 30.0  # seconds of training that speed, loss and accuracy are taken over
MOMENTS = 6  # that are looked at however long the updates between them take
LEAST = 10.0  # seconds between two plain lines


class _Sums(NamedTuple):
    """All that was done up to a moment. ``seconds`` are those of training, ``updates`` and ``images`` what was done in them."""

    seconds: float = 0.0
    updates: int = 0
    images: int = 0
    calls: int = 0
    loss: float = 0.0
    accuracy: float = 0.0


class Progress:
    """Shown while the context is open. ``done_updates`` were done before, so they say nothing about speed.

    Accuracy and error are in per cent. Loss, accuracy and speed are those of the last half minute of training; evaluation is not
    part of that, but the time left counts in what it has taken so far per epoch.
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
        self.title, self.total_updates, self.epochs = title, total_updates, epochs
        self._note, self._clock = note, clock
        self._console = Console(stderr=True) if console is None else console
        self._update, self._epoch = done_updates, 0
        self._latest = _Sums()
        self._window = deque([self._latest])
        self._since = clock()
        self._doing = ""
        self._elsewhere = 0.0  # seconds
        self._finished: list[Epoch] = []
        self._error: tuple[float, int] | None = None
        self._noted: float | None = None
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        self._since = self._clock()
        if self._console.is_terminal:
            # A thread of its own draws it a few times a second; a step only notes its numbers. The standard stream may go to a
            # file: redirected, what is printed meanwhile would land on the terminal.
            self._live = Live(
                get_renderable=self._drawn,
                console=self._console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def step(self, update: int, epoch: int, loss: float, accuracy: float, images: int) -> None:
        """``update`` is done, in the epoch with this number (from 1 on); ``images`` were loaded for it since the last call."""
        # After something else nobody knows how long the update itself took, so it does not count for speed.
        timed = not self._doing
        self._pass_time()
        before = self._latest
        self._latest = _Sums(
            before.seconds,
            before.updates + (update - self._update if timed else 0),
            before.images + (images if timed else 0),
            before.calls + 1,
            before.loss + loss,
            before.accuracy + accuracy,
        )
        self._update, self._epoch = update, epoch
        self._slide()

    def epoch(self, epoch: Epoch) -> None:
        """An epoch is finished, with its evaluation if it has one."""
        self._pass_time()
        self._update, self._epoch = epoch.updates, epoch.number
        self._finished.append(epoch)
        if epoch.error is not None:
            self._error = (epoch.error, epoch.number)
        if self._live is not None:
            return
        now = self._clock()
        if epoch.number == self.epochs or self._noted is None or now - self._noted >= LEAST:
            self._noted = now
            self._note(f"{self.title}: {', '.join([self._where(), *self._numbers(epoch), *self._left()])}")

    def doing(self, what: str) -> None:
        """Something else than updates takes its time until the next call. A signal handler may say so, too."""
        self._doing = what

    def _pass_time(self) -> None:
        """Count the seconds since the last call for training, or for what was done instead."""
        now = self._clock()
        passed, self._since = now - self._since, now
        if self._doing:
            self._elsewhere += passed
        else:
            self._latest = self._latest._replace(seconds=self._latest.seconds + passed)
        self._doing = ""

    def _slide(self) -> None:
        """Let the window end now, and begin half a minute ago or a few moments, whichever is more."""
        window, latest = self._window, self._latest
        # Ten moments a second will do, however many updates there are.
        if len(window) > 1 and int(10 * window[-1].seconds) == int(10 * latest.seconds):
            window[-1] = latest
        else:
            window.append(latest)
        while len(window) > MOMENTS and window[1].seconds <= latest.seconds - WINDOW:
            window.popleft()

    def _where(self) -> str:
        return f"epoch {self._epoch}/{self.epochs}"

    def _numbers(self, epoch: Epoch | None = None) -> list[str]:
        """What is known by now, in words; loss and accuracy are those of the epoch, if it is one that is told."""
        first, latest = self._window[0], self._latest
        words, calls, seconds = [], latest.calls - first.calls, latest.seconds - first.seconds
        if epoch is not None:
            words += [f"loss {epoch.loss:.4g}", f"train accuracy {epoch.accuracy:.1f} %"]
        elif calls:
            words.append(f"loss {(latest.loss - first.loss) / calls:.4g}")
            words.append(f"train accuracy {(latest.accuracy - first.accuracy) / calls:.1f} %")
        if self._error is not None:
            error, number = self._error
            words.append(f"error {error:.2f} %" + (f" (epoch {number})" if number != self._finished[-1].number else ""))
        if seconds > 0 and latest.images > first.images:
            speed = (latest.images - first.images) / seconds
            words.append(f"{speed:.0f} images/s" if speed >= 10 else f"{speed:.2g} images/s")
        return words

    def _left(self) -> list[str]:
        """The time left in words, if it is known and there is any."""
        first, latest = self._window[0], self._latest
        updates, rest = latest.updates - first.updates, self.total_updates - self._update
        if updates <= 0 or rest <= 0:
            return []
        seconds = rest * (latest.seconds - first.seconds) / updates
        if self._finished:
            seconds += self._elsewhere / len(self._finished) * (self.epochs - self._finished[-1].number)
        return [f"{spoken(seconds)} left"]

    def _drawn(self) -> RenderableType:
        share = self._update / max(self.total_updates, 1)
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        bar = ProgressBar(total=max(self.total_updates, 1), completed=self._update)
        line.add_row(bar, Text(", ".join([f"{100 * share:.0f} %", *self._left()])))
        title = [self.title, *([self._where()] if self._epoch else []), *([self._doing] if self._doing else [])]
        texts = [Text(", ".join(words), no_wrap=True, overflow="ellipsis") for words in (title, self._numbers())]
        return Group(texts[0], line, texts[1])


def spoken(seconds: float) -> str:
    """A time to within a few per cent."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
