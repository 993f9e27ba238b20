"""How long one update of the weights takes, with one number of interpolations after the other, in one run on one machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor, nn

from ...logits import Output
from ...methods.base import Method, trained_parameters
from ..data import Augment, Loader, Split
from ..recipes.settings import LossName
from ..training.loop import Clock
from ..training.step import preserve_random_state
from .gradient_norm import KS, Key, OwnCopy, Progress, backward, check_loss, checked_ks, first_batches, own_copy


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
        """Wall seconds as multiples of K = 1 by name, k1, k3, …; and ``seconds_k1``, those of an epoch at K = 1."""
        ratios = {f"k{row.k}": None if row.ratio is None else row.ratio.median for row in self.rows}
        return {**ratios, "seconds_k1": self.rows[0].seconds_per_epoch}


def training_times(
    network: nn.Module,
    method: Method,
    split: Split,
    augment: Augment,
    *,
    ks: Sequence[int] = KS,
    repeats: int = 5,
    batch: int = 100,
    loss: LossName = "cross_entropy",
    smoothing: float = 0.0,
    seed: int = 0,
    workers: int = 0,
    device: torch.device | str | None = None,
    output: Output | None = None,
    progress: Progress = iter,
) -> TrainingTimes:
    """Seconds of one update (mixing, with saliency where it is needed; forward, backward, a step of SGD) for every K.

    Loading, augmentation and the way to the device are not in them, nor is evaluation: an epoch takes longer by these, the same
    for every K. Every K runs once unmeasured, twice with a method that remembers batches, which does not mix the first. Then
    each repeat is one batch with every K in turn, beginning with another, so that a machine that slows down slows all of them.
    ``network`` is copied and stays as it is, and so do global random streams. A method without mixing has K = 1 only.
    ``progress`` wraps the numbers of all updates, the unmeasured ones included.
    """
    ks = checked_ks(method, ks)
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    check_loss(loss)
    laps: dict[int, list[dict[str, float]]] = {k: [] for k in ks}
    unmeasured = 2 if method.history else 1
    turns = unmeasured + repeats
    with preserve_random_state(), torch.inference_mode(False), torch.enable_grad():
        own = own_copy(network, method, device)
        # A rate of 0 costs what any other does, and leaves all updates the same weights.
        weights = [weight for weight in own.network.parameters() if weight.requires_grad]
        weights += trained_parameters(own.method)
        optimizer = torch.optim.SGD(weights, lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)
        loader = Loader(split, augment, batch=batch, seed=seed, workers=workers)
        given = list(first_batches(loader, repeats, own))
        work = ((k, *given[max(turn - unmeasured, 0)]) for turn in range(turns) for k in _in_turn(ks, turn))
        for _, (k, key, x, y) in zip(progress(range(turns * len(ks))), work, strict=True):
            laps[k].append(_update(own, optimizer, k, x, y, key, loss, smoothing, output))
    seconds = {k: {name: [lap[name] for lap in laps[k][unmeasured:]] for name in laps[k][0]} for k in ks}
    rows = tuple(_row(k, seconds[k], seconds[1], len(loader)) for k in ks)
    return TrainingTimes(repeats, batch, len(loader), own.place.type, torch.get_num_threads(), rows)


def _in_turn(ks: tuple[int, ...], turn: int) -> tuple[int, ...]:
    """All K, from another one on in every turn."""
    first = turn % len(ks)
    return ks[first:] + ks[:first]


def _update(
    own: OwnCopy,
    optimizer: torch.optim.Optimizer,
    k: int,
    x: Tensor,
    y: Tensor,
    key: Key,
    loss: LossName,
    smoothing: float,
    output: Output | None,
) -> dict[str, float]:
    """Wall and CPU seconds of one update; buffers are put back after the clock was read."""
    _wait(own.place)
    clock = Clock()
    optimizer.zero_grad()
    backward(own, k, x, y, key, loss=loss, smoothing=smoothing, output=output)
    optimizer.step()
    own.method.after_step(own.network)
    _wait(own.place)
    passed = clock.lap()
    own.restore()
    return passed


def _wait(place: torch.device) -> None:
    """Until the device has done what it was told: otherwise the clock would show how long telling it took."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    elif place.type == "mps":
        torch.mps.synchronize()


def _row(k: int, own: dict[str, list[float]], one: dict[str, list[float]], updates: int) -> TimeAtK:
    ratio, cpu_ratio = (_ratio(own[name], one[name]) for name in ("seconds", "cpu_seconds"))
    seconds, cpu_seconds = _quartiles(own["seconds"]), _quartiles(own["cpu_seconds"])
    return TimeAtK(k, seconds, cpu_seconds, ratio, cpu_ratio, seconds.median * updates)


def _ratio(own: Sequence[float], one: Sequence[float]) -> Quartiles | None:
    pairs = list(zip(own, one, strict=True))
    return _quartiles([a / b for a, b in pairs]) if all(b > 0 for _, b in pairs) else None


def _quartiles(values: Sequence[float]) -> Quartiles:
    low, median, high = (float(numpy.percentile(values, percent)) for percent in (25, 50, 75))
    return Quartiles(tuple(values), low, median, high)
