"""Trainings in processes of their own, which end where a test wants them to.

They are forked from a server that has everything imported: a new interpreter would take seconds each time, and the process of the
tests may have threads and would run the end of pytest in a child.
"""

import atexit
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

import faults
import small_disk
from multimix.lab.recipes.runs import planned
from multimix.lab.training.run import train

DONE, FAILED, KILLED, CUT = 0, 1, -signal.SIGKILL, -signal.SIGXFSZ
READY = "ready\n"


class Ended(NamedTuple):
    """How a process ended: its exit code, what was raised in it, what it noted."""

    code: int
    error: str | None = None
    notes: tuple[str, ...] = ()


class Child(NamedTuple):
    """A training that goes on."""

    server: "Server"
    pid: int
    report: Path

    def send(self, number=signal.SIGKILL):
        """It cannot be another process: until it is waited for, nobody else gets its number."""
        os.kill(self.pid, number)

    def wait(self):
        code = self.server.ask(wait=self.pid)
        said = json.loads(self.report.read_text()) if self.report.exists() else {}
        self.report.unlink(missing_ok=True)
        return Ended(code, said.get("error"), tuple(said.get("notes", ())))


class Server:
    """Starts trainings by forking; what they train is said as in :func:`planned`."""

    def __init__(self):
        # Where torch sees a GPU it starts threads, after which it refuses to be forked.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._count = 0
        if self._process.stdout.readline() != READY:
            self.close()
            raise RuntimeError("the server of trainings did not start; its error is above")

    def ask(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, out, *plans, fault=None, data=".", module="trial", mounted=False):
        """A child that trains ``plans``, each a dictionary of arguments of ``planned``."""
        self._count += 1
        report = out.parent / f"{out.name}.{self._count}.report"
        order = {"out": str(out), "plans": plans, "fault": fault, "data": str(data), "module": module, "mounted": mounted}
        return Child(self, self.ask(**order, report=str(report)), report)

    def train(self, out, *plans, **how):
        """The same, to its end."""
        return self.start(out, *plans, **how).wait()

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@lru_cache(maxsize=1)
def the_server():
    """One for all tests, since it takes seconds to start."""
    server = Server()
    atexit.register(server.close)
    return server


def serve():
    """Read orders line by line; one more training, or wait for one."""
    _prepare()
    gc.freeze()  # or every child would go through, and so copy, all that was imported
    print(READY, end="", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(_waited(order["wait"]) if "wait" in order else os.fork() or _child(order), flush=True)


def _waited(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _prepare():
    """Do once here what every training would need seconds for: whatever is imported or compiled when it is first used."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plan = {"method": "puzzlemix", "k": 2, "changes": {"epochs": "1"}}
        _train(
            {"plans": [plan], "out": folder, "data": ".", "module": "trial", "mounted": False, "fault": None}, lambda words: None
        )


def _child(order):
    """Never returns, so that nothing of the server runs twice."""
    code, error, notes = FAILED, None, []
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(Path(order["report"]).with_suffix(".txt"), os.O_WRONLY | os.O_CREAT, 0o644), 1)
        os.dup2(1, 2)
        try:
            _train(order, notes.append)
            code = DONE
        except BaseException as raised:
            faults.limit(resource.RLIM_INFINITY)
            traceback.print_exc()
            error = f"{type(raised).__name__}: {raised}"
        part = Path(order["report"]).with_suffix(".part")  # whole or not at all: it may be killed here, too
        part.write_text(json.dumps({"error": error, "notes": notes}))
        part.replace(order["report"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _train(order, note):
    recipe = importlib.import_module(order["module"]).RECIPE
    runs = [run for plan in order["plans"] for run in planned(recipe, scale="smoke", **plan)]
    if order["mounted"]:
        small_disk.trains(runs, Path(order["out"]), note)
        return
    if order["fault"] is not None:
        name, *details = order["fault"]
        options = details.pop() if details and isinstance(details[-1], dict) else {}
        faults.FAULTS[name](*details, **options)
    train(runs, data=order["data"], out=order["out"], note=note)


if __name__ == "__main__":
    serve()
