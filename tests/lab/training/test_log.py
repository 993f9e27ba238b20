import csv
import importlib.util
import json
import math
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, fields

import numpy
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from multimix.lab.training.log import Epoch, Log, Step, read_epochs, read_steps

HEAD = "update,epoch,rate,loss,accuracy,squared_grad_norm\n"


def row(update):
    """Numbers with as many digits as there are."""
    return Step(update, 1 + update // 5, 0.1 / 3, 1 / update, 100 / (update + 0.7), 1e-5 * update / 7)


def epoch(number, error=None):
    return Epoch(number, 5 * number, 0.1 / 3, 1 / 7, 100 / 3, 5e-324, 500, 2500, 1.1, 2.2, error=error, nll=math.pi)


def logged(folder, updates, start=0, history=(), tensorboard=False):
    with Log(folder, updates=start, history=history, tensorboard=tensorboard) as log:
        for update in updates:
            log.step(row(update))


def test_steps_as_lines_that_read_back_bit_for_bit(tmp_path):
    logged(tmp_path / "run", range(1, 8))
    with (tmp_path / "run" / "steps.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert ",".join(lines[0]) + "\n" == HEAD
    assert [(int(line[0]), int(line[1]), *map(float, line[2:])) for line in lines[1:]] == [row(update) for update in range(1, 8)]
    assert read_steps(tmp_path / "run") == [row(update) for update in range(1, 8)]
    assert read_steps(tmp_path / "nowhere") == []


def test_every_line_is_with_the_system_at_once_and_on_the_disk_when_asked(tmp_path, monkeypatch):
    synced = []
    with Log(tmp_path, updates=0, history=(), tensorboard=False) as log:
        for update in (1, 2):
            log.step(row(update))
            assert len(read_steps(tmp_path)) == update
        monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
        log.flush()
    assert synced == [str(tmp_path / "steps.csv")]


def test_numbers_of_numpy_and_those_that_are_none(tmp_path):
    odd = Step(numpy.int64(3), 1, numpy.float64(0.1), math.nan, math.inf, numpy.float32(0.5))
    with Log(tmp_path, updates=0, history=()) as log:
        log.step(odd)
        log.epoch([Epoch(1, 5, numpy.float64(0.1), math.inf, 0, 1e300, numpy.int64(5), 5, 1, 1, error=numpy.float32(0.5))])
    assert (tmp_path / "steps.csv").read_text() == HEAD + "3,1,0.1,nan,inf,0.5\n"
    (read,) = read_epochs(tmp_path)
    assert repr(read) == repr(Epoch(1, 5, 0.1, math.inf, 0.0, 1e300, 5, 5, 1.0, 1.0, error=0.5))


def test_cut_back_to_the_checkpoint_and_gone_on(tmp_path):
    logged(tmp_path, range(1, 11))
    whole = (tmp_path / "steps.csv").read_bytes()
    logged(tmp_path, range(7, 11), start=6)
    assert (tmp_path / "steps.csv").read_bytes() == whole
    logged(tmp_path, range(1, 3), start=0)
    assert read_steps(tmp_path) == [row(1), row(2)]
    with Log(tmp_path, updates=2, history=[], tensorboard=False) as evicted:
        logged(tmp_path, [3], start=2)
        evicted.step(row(9))  # a process whose lock was deleted: it adds to a file that is no longer there
    assert read_steps(tmp_path) == [row(1), row(2), row(3)]


def test_a_crash_at_any_byte_leaves_the_lines_of_an_uninterrupted_run(tmp_path):
    logged(tmp_path, range(1, 6))
    path = tmp_path / "steps.csv"
    whole = path.read_bytes()
    starts = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        sound = max(sum(start <= cut for start in starts) - 1, 0)
        assert read_steps(tmp_path) == [row(update) for update in range(1, sound + 1)]
        if cut % 13 == 0 or {cut - 1, cut, cut + 1} & {*starts}:
            # The checkpoint is from before the crash.
            logged(tmp_path, range(sound + 1, 6), start=sound)
            assert path.read_bytes() == whole, cut


@pytest.mark.parametrize(
    "damaged",
    [b"\x00" * 60, b"3,1,0.1,x,1,1", b"3,1,0.1,0.2", b"3,1,0.1,0.2,0.3,0.4,0.5", "3,é,λ,1,1,1".encode("latin-1", "replace"), b""],
)
def test_a_damaged_line_is_left_out(tmp_path, damaged):
    logged(tmp_path, range(1, 6))
    path = tmp_path / "steps.csv"
    lines = path.read_bytes().split(b"\n")
    lines[3] = damaged
    path.write_bytes(b"\n".join(lines))
    others = [row(update) for update in (1, 2, 4, 5)]
    assert read_steps(tmp_path) == others
    logged(tmp_path, [6], start=5)
    assert read_steps(tmp_path) == [*others, row(6)]
    assert len(path.read_bytes().splitlines()) == 6


def test_a_damaged_head_is_written_anew(tmp_path):
    logged(tmp_path, range(1, 4))
    path = tmp_path / "steps.csv"
    whole = path.read_bytes()
    path.write_bytes(b"upd\x00" + whole[4:])
    logged(tmp_path, [], start=3)
    assert path.read_bytes() == whole


KILLED = """
import os, sys, signal
from pathlib import Path
from multimix.lab.training.log import Log, Step
with Log(Path(sys.argv[1]), updates=0, history=(), tensorboard=True) as log:
    for update in range(1, 8):
        log.step(Step(update, 1, 0.1, 1 / update, 50.0, 2.0))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_has_lost_no_line(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_steps(tmp_path) == [Step(update, 1, 0.1, 1 / update, 50.0, 2.0) for update in range(1, 8)]
    assert [event.step for event, values in events(tmp_path) if values] == list(range(1, 8))


def test_epochs_in_both_files(tmp_path):
    history = [epoch(1), epoch(2, error=12.3)]
    with Log(tmp_path, updates=0, history=(), tensorboard=False) as log:
        assert read_epochs(tmp_path) == []
        log.epoch(history[:1])
        log.epoch(history)
    assert read_epochs(tmp_path) == history
    assert repr(read_epochs(tmp_path)) == repr(history)
    assert [json.loads(line) for line in (tmp_path / "epochs.jsonl").read_text().splitlines()] == [asdict(e) for e in history]
    with (tmp_path / "epochs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [field.name for field in fields(Epoch)]
    assert list(rows[0]) == names
    for line, one in zip(rows, history, strict=True):
        for name in names:
            value = getattr(one, name)
            assert line[name] == "" if value is None else type(value)(line[name]) == value
    assert read_epochs(tmp_path / "nowhere") == []


def test_epochs_after_the_checkpoint_are_forgotten(tmp_path):
    with Log(tmp_path, updates=0, history=(), tensorboard=False) as log:
        log.epoch([epoch(1), epoch(2)])
    Log(tmp_path, updates=5, history=[epoch(1)], tensorboard=False).close()
    assert read_epochs(tmp_path) == [epoch(1)]
    assert len((tmp_path / "epochs.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("damaged", [b'{"number": 1', b"[]", b"{}", b'{"number": "x"}', b"\xff"])
def test_damaged_epochs_are_named_and_block_no_run(tmp_path, damaged):
    path = tmp_path / "epochs.jsonl"
    path.write_bytes(damaged + b"\n")
    with pytest.raises(ValueError, match=r"^line 1 of .*epochs.jsonl is damaged; the run writes the file anew"):
        read_epochs(tmp_path)
    Log(tmp_path, updates=5, history=[epoch(1)], tensorboard=False).close()
    assert read_epochs(tmp_path) == [epoch(1)]


@contextmanager
def no_file_beyond(size):
    """The system refuses to let a file grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("tensorboard", "name"), [(False, "steps.csv"), (True, "events.out.tfevents")])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(tmp_path, tensorboard, name):
    sentence, tried = rf"^cannot write '.*{name}.*': File too large$", []
    with no_file_beyond(8192), pytest.raises(OSError, match=sentence) as caught:
        logged(tmp_path, (tried.append(update) or update for update in range(1, 10_000)), tensorboard=tensorboard)
    assert caught.value.__context__ is caught.value.__cause__  # closing has not failed once more
    sound = read_steps(tmp_path)
    assert 10 < len(sound) == sound[-1].update
    assert tried[-1] == len(sound) + (not tensorboard)  # refused with the first line that does not fit
    logged(tmp_path, [len(sound) + 1], start=len(sound))
    assert len(read_steps(tmp_path)) == len(sound) + 1


def test_a_full_disk_for_epochs_and_for_the_cut(tmp_path):
    many = [epoch(number) for number in range(1, 100)]
    logged(tmp_path, range(1, 100), history=many[:2])
    whole = (tmp_path / "steps.csv").read_bytes()
    log = Log(tmp_path, updates=5, history=many[:2], tensorboard=False)
    with no_file_beyond(1024), pytest.raises(OSError, match="^cannot write '.*epochs.csv': File too large$"), log:
        log.epoch(many)
    assert read_epochs(tmp_path) == many[:2]
    (tmp_path / "steps.csv").write_bytes(whole)
    with no_file_beyond(1024), pytest.raises(OSError, match="^cannot write '.*steps.csv': File too large$"):
        Log(tmp_path, updates=90, history=many[:2], tensorboard=False)
    assert (tmp_path / "steps.csv").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs.csv", "epochs.jsonl", "steps.csv"]


def test_a_folder_in_the_way_is_one_sentence(tmp_path):
    (tmp_path / "steps.csv").mkdir()
    with pytest.raises(OSError, match="^cannot write '.*steps.csv': Is a directory$"):
        Log(tmp_path, updates=0, history=())


# ---- TensorBoard ----


def events(folder):
    """All events of a run in the order TensorBoard reads them, and the values of each."""
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in LegacyEventFileLoader(str(path)).Load():
            yield event, {value.tag: value.simple_value for value in event.summary.value}


def curves(folder):
    """What TensorBoard shows: the steps of every curve."""
    reader = EventAccumulator(str(folder)).Reload()
    return {tag: [point.step for point in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_curves_of_updates_and_epochs(tmp_path):
    with Log(tmp_path, updates=0, history=(), tensorboard=True) as log:
        for update in (1, 200):
            log.step(row(update))
        log.epoch([epoch(1)])
        log.epoch([epoch(1), epoch(2, error=12.5)])
        log.step(row(201)._replace(squared_grad_norm=1e300, loss=math.inf))
    (head, _), (session, _), *points = events(tmp_path)
    assert head.file_version == "brain.Event:2"
    assert (session.step, session.session_log.status) == (1, session.session_log.START)
    steps, values = [event.step for event, _ in points], [values for _, values in points]
    single = numpy.float32
    assert steps == [1, 200, 5, 10, 201]
    assert values[1] == {f"update/{name}": single(getattr(row(200), name)) for name in Step._fields[2:]}
    told = {name: value for name, value in asdict(epoch(2, error=12.5)).items() if name not in ("number", "updates")}
    assert values[3] == {f"epoch/{name}": single(value) for name, value in told.items() if value is not None}
    assert "epoch/error" not in values[2]
    assert values[4]["update/loss"] == values[4]["update/squared_grad_norm"] == math.inf


def test_curves_do_not_double_after_a_crash(tmp_path):
    with Log(tmp_path, updates=0, history=(), tensorboard=True) as log:
        for update in range(1, 13):
            log.step(row(update))
            if update % 5 == 0:
                log.epoch([epoch(number) for number in range(1, update // 5 + 1)])
    with Log(tmp_path, updates=7, history=[epoch(1)], tensorboard=True) as log:
        for update in range(8, 11):
            log.step(row(update))
        log.epoch([epoch(1), epoch(2)])
    found = curves(tmp_path)
    assert found["update/loss"] == list(range(1, 11))
    assert found["epoch/loss"] == [5, 10]


def test_two_logs_within_a_second_are_two_files_in_order(tmp_path):
    for start in range(5):
        logged(tmp_path, [start + 1], start=start, tensorboard=True)
    assert len(list(tmp_path.glob("events*"))) == 5
    assert curves(tmp_path)["update/loss"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("installed", [False, True])
def test_only_where_tensorboard_is_installed(tmp_path, monkeypatch, installed):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: object() if installed else None)
    logged(tmp_path, [1], tensorboard=None)
    assert bool(list(tmp_path.glob("events*"))) == installed
