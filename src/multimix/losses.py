"""Losses, targets and accuracy for mixed labels."""

from .core.losses import Criterion, mixed_accuracy, pair_loss, soft_cross_entropy, softmax_bce
from .core.targets import smoothed, soft_target

__all__ = [
    "Criterion",
    "mixed_accuracy",
    "pair_loss",
    "smoothed",
    "soft_cross_entropy",
    "soft_target",
    "softmax_bce",
]
