"""The runs of a sweep, each in a process of its own: one that fails is recorded, and the others go on."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..recipes.runs import RESULTS, Run
from ..storage import read_rows
from ..terminal import note as say
from ..training.run import finished, train
from .engines import Engine, Local
from .progress import Display, run_label

LOG = "sweep.log"
POLL = 0.25  # seconds between two looks at the runs
WAIT = 600.0  # seconds for the process of an earlier sweep that still trains a run
Note = Callable[[str], None]


class Failure(NamedTuple):
    """A run that came to nothing: why, in one sentence, and where its output is."""

    run: Run
    reason: str
    log: Path


class Result(NamedTuple):
    """What the process of a run hands back: the error of its last epoch, or why there is none."""

    error: float | None
    reason: str = ""


def train_runs(
    runs: Iterable[Run],
    *,
    data: str | Path,
    out: str | Path,
    engine: Engine | None = None,
    retry: int = 0,
    note: Note = say,
) -> list[Failure]:
    """The runs that failed, after all others were trained that have no row yet.

    A run that failed is tried again up to ``retry`` times, after the others, from its last checkpoint; not if its loss diverged,
    since it would again. A KeyboardInterrupt stops the runs when they have written checkpoints, and is passed on.
    """
    if retry < 0:
        raise ValueError(f"retry must be at least 0, got {retry}")
    unique = list({run.folder: run for run in runs}.values())
    left = unfinished(unique, Path(out), note)
    if len(left) < len(unique):
        note(f"{len(unique) - len(left)} of {len(unique)} runs are finished already")
    with Display(left, Path(out), done=len(unique) - len(left), note=note) as display:
        return _Workers(Path(data), Path(out), engine or Local(), retry, display).work(left)


def unfinished(runs: Sequence[Run], out: Path, note: Note = say) -> list[Run]:
    """Those that have no row yet."""
    rows = read_rows(out / RESULTS, note)
    return [run for run in runs if finished(run, out, note, rows) is None]


class _Workers:
    def __init__(self, data: Path, out: Path, engine: Engine, retry: int, display: Display) -> None:
        self.data, self.out, self.engine, self.retry, self.display = data, out, engine, retry, display
        self.running: list[tuple[Run, Any]] = []
        self.failures: list[Failure] = []
        self.tried: Counter[Path] = Counter()

    def work(self, runs: Sequence[Run]) -> list[Failure]:
        waiting = deque(runs)
        try:
            while waiting or self.running:
                while waiting and len(self.running) < (self.engine.at_once or len(runs)):
                    self._start(waiting.popleft())
                ended = [(run, job) for run, job in self.running if self.engine.has_ended(job)]
                if self.running and not ended:
                    time.sleep(POLL)
                for run, job in ended:
                    self.running.remove((run, job))
                    if self._collect(run, job):
                        waiting.append(run)
                self.display.running([run for run, _ in self.running])
        except KeyboardInterrupt:
            self._stop()
            raise
        return self.failures

    def _start(self, run: Run) -> None:
        try:
            arguments = (run, self.data.absolute(), self.out.absolute())
            self.running.append((run, self.engine.start(_train, arguments, self.out / run.folder / LOG)))
        except Exception as error:  # what cannot be pickled, say
            self._fail(run, f"its process could not be started: {error}")

    def _collect(self, run: Run, job: Any) -> bool:
        """Record how a run ended; whether it is to be tried again."""
        end = self.engine.end(job)
        result: Result | None = end.value if end.how == "done" else None
        if result is None and (done := finished(run, self.out, self.display.note)) is not None:
            result = Result(done.last)  # its process was ended after the last line was written
        if result is not None and result.error is not None:
            self.display.finished(run, result.error)
            return False
        self.tried[run.folder] += 1
        if result is None and self.tried[run.folder] <= self.retry:
            self.display.note(f"{run_label(run)}: {end.value}; it is tried again")
            return True
        self._fail(run, str(end.value) if result is None else result.reason)
        return False

    def _fail(self, run: Run, reason: str) -> None:
        self.failures.append(Failure(run, reason, self.out / run.folder / LOG))
        self.display.failed(run, reason)

    def _stop(self) -> None:
        """Ask all to stop and wait for them; asked again, they stop at once."""
        self.display.note(f"stopping: {len(self.running)} running, each writes a checkpoint after its update")
        self._ask()
        while not all(self.engine.has_ended(job) for _, job in self.running):
            self._pause()
        for run, job in self.running:
            end = self.engine.end(job)
            if end.how == "done" and end.value.error is not None:
                self.display.finished(run, end.value.error)
        self.display.note(self.display.summary())

    def _ask(self) -> None:
        for _, job in self.running:
            self.engine.stop(job)

    def _pause(self) -> None:
        try:
            time.sleep(POLL)
        except KeyboardInterrupt:
            self._ask()


def _train(run: Run, data: Path, out: Path) -> Result:
    """In the process of the run."""
    heard: list[str] = []

    def note(sentence: str) -> None:
        heard.append(sentence)
        print(sentence, flush=True)

    # The runs of a sweep that was killed end with their update, which may take a while.
    (outcome,) = train([run], data=data, out=out, note=note, wait=WAIT)
    if outcome is None:
        return Result(None, heard[-1].removeprefix(f"{run.title}: "))
    return Result(outcome.last)
