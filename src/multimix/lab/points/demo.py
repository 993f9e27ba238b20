"""Test errors of a small PointNet with and without SageMix, K = 1 and 5, on synthetic bodies: seconds on one core."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ... import mixed_logits
from ...generator import seeded
from ...methods import Method, NoMix
from ...methods.sage_mix import SageMix
from ..statistics import paired
from ..study import one_thread
from .data import KINDS, Split, split
from .net import PointNet, initial_net

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


class PointsResult(NamedTuple):
    """Test errors in per cent by arm, one for each of ``seeds``, and the seconds of CPU time each arm took to train."""

    seeds: tuple[int, ...]
    errors: Mapping[str, tuple[float, ...]]
    seconds: Mapping[str, float]

    def sentences(self) -> list[str]:
        """Each arm's mean error, and its paired difference from no mixing with a 95 % interval."""
        said = []
        (baseline, without), *_ = self.errors.items()
        for arm, errors in self.errors.items():
            text = f"{arm}: {sum(errors) / len(errors):.1f} % test error over {len(errors)} seeds"
            if arm != baseline and len(errors) > 1:
                found = paired(errors, without)
                text += f", {found.mean:+.1f} ± {found.half:.1f} points against {baseline}"
            said.append(text)
        return said


def arms(settings: PointSettings) -> dict[str, Method]:
    """What is compared, no mixing first."""
    return {
        "no mixing": NoMix(),
        "SageMix, K = 1": SageMix(k=1, sigma=settings.sigma, threads=1),
        "SageMix, K = 5": SageMix(k=5, sigma=settings.sigma, threads=1),
    }


def demo(
    settings: PointSettings | None = None, *, seeds: Sequence[int] = (0, 1, 2), tick: Callable[[], None] = lambda: None
) -> PointsResult:
    """Errors with and without SageMix, for every seed on the same bodies, start and batches; ``tick`` is called per arm."""
    settings = PointSettings() if settings is None else settings
    if len(seeds) == 0:
        raise ValueError("seeds must hold at least 1 seed, got none")
    errors: dict[str, tuple[float, ...]] = {}
    seconds: dict[str, float] = {}
    with one_thread():
        data = {
            seed: split(settings.per_kind, settings.test_per_kind, settings.points, seeded(seed, DATA), noise=settings.noise)
            for seed in seeds
        }
        for arm, method in arms(settings).items():
            begun = time.process_time()
            nets = [trained(method, data[seed], seed, settings) for seed in seeds]
            seconds[arm] = time.process_time() - begun
            errors[arm] = tuple(error(net, data[seed]) for net, seed in zip(nets, seeds, strict=True))
            tick()
    return PointsResult(tuple(seeds), errors, seconds)


def trained(method: Method, data: Split, seed: int, settings: PointSettings) -> PointNet:
    """A network trained with ``method`` through the library's public call."""
    net, order, mixing = initial_net(seed), seeded(seed, ORDER), seeded(seed, MIXING)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    left: tuple[Tensor, ...] = ()
    for _ in range(settings.steps):
        left = left or torch.split(torch.randperm(len(data.x), generator=order), settings.batch)
        chosen, left = left[0], left[1:]
        logits, target = mixed_logits(net, method, data.x[chosen], data.label[chosen], num_classes=len(KINDS), generator=mixing)
        optimizer.zero_grad()
        functional.cross_entropy(logits, target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return net


def error(net: PointNet, data: Split) -> float:
    """Per cent of the test clouds whose largest logit is at another kind."""
    with torch.no_grad():
        logits = net(data.x_test)
    if not bool(logits.isfinite().all()):
        raise ValueError("training must end with finite logits, got NaN or infinity")
    return 100 * float((logits.argmax(1) != data.label_test).double().mean())
