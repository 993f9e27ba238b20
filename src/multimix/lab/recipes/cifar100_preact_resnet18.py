"""CIFAR-100 with PreActResNet18: test error of the methods, a column of the paper's table of errors.

    multimix train cifar100_preact_resnet18 --method puzzlemix --k 5 --seeds 0 1 2
    multimix train cifar100_preact_resnet18 --method puzzlemix --k 5 --seeds 0 1 2 --scale small

The protocol, how the small scale was chosen, and where the paper and the reference code differ: ``cifar100.py`` beside this
file. Hardware: one GPU (hours; not measured here), or at small scale one CPU core, 1.5 minutes without mixing and 7 for Puzzle
Mix at K = 5. Expected at paper scale: the errors in the rows below, means over 3 seeds. At small scale: docs/results.md.
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import options, settings

RECIPE = Recipe(
    name="cifar100_preact_resnet18",
    title="CIFAR-100, PreActResNet18",
    about="Test error of the methods, as in the paper's table of errors.",
    settings=partial(settings, "preact_resnet18"),
    rows=(
        Row("none", paper=23.53),
        Row("mixup", paper=22.49),
        Row("manifoldmix", paper=21.62),
        Row("cutout", paper=21.12),
        Row("cutmix", paper=21.29),
        Row("fmix", paper=21.52),
        Row("comixup", paper=19.89),
        Row("puzzlemix", paper=20.61),
        Row("smoothing", paper=23.09),
        Row("puzzlemix", 5, paper=19.19),
    ),
    options=options("preact_resnet18"),
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "1.5 minutes without mixing, 7 at K = 5",
        "smoke": "seconds",
    },
)
