"""Divide a time budget over runs: the same number of updates for all, and all of them fit."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...sweep.plan import Arm
from ...terminal import duration

MAX_EPOCHS, MIN_EPOCHS = 200, 10
MIN_PER_CLASS = 5  # training samples, if a class has them
EVALUATIONS = 2  # per run: at its end, and for the page
START_SECONDS = 10.0  # of a process
OVERHEAD_SECONDS = 1.5  # per run: building networks, writing checkpoints
RESERVE = 0.15  # share of the budget left for the page and for inexact measurements
UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?(?=[\s\d]|$)")


@dataclass(frozen=True)
class Work:
    """What is known before the budget is divided.

    Args:
        updates: Seconds of one update of every arm.
        baseline: The arm without mixing.
        seeds: Seeds per arm.
        batch: Batch size.
        reading: Seconds to read a file.
        sizes: Numbers of training and test samples, given the largest number per class.
        largest_class: Samples of the largest class.
        jobs: Runs at a time.
        overhead: Seconds per run beside updates and evaluations.
    """

    updates: Mapping[Arm, float]
    baseline: Arm
    seeds: int
    batch: int
    reading: float
    sizes: Callable[[int | None], tuple[int, int]]
    largest_class: int
    jobs: int = 1
    overhead: float = OVERHEAD_SECONDS

    def run_seconds(self, arm: Arm, epochs: int, per_class: int | None) -> float:
        """Return the expected seconds of one run."""
        train, test = self.sizes(per_class)
        # A forward pass takes about a third of an update; it is counted as a half.
        evaluation = EVALUATIONS * test * self.updates[self.baseline] / self.batch / 2
        return epochs * updates_per_epoch(train, self.batch) * self.updates[arm] + evaluation + self.overhead

    def total_seconds(self, epochs: int, per_class: int | None) -> float:
        """Return the expected seconds of all runs, reading included."""
        runs = sum(self.run_seconds(arm, epochs, per_class) for arm in self.updates)
        return self.reading * sum(self.sizes(per_class)) + self.seeds * runs / self.jobs


@dataclass(frozen=True)
class Division:
    """Epochs of every run, training samples per class (None: all), and the planned seconds."""

    epochs: int
    per_class: int | None
    seconds: float


def divide(budget: float, spent: float, work: Work) -> Division:
    """Return the most epochs that fit into the budget, the same for every run.

    If fewer than 10 epochs of all samples fit, large classes are cut instead.

    Args:
        budget: Seconds.
        spent: Seconds that have passed.
        work: What is known.

    Raises:
        ValueError: If fewer than 5 training samples per class would be left.
    """
    left = budget * (1 - RESERVE) - spent
    epochs = _largest(MIN_EPOCHS, MAX_EPOCHS, lambda count: work.total_seconds(count, None) <= left)
    if epochs is not None:
        return Division(epochs, None, work.total_seconds(epochs, None))
    smallest = min(MIN_PER_CLASS, work.largest_class)
    per_class = _largest(smallest, work.largest_class, lambda count: work.total_seconds(MIN_EPOCHS, count) <= left)
    if per_class is None:
        needed = (work.total_seconds(MIN_EPOCHS, smallest) + spent) / (1 - RESERVE)
        runs = len(work.updates) * work.seeds
        raise ValueError(
            f"budget must be at least {_rounded_up(needed)}, got {duration(budget)}: the minimum time for {runs} runs of "
            f"{MIN_EPOCHS} epochs with {smallest} training samples per class; or use fewer methods, ks or seeds"
        )
    return Division(MIN_EPOCHS, per_class, work.total_seconds(MIN_EPOCHS, per_class))


def updates_per_epoch(train: int, batch: int) -> int:
    """Return the updates of an epoch; the last, smaller batch is dropped."""
    return max(1, train // min(batch, train))


def parse_seconds(text: str) -> float:
    """Return a time in seconds.

    >>> parse_seconds("30m"), parse_seconds("1.5h"), parse_seconds("90"), parse_seconds("1h 30m")
    (1800.0, 5400.0, 90.0, 5400.0)
    """
    parts = TIME.findall(text.strip().lower())
    rest = TIME.sub("", text.strip().lower()).strip()
    total = sum(float(number) * UNIT_SECONDS[unit or "s"] for number, unit in parts)
    if rest or not total > 0 or not math.isfinite(total):
        raise ValueError(f"budget must be a time such as 30m, 2h or 90s, got {text!r}")
    return total


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest of ``low … high`` that fits, for a monotone condition."""
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _rounded_up(seconds: float) -> str:
    return f"{math.ceil(seconds)}s" if seconds < 100 else f"{math.ceil(seconds / 60)}m"
