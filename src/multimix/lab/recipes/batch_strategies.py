"""Five ways to spend five times the computation per update."""

from functools import partial

from .base import Recipe, Row
from .cifar100 import OPTIONS, settings

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
    options=OPTIONS,
)
