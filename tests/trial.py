"""A recipe on the digits that trains in a second: what the tests of training, killing and resuming run."""

from dataclasses import replace

import torch
from torch import nn

import multimix as mm
from multimix.lab.data import read
from multimix.lab.recipes.base import Recipe, Row
from multimix.lab.recipes.settings import Augmentation, Data, Milestones, Network, Running, Settings
from multimix.methods.samix.block import NewBlock

MEAN, STD = 0.3054, 0.3753
PUZZLE = mm.PuzzleMix(k=3, mean=MEAN, std=STD)


class DropNet(nn.Module):
    """Batch norm and dropout, so that statistics and the global random stream matter."""

    def __init__(self, num_classes=10, width=8, p=0.3):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(p), nn.Linear(16 * width, num_classes))

    def forward(self, x):
        return self.head(self.stage2(self.stage1(x)))


class PlainNet(nn.Module):
    """No statistics and nothing random: rows do not depend on each other."""

    def __init__(self, num_classes=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, num_classes))

    def forward(self, x):
        return self.layers(x)


class ConvNet(nn.Module):
    """Features that have places, no statistics and nothing random."""

    def __init__(self, num_classes=10, width=8):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.Tanh())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * width, num_classes))

    def forward(self, x):
        return self.head(self.stage1(x))


def settings(**changes):
    start = Settings(
        data=Data("digits", per_class=20, report_per_class=10),
        network=Network("trial:DropNet"),
        method=PUZZLE,
        schedule=Milestones(0.1, (2.0,), warmup=0.5),
        epochs=3,
        batch=40,
        augment=Augmentation(padding=1, rotation=5.0),
        # One thread: with more, last bits would depend on what tests before have set.
        running=Running(device="cpu", threads=1, checkpoint_updates=2),
    )
    return replace(start, **changes)


def plain_settings(scale):
    """Of no mixing; a function with a name, so that a recipe can be sent to another process."""
    return settings(method=mm.NoMix())


RECIPE = Recipe(
    name="trial",
    title="Trial",
    about="for tests",
    settings=plain_settings,
    rows=(Row("none"), Row("mixup"), Row("mixup", 3)),
    options={"manifoldmix": {"layers": (None, "stage1")}, "cutout": {"length": 4}, "samix": {"block": NewBlock("stage1")}},
)


def splits():
    return read("digits", ".")


def weights(network):
    return torch.cat([value.detach().double().flatten() for value in network.state_dict().values()])
