"""Divide a time budget over runs with the same number of updates."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...sweep.plan import Arm
from ...terminal import duration

MAX_EPOCHS, MIN_EPOCHS = 200, 10
MIN_PER_CLASS = 5  # training samples
EVALUATIONS_PER_RUN = 2  # at its end, and for the page
START_SECONDS = 10.0  # to start a process
OVERHEAD_SECONDS = 1.5  # per run: building networks, writing checkpoints
RESERVE = 0.15  # share of the budget for the page and for errors of the measured costs
UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?(?=[\s\d]|$)")


@dataclass(frozen=True)
class Work:
    """Measured costs and sizes that determine the division of a budget.

    Args:
        updates: Seconds of one update by arm.
        baseline: The arm without mixing.
        seeds: Seeds per arm.
        batch: Batch size.
        reading: Seconds to read a file.
        sizes: Function from the maximum of training samples per class to the numbers of training
            and test samples.
        largest_class: Samples of the largest class.
        jobs: Runs at a time.
        overhead: Seconds per run in addition to updates and evaluations.
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
        """Return the expected seconds of one run.

        Args:
            arm: Method and K.
            epochs: Epochs of the run.
            per_class: Maximum of training samples per class; None for all.
        """
        train, test = self.sizes(per_class)
        # A forward pass takes about a third of an update; half is a safe estimate.
        evaluation = EVALUATIONS_PER_RUN * test * self.updates[self.baseline] / self.batch / 2
        return epochs * updates_per_epoch(train, self.batch) * self.updates[arm] + evaluation + self.overhead

    def total_seconds(self, epochs: int, per_class: int | None) -> float:
        """Return the expected seconds of all runs, including reading.

        Args:
            epochs: Epochs of every run.
            per_class: Maximum of training samples per class; None for all.
        """
        runs = sum(self.run_seconds(arm, epochs, per_class) for arm in self.updates)
        return self.reading * sum(self.sizes(per_class)) + self.seeds * runs / self.jobs


@dataclass(frozen=True)
class Division:
    """A division of the budget.

    Args:
        epochs: Epochs of every run.
        per_class: Maximum of training samples per class; None for all.
        seconds: Expected seconds of all runs.
    """

    epochs: int
    per_class: int | None
    seconds: float


def divide(budget: float, elapsed: float, work: Work) -> Division:
    """Return the largest number of epochs that fits into the budget for all runs.

    If fewer than 10 epochs of all samples fit, the samples of large classes are limited instead.

    Args:
        budget: Seconds.
        elapsed: Seconds spent before the division.
        work: Costs and sizes.

    Raises:
        ValueError: If fewer than 5 training samples per class would be left.
    """
    available = budget * (1 - RESERVE) - elapsed
    epochs = _largest(MIN_EPOCHS, MAX_EPOCHS, lambda count: work.total_seconds(count, None) <= available)
    if epochs is not None:
        return Division(epochs, None, work.total_seconds(epochs, None))
    smallest = min(MIN_PER_CLASS, work.largest_class)
    per_class = _largest(smallest, work.largest_class, lambda count: work.total_seconds(MIN_EPOCHS, count) <= available)
    if per_class is None:
        needed = (work.total_seconds(MIN_EPOCHS, smallest) + elapsed) / (1 - RESERVE)
        runs = len(work.updates) * work.seeds
        raise ValueError(
            f"budget must be at least {_rounded_up(needed)}, got {duration(budget)}: the minimum time for {runs} runs of "
            f"{MIN_EPOCHS} epochs with {smallest} training samples per class; or use fewer methods, ks, or seeds"
        )
    return Division(MIN_EPOCHS, per_class, work.total_seconds(MIN_EPOCHS, per_class))


def updates_per_epoch(train: int, batch: int) -> int:
    """Return the updates of an epoch without the last, smaller batch.

    Args:
        train: Number of training samples.
        batch: Batch size.
    """
    return max(1, train // min(batch, train))


def parse_seconds(text: str) -> float:
    """Return a time in seconds.

    Args:
        text: A time such as ``30m``.

    Raises:
        ValueError: If the text is not a positive time.

    >>> parse_seconds("30m"), parse_seconds("1.5h"), parse_seconds("90"), parse_seconds("1h 30m")
    (1800.0, 5400.0, 90.0, 5400.0)
    """
    parts = TIME.findall(text.strip().lower())
    rest = TIME.sub("", text.strip().lower()).strip()
    total = sum(float(number) * UNIT_SECONDS[unit or "s"] for number, unit in parts)
    if rest or not total > 0 or not math.isfinite(total):
        raise ValueError(f"budget must be a time such as 30m, 2h, or 90s, got {text!r}")
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
