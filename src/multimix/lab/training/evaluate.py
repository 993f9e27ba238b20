"""The error of a network on a part of a data set, measured by all processes together."""

import math
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

from ...logits import logits_of
from ...saliency import evaluation_mode
from ..data import Augment, Loader, Split
from ..recipes.settings import Settings
from .step import on_device


class Evaluation(NamedTuple):
    """Per cent of wrong predictions, of those without the true class among the first five, and the mean −log p.

    ``error_top5`` is None with five classes or fewer, ``nll`` where it is not finite.
    """

    error: float
    error_top5: float | None
    nll: float | None


def evaluated(network: nn.Module, split: Split, augment: Augment, settings: Settings, accelerator: Accelerator) -> Evaluation:
    """Every sample once, in evaluation mode; every module gets its own mode back."""
    world = accelerator.num_processes
    batch = -(-settings.evaluate_batch // world) * world  # every process gets as many
    loader = Loader(
        split,
        augment,
        batch=batch,
        shuffle=False,
        drop_last=False,
        workers=settings.running.workers,
        rank=accelerator.process_index,
        world=world,
    )
    sums = torch.zeros(3, dtype=torch.float64)
    classes = 0
    with evaluation_mode(network), torch.no_grad():
        for x, y in loader:
            if len(x) == 0:
                continue
            logits = logits_of(network(on_device(x, accelerator, settings)), None).float().cpu()
            classes = logits.shape[1]
            top = logits.topk(min(5, classes), dim=1).indices == y[:, None]
            nll = functional.cross_entropy(logits.double(), y, reduction="sum")
            sums += torch.stack([(~top[:, 0]).sum().double(), (~top.any(1)).sum().double(), nll])
    # float32 is all that some accelerators add up.
    whole = accelerator.reduce(sums.to(accelerator.device, torch.float32 if world > 1 else torch.float64), "sum").double().cpu()
    wrong, missed, surprise = (value / len(split) for value in whole.tolist())
    return Evaluation(100 * wrong, 100 * missed if classes > 5 else None, surprise if math.isfinite(surprise) else None)
