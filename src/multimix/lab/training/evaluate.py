"""How often a network is wrong on a part of a data set, measured by all processes together."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from ...core.logits import Output, logits_of
from ...core.saliency import evaluation_mode
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


def evaluate(network: nn.Module, split: Split, augment: Augment, settings: Settings, accelerator: Accelerator) -> Evaluation:
    """The errors on all samples of ``split``; every module of ``network`` gets its own mode back."""
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
    for logits, labels in logits_of_batches(network, loader, lambda x: on_device(x, accelerator, settings)):
        classes, rank = logits.shape[1], true_class_rank(logits, labels)
        nll = functional.cross_entropy(logits.double(), labels, reduction="sum")
        sums += torch.stack([(rank > 0).sum().double(), (rank > 4).sum().double(), nll])
    # float32 is all that some accelerators add up.
    whole = accelerator.reduce(sums.to(accelerator.device, torch.float32 if world > 1 else torch.float64), "sum").double().cpu()
    wrong, missed, surprise = (value / len(split) for value in whole.tolist())
    return Evaluation(100 * wrong, 100 * missed if classes > 5 else None, surprise if math.isfinite(surprise) else None)


@torch.no_grad()
def logits_of_batches(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    prepare: Callable[[Tensor], Tensor],
    output: Output | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits, float32 on the CPU, and labels of every batch that has samples, in evaluation mode and without gradients.

    ``prepare`` puts a batch where the network is; ``output`` says which part of what the network returns holds the logits.
    """
    with evaluation_mode(network):
        for x, labels in batches:
            if len(x):
                yield logits_of(network(prepare(x)), output).float().cpu(), labels


def true_class_rank(logits: Tensor, labels: Tensor) -> Tensor:
    """int64 ``[N]``: how many classes have a larger logit than the true one; of equal ones the first counts as the larger.

    ``topk`` does not say which of equal logits comes first. NaN counts as larger than any number, so it is never right.
    """
    true = logits.gather(1, labels[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    return (~(logits <= true) | ((logits == true) & before)).sum(dim=1)
