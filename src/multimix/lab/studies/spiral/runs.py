"""`multimix demo`: every seed trained with every arm. Finished runs stay on disk, and a study that was stopped resumes."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ...recipes.spiral import ARMS, VERSION, SpiralArm, SpiralSettings
from ...storage import Store, environment
from ..files import one_thread
from .data import spiral_data
from .training import net_with_weights, train_networks

SEEDS, QUICK_SEEDS, QUICK_EPOCHS = 20, 5, 200

# Called with what is being done, epochs done so far and epochs in all; an epoch of one network counts as one.
ReportProgress = Callable[[str, int, int], None]


class SpiralRun(NamedTuple):
    """One network: the clean test labels it gets right, its weights and the CPU time of its training."""

    seed: int
    right: int
    tested: int
    weights: tuple[float, ...]
    cpu_seconds: float
    environment: dict[str, str]

    @property
    def accuracy(self) -> float:
        """In per cent."""
        return 100 * self.right / self.tested


@dataclass(frozen=True)
class SpiralResult:
    """All runs of a study, by the arm's name, in the order of ``seeds``."""

    settings: SpiralSettings
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[SpiralRun, ...]]

    def accuracies(self, arm: SpiralArm) -> list[float]:
        """Per cent of the clean test labels, seed by seed."""
        return [run.accuracy for run in self.runs[arm.name]]

    def median_run(self, arm: SpiralArm) -> SpiralRun:
        """The run in the middle of its arm; the lower one of two."""
        return sorted(self.runs[arm.name], key=lambda run: (run.right, run.seed))[(len(self.seeds) - 1) // 2]


def run_demo(
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: str | Path = "multimix-demo",
    rebuild: bool = False,
    progress: ReportProgress | None = None,
    note: Callable[[str], None] = print,
) -> SpiralResult:
    """The result of the demo on the first ``seeds`` seeds: 20, or 5 if ``quick``, which also trains for fewer epochs.

    ``rebuild`` trains nothing. Without ``progress`` a bar is shown on stderr, if that is a terminal.
    """
    count = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}")
    settings = SpiralSettings(epochs=QUICK_EPOCHS) if quick else SpiralSettings()
    if rebuild:
        return read_runs(settings, seeds=range(count), out=out, note=note)
    with progress_bar() if progress is None else nullcontext(progress) as report:
        return run_study(settings, seeds=range(count), out=out, note=note, progress=report)


def run_study(
    settings: SpiralSettings,
    *,
    seeds: Sequence[int],
    out: str | Path,
    note: Callable[[str], None] = print,
    progress: ReportProgress = lambda words, done, total: None,
) -> SpiralResult:
    """Train the runs that are not on disk yet, a few seeds at a time, and store every group when it is done."""
    store, groups = _open_store(settings, seeds, out, note), []
    for arm in ARMS:
        missing = [seed for seed in seeds if _stored_run(store, arm, seed) is None]
        size = group_size(arm)
        groups += [(arm, missing[start : start + size]) for start in range(0, len(missing), size)]
    total = settings.epochs * len(seeds) * len(ARMS)
    done = total - settings.epochs * sum(len(group) for _, group in groups)
    if 0 < done < total:
        note(f"{done // settings.epochs} of {len(seeds) * len(ARMS)} runs are already in {store.folder}; the rest follows")
    with one_thread():
        for arm, group in groups:
            _train_group(store, settings, arm, group, progress, done, total)
            done += settings.epochs * len(group)
    return read_runs(settings, seeds=seeds, out=out, note=note)


def read_runs(
    settings: SpiralSettings, *, seeds: Sequence[int], out: str | Path, note: Callable[[str], None] = print
) -> SpiralResult:
    """The result of a study whose runs are all on disk; nothing is trained. Raise ValueError if runs are missing."""
    store = _open_store(settings, seeds, out, note)
    stored = {arm.name: [_stored_run(store, arm, seed) for seed in seeds] for arm in ARMS}
    runs = {name: tuple(run for run in of_arm if run is not None) for name, of_arm in stored.items()}
    there, wanted = sum(map(len, runs.values())), len(seeds) * len(ARMS)
    if there < wanted:
        raise ValueError(f"all {wanted} runs must be in {str(store.folder)!r}, found {there}; train the rest first")
    return SpiralResult(settings, tuple(seeds), runs)


def group_size(arm: SpiralArm) -> int:
    """How many networks are trained at once: enough to be quick, few enough that stopping loses less than half a minute."""
    return 5 if arm.k > 1 else 10


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[ReportProgress]:
    """A function that moves a bar on stderr, if that is a terminal."""
    console = Console(stderr=True) if console is None else console
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("the spiral", total=None)
        yield lambda words, done, total: bar.update(task, description=words, completed=done, total=total)


def _open_store(settings: SpiralSettings, seeds: Sequence[int], out: str | Path, note: Callable[[str], None]) -> Store:
    """The study's folder. Its name does not depend on the seeds: more seeds add to what is there."""
    if len(seeds) == 0 or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be different numbers, at least 0 and at least one, got {list(seeds)}")
    return Store(out, "spiral", {"recipe": VERSION, **asdict(settings)}, note)


def _train_group(
    store: Store,
    settings: SpiralSettings,
    arm: SpiralArm,
    group: Sequence[int],
    progress: ReportProgress,
    done: int,
    total: int,
) -> None:
    """Train and store one group of seeds."""
    words = f"{arm.words}, seed{'s' if len(group) > 1 else ''} {', '.join(map(str, group))}"
    progress(words, done, total)

    def after_epoch() -> None:
        nonlocal done
        done += len(group)
        progress(words, done, total)

    start = time.process_time()
    weights = train_networks(arm.method(settings), settings, group, after_epoch=after_epoch)
    cost = {"cpu_seconds": (time.process_time() - start) / len(group), "environment": environment()}
    for seed, row in zip(group, weights, strict=True):
        data = spiral_data(settings, seed)
        with torch.no_grad():
            guess = net_with_weights(row, settings.slope)(data.x_test.to(row.dtype)).argmax(dim=1)
        result = {"right": int((guess == data.y_test).sum()), "tested": len(guess), "weights": row.tolist()}
        store.put(_unit(arm, seed), result | cost)


def _stored_run(store: Store, arm: SpiralArm, seed: int) -> SpiralRun | None:
    result: dict[str, Any] | None = store.get(_unit(arm, seed))
    return None if result is None else SpiralRun(seed=seed, **result | {"weights": tuple(result["weights"])})


def _unit(arm: SpiralArm, seed: int) -> str:
    return f"{arm.name}-seed{seed:04d}"
