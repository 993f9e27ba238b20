"""How far a sweep is: bars on the error stream if a person is looking at it, else a line for every run that ends."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..recipes.runs import Run
from ..terminal import duration
from ..training.log import EPOCH_LINES
from .plan import rows_per_sample


class Display:
    """Shown while the context is open: ``runs`` that are to be trained, beside ``done`` others that were finished before.

    Time left is by the rows that went through the networks, as if every row took as long.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        out: Path,
        *,
        done: int = 0,
        note: Callable[[str], None] = print,
        console: Console | None = None,
    ) -> None:
        self.total, self.out, self.note = done + len(runs), out, note
        self._done, self._failed = done, 0
        self._bars: dict[Path, TaskID] = {}
        self._unfinished = {run.folder: run for run in runs}
        # A file of its own, since a run in this process redirects the error stream.
        console = Console(stderr=True, file=sys.stderr) if console is None else console
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
        shown = {"console": console, "transient": True, "refresh_per_second": 2, "disable": not console.is_terminal}
        self._progress = Progress(*columns, speed_estimate_period=24 * 3600, **shown)  # type: ignore[arg-type]
        self._whole = sum(_work(run) for run in runs)
        self._all = self._progress.add_task("sweep", total=self._whole, state=self.summary())

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def running(self, runs: Sequence[Run]) -> None:
        """These are being trained now."""
        for folder in set(self._bars) - {run.folder for run in runs}:
            self._progress.remove_task(self._bars.pop(folder))
        for run in runs:
            if run.folder not in self._bars:
                self._bars[run.folder] = self._progress.add_task(run_label(run), total=run.settings.epochs, state="")
            done = epochs_done(self.out / run.folder)
            self._progress.update(self._bars[run.folder], completed=done, state=f"epoch {min(done + 1, run.settings.epochs)}")
        self._progress.update(self._all, completed=self._work_done(), state=f"{self.summary()}{self._left()}")

    def finished(self, run: Run, error: float) -> None:
        """A run has its row."""
        self._done += 1
        self._tell(run, f"error {error:.2f} % in the last epoch")

    def failed(self, run: Run, reason: str) -> None:
        """A run came to nothing."""
        self._failed += 1
        self._tell(run, f"failed: {reason}")

    def summary(self) -> str:
        """How far it is."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {self.total} runs are finished{failed}"

    def _tell(self, run: Run, words: str) -> None:
        self._unfinished.pop(run.folder, None)
        self._progress.update(self._all, completed=self._work_done())
        self.note(f"[{self._done + self._failed}/{self.total}] {run_label(run)}: {words}{self._left()}")

    def _work_done(self) -> float:
        left = (_work(run, run.settings.epochs - epochs_done(self.out / run.folder)) for run in self._unfinished.values())
        return self._whole - sum(left)

    def _left(self) -> str:
        (task,) = (task for task in self._progress.tasks if task.id == self._all)
        return f", {duration(task.time_remaining)} left" if task.time_remaining else ""


def run_label(run: Run) -> str:
    """The run in words; with its epochs, since one arm may have several budgets."""
    name = run.title.partition(": ")[2]  # without the recipe, which all have in common
    return f"{name}, {run.settings.epochs} epoch{'' if run.settings.epochs == 1 else 's'}"


def _work(run: Run, epochs: int | None = None) -> float:
    """How much so many epochs are, or all, in passes of all samples through the network."""
    return (run.settings.epochs if epochs is None else epochs) * rows_per_sample(run.settings)


def epochs_done(folder: Path) -> int:
    """Epochs in the log of a run, however far that has come."""
    try:
        return (folder / EPOCH_LINES).read_bytes().count(b"\n")
    except OSError:
        return 0
