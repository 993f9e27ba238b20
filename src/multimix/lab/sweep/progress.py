"""How far a sweep is: a picture on the error stream if a person is looking at it, else a line for every run that ends."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..training.log import EPOCH_LINES
from ..training.progress import spoken as spoken
from ..training.run import Run
from .plan import rows_per_sample


class Display:
    """Shown while the context is open: ``runs`` that are to be trained, beside ``done`` others that were finished before."""

    def __init__(
        self,
        runs: Sequence[Run],
        out: Path,
        *,
        done: int = 0,
        note: Callable[[str], None] = print,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.out = done + len(runs), out
        self._note, self._clock = note, clock
        self._console = Console(stderr=True) if console is None else console
        self._done, self._failed = done, 0
        self._running: list[Run] = []
        self._began = clock()
        self._live: Live | None = None
        # In rows of the network for every sample. What runs have behind them now says nothing about speed.
        self._left = {run.folder: work(run) - self._behind(run) for run in runs}
        self._whole = sum(self._left.values())

    def __enter__(self) -> "Display":
        if self._console.is_terminal:
            redirect = sys.stdout.isatty()
            self._live = Live(
                get_renderable=self._drawn, console=self._console, refresh_per_second=2, transient=True, redirect_stdout=redirect
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def running(self, runs: Sequence[Run]) -> None:
        """These go on now."""
        self._running = list(runs)

    def finished(self, run: Run, error: float) -> None:
        """A run has its row."""
        self._done += 1
        self._left.pop(run.folder, None)
        self.note(f"{self._count()} {called(run)}: error {error:.2f} % in the last epoch{self._spoken_left()}")

    def failed(self, run: Run, reason: str) -> None:
        """A run came to nothing."""
        self._failed += 1
        self._left.pop(run.folder, None)
        self.note(f"{self._count()} {called(run)}: failed: {reason}")

    def note(self, sentence: str) -> None:
        """A sentence, above the picture if there is one."""
        self._note(sentence)

    def words(self) -> str:
        """How far it is."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {self.total} runs are finished{failed}"

    def _count(self) -> str:
        return f"[{self._done + self._failed}/{self.total}]"

    def _behind(self, run: Run) -> float:
        return epochs_done(self.out / run.folder) * rows_per_sample(run.settings)

    def seconds_left(self) -> float | None:
        """By the speed so far, as if every row took as long; None before there is any."""
        left = max(0.0, sum(self._left.values()) - sum(self._ahead(run) for run in self._running))
        done, passed = self._whole - left, self._clock() - self._began
        return passed * left / done if done > 0 else None

    def _ahead(self, run: Run) -> float:
        """What a running one has done since the beginning."""
        left = self._left.get(run.folder, 0.0)
        return max(0.0, left - (work(run) - self._behind(run)))

    def _spoken_left(self) -> str:
        seconds = self.seconds_left()
        return f", {spoken(seconds)} left" if seconds else ""

    def _drawn(self) -> RenderableType:
        failed = f", {self._failed} failed" if self._failed else ""
        head = f"sweep: {self._done} finished{failed}, {len(self._running)} running of {self.total}{self._spoken_left()}"
        lines = Table.grid(padding=(0, 1), expand=True)
        lines.add_column(ratio=2, no_wrap=True, overflow="ellipsis")
        lines.add_column(no_wrap=True)
        lines.add_column(ratio=1)
        for run in list(self._running):
            epochs, done = run.settings.epochs, epochs_done(self.out / run.folder)
            bar = ProgressBar(total=epochs, completed=done)
            lines.add_row(Text(run.title), Text(f"epoch {min(done + 1, epochs)}/{epochs}"), bar)
        return Group(Text(head, no_wrap=True, overflow="ellipsis"), lines)


def called(run: Run) -> str:
    """The run in words; with its epochs, since one arm may have several budgets."""
    name = run.title.partition(": ")[2]  # without the recipe, which all have in common
    return f"{name}, {run.settings.epochs} epoch{'' if run.settings.epochs == 1 else 's'}"


def work(run: Run) -> float:
    """How much a run is, in passes of all samples through the network."""
    return run.settings.epochs * rows_per_sample(run.settings)


def epochs_done(folder: Path) -> int:
    """Epochs in the log of a run, however far that has come."""
    try:
        return (folder / EPOCH_LINES).read_bytes().count(b"\n")
    except OSError:
        return 0
