"""CIFAR-100 with ResNeXt29-4-24."""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

RECIPE = Recipe(
    name="cifar100_resnext29_4_24",
    title="CIFAR-100, ResNeXt29-4-24",
    about="Test error of the methods.",
    settings=partial(settings, "resnext29_4_24"),
    rows=(
        Row("none", paper=21.84),
        Row("mixup", paper=21.78),
        Row("manifoldmix", paper=21.45),
        Row("cutout", paper=20.86),
        Row("cutmix", paper=20.92),
        Row("fmix", paper=21.87),
        Row("puzzlemix", paper=19.74),
        Row("smoothing", paper=20.66),
        Row("puzzlemix", 5, paper=18.23),
    ),
    options=OPTIONS,
)
