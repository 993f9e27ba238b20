"""The paper's noisy spiral: data and training of `multimix demo`, the three arms it compares, and the paper's numbers."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...methods import ManifoldMixup, Method, NoMix

# Increased whenever the same settings would give other numbers, so that old results are never mixed with new ones.
VERSION = 1

# A run below this accuracy has not learnt the spiral; such runs are counted separately, since one of them moves a mean by points.
COLLAPSED = 70.0

# The hidden layers of SpiralNet, one of which is drawn for each batch.
MIXED_LAYERS = ("layer1", "layer2")


@dataclass(frozen=True, kw_only=True)
class SpiralSettings:
    """Data and training. The paper states the first six and leaves the others open; those are chosen to train reliably.

    ``noise`` is the standard deviation per coordinate, ``flipped`` counts wrong training labels, ``decay`` is the l2 term that
    torch's Adam calls weight_decay, ``slope`` belongs to LeakyReLU (0 is ReLU). Points are uniform in the angle,
    which on this spiral is the radius, too, or along the arm: its arc. ``per_pair`` draws λ for every pair.
    """

    samples: int = 1000
    train: int = 400
    flipped: int = 80
    epochs: int = 3000
    rate: float = 0.01
    batch: int = 256
    turns: float = 1.0
    noise: float = 0.03
    slope: float = 0.1
    decay: float = 1e-4
    alpha: float = 1.0
    uniform_in: Literal["angle", "arc"] = "angle"
    per_pair: bool = False

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("samples", self.samples >= 2 and self.samples % 2 == 0, "be an even number, at least 2"),
            ("train", self.train >= 2 and self.train % 2 == 0, "be an even number, at least 2"),
            ("train", self.train < self.samples, f"be less than samples ({self.samples})"),
            ("flipped", 0 <= self.flipped <= self.train, f"lie in 0 … {self.train}"),
            ("epochs", self.epochs >= 1, "be at least 1"),
            ("batch", self.batch >= 1, "be at least 1"),
            ("rate", 0 < self.rate < math.inf, "be above 0"),
            ("turns", 0 < self.turns < math.inf, "be above 0"),
            ("alpha", 0 < self.alpha < math.inf, "be above 0"),
            ("noise", 0 <= self.noise < math.inf, "be at least 0"),
            ("decay", 0 <= self.decay < math.inf, "be at least 0"),
            ("slope", 0 <= self.slope < 1, "be at least 0 and below 1"),
            ("uniform_in", self.uniform_in in ("angle", "arc"), "be angle or arc"),
        ):
            if not holds:
                raise ValueError(f"{name} must {rule}, got {getattr(self, name)}")


class SpiralArm(NamedTuple):
    """One of the three trainings compared; ``paper`` is the accuracy of the paper's single run, in per cent."""

    name: str
    short: str
    words: str
    k: int
    paper: float

    def method(self, settings: SpiralSettings) -> Method:
        """The library's method that the arm trains with."""
        if self.k == 0:
            return NoMix()
        return ManifoldMixup(k=self.k, alpha=settings.alpha, layers=MIXED_LAYERS, per_pair=settings.per_pair)


NONE = SpiralArm("none", "none", "no mixup", 0, 90.67)
K1 = SpiralArm("manifold-k1", "K = 1", "manifold mixup, K = 1", 1, 94.17)
K5 = SpiralArm("multimix-k5", "K = 5", "multi-mix, K = 5", 5, 97.50)
ARMS = (NONE, K1, K5)
