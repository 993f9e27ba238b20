"""Batch strategies: test error when five times as many samples make an update, CIFAR-100 with ResNeXt29-4-24.

    multimix train batch_strategies --seeds 0 1 2
    multimix train batch_strategies --seeds 0 1 2 --scale small

Large batches (500 samples, without mixing or mixed with one λ) make five times fewer updates at the same rate; batch
augmentation shows 100 samples five times each; multi-mix mixes 100 pairs at five λ. Otherwise the protocol is that of
``cifar100.py`` beside this file. The paper does not say how far batch augmentation rotates (here ±15°), nor what is paired when
it is mixed (here all 500, with one λ), nor by what (here input mixup; it may have been Puzzle Mix). Hardware: one GPU (hours;
not measured here), or at small scale one CPU core. Expected at paper scale: the errors in the rows below.
"""

from functools import partial

from .base import Recipe, Row
from .cifar100 import options, settings

RECIPE = Recipe(
    name="batch_strategies",
    title="Batch strategies, CIFAR-100, ResNeXt29-4-24",
    about="Test error when five times as many samples make an update.",
    settings=partial(settings, "resnext29_4_24"),
    rows=(
        Row("large_batch", 5, paper=33.45),
        Row("large_batch_mixup", 5, paper=26.54),
        Row("batch_augmentation", 5, paper=20.91),
        Row("batch_augmentation_mixup", 5, paper=19.41),
        Row("puzzlemix", 5, paper=18.23),
    ),
    options=options("resnext29_4_24"),
    takes={
        "paper": "hours on a GPU, not measured here",
        "small": "1 minute with large batches, 7 for multi-mix",
        "smoke": "seconds",
    },
)
