"""Train the runs of a recipe one after the other, store their rows, and skip finished ones."""

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list

from ...warmup import warmup
from ..data import Split, Splits, dataset, read
from ..images import SAMPLES
from ..locks import held, holder
from ..recipes.runs import BEST, RESULTS, SETTINGS, Run
from ..recipes.serialise import describe
from ..recipes.settings import Data, Settings
from ..storage import append_row, make_folder, read_rows, reject_link, write_atomically
from .checkpoint import latest_checkpoint, sound_checkpoint, weights_digest
from .log import Log, Outcome, outcome
from .loop import Diverged, Training
from .recorder import Progress, Recorder, Stop
from .samples import sample_grid

LOCK = ".lock"
Note = Callable[[str], None]


def train(
    runs: Sequence[Run], *, data: str | Path, out: str | Path, note: Note = print, wait: float = 0.0
) -> list[Outcome | None]:
    """The outcome of every run, trained if it is not finished yet; None for one whose loss diverged, which ``note`` is told.

    Started by torchrun, all processes train together; the first one writes. For a run that another process is training, ``wait``
    seconds are waited.
    """
    if not runs:
        return []
    out = Path(out)
    accelerator = engine(runs[0].settings)
    first = accelerator.is_main_process
    if first:
        make_folder(out)
        reject_link(out / RESULTS)  # before the training, not after it
    if any(run.settings.method.traits.needs for run in runs):
        with accelerator.main_process_first():
            warmup()  # kernels are compiled once, not by every process, nor in the first epoch
    tell: Note = note if first else lambda sentence: None
    results: list[Outcome | None] = []
    # Once for all runs: one that another process finishes meanwhile is seen when its folder is locked.
    rows = read_rows(out / RESULTS, tell) if first else []
    for run in runs:
        accelerator = engine(run.settings)  # anew, so that the loss scale of fp16 does not pass from run to run
        run = run._replace(processes=accelerator.num_processes)
        done = _same(accelerator, finished(run, out, tell, rows) if first else None)
        if done is not None:
            tell(f"{run.title}: done before, error {done.last:.2f} % in the last epoch")
            results.append(done)
            continue
        try:
            results.append(_trained(run, Path(data), out, accelerator, tell, wait))
        except Diverged as error:
            tell(f"{run.title}: {error}")
            results.append(None)
        accelerator.free_memory()  # it would keep every model it has seen
    return results


def engine(settings: Settings) -> Accelerator:
    """What runs the training on the devices that are there."""
    AcceleratorState._reset_state()  # another precision may have been used in this process
    if settings.running.threads is not None:
        torch.set_num_threads(settings.running.threads)
    # Told nothing, Accelerate would start processes without an accelerator as so many trainings of one process each.
    cpu = settings.running.device == "cpu" or not torch.accelerator.is_available()
    made = Accelerator(cpu=cpu, mixed_precision=settings.mixed_precision)
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if made.num_processes != started:
        raise ValueError(f"{started} processes were started, but {made.device.type} takes one: use --running.device cpu")
    if made.device.type == "cpu" and settings.mixed_precision == "fp16":
        raise ValueError("mixed_precision fp16 needs an accelerator; on a CPU it can be no or bf16")
    return made


def _trained(run: Run, data: Path, out: Path, accelerator: Accelerator, note: Note, wait: float) -> Outcome:
    """One run from where it was to its end, and its row."""
    splits = _read_together(run.settings, data, out / "cache", accelerator)
    training = Training(run.settings, run.seed, splits, accelerator)
    folder = out / run.folder
    if not accelerator.is_main_process:
        training.resume(_same(accelerator, None))
        with Stop() as stop:
            training.run(None, stop)
        return outcome(training.at.history)
    with locked(folder, wait, note) as check:
        for half in folder.glob(".*.[0-9]*"):  # left by a process that was killed while it wrote; its lock is ours now
            half.unlink(missing_ok=True)
        write_atomically(folder / SETTINGS, _settings_text(run, training))
        newest = _same(accelerator, latest_checkpoint(folder, note, training.check))
        if (folder / BEST).exists():
            sound_checkpoint(folder / BEST, note)  # the next epoch that is better writes another
        if newest is not None:
            note(f"{run.title}: resumes after update {newest.values['at']['updates']}")
        else:
            _store_samples(folder, training, note)
        training.resume(newest)
        at = training.at
        with (
            Log(folder, updates=at.updates, history=at.history) as log,
            Progress(run.title, training.total_updates, run.settings.epochs, at.updates, note=note) as progress,
            Stop(partial(progress.doing, "stopping after this update")) as stop,
        ):
            recorder = Recorder(folder, run.settings.running, log, progress, check)
            training.run(recorder, stop)
            recorder.write(training.at.updates, training.state)
        found = outcome(training.at.history)
        check()
        if finished(run, out, note) is None:  # or another process was faster between our look and our lock
            append_row(out / RESULTS, _row(run, training, found))
    return found


def _store_samples(folder: Path, training: Training, note: Note) -> None:
    """Store pictures of the first mixed samples; a run does not fail for want of pictures."""
    try:
        write_atomically(folder / SAMPLES, sample_grid(training).to_bytes())
    except (ValueError, RuntimeError, OSError) as error:
        note(f"pictures of mixed samples cannot be stored: {error}")


def _same(accelerator: Accelerator, value: Any) -> Any:
    """What the first process has, in all of them."""
    return broadcast_object_list([value])[0] if accelerator.num_processes > 1 else value


def _row(run: Run, training: Training, found: Outcome) -> dict[str, Any]:
    parts = {id(part): part for part in (training.train, training.report, training.select) if part is not None}.values()
    return {
        **run.key(),
        "settings": describe(run.settings),
        "outcome": asdict(found),
        "epochs": [asdict(epoch) for epoch in training.at.history],
        "device": training.accelerator.device.type,
        "processes": training.accelerator.num_processes,
        "skipped": sum(len(part.skipped) for part in parts),
        "train_samples": len(training.train),
        "report_samples": len(training.report),
        "weights": weights_digest(training.network),
        "folder": str(run.folder),
    }


def finished(run: Run, out: Path, note: Note, rows: Sequence[Mapping[str, Any]] | None = None) -> Outcome | None:
    """The outcome of a run that has its row, among ``rows`` or those in ``out``."""
    key = run.key()
    for row in reversed(read_rows(out / RESULTS, note) if rows is None else rows):
        if all(row.get(name) == value for name, value in key.items()):
            return Outcome(**row["outcome"])
    return None


def _read_together(settings: Settings, folder: Path, cache: Path, accelerator: Accelerator) -> Splits[Split]:
    """The data, read by the first process first; what is wrong with them is raised in all, so that none waits for the others."""
    data, workers = settings.data, settings.running.workers
    wrong: str | None = None
    if accelerator.is_main_process:
        try:
            splits_of(data, folder, cache, workers)
        except (ValueError, OSError) as error:
            wrong = f"{error}{fetch_hint(data.name, folder)}"
    wrong = _same(accelerator, wrong)
    if wrong is not None:
        raise ValueError(wrong)
    return splits_of(data, folder, cache, workers)


def fetch_hint(name: str, folder: Path) -> str:
    """How to get a data set that is not in the folder; nothing about one that is there."""
    official = dataset(name).folders
    there = not official or any((folder / place).exists() for place in official)
    return "" if there else f" (--data says where data sets are; multimix data fetch {name} downloads this one)"


def splits_of(data: Data, folder: Path, cache: Path, workers: int = 0) -> Splits[Split]:
    """All parts of the data set, as a training reads them."""
    wanted = {"skip_bad": data.skip_bad, "cache": cache, "workers": workers}
    wanted |= {"side": data.side, "most": data.most, "seed": data.subset_seed}
    takes = inspect.signature(dataset(data.name).read).parameters
    return _read_once(data.name, folder, tuple((name, value) for name, value in wanted.items() if name in takes))


@lru_cache(maxsize=1)
def _read_once(name: str, folder: Path, options: tuple[tuple[str, Any], ...]) -> Splits[Split]:
    """The runs of a command share their data."""
    return read(name, folder, **dict(options))


def _settings_text(run: Run, training: Training) -> bytes:
    """What the folder of a run says about it: enough to make its network again."""
    known = {"classes": training.train.classes, "channels": training.data.size[0], "settings": describe(run.settings)}
    return (json.dumps({**run.key(), **known}, indent=1, ensure_ascii=False) + "\n").encode()


@contextmanager
def locked(folder: Path, wait: float = 0.0, note: Note = print) -> Iterator[Callable[[], None]]:
    """Keep other processes from training in ``folder``; a ValueError names the one that still does after ``wait`` seconds.

    What it yields raises an OSError if the folder or its lock is no longer there, so that others may have begun to train in it.
    """
    make_folder(folder)
    path = folder / LOCK
    with ExitStack() as stack:
        try:
            try:
                ours = stack.enter_context(held(path))
            except BlockingIOError:
                if wait <= 0:
                    raise
                note(f"{folder} is still being trained by another process{holder(path)}: waiting for it")
                ours = stack.enter_context(held(path, wait=wait))
        except BlockingIOError:
            raise ValueError(f"{folder} is being trained by another process{holder(path)}") from None

        def check() -> None:
            if not (ours() and folder.exists()):
                raise OSError(f"{folder} or the {LOCK} in it was deleted while it was trained: nothing more is written there")

        yield check
