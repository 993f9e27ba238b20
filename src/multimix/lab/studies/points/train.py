"""A small PointNet trained on bodies with one arm and one seed, through the library's public call, and tested on fresh bodies."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from .... import mixed_logits
from ....methods import NoMix
from ....methods.sagemix.method import SageMix
from ....sampling import seeded
from ...data.shapes import KINDS, Split, split
from ...evaluation.calibration import BINS, calibration
from ...evaluation.predictions import Predictions
from ...nets.pointnet import PointNet, initial_net
from ...nets.smallnet import digest
from ..digits.arms import BASELINE, Arm
from ..digits.train import Outcome

# A seed's separate random streams: all arms of a seed share bodies, start and batches.
DATA, ORDER, MIXING = range(3)


@dataclass(frozen=True)
class PointSettings:
    """How every arm is trained: the same number of steps, whatever the method and K; ``sigma`` as published for PointNet."""

    per_kind: int = 10
    test_per_kind: int = 100
    points: int = 48
    noise: float = 0.05
    batch: int = 20
    steps: int = 200
    learning_rate: float = 0.01
    sigma: float = 2.0
    bins: int = BINS


def arms(ks: Sequence[int], settings: PointSettings) -> list[Arm]:
    """What is compared, no mixing first."""
    # One thread, so that CPU time compares.
    return [
        Arm(BASELINE, None, NoMix()),
        *(Arm(SageMix.name, k, SageMix(k=k, sigma=settings.sigma, threads=1)) for k in ks),
    ]


def outcome(arm: Arm, seed: int, settings: PointSettings) -> Outcome:
    """The arm trained and tested with one seed."""
    _warm_up()
    data = bodies_of(seed, settings)
    net = initial_net(seed)
    start = digest(net)
    begun = time.process_time()
    rows = train(net, arm, data, seed, settings)
    spent = time.process_time() - begun
    with torch.no_grad():
        logits, logits_in_training = net(data.x_test), net(data.x)
    if not bool(logits.isfinite().all()):
        raise ValueError(f"{arm.label} diverged with seed {seed}: its logits are not finite")
    measured = calibration(Predictions(logits, data.label_test), settings.bins)
    return Outcome(
        error=_error(logits, data.label_test),
        ece=measured.ece,
        brier=measured.brier,
        nll=measured.nll,
        confidence=measured.confidence,
        train_error=_error(logits_in_training, data.label),
        cpu_seconds=spent,
        rows=rows,
        arm=arm.described(),
        split=data.digest(),
        start=start,
    )


def bodies_of(seed: int, settings: PointSettings) -> Split:
    """The bodies that belong to a seed."""
    return split(settings.per_kind, settings.test_per_kind, settings.points, seeded(seed, DATA), noise=settings.noise)


def train(net: PointNet, arm: Arm, data: Split, seed: int, settings: PointSettings) -> int:
    """Train ``net`` in place; the number of rows, mixed or not, that it was trained on."""
    order, mixing, rows = seeded(seed, ORDER), seeded(seed, MIXING), 0
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    left: tuple[Tensor, ...] = ()
    for _ in range(settings.steps):
        left = left or torch.split(torch.randperm(len(data.x), generator=order), settings.batch)
        chosen, left = left[0], left[1:]
        x, label = data.x[chosen], data.label[chosen]
        logits, target = mixed_logits(net, arm.method, x, label, num_classes=len(KINDS), generator=mixing)
        optimizer.zero_grad()
        functional.cross_entropy(logits, target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        rows += len(logits)
    return rows


@cache
def _warm_up() -> None:
    """Nothing: what the first steps of a process load and compile must not count as the cost of the arm that comes first."""
    brief = PointSettings(per_kind=4, test_per_kind=1, steps=2)
    for arm in arms((1,), brief):
        train(initial_net(0), arm, bodies_of(0, brief), 0, brief)


def _error(logits: Tensor, label: Tensor) -> float:
    """Per cent of the clouds whose largest logit is at another kind."""
    return 100 * float((logits.argmax(1) != label).double().mean())
