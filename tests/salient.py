"""A small method that needs saliency, and a network that shows what was done to it."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import default_collate

import multimix as mm
from multimix.core.plan import MaskPlan
from multimix.methods.path import CleanLossMethod
from oracles import seeded

CLASSES = 4


@dataclass(frozen=True, kw_only=True)
class Salient(CleanLossMethod, mm.PairMethod):
    """The partner's share at a place is λ times how salient the place is, 1 where it is most."""

    name = "salient"

    def build(self, x, partner, lam, *, generator, saliency):
        top = saliency.flatten(1).amax(1).reshape(-1, *[1] * (saliency.ndim - 1))
        share = lam.reshape(*lam.shape, *[1] * (saliency.ndim - 1)) * (saliency / top)
        return MaskPlan(partner=partner, size=x.shape[2:], share=share.float().unsqueeze(2))


class Network(nn.Module):
    """Batch norm and dropout around a convolution; notes for each forward pass how many rows it saw and in which mode."""

    def __init__(self, dropout=0.5, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv, self.norm = nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5)
            self.drop, self.head = nn.Dropout(dropout), nn.Linear(5 * 5 * 7, CLASSES)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
        self.seen = []

    def forward(self, x):
        self.seen.append((len(x), self.training))
        return self.head(self.drop(torch.tanh(self.norm(self.conv(x)))).flatten(1))


def images(batch=6, dtype=torch.float32):
    return torch.randn(batch, 2, 5, 7, generator=seeded(0), dtype=dtype)


def labels(batch=6):
    return torch.arange(batch) % CLASSES


def soft_labels(batch=6, dtype=torch.float32):
    return torch.rand(batch, CLASSES, generator=seeded(1), dtype=dtype).softmax(1)


class WithMap:
    """A collate function that hands a map of its own to a Mix; a class at module level, so that it can be sent to workers."""

    def __init__(self, mix):
        self.mix = mix

    def __call__(self, samples):
        x, y = default_collate(samples)
        return self.mix(x, y, saliency=x.mean(1))
