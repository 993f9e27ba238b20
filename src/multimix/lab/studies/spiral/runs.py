"""Runs of the spiral: train every seed with every arm, store finished runs, and resume."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ...recipes.spiral import ARMS, VERSION, SpiralArm, SpiralSettings
from ...storage import Store, environment
from ..threads import one_thread
from .data import spiral_data
from .training import net_with_weights, train_networks

# Receives the current work, finished epochs, and all epochs; an epoch of one network counts as one.
ReportProgress = Callable[[str, int, int], None]


class SpiralRun(NamedTuple):
    """A trained network: right answers on clean test labels, weights, and CPU time of training."""

    seed: int
    right: int
    tested: int
    weights: tuple[float, ...]
    cpu_seconds: float
    environment: dict[str, str]

    @property
    def accuracy(self) -> float:
        """Accuracy in percent."""
        return 100 * self.right / self.tested


@dataclass(frozen=True)
class SpiralResult:
    """All runs of a study.

    Args:
        settings: Settings of data and training.
        seeds: The seeds.
        runs: Runs by the arm's name, in the order of ``seeds``.
    """

    settings: SpiralSettings
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[SpiralRun, ...]]

    def median_run(self, arm: SpiralArm) -> SpiralRun:
        """Return the run with the median accuracy of an arm; of two, the lower one."""
        return sorted(self.runs[arm.name], key=lambda run: (run.right, run.seed))[(len(self.seeds) - 1) // 2]


def run_study(
    settings: SpiralSettings,
    *,
    seeds: Sequence[int],
    out: str | Path,
    note: Callable[[str], None] = print,
    progress: ReportProgress = lambda words, done, total: None,
) -> SpiralResult:
    """Train the runs that are not stored yet, a few seeds at a time, and store every group when it ends.

    Args:
        settings: Settings of data and training.
        seeds: Different numbers, at least 0.
        out: Folder of the stored runs.
        note: Receives messages.
        progress: Receives the current work, finished epochs, and all epochs.
    """
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
    stored = {arm.name: [_stored_run(store, arm, seed) for seed in seeds] for arm in ARMS}
    runs = {name: tuple(run for run in of_arm if run is not None) for name, of_arm in stored.items()}
    return SpiralResult(settings, tuple(seeds), runs)


def group_size(arm: SpiralArm) -> int:
    """Return how many networks are trained at once, so that stopping loses less than half a minute."""
    return 5 if arm.k > 1 else 10


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[ReportProgress]:
    """Yield a function that moves a bar on stderr, if that is a terminal."""
    console = Console(stderr=True) if console is None else console
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("the spiral", total=None)
        yield lambda words, done, total: bar.update(task, description=words, completed=done, total=total)


def _open_store(settings: SpiralSettings, seeds: Sequence[int], out: str | Path, note: Callable[[str], None]) -> Store:
    """Return the folder of stored runs; its name does not depend on the seeds."""
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
