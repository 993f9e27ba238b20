"""One arm trained with one seed, through the library's public call, and measured on the test samples."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from .... import mixed_terms
from ....methods import NoMix
from ....methods.base import trained_parameters
from ....sampling import seeded
from ...evaluation.calibration import BINS, calibration
from ...evaluation.predictions import Predictions
from ...nets.smallnet import SmallNet, digest, initial_net
from .arms import Arm
from .data import Split, split

# A seed's separate random streams. None of them depends on the method, so all arms of a seed share split, start and batches.
SPLIT, ORDER, MIXING, FITTING = 0, 1, 2, 3


@dataclass(frozen=True)
class Settings:
    """How every arm is trained: the same budget of steps, whatever the method and K.

    Chosen before any test error was seen, and not changed since: 25 samples per class, so that the test is not solved by
    everybody; the middle one of three learning rates (0.02, 0.05, 0.1) with which no mixing and mixup all fitted the training
    samples of a split that the study does not use.
    """

    per_class: int = 25
    batch: int = 50
    steps: int = 500
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-4
    smoothing: float = 0.1
    bins: int = BINS


@dataclass(frozen=True)
class Outcome:
    """What one run gave on the test samples, ``error``, ``ece`` and ``confidence`` in per cent; and what it cost in training.

    ``rows`` counts the samples that came out of the network; ``arm``, ``split`` and ``start`` say what was trained on what.
    """

    error: float
    ece: float
    brier: float
    nll: float
    confidence: float
    train_error: float
    cpu_seconds: float
    rows: int
    arm: str
    split: str
    start: str


def outcome(arm: Arm, seed: int, settings: Settings) -> Outcome:
    """The arm trained and tested with one seed."""
    _warm_up()
    data = split(settings.per_class, seeded(seed, SPLIT))
    net = initial_net(seed)
    start = digest(net)
    begun = time.process_time()
    rows = train(net, arm, data, seed, settings)
    spent = time.process_time() - begun
    logits = _logits(net, data.x_test)
    if not bool(logits.isfinite().all()):
        raise ValueError(f"{arm.label} diverged with seed {seed}: its logits are not finite")
    measured = calibration(Predictions(logits, data.label_test), settings.bins)
    return Outcome(
        error=_error(logits, data.label_test),
        ece=measured.ece,
        brier=measured.brier,
        nll=measured.nll,
        confidence=measured.confidence,
        train_error=_error(_logits(net, data.x), data.label),
        cpu_seconds=spent,
        rows=rows,
        arm=arm.described(),
        split=data.digest(),
        start=start,
    )


def train(net: SmallNet, arm: Arm, data: Split, seed: int, settings: Settings) -> int:
    """Train ``net`` in place; the number of rows, mixed or not, that it was trained on."""
    method = arm.method.bind(net, data.x, updates=settings.steps, generator=seeded(seed, FITTING))
    optimizer = torch.optim.SGD(
        [*net.parameters(), *trained_parameters(method)],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    mixing = seeded(seed, MIXING)
    rows = 0
    carried: Mapping[str, Any] = {}  # what a method keeps of a batch for the next
    net.train()
    for chosen in batches(len(data.x), settings, seeded(seed, ORDER)):
        (term,) = mixed_terms(
            net,
            method,
            data.x[chosen],
            data.label[chosen],
            loss=functional.cross_entropy,
            smoothing=arm.smoothing,
            generator=mixing,
            **carried,
        )
        part = term()
        optimizer.zero_grad()
        part.loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        method.after_step(net)
        schedule.step()
        carried, rows = part.carried, rows + len(part.logits)
    return rows


def batches(samples: int, settings: Settings, generator: Generator) -> Iterator[Tensor]:
    """The indices of one batch for each of the ``steps``: epoch after epoch in fresh orders."""
    left = settings.steps
    while left > 0:
        for chosen in torch.split(torch.randperm(samples, generator=generator), settings.batch)[:left]:
            left -= 1
            yield chosen


@cache
def _warm_up() -> None:
    """Nothing: the first steps of a process load parts of torch, which must not count as the cost of the arm that comes first."""
    brief = Settings(steps=2)
    train(initial_net(0), Arm("", None, NoMix()), split(brief.per_class, seeded(0, SPLIT)), 0, brief)


def _logits(net: SmallNet, x: Tensor) -> Tensor:
    net.eval()
    with torch.no_grad():
        return net(x)  # type: ignore[no-any-return]


def _error(logits: Tensor, label: Tensor) -> float:
    """Per cent of the samples whose largest logit is at another class."""
    return 100 * float((logits.argmax(dim=1) != label).double().mean())
