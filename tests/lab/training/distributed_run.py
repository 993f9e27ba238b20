"""Run by torchrun in test_distributed.py: cases given as JSON, trained one after the other by all processes together.

A case has a "name" and the arguments of ``planned``; its results go to OUT/name. With "wait": N all processes wait inside update
N for ever, to be killed there. With "command" it is a command line instead, and the last case, since a command ends the group of
the processes. Every process writes to NOTES what it ended with.
"""

import gc
import json
import os
import signal
import sys
import weakref
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from multimix.lab import cli
from multimix.lab.recipes.runs import planned
from multimix.lab.training import run
from multimix.lab.training.checkpoint import weights_digest
from multimix.lab.training.loop import Training
from trial import RECIPE

RANK = int(os.environ.get("RANK", "0"))


class Noted(Training):
    """Tells what ``train`` keeps to itself: the weights of this process, and how many networks it had before are still there."""

    ended: list = []  # noqa: RUF012  of the whole class
    networks: list = []  # noqa: RUF012

    def __init__(self, *arguments):
        gc.collect()
        self.alive = sum(network() is not None for network in self.networks)
        super().__init__(*arguments)
        self.networks.append(weakref.ref(self.network))

    def run(self, *arguments):
        super().run(*arguments)
        rows = [epoch.rows for epoch in self.at.history]
        self.ended.append({"weights": weights_digest(self.network), "rows": rows, "alive": self.alive})


def watch_files(out: Path) -> list[str]:
    """A list that grows with every file or folder below ``out`` that this process makes, writes, renames or deletes."""
    touched = []

    def hook(event, arguments):
        changing = event in ("os.mkdir", "os.rename", "os.remove", "os.truncate")
        if event == "open" and isinstance(arguments[2], int):
            changing = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if changing and isinstance(arguments[0], str | Path) and Path(arguments[0]).is_relative_to(out):
            touched.append(f"{event} {arguments[0]}")

    sys.addaudithook(hook)
    return touched


def wait_inside(update: int, sign: Path) -> None:
    """The gradients of the update are there, the weights are not stepped; and so it stays."""
    seen = []

    def hook(optimizer, arguments, options):
        seen.append(optimizer)
        if len(seen) == update:
            sign.write_text(str(os.getpid()))
            while True:
                signal.pause()

    register_optimizer_step_pre_hook(hook)


def main(out: Path, notes: Path, cases: list[dict]) -> None:
    torch.set_num_threads(1)
    run.Training = Noted
    touched = watch_files(out)
    for case in cases:
        name, told = case.pop("name"), []
        Noted.ended.clear()
        Noted.networks.clear()
        touched.clear()
        if wait := case.pop("wait", None):
            wait_inside(wait, notes / f"waiting-{RANK}")
        if command := case.pop("command", None):
            told.append(cli.main([*command, "--out", str(out / name)]))
        else:
            run.train(planned(RECIPE, scale="smoke", **case), data=".", out=out / name, note=told.append)
        group = torch.distributed.is_initialized()
        noted = {"trained": Noted.ended, "told": told, "touched": touched, "group": group}
        (notes / f"{name}-{RANK}.json").write_text(json.dumps(noted))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
