"""The runs of a sweep, each in a process of its own: one that fails is recorded, and the others go on."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from ..terminal import note as say
from ..training.run import Run, finished, train
from .child import Child
from .progress import Display, called

LOG = "sweep.log"
POLL = 0.25  # seconds between two looks at the runs
Note = Callable[[str], None]


class Failure(NamedTuple):
    """A run that came to nothing: why, in one sentence, and where its output is."""

    run: Run
    reason: str
    log: Path


class Job(NamedTuple):
    """A run that goes on."""

    run: Run
    child: Child


class Result(NamedTuple):
    """What the process of a run hands back: the error of its last epoch, or why there is none."""

    error: float | None
    reason: str = ""


def trained(
    runs: Iterable[Run], *, data: str | Path, out: str | Path, jobs: int = 1, retry: int = 0, note: Note = say
) -> list[Failure]:
    """The runs that failed, after all others were trained that have no row yet, ``jobs`` at a time.

    A run that failed is tried again up to ``retry`` times, after the others, from its last checkpoint; not if its loss diverged,
    since it would again. A KeyboardInterrupt stops the processes when they have written checkpoints, and is passed on.
    """
    if jobs < 1 or retry < 0:
        raise ValueError(f"jobs must be at least 1 and retry at least 0, got {jobs} and {retry}")
    unique = list({run.folder: run for run in runs}.values())
    left = unfinished(unique, Path(out), note)
    if len(left) < len(unique):
        note(f"{len(unique) - len(left)} of {len(unique)} runs are finished already")
    with Display(left, Path(out), done=len(unique) - len(left), note=note) as display:
        return _Workers(Path(data), Path(out), jobs, retry, display).work(left)


def unfinished(runs: Sequence[Run], out: Path, note: Note = say) -> list[Run]:
    """Those that have no row yet; what is wrong with the rows is told once."""
    told = set[str]()

    def once(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            note(sentence)

    return [run for run in runs if finished(run, out, once) is None]


class _Workers:
    def __init__(self, data: Path, out: Path, jobs: int, retry: int, display: Display) -> None:
        self.data, self.out, self.jobs, self.retry, self.display = data, out, jobs, retry, display
        self.running: list[Job] = []
        self.failures: list[Failure] = []
        self.tried: Counter[Path] = Counter()

    def work(self, runs: Sequence[Run]) -> list[Failure]:
        waiting = deque(runs)
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.jobs:
                    self._start(waiting.popleft())
                wait([job.child.process.sentinel for job in self.running], POLL)
                for job in [job for job in self.running if job.child.ended]:
                    self._collect(job, waiting)
                self.display.running([job.run for job in self.running])
        except KeyboardInterrupt:
            self._stop()
            raise
        return self.failures

    def _start(self, run: Run) -> None:
        log = self.out / run.folder / LOG
        try:
            self.running.append(Job(run, Child(_train, (run, self.data, self.out), log)))
        except Exception as error:  # what cannot be pickled, say
            self._fail(Failure(run, f"its process could not be started: {error}", log))

    def _collect(self, job: Job, waiting: deque[Run]) -> None:
        self.running.remove(job)
        end = job.child.end()
        if end.how == "done" and end.value.error is not None:
            self.display.finished(job.run, end.value.error)
            return
        done = finished(job.run, self.out, self.display.note)
        if end.how != "done" and done is not None:  # it was ended after its last word
            self.display.finished(job.run, done.last)
            return
        reason = end.value.reason if end.how == "done" else str(end.value)
        self.tried[job.run.folder] += 1
        if end.how != "done" and self.tried[job.run.folder] <= self.retry:
            self.display.note(f"{called(job.run)}: {reason}; it is tried again")
            waiting.append(job.run)
        else:
            self._fail(Failure(job.run, reason, job.child.log))

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.display.failed(failure.run, failure.reason)

    def _stop(self) -> None:
        """Ask all to stop and wait for them; asked again, they stop at once."""
        self.display.note(f"stopping: {len(self.running)} running, each writes a checkpoint after its update")
        self._ask()
        while not all(job.child.ended for job in self.running):
            self._wait_a_little()
        for job in self.running:
            end = job.child.end()
            if end.how == "done" and end.value.error is not None:
                self.display.finished(job.run, end.value.error)
        self.running.clear()
        self.display.note(self.display.words())

    def _wait_a_little(self) -> None:
        try:
            wait([job.child.process.sentinel for job in self.running if not job.child.ended], POLL)
        except KeyboardInterrupt:
            self._ask()

    def _ask(self) -> None:
        for job in self.running:
            job.child.stop()


def _train(run: Run, data: Path, out: Path) -> Result:
    """In the process of the run."""
    heard: list[str] = []

    def note(sentence: str) -> None:
        heard.append(sentence)
        print(sentence, flush=True)

    (outcome,) = train([run], data=data, out=out, note=note)
    if outcome is None:
        return Result(None, heard[-1].removeprefix(f"{run.title}: "))
    return Result(outcome.last)
