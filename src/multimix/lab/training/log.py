"""The log of one run: a line for every update and every epoch, and curves for TensorBoard where it is installed.

``steps.csv`` grows; opened again at a checkpoint, it is first cut back to it, so that a run that was killed leaves the same lines
as one that was not. ``epochs.csv`` and ``epochs.jsonl`` are written anew each time, from what the checkpoint holds.
"""

import importlib.util
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, get_type_hints

from ..storage import make_folder, named, no_follow, parse_json, write_atomically

LAST = 10  # epochs whose median error is reported, as in the reference code


@dataclass(frozen=True)
class Epoch:
    """One line of the log. Errors and accuracy in per cent; None where an epoch was not evaluated.

    ``number`` counts finished epochs. ``accuracy`` is the mean target mass on the predicted class (honest under mixing).
    ``squared_grad_norm`` is the mean over the updates of ‖g‖², without weight decay. ``images`` were loaded, ``rows`` of them and
    their mixtures went through the network; ``seconds`` and ``cpu_seconds`` are those of training without evaluation.
    """

    number: int
    updates: int
    rate: float
    loss: float
    accuracy: float
    squared_grad_norm: float
    images: int
    rows: int
    seconds: float
    cpu_seconds: float
    error: float | None = None
    error_top5: float | None = None
    nll: float | None = None
    selection_error: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Errors of a finished training in per cent: of the last epoch, the median of the last 10, the least of all.

    ``best`` was chosen by the very samples it is measured on, so it flatters. ``selected`` was not: it is the error at the epoch
    with the least ``selection_error``, where there is a part to select by.
    """

    last: float
    median: float
    best: float
    best_epoch: int
    selected: float | None
    selected_epoch: int | None
    squared_grad_norm: float
    seconds_per_epoch: float
    cpu_seconds_per_epoch: float


def is_best(history: Sequence[Epoch]) -> bool:
    """Whether the last epoch is the first with the least error so far: on the part to select by, if there is one."""
    *before, last = (epoch.error if epoch.selection_error is None else epoch.selection_error for epoch in history)
    return last is not None and all(error is None or last < error for error in before)


def outcome(history: Sequence[Epoch]) -> Outcome:
    """What a finished training reports; its last epoch must have been evaluated."""
    evaluated = [(epoch.error, epoch) for epoch in history if epoch.error is not None]
    if not evaluated or history[-1].error is None:
        raise ValueError(f"the last of {len(history)} epochs must have been evaluated to report an outcome")
    recent = [error for error, epoch in evaluated if epoch.number > history[-1].number - LAST]
    best, best_epoch = min(((error, epoch.number) for error, epoch in evaluated))
    choice = [(epoch.selection_error, epoch.number, error) for error, epoch in evaluated if epoch.selection_error is not None]
    _, selected_epoch, selected = min(choice) if choice else (None, None, None)
    return Outcome(
        last=history[-1].error,
        median=statistics.median(recent),
        best=best,
        best_epoch=best_epoch,
        selected=selected,
        selected_epoch=selected_epoch,
        squared_grad_norm=history[-1].squared_grad_norm,
        seconds_per_epoch=statistics.median(epoch.seconds for epoch in history),
        cpu_seconds_per_epoch=statistics.median(epoch.cpu_seconds for epoch in history),
    )


STEPS, EPOCHS, EPOCH_LINES = "steps.csv", "epochs.csv", "epochs.jsonl"
Number = int | float | None


class Step(NamedTuple):
    """One update. ``update`` counts those that are done, ``epoch`` is the number of its epoch; the first of both is 1.

    ``accuracy`` is in per cent, ``squared_grad_norm`` is ‖g‖² without weight decay, as in an :class:`Epoch`.
    """

    update: int
    epoch: int
    rate: float
    loss: float
    accuracy: float
    squared_grad_norm: float


_WHOLE = {field.name for field in fields(Epoch) if get_type_hints(Epoch)[field.name] is int} | {"update", "epoch"}


class Log:
    """The log in ``folder``, opened where ``updates`` are done and the epochs of ``history`` finished.

    ``tensorboard`` decides whether there are event files, too; None means if TensorBoard is installed. Lines of
    updates are handed to the system one by one, so a killed run keeps them; :meth:`flush` brings them to the disk.
    """

    def __init__(self, folder: Path, *, updates: int, history: Sequence[Epoch], tensorboard: bool | None = None) -> None:
        self.folder = folder
        make_folder(folder)
        self._write_epochs(history)
        _cut_back(folder / STEPS, updates)
        self._shown = len(history)
        self._steps = _Growing(folder / STEPS)
        wanted = importlib.util.find_spec("tensorboard") is not None if tensorboard is None else tensorboard
        self._events = _Events(folder, updates) if wanted else None

    def step(self, row: Step) -> None:
        """Add one update."""
        values = _plain(row._asdict())
        self._steps.write(_line(values))
        if self._events is not None:
            self._events.add(row.update, "update", {name: values[name] for name in Step._fields[2:]})

    def epoch(self, history: Sequence[Epoch]) -> None:
        """Write all epochs, of which the last is new."""
        self._write_epochs(history)
        if self._events is not None:
            for epoch in history[self._shown :]:
                # Over the updates, like everything else: TensorBoard forgets by this number what a killed run did in vain.
                values = {name: value for name, value in _plain(vars(epoch)).items() if name not in ("number", "updates")}
                self._events.add(epoch.updates, "epoch", values)
        self._shown = len(history)

    def flush(self) -> None:
        """Bring the lines so far to the disk, where they survive a power cut; to be called before a checkpoint is written."""
        self._steps.sync()

    def close(self) -> None:
        """Write nothing more."""
        self._steps.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write_epochs(self, history: Sequence[Epoch]) -> None:
        rows = [_plain(vars(epoch)) for epoch in history]
        lines = [_line(row) for row in rows]
        write_atomically(self.folder / EPOCHS, _head([field.name for field in fields(Epoch)]) + b"".join(lines))
        write_atomically(self.folder / EPOCH_LINES, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def read_steps(folder: Path) -> list[Step]:
    """The updates in the log of a run, without lines that are damaged or not finished; none if there is no log."""
    path = folder / STEPS
    return [step for _, step in _sound_lines(path.read_bytes() if path.exists() else b"")]


def read_epochs(folder: Path) -> list[Epoch]:
    """The epochs in the log of a run; none if there is no log."""
    path = folder / EPOCH_LINES
    epochs = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
        epoch = _epoch(line)
        if epoch is None:
            raise ValueError(f"line {number} of {path} is damaged; the run writes the file anew when it goes on")
        epochs.append(epoch)
    return epochs


def _epoch(line: bytes) -> Epoch | None:
    try:
        return Epoch(**_plain(parse_json(line)))  # type: ignore[arg-type]  # a wrong name or none is a TypeError
    except (ValueError, TypeError, AttributeError):
        return None


def _plain(values: Mapping[str, Any]) -> dict[str, Number]:
    """Numbers of Python, whose ``repr`` is what reads back bit for bit."""
    return {name: None if value is None else (int if name in _WHOLE else float)(value) for name, value in values.items()}


def _line(values: Mapping[str, Number]) -> bytes:
    return _head(["" if value is None else repr(value) for value in values.values()])


def _head(words: Sequence[str]) -> bytes:
    return (",".join(words) + "\n").encode()


def _cut_back(path: Path, updates: int) -> None:
    """Only the head of ``steps.csv`` and the sound lines of the first ``updates``."""
    with named(path):
        before = path.read_bytes() if path.exists() else b""
    after = _head(Step._fields) + b"".join(line + b"\n" for line, step in _sound_lines(before) if step.update <= updates)
    # Always a new file: a process whose lock was deleted may still hold the old one open, and add to it.
    write_atomically(path, after)


def _sound_lines(content: bytes) -> Iterator[tuple[bytes, Step]]:
    # What comes after the last line break is half a line, even where it could be read: 0.1 may be the beginning of 0.123.
    lines = content.split(b"\n")[:-1]
    return ((line, step) for line in lines if (step := _step(line)) is not None)


def _step(line: bytes) -> Step | None:
    words = line.split(b",")
    if len(words) != len(Step._fields):
        return None
    try:
        return Step(int(words[0]), int(words[1]), *map(float, words[2:]))
    except ValueError:
        return None


class _Growing:
    """A file that grows at its end, without a buffer of its own: nothing is left to be written when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with named(path):
            self._file = open(path, "ab", buffering=0, opener=no_follow)  # noqa: SIM115  closed by close()

    def write(self, content: bytes) -> None:
        with named(self.path):
            while content:
                content = content[self._file.write(content) :]

    def sync(self) -> None:
        with named(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _Events:
    """An event file of TensorBoard; not by its SummaryWriter, whose thread prints a traceback when the disk is full."""

    def __init__(self, folder: Path, updates: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        now = time.time_ns()
        # TensorBoard reads the files of a run in the order of their names.
        self._writer = RecordWriter(_Growing(folder / f"events.out.tfevents.{now // 10**9}.{now % 10**9:09d}"))
        self._event = Event
        self._add(file_version="brain.Event:2")
        # The start of a session: TensorBoard forgets all that earlier files have from this update on.
        self._add(step=updates + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, update: int, group: str, values: Mapping[str, Number]) -> None:
        """One point on the curve of every value that is there."""
        points = [{"tag": f"{group}/{name}", "simple_value": value} for name, value in values.items() if value is not None]
        self._add(step=update, summary={"value": points})

    def close(self) -> None:
        self._writer.close()

    def _add(self, **content: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **content).SerializeToString())
