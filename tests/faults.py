"""Ends, signals, full disks and pauses at a chosen point of a training: called in a process that is thrown away afterwards."""

import errno
import itertools
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

import torch

from multimix.lab.training.log import STEPS, Log
from trial import DropNet


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def on_file(event, pattern, act, *details, number=1):
    """``act`` just before the ``number``-th time that ``event`` (open, os.rename, os.remove) is done to a file of such a name."""
    count = itertools.count(1)
    place = 1 if event == "os.rename" else 0

    def hook(name, arguments):
        if name == event and re.search(pattern, str(arguments[place])) and next(count) == number:
            ACTS[act](*details)

    sys.addaudithook(hook)


def on_any_file(number):
    """Die before the ``number``-th file is opened for writing, renamed or removed."""
    count = itertools.count(1)

    def hook(name, arguments):
        writes = name in ("os.rename", "os.remove") or (
            name == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        )
        if writes and next(count) == number:
            die()

    sys.addaudithook(hook)


def on_fsync(pattern):
    """A disk that is full when a file of such a name has to reach it."""
    plain = os.fsync
    os.fsync = lambda handle: full() if re.search(pattern, os.readlink(f"/proc/self/fd/{handle}")) else plain(handle)


def on_optimizer(number):
    """Die when half of the weights have had update ``number`` of this process."""
    count, plain = itertools.count(1), torch.optim.SGD.step

    def step(self, closure=None):
        if next(count) < number:
            return plain(self, closure)
        weights = [weight for group in self.param_groups for weight in group["params"]]
        before = [weight.clone() for weight in weights]
        for weight in weights[len(weights) // 2 :]:
            weight.grad = None  # the optimiser leaves these alone
        plain(self, closure)
        changed = [not torch.equal(weight, old) for weight, old in zip(weights, before, strict=True)]
        assert any(changed), "it is in the middle"
        assert not all(changed), "it is in the middle"
        return die()

    torch.optim.SGD.step = step


def on_backward(number, act, *details):
    """``act`` when the gradient of ``number``-th forward pass has come half way back."""
    count, plain = itertools.count(1), DropNet.forward

    def forward(self, x):
        if not self.training or next(count) != number:
            return plain(self, x)
        z = self.stage1(x)
        z.register_hook(lambda grad: ACTS[act](*details))
        return self.head(self.stage2(z))

    DropNet.forward = forward


def on_line(number, act, *details):
    """``act`` before line ``number`` of this process is added to steps.csv; a limit then lies inside the line."""
    count, plain = itertools.count(1), Log.step

    def step(self, row):
        if next(count) == number:
            size = [(self.folder / STEPS).stat().st_size + 25] if act in ("limit", "cut") else []
            ACTS[act](*size, *details)
        plain(self, row)

    Log.step = step


def on_row():
    """Die when half of a row of results is written."""
    plain = os.write

    def write(handle, content):
        if not content.startswith(b'{"recipe"'):
            return plain(handle, content)
        plain(handle, content[: len(content) // 2])
        return die()

    os.write = write


def limit(size):
    """Files may have so many bytes from now on: writing more is an error."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def cut(size):
    """Files may have so many bytes from now on: whoever writes more dies with the file half written."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    limit(size)


def wait(flag):
    """Make the file ``flag`` and go on when it is gone, or when the test must be, too."""
    Path(flag).touch()
    end = time.monotonic() + 60
    while Path(flag).exists() and time.monotonic() < end:
        time.sleep(0.005)


def raise_signals(*names):
    for name in names:
        signal.raise_signal(signal.Signals[name])


ACTS = {act.__name__: act for act in (die, full, limit, cut, wait, raise_signals)}
FAULTS = {fault.__name__: fault for fault in (on_file, on_any_file, on_fsync, on_optimizer, on_backward, on_line, on_row)}
