"""Every seed trained with every method; what is finished stays on disk, and a study that was stopped goes on with the rest."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...storage import Store, environment
from ...study import one_thread
from .data import spiral
from .nets import with_weights
from .settings import ARMS, RECIPE, Arm, SpiralSettings, method_of
from .trainer import trained

STUDY = "spiral"

# What is being done, epochs done so far and epochs in all; an epoch of one net counts as one.
Progress = Callable[[str, int, int], None]


class Run(NamedTuple):
    """One net: the clean test labels it gets right, its weights and the CPU time of its training."""

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
    runs: Mapping[str, tuple[Run, ...]]

    def accuracies(self, arm: Arm) -> list[float]:
        """Per cent of the clean test labels, seed by seed."""
        return [run.accuracy for run in self.runs[arm.name]]

    def median_run(self, arm: Arm) -> Run:
        """The run in the middle of its arm; the lower one of two."""
        return sorted(self.runs[arm.name], key=lambda run: (run.right, run.seed))[(len(self.seeds) - 1) // 2]


def run(
    settings: SpiralSettings,
    *,
    seeds: Sequence[int],
    out: str | Path,
    note: Callable[[str], None] = print,
    progress: Progress = lambda words, done, total: None,
) -> SpiralResult:
    """The whole study; trains what is not on disk yet, a few seeds at a time, and keeps every group as soon as it is done."""
    store, groups = opened(settings, seeds, out, note), []
    for arm in ARMS:
        missing = [seed for seed in seeds if _stored(store, arm, seed) is None]
        size = group_size(arm)
        groups += [(arm, missing[start : start + size]) for start in range(0, len(missing), size)]
    total = settings.epochs * len(seeds) * len(ARMS)
    done = total - settings.epochs * sum(len(group) for _, group in groups)
    if 0 < done < total:
        note(f"{done // settings.epochs} of {len(seeds) * len(ARMS)} runs are already in {store.folder}; the rest follows")
    with one_thread():
        for arm, group in groups:
            done = _train_group(store, settings, arm, group, done, lambda words, now: progress(words, now, total))
    return rebuilt(settings, seeds=seeds, out=out, note=note)


def rebuilt(
    settings: SpiralSettings, *, seeds: Sequence[int], out: str | Path, note: Callable[[str], None] = print
) -> SpiralResult:
    """The result of a study whose runs are all on disk; nothing is trained, and one sentence says so if runs are missing."""
    store = opened(settings, seeds, out, note)
    runs = {arm.name: [_stored(store, arm, seed) for seed in seeds] for arm in ARMS}
    found = {name: tuple(one for one in stored if one is not None) for name, stored in runs.items()}
    there, wanted = sum(map(len, found.values())), len(seeds) * len(ARMS)
    if there < wanted:
        raise ValueError(f"all {wanted} runs must be in {str(store.folder)!r}, found {there}; train the rest first")
    return SpiralResult(settings, tuple(seeds), found)


def opened(settings: SpiralSettings, seeds: Sequence[int], out: str | Path, note: Callable[[str], None]) -> Store:
    """The study's folder. Which seeds are asked for is no part of its name: more seeds add to what is there."""
    if len(seeds) == 0 or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be different numbers, at least 0 and at least one, got {list(seeds)}")
    return Store(out, STUDY, {"recipe": RECIPE, **asdict(settings)}, note)


def group_size(arm: Arm) -> int:
    """How many nets are trained at once: enough to be quick, few enough that stopping loses less than half a minute."""
    return 5 if arm.k > 1 else 10


def tested(weights: torch.Tensor, settings: SpiralSettings, seed: int) -> tuple[int, int]:
    """How many clean test labels of a seed a net gets right, and how many there are."""
    data = spiral(settings, seed)
    with torch.no_grad():
        guess = with_weights(weights, settings.slope)(data.x_test.to(weights.dtype)).argmax(dim=1)
    return int((guess == data.y_test).sum()), len(guess)


def _train_group(
    store: Store, settings: SpiralSettings, arm: Arm, group: Sequence[int], done: int, progress: Callable[[str, int], None]
) -> int:
    """Trains and keeps one group of seeds; the epochs done so far come back."""
    words = f"{arm.words}, seed{'s' if len(group) > 1 else ''} {', '.join(map(str, group))}"
    progress(words, done)

    def tick() -> None:
        nonlocal done
        done += len(group)
        progress(words, done)

    start = time.process_time()
    weights = trained(method_of(arm, settings), settings, group, tick=tick)
    cost = (time.process_time() - start) / len(group)
    obtained_with = environment()
    for seed, row in zip(group, weights, strict=True):
        right, of = tested(row, settings, seed)
        result: dict[str, Any] = {"right": right, "tested": of, "weights": row.tolist()}
        store.put(_unit(arm, seed), result | {"cpu_seconds": cost, "environment": obtained_with})
    return done


def _stored(store: Store, arm: Arm, seed: int) -> Run | None:
    found = store.get(_unit(arm, seed))
    if found is None:
        return None
    return Run(seed, found["right"], found["tested"], tuple(found["weights"]), found["cpu_seconds"], found["environment"])


def _unit(arm: Arm, seed: int) -> str:
    return f"{arm.name}-seed{seed:04d}"
