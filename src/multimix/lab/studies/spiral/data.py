"""Two noisy spiral arms, some of the training labels wrong."""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ....core.sampling import seeded
from ...recipes.spiral import SpiralSettings

CLASSES = 2

# A seed's four random streams. No draw in one moves another, so all methods see the same data, initial weights and batches.
DATA, START, ORDER, MIXING = range(4)


class SpiralData(NamedTuple):
    """Points ``x [N, 2]`` in float64 and labels in {0, 1}; ``flipped`` marks the training labels that are wrong."""

    x: Tensor
    y: Tensor
    flipped: Tensor
    x_test: Tensor
    y_test: Tensor


def spiral_data(settings: SpiralSettings, seed: int) -> SpiralData:
    """The data of one seed: balanced splits, then exactly ``flipped`` wrong training labels; the test labels stay clean."""
    generator = seeded(seed, DATA)
    label = torch.arange(CLASSES).repeat_interleave(settings.samples // CLASSES)
    x = spiral_points(label, settings, generator)
    # Points are independent within a class, so the first ones of each class are as good a sample as any.
    in_class = torch.arange(settings.samples) % (settings.samples // CLASSES)
    train = in_class < settings.train // CLASSES
    wrong = torch.randperm(settings.train, generator=generator)[: settings.flipped]
    flipped = torch.zeros(settings.train, dtype=torch.bool).index_fill(0, wrong, True)
    return SpiralData(x[train], torch.where(flipped, 1 - label[train], label[train]), flipped, x[~train], label[~train])


def spiral_points(label: Tensor, settings: SpiralSettings, generator: Generator) -> Tensor:
    """``[N, 2]``: radius u and angle 2π·turns·u (+π for label 1), u on 0 … 1 uniform or a root of it, plus Gaussian noise."""
    u = torch.rand(len(label), dtype=torch.float64, generator=generator)
    if settings.uniform_in == "arc":
        u = u.sqrt()  # the arc grows with the square of the angle, but for the first part of a turn
    angle = 2 * math.pi * settings.turns * u + math.pi * label.double()
    clean = torch.stack([u * angle.cos(), u * angle.sin()], dim=1)
    return clean + settings.noise * torch.randn(len(label), 2, dtype=torch.float64, generator=generator)
