"""A small tree of pictures in the layout of ImageNet, and a recipe that trains on it from files."""

import numpy
from PIL import Image
from torch import nn

import multimix as mm
from multimix.lab.recipes.base import Recipe, Row
from multimix.lab.recipes.settings import Augmentation, Data, Milestones, Network, Phase, Running, Settings

CLASSES, TRAIN, VALIDATION = 3, 8, 4


class TreeNet(nn.Module):
    """Takes pictures of any size."""

    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(self.layers(x))


def settings(scale):
    return Settings(
        data=Data("imagenet", report="validation"),
        network=Network("tree:TreeNet"),
        method=mm.NoMix(),
        schedule=Milestones(0.05),
        epochs=2,
        batch=4,
        augment=Augmentation(flip=True, smallest_crop=0.3, size=12, evaluate_resize=14, evaluate_crop=12),
        phases=(Phase(0, 4, 12, 0.3, short_side=14), Phase(1, 6, 16, 0.3, short_side=18)),
        running=Running(device="cpu", checkpoint_updates=2),
    )


RECIPE = Recipe(name="tree", title="Tree", about="for tests", settings=settings, rows=(Row("none"), Row("mixup", 2)))


def make_tree(folder):
    """Pictures of several sizes; those of a class have its colour."""
    random = numpy.random.default_rng(0)
    for part, count in (("train", TRAIN), ("val", VALIDATION)):
        for label in range(CLASSES):
            place = folder / "imagenet" / part / f"n{label:08d}"
            place.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 120, (20 + i, 24 - i, 3), dtype=numpy.uint8)
                pixels[..., label] += 120
                Image.fromarray(pixels).save(place / f"{i}.png")
    return folder
