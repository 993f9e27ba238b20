"""The learning rate as a function of the epoch, a real number that grows by 1/steps with every step."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Milestones:
    """``rate``, multiplied by ``factor`` from each of the epochs ``at`` on; before that a linear ``warmup`` of so many epochs."""

    rate: float
    at: tuple[float, ...] = ()
    factor: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(map(float, self.at)))  # 100 and 100.0 are one setting with one digest
        _check_ascending("at", self.at)
        if not self.rate > 0 or not self.factor > 0 or not self.warmup >= 0:
            raise ValueError(
                f"rate and factor must be positive and warmup at least 0, got {self.rate:g}, {self.factor:g} and {self.warmup:g}"
            )

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training."""
        rate = self.rate * self.factor ** bisect_right(self.at, epoch)
        return rate * epoch / self.warmup if epoch < self.warmup else rate

    def squeezed(self, factor: float) -> "Milestones":
        """The same course in ``factor`` times the epochs."""
        return Milestones(self.rate, tuple(epoch * factor for epoch in self.at), self.factor, self.warmup * factor)


@dataclass(frozen=True)
class Knots:
    """Straight lines between ``points`` (epoch, rate); two points at one epoch are a jump, before and after them it is level."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("points must hold at least one (epoch, rate), got none")
        object.__setattr__(self, "points", tuple((float(epoch), float(rate)) for epoch, rate in self.points))
        _check_ascending("epochs of points", [epoch for epoch, _ in self.points], ties=True)
        if any(rate < 0 for _, rate in self.points):
            raise ValueError(f"rates must be at least 0, got {min(rate for _, rate in self.points):g}")

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training; at a jump, the one after it."""
        after = bisect_right([at for at, _ in self.points], epoch)
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[after - 1 : after + 1]
        return low + (high - low) * (epoch - left) / (right - left)

    def squeezed(self, factor: float) -> "Knots":
        """The same course in ``factor`` times the epochs."""
        return Knots(tuple((epoch * factor, rate) for epoch, rate in self.points))


@dataclass(frozen=True)
class Cosine:
    """From ``rate`` down to 0 after ``epochs``, along half a wave of a cosine."""

    rate: float
    epochs: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", float(self.epochs))
        if not self.rate > 0 or not self.epochs > 0:
            raise ValueError(f"rate and epochs must be positive, got {self.rate:g} and {self.epochs:g}")

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training."""
        return self.rate * (1 + math.cos(math.pi * min(epoch / self.epochs, 1.0))) / 2

    def squeezed(self, factor: float) -> "Cosine":
        """The same course in ``factor`` times the epochs."""
        return Cosine(self.rate, self.epochs * factor)


Schedule = Milestones | Knots | Cosine


def _check_ascending(name: str, values: Sequence[float], ties: bool = False) -> None:
    if any(a > b or (a == b and not ties) for a, b in pairwise(values)):
        raise ValueError(f"{name} must ascend, got {', '.join(f'{value:g}' for value in values)}")
