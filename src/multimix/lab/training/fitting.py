"""The networks that a method works with, beside the one that is trained: made at the start, the same in all processes, kept."""

from dataclasses import replace

import torch
from accelerate import Accelerator
from torch import nn

from ...methods.base import Method, descriptions, trained_parameters
from ...sampling import seeded
from ..data import Loader, Split
from ..recipes.settings import Settings

FITTING = 0xF17  # a random stream of its own
IMAGES = 512  # that such a network may learn from before the training


def fitted_settings(settings: Settings, network: nn.Module, train: Split, seed: int, updates: int) -> Settings:
    """``settings`` with a method whose networks are made: from training samples as the first epoch augments them.

    Everything follows from the seed, in every process alike.
    """
    if not descriptions(settings.method):
        return settings
    now = settings.in_epoch(0)
    loader = Loader(train, now.augment.training(now.data.entry()), batch=min(IMAGES, len(train)), seed=seed)
    images, _ = next(iter(loader.epoch(0)))
    place = next(network.parameters()).device
    method = settings.method.bind(network, images.to(place), updates=updates, generator=seeded(FITTING, seed))
    return replace(settings, method=method)


def average_gradients(method: Method, accelerator: Accelerator) -> None:
    """The mean over all processes for the networks that learn beside the model, which DistributedDataParallel does not see."""
    if accelerator.num_processes == 1:
        return
    for weight in trained_parameters(method):
        # A process that drew "no mixing" has no gradient, and must not leave the others waiting.
        own = torch.zeros_like(weight) if weight.grad is None else weight.grad
        weight.grad = accelerator.reduce(own, "mean")
