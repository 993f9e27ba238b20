"""A time budget divided over arms and seeds: every run gets as many updates as every other, and all of them fit."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..sweep.plan import Arm
from ..terminal import duration

MOST_EPOCHS, LEAST_EPOCHS = 200, 10  # more does not help, fewer says nothing
LEAST_OF_CLASS = 5  # samples, where a class has them
EVALUATIONS = 2  # of a run: at its end, and for the page
STARTING = 10.0  # seconds that a process of its own takes to start
OVERHEAD = 1.5  # seconds of a run beside updates and evaluations: making networks, writing checkpoints
RESERVE = 0.15  # of the budget is not planned: for the page, and since measured times are not exact
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

Sizes = Callable[[int | None], tuple[int, int]]


@dataclass(frozen=True)
class Work:
    """What is known before the budget is divided.

    ``updates`` are the seconds of one update of every arm with ``batch`` samples, ``reading`` those of one file. ``sizes(most)``
    are the samples to learn from, at most so many of a class, and to be tested on; None is all, ``largest`` the largest class.
    """

    updates: Mapping[Arm, float]
    without: Arm
    seeds: int
    batch: int
    reading: float
    sizes: Sizes
    largest: int
    jobs: int = 1
    overhead: float = OVERHEAD

    def seconds(self, arm: Arm, epochs: int, most: int | None) -> float:
        """What one run of an arm is expected to take."""
        train, test = self.sizes(most)
        # Looking at a sample without learning from it takes about a third of an update's share for it; it is counted as a half.
        evaluation = EVALUATIONS * test * self.updates[self.without] / self.batch / 2
        return epochs * updates_per_epoch(train, self.batch) * self.updates[arm] + evaluation + self.overhead

    def whole(self, epochs: int, most: int | None) -> float:
        """What everything is expected to take, reading included."""
        runs = sum(self.seconds(arm, epochs, most) for arm in self.updates)
        return self.reading * sum(self.sizes(most)) + self.seeds * runs / self.jobs


@dataclass(frozen=True)
class Division:
    """So many ``epochs`` for every run, at most ``most`` samples of a class to learn from; ``seconds`` is all that is planned."""

    epochs: int
    most: int | None
    seconds: float


def divide(budget: float, spent: float, work: Work) -> Division:
    """The most epochs that fit into what is left of ``budget`` seconds, up to 200; the same number for every arm and seed.

    Where fewer than 10 epochs of all samples would fit it is 10 epochs of fewer samples of the large classes; a ValueError says
    how much is needed where that would leave fewer than 5 of a class to learn from.
    """
    left = budget * (1 - RESERVE) - spent
    epochs = _largest(LEAST_EPOCHS, MOST_EPOCHS, lambda count: work.whole(count, None) <= left)
    if epochs is not None:
        return Division(epochs, None, work.whole(epochs, None))
    least = min(LEAST_OF_CLASS, work.largest)
    most = _largest(least, work.largest, lambda count: work.whole(LEAST_EPOCHS, count) <= left)
    if most is None:
        needed = (work.whole(LEAST_EPOCHS, least) + spent) / (1 - RESERVE)
        runs = len(work.updates) * work.seeds
        raise ValueError(
            f"budget must be at least {_rounded_up(needed)}, got {duration(budget)}: so long take {runs} runs of {LEAST_EPOCHS} "
            f"epochs with {least} samples of a class to learn from; or ask for fewer methods, ks or seeds"
        )
    return Division(LEAST_EPOCHS, most, work.whole(LEAST_EPOCHS, most))


def updates_per_epoch(train: int, batch: int) -> int:
    """As a training counts them: the last, smaller batch is dropped."""
    return max(1, train // min(batch, train))


def fitting_batch(train: int) -> int:
    """So that an epoch has at least eight updates, but between 4 and 32 samples."""
    return min(train, max(4, min(32, train // 8)))


def in_seconds(words: str) -> float:
    """A time in seconds.

    >>> in_seconds("30m"), in_seconds("1.5h"), in_seconds("90"), in_seconds("1h 30m")
    (1800.0, 5400.0, 90.0, 5400.0)
    """
    found = re.findall(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?(?=[\s\d]|$)", words.strip().lower())
    rest = re.sub(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?(?=[\s\d]|$)|\s", "", words.strip().lower())
    total = sum(float(number) * UNITS[unit or "s"] for number, unit in found)
    if rest or not total > 0 or not math.isfinite(total):
        raise ValueError(f"budget must be a time such as 30m, 2h or 90s, got {words!r}")
    return total


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest of ``low … high`` that fits, where all below one that fits do as well."""
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _rounded_up(seconds: float) -> str:
    """A budget that suffices, as the command line takes it."""
    return f"{math.ceil(seconds)}s" if seconds < 100 else f"{math.ceil(seconds / 60)}m"
