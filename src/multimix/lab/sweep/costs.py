"""What an update of every arm costs, measured side by side and stored, so that a sweep that is resumed plans the same runs."""

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
from ...output import State
from ...warmup import warmup
from ..recipes.runs import Run
from ..storage import append_row, read_rows
from ..terminal import note as say
from ..training.loop import Training
from ..training.run import engine as make_accelerator
from ..training.run import splits_of
from ..training.step import update
from .engines import Engine, Local
from .plan import Arm

FILE, LOG = "sweep-costs.jsonl", "sweep-costs.log"
ROUNDS, WARM = 7, 2  # updates of every arm that count, and before them some that do not
BASE: Arm = (NoMix.name, 1)


class Measured(NamedTuple):
    """A number for every arm, and what was raised by those that failed."""

    numbers: dict[Arm, float]
    broken: dict[Arm, str]


def measure_costs(
    base: Run,
    runs: Sequence[Run],
    *,
    data: str | Path,
    out: str | Path,
    engine: Engine | None = None,
    note: Callable[[str], None] = say,
) -> Measured:
    """Costs of a sample for the arms of ``runs``, as multiples of ``base``, a run without mixing; only missing ones are measured.

    Seconds are those of the CPU, in a process of its own; where an accelerator does the work they are those of the clock.
    """
    out, engine = Path(out), engine or Local()
    run_of = {(run.arm, run.k): run for run in runs}
    stored = [record for record in read_rows(out / FILE, note) if isinstance(record.get("cost"), float)]
    keys = {arm: _key(base, run, engine.machine) for arm, run in run_of.items()}
    # The first that was stored counts, so that a sweep beside this one, which measured as well, changes no plan.
    costs = {arm: record["cost"] for arm, key in keys.items() for record in reversed(stored) if key.items() <= record.items()}
    missing = {arm: run for arm, run in run_of.items() if arm not in costs}
    if not missing:
        return Measured(costs, {})
    note(f"measuring what an update costs: {', '.join(f'{arm} K = {k}' for arm, k in missing)}")
    updates = _measure({BASE: base, **missing}, Path(data), out, engine)
    for arm in (arm for arm in missing if arm in updates.numbers):
        seconds, without = updates.numbers[arm], updates.numbers[BASE]
        # For every sample of an epoch: K times the batch makes K times fewer updates.
        costs[arm] = seconds / missing[arm].settings.batch / (without / base.settings.batch)
        append_row(out / FILE, {**keys[arm], "cost": costs[arm], "seconds": seconds, "seconds_without_mixing": without})
    return Measured(costs, updates.broken)


def update_seconds(runs: dict[Arm, Run], data: Path, cache: Path, clock: Callable[[], float] | None = None) -> Measured:
    """Each arm's median over a few real updates, one of every arm in turn, so that a busy moment hits them all."""
    if any(run.settings.method.traits.needs for run in runs.values()):
        warmup()
    streams: dict[Arm, Iterator[float]] = {}
    broken: dict[Arm, str] = {}
    seen: dict[Arm, list[float]] = {arm: [] for arm in runs}
    for turn in range(WARM + ROUNDS):
        for arm, run in ((arm, run) for arm, run in runs.items() if arm not in broken):
            try:
                if turn == 0:
                    streams[arm] = _timed_updates(run, data, cache, clock)
                seconds = next(streams[arm])
            except Exception as error:
                broken[arm] = " ".join(f"{type(error).__name__}: {error}".split())
                continue
            if turn >= WARM:
                seen[arm].append(seconds)
    return Measured({arm: statistics.median(times) for arm, times in seen.items() if arm not in broken}, broken)


def _timed_updates(run: Run, data: Path, cache: Path, clock: Callable[[], float] | None) -> Iterator[float]:
    """Seconds of one update after the other, with the loading of its batch, as a training does them."""
    settings = run.settings
    accelerator = make_accelerator(settings)
    training = Training(settings, run.seed, splits_of(settings.data, data, cache, settings.running.workers), accelerator)
    clock = clock or (time.process_time if accelerator.device.type == "cpu" else _after_all)
    batches = _batches(training)
    states: tuple[State, ...] = ()
    while True:
        start = clock()
        epoch, step, shares = next(batches)
        now = training.fitted.in_epoch(epoch)
        measured = update(accelerator, training.model, training.optimizer, now, shares, (run.seed, epoch, step), states)
        states = measured.states
        yield clock() - start


def _after_all() -> float:
    """The time when the accelerator has done all its work."""
    torch.accelerator.synchronize()
    return time.perf_counter()


def _batches(training: Training) -> Iterator[tuple[int, int, list[tuple[Tensor, Tensor]]]]:
    for epoch in count():
        for step, shares in enumerate(zip(*(loader.epoch(epoch) for loader in training.loaders(epoch)), strict=True)):
            yield epoch, step, list(shares)


def _measure(runs: dict[Arm, Run], data: Path, out: Path, engine: Engine) -> Measured:
    """Seconds of updates, in a process of its own."""
    job = engine.start(update_seconds, (runs, data.absolute(), out.absolute() / "cache"), out / LOG)
    console = Console(stderr=True)
    with console.status("measuring what an update costs") if console.is_terminal else nullcontext():
        try:
            end = engine.end(job)
        except KeyboardInterrupt:
            engine.stop(job)
            raise
    wrong = end.value.broken.get(BASE) if end.how == "done" else end.value
    if wrong is not None:
        raise ValueError(f"what an update costs could not be measured: {wrong} ({out / LOG})")
    updates: Measured = end.value
    return updates


def _key(base: Run, run: Run, machine: str) -> dict[str, Any]:
    """What a cost belongs to."""
    threads = run.settings.running.threads
    return {
        "recipe": run.recipe.name,
        "scale": run.scale,
        "arm": run.arm,
        "k": run.k,
        "digest": run.settings.digest(),
        "without_mixing": base.settings.digest(),
        "machine": machine,
        "device": run.settings.running.device,
        "threads": torch.get_num_threads() if threads is None else threads,
    }
