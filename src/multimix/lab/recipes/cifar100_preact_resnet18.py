"""CIFAR-100 with PreActResNet18."""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

RECIPE = Recipe(
    name="cifar100_preact_resnet18",
    title="CIFAR-100, PreActResNet18",
    about="Test error of the methods.",
    settings=partial(settings, "preact_resnet18"),
    rows=(
        Row("none", paper=23.53),
        Row("mixup", paper=22.49),
        Row("manifoldmix", paper=21.62),
        Row("cutout", paper=21.12),
        Row("cutmix", paper=21.29),
        Row("fmix", paper=21.52),
        Row("puzzlemix", paper=20.61),
        Row("smoothing", paper=23.09),
        Row("puzzlemix", 5, paper=19.19),
    ),
    options=OPTIONS,
)
