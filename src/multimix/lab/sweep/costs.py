"""What an update of every arm costs, measured side by side and kept, so that a sweep that goes on plans the same runs."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from ...methods import NoMix
from ...warmup import warmup
from ..storage import append_row, processor, read_rows
from ..terminal import note as say
from ..training.loop import Training
from ..training.run import Run, engine, splits_of
from ..training.step import update
from .child import Child
from .plan import Arm

FILE, LOG = "sweep-costs.jsonl", "sweep-costs.log"
ROUNDS, WARM = 7, 2  # updates of every arm that count, and before them some that do not
BASE: Arm = (NoMix.name, 1)
Note = Callable[[str], None]


class Found(NamedTuple):
    """Costs of a sample as multiples of no mixing, and sentences about arms that could not be measured."""

    costs: dict[Arm, float]
    broken: dict[Arm, str]


class Updates(NamedTuple):
    """Median seconds of an update of every arm, and what was raised by those that failed."""

    seconds: dict[Arm, float]
    broken: dict[Arm, str]


def measured(base: Run, runs: Sequence[Run], *, data: str | Path, out: str | Path, note: Note = say) -> Found:
    """The costs of the arms of ``runs`` relative to ``base``, a run without mixing: those that are kept, the others measured.

    Seconds are those of the CPU, in a process of its own; where an accelerator does the work they are those of the clock.
    """
    out = Path(out)
    own = {(run.arm, run.k): run for run in runs}
    kept = [record for record in read_rows(out / FILE, note) if isinstance(record.get("cost"), float)]
    wanted = {arm: _key(base, run) for arm, run in own.items()}
    # The first that was kept counts, so that a sweep beside this one, which measured as well, changes no plan.
    costs = {arm: record["cost"] for arm, key in wanted.items() for record in reversed(kept) if _matches(record, key)}
    missing = {arm: run for arm, run in own.items() if arm not in costs}
    if not missing:
        return Found(costs, {})
    note(f"measuring what an update costs: {', '.join(label(arm) for arm in missing)}")
    updates = _in_a_child({BASE: base, **missing}, Path(data), out)
    for arm in (arm for arm in missing if arm in updates.seconds):
        seconds, without = updates.seconds[arm], updates.seconds[BASE]
        # For every sample of an epoch: K times the batch makes K times fewer updates.
        costs[arm] = seconds / missing[arm].settings.batch / (without / base.settings.batch)
        append_row(out / FILE, {**wanted[arm], "cost": costs[arm], "seconds": seconds, "seconds_without_mixing": without})
    return Found(costs, updates.broken)


def label(arm: Arm) -> str:
    """The arm in words."""
    return f"{arm[0]} K = {arm[1]}"


def update_seconds(runs: dict[Arm, Run], data: Path, cache: Path, clock: Callable[[], float] | None = None) -> Updates:
    """Each arm's median over a few real updates, one of every arm in turn, so that a busy moment hits them all."""
    if any(run.settings.method.needs for run in runs.values()):
        warmup()
    streams: dict[Arm, Iterator[float]] = {}
    broken: dict[Arm, str] = {}
    seen: dict[Arm, list[float]] = {arm: [] for arm in runs}
    for turn in range(WARM + ROUNDS):
        for arm, run in runs.items():
            if arm in broken:
                continue
            try:
                if turn == 0:
                    streams[arm] = _timed(run, data, cache, clock)
                seconds = next(streams[arm])
            except Exception as error:
                broken[arm] = " ".join(f"{type(error).__name__}: {error}".split())
                continue
            if turn >= WARM:
                seen[arm].append(seconds)
    return Updates({arm: statistics.median(times) for arm, times in seen.items() if arm not in broken}, broken)


def _timed(run: Run, data: Path, cache: Path, clock: Callable[[], float] | None) -> Iterator[float]:
    """Seconds of one update after the other, with the loading of its batch, as a training does them."""
    settings = run.settings
    accelerator = engine(settings)
    training = Training(settings, run.seed, splits_of(settings.data, data, cache, settings.running.workers), accelerator)
    device = accelerator.device.type
    clock = clock or (time.process_time if device == "cpu" else lambda: _after_all(device))
    batches = _batches(training)
    carried: Any = ()
    while True:
        start = clock()
        epoch, step, shares = next(batches)
        now = settings.in_epoch(epoch)
        measured = update(accelerator, training.model, training.optimizer, now, shares, (run.seed, epoch, step), carried)
        carried = measured.carried
        yield clock() - start


def _after_all(device: str) -> float:
    """The time when the accelerator has done what it was told."""
    torch.accelerator.synchronize()
    return time.perf_counter()


def _batches(training: Training) -> Iterator[tuple[int, int, list[tuple[Tensor, Tensor]]]]:
    for epoch in count():
        for step, shares in enumerate(zip(*(loader.epoch(epoch) for loader in training.loaders(epoch)), strict=True)):
            yield epoch, step, list(shares)


def _in_a_child(runs: dict[Arm, Run], data: Path, out: Path) -> Updates:
    child = Child(update_seconds, (runs, data, out / "cache"), out / LOG)
    console = Console(stderr=True)
    with console.status("measuring what an update costs") if console.is_terminal else nullcontext():
        try:
            end = child.end()
        except KeyboardInterrupt:
            child.stop()
            raise
    updates: Updates = end.value
    wrong = updates.broken.get(BASE) if end.how == "done" else str(end.value)
    if wrong is not None:
        raise ValueError(f"what an update costs could not be measured: {wrong} ({child.log})")
    return updates


def _key(base: Run, run: Run) -> dict[str, Any]:
    """What a cost belongs to."""
    threads = run.settings.running.threads
    return {
        "recipe": run.recipe.name,
        "scale": run.scale,
        "arm": run.arm,
        "k": run.k,
        "digest": run.settings.digest(),
        "without_mixing": base.settings.digest(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "device": run.settings.running.device,
        "threads": torch.get_num_threads() if threads is None else threads,
    }


def _matches(record: dict[str, Any], key: dict[str, Any]) -> bool:
    return all(record.get(name) == value for name, value in key.items())
