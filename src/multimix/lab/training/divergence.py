"""A training whose loss is not a number any more: what happened, and what to try."""

import math

from ..recipes.schedule import Milestones
from ..recipes.settings import Settings
from .log import Step


class Diverged(ValueError):  # noqa: N818  what happened, in one sentence
    """The loss is not a number any more."""


def divergence(loss: float, squared_grad_norm: float, step: Step, settings: Settings) -> str:
    """One sentence with the place, and changes that often help."""
    if isinstance(settings.schedule, Milestones):
        tips = ["a smaller learning rate (--schedule.rate)", "a warm-up (--schedule.warmup 5)"]
    else:
        tips = ["smaller learning rates (--schedule.points)", "larger batches (--phases.0.batch)"]
    if settings.mixed_precision != "no":
        tips.append("--mixed_precision no")
    what = f"the squared norm of the gradient became {squared_grad_norm}" if math.isfinite(loss) else f"the loss became {loss}"
    return (
        f"{what} in epoch {step.epoch}, update {step.update} (learning rate {step.rate:g}); the last checkpoint "
        f"before it is kept; try {' or '.join([', '.join(tips[:-1]), tips[-1]])}"
    )
