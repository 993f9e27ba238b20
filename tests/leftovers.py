"""Everything a training leaves behind but for times, and the same of one that nothing happened to."""

import csv
import hashlib
import io
import json
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from killing import DONE, the_server
from multimix.lab.storage import read_rows

TIMES = ("seconds", "cpu_seconds", "seconds_per_epoch", "cpu_seconds_per_epoch")


class Whole(NamedTuple):
    """A training that nothing happened to: what it left, and how long it took."""

    kept: dict
    seconds: float


def whole(plan):
    """What a plan, arguments of ``planned``, leaves if nothing happens; trained once."""
    return _whole(json.dumps(plan))


@lru_cache
def _whole(words):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "runs"
        server, start = the_server(), time.monotonic()
        assert server.train(out, json.loads(words)).code == DONE
        return Whole(kept(out), time.monotonic() - start)


def folder_of(out):
    """The folder of the only run."""
    (folder,) = (path.parent for path in out.glob("*/*/*/settings.json"))
    return folder


def names(out):
    """Checkpoints of the only run, the damaged ones too."""
    return sorted(path.name for path in folder_of(out).glob("*.checkpoint*"))


def kept(out):
    """Everything that a run leaves, but for times."""
    (row,) = read_rows(out / "results.jsonl", note=lambda sentence: None)
    folder = folder_of(out)
    row = {name: value for name, value in row.items() if name != "time"}
    row["outcome"] = untimed(row["outcome"])
    row["epochs"] = [untimed(epoch) for epoch in row["epochs"]]
    best = folder / "best.checkpoint"
    return {
        "row": row,
        "steps": (folder / "steps.csv").read_text(),
        "epochs": [untimed(epoch) for epoch in csv.DictReader(io.StringIO((folder / "epochs.csv").read_text()))],
        "epoch lines": [untimed(json.loads(line)) for line in (folder / "epochs.jsonl").read_text().splitlines()],
        "settings": (folder / "settings.json").read_text(),
        "checkpoints": [name for name in names(out) if name.startswith("step-") and name.endswith(".checkpoint")],
        "best": hashlib.sha256(best.read_bytes()).hexdigest() if best.exists() else None,
    }


def untimed(values):
    return {name: value for name, value in values.items() if name not in TIMES}


def until(true):
    """Return when it is true."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.002)
