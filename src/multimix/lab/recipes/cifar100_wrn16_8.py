"""CIFAR-100 with WRN16-8."""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

RECIPE = Recipe(
    name="cifar100_wrn16_8",
    title="CIFAR-100, WRN16-8",
    about="Test error of the methods.",
    settings=partial(settings, "wrn16_8"),
    rows=(
        Row("none", paper=21.93),
        Row("mixup", paper=20.18),
        Row("manifoldmix", paper=20.49),
        Row("cutout", paper=19.19),
        Row("cutmix", paper=20.14),
        Row("fmix", paper=19.75),
        Row("puzzlemix", paper=19.27),
        Row("smoothing", paper=21.45),
        Row("puzzlemix", 5, paper=18.52),
    ),
    options=OPTIONS,
)
