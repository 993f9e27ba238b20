"""What the tests of RecursiveMix mix: images, a history as an earlier batch would have left it, a network with a feature map."""

import torch
from torch import nn

from oracles import seeded

CLASSES = 4
LINKED = {"features": "body", "head": "head", "omega": 0.7}


def images(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def labels(batch, seed=9):
    return torch.randint(CLASSES, (batch,), generator=seeded(seed))


def past(batch, *rest, seed=50, dtype=torch.float32):
    return {
        "history_x": images(batch, *rest, seed=seed, dtype=dtype),
        "history_target": images(batch, CLASSES, seed=seed + 1, dtype=dtype).softmax(1),
        "history_logits": images(batch, CLASSES, seed=seed + 2, dtype=dtype),
    }


class Network(nn.Module):
    """A feature map, its mean over places, a linear head."""

    def __init__(self, channels=2, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(channels, 5, 3, stride=2, padding=1), nn.Tanh())
        self.head = nn.Linear(5, CLASSES)
        self.other = nn.Linear(5, CLASSES)
        self.to(dtype)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))
