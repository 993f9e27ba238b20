"""CIFAR-100 with ResNeXt29-4-24: test error of the methods, a column of the paper's table of errors.

    multimix train cifar100_resnext29_4_24 --method puzzlemix --k 5 --seeds 0 1 2
    multimix train cifar100_resnext29_4_24 --method puzzlemix --k 5 --seeds 0 1 2 --scale small

The protocol, how the small scale was chosen, and where the paper and the reference code differ: ``cifar100.py`` beside this
file. Hardware: one GPU (hours; not measured here), or at small scale one CPU core, 1 minute without mixing and 7 for Puzzle
Mix at K = 5. Expected at paper scale: the errors in the rows below, means over 3 seeds. At small scale: docs/results.md.
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import options, settings

RECIPE = Recipe(
    name="cifar100_resnext29_4_24",
    title="CIFAR-100, ResNeXt29-4-24",
    about="Test error of the methods, as in the paper's table of errors.",
    settings=partial(settings, "resnext29_4_24"),
    rows=(
        Row("none", paper=21.84),
        Row("mixup", paper=21.78),
        Row("manifoldmix", paper=21.45),
        Row("cutout", paper=20.86),
        Row("cutmix", paper=20.92),
        Row("fmix", paper=21.87),
        Row("comixup", paper=19.43),
        Row("puzzlemix", paper=19.74),
        Row("smoothing", paper=20.66),
        Row("puzzlemix", 5, paper=18.23),
    ),
    options=options("resnext29_4_24"),
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "1 minute without mixing, 7 at K = 5",
        "smoke": "seconds",
    },
)
