"""How long one update of the weights takes, with one number of interpolations after the other, in one run on one machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from ...methods.base import trained_parameters
from ..training.loop import Clock
from .base import Finding, measure
from .gradient_norm import KS, Key, Updates, undisturbed, updates_of
from .predictions import Progress, Reading
from .subject import Subject


@dataclass(frozen=True)
class Quartiles:
    """The ``median`` of some values, one for every repeat; half of them lie in ``low … high``."""

    values: tuple[float, ...]
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class TimeAtK:
    """Wall and CPU seconds of an update with ``k`` interpolations, and both as multiples of K = 1 in the same repeat.

    ``seconds_per_epoch`` is the median of ``seconds`` times the updates of an epoch. Ratios are None where the clock saw nothing
    pass at K = 1.
    """

    k: int
    seconds: Quartiles
    cpu_seconds: Quartiles
    ratio: Quartiles | None
    cpu_ratio: Quartiles | None
    seconds_per_epoch: float


@dataclass(frozen=True)
class TrainingTimes:
    """One row for every K; ``updates`` of ``batch`` samples are an epoch. CPU seconds add up over ``threads``."""

    repeats: int
    batch: int
    updates: int
    device: str
    threads: int
    rows: tuple[TimeAtK, ...]

    def numbers(self) -> dict[str, float | None]:
        """Wall seconds as multiples of K = 1 by name, k1, k3, …; ``increase_1``, ``increase_3``, …, by how many per cent an
        update takes longer than with K = 1; and ``seconds_k1``, the wall seconds of an epoch at K = 1.

        The increase is that of the median multiple: of CPU time, or on other devices of wall time, since they work beside it.
        """
        ratios = {f"k{row.k}": None if row.ratio is None else row.ratio.median for row in self.rows}
        own = {row.k: row.cpu_ratio if self.device == "cpu" else row.ratio for row in self.rows}
        increases = {f"increase_{k}": None if ratio is None else 100 * (ratio.median - 1) for k, ratio in own.items()}
        return {**ratios, **increases, "seconds_k1": self.rows[0].seconds_per_epoch}


REPEATS, SMOKE_REPEATS = 5, 2


def _resolve(subject: Subject, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"repeats": SMOKE_REPEATS if subject.scale == "smoke" else REPEATS, **given}


@measure(
    "training_time", labels=lambda subject, options: subject.labels("train"), timed=True, resolve=_resolve, uses_statistics=False
)
def measure_training_time(
    subject: Subject, reading: Reading, *, ks: tuple[int, ...] = KS, repeats: int = REPEATS, seed: int = 0
) -> Finding:
    """Measure the time of updates of a run's last epoch.

    Args:
        subject: A run.
        reading: How samples are read.
        ks: Interpolations per pair.
        repeats: Measurements of each K; 2 by default for a run at smoke scale.
        seed: Seed of the pairs and of λ.
    """
    found = training_times(updates_of(subject, "training_time", ks, seed, reading.workers), repeats, reading.progress)
    return Finding(found.numbers(), found)


def training_times(updates: Updates, repeats: int = REPEATS, progress: Progress = iter) -> TrainingTimes:
    """Seconds of one update (mixing, with saliency where it is needed; forward, backward, a step of SGD) for every K.

    Loading is not counted. One update for every K goes before, unmeasured, two for a method that remembers batches: its first
    has nothing to be mixed with. Then every repeat takes another batch and goes through all K, beginning with another, so that a
    machine that slows down slows all of them. ``progress`` wraps the numbers of all updates, the unmeasured ones included.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    ks = tuple(updates.ks)
    laps: dict[int, list[dict[str, float]]] = {k: [] for k in ks}
    unmeasured = 2 if updates.method.traits.history else 1
    turns = unmeasured + repeats
    with undisturbed():
        # A rate of 0 costs what any other does, and leaves all updates the same weights.
        weights = [weight for weight in updates.network.parameters() if weight.requires_grad]
        weights += trained_parameters(updates.method)
        optimizer = torch.optim.SGD(weights, lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
        given = list(updates.batches(repeats))
        # Every turn begins with another K.
        orders = [(*ks[turn % len(ks) :], *ks[: turn % len(ks)]) for turn in range(turns)]
        work = ((k, *given[max(turn - unmeasured, 0)]) for turn, order in enumerate(orders) for k in order)
        for _, (k, key, x, y) in zip(progress(range(turns * len(ks))), work, strict=True):
            laps[k].append(_update(updates, optimizer, k, key, x, y))
    seconds = {k: {name: [lap[name] for lap in laps[k][unmeasured:]] for name in laps[k][0]} for k in ks}
    steps, place = len(updates.loader), updates.weight.device.type
    rows = tuple(_row(k, seconds[k], seconds[1], steps) for k in ks)
    return TrainingTimes(repeats, updates.loader.batch, steps, place, torch.get_num_threads(), rows)


def _update(updates: Updates, optimizer: torch.optim.Optimizer, k: int, key: Key, x: Tensor, y: Tensor) -> dict[str, float]:
    """Wall and CPU seconds of one update; buffers are put back after the clock was read."""
    _wait(x.device)
    clock = Clock()
    optimizer.zero_grad()
    updates.backward(k, key, x, y)
    optimizer.step()
    updates.method.after_step(updates.network)
    _wait(x.device)
    passed = clock.lap()
    updates.restore()
    return passed


def _wait(place: torch.device) -> None:
    """Wait until the device has finished: otherwise the clock would show how long it took to give it the work."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    elif place.type == "mps":
        torch.mps.synchronize()


def _row(k: int, own: dict[str, list[float]], one: dict[str, list[float]], updates: int) -> TimeAtK:
    wall, cpu = "seconds", "cpu_seconds"
    ratios = {
        name: _quartiles([a / b for a, b in zip(own[name], one[name], strict=True)]) if all(one[name]) else None
        for name in (wall, cpu)
    }
    seconds = _quartiles(own[wall])
    return TimeAtK(k, seconds, _quartiles(own[cpu]), ratios[wall], ratios[cpu], seconds.median * updates)


def _quartiles(values: Sequence[float]) -> Quartiles:
    low, median, high = numpy.percentile(values, (25, 50, 75)).tolist()
    return Quartiles(tuple(values), low, median, high)
