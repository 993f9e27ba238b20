"""A small convolutional network for 8×8 grey images. It knows nothing about mixing."""

import hashlib

import torch
from torch import Tensor, nn

CLASSES = 10


class SmallNet(nn.Module):
    """Two stages of convolution, ReLU and pooling, 16 and 32 channels, and a linear head: 6,090 parameters, no batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.stage2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 2 * 2, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stage2(self.stage1(x)))
        return logits


def initial_net(seed: int) -> SmallNet:
    """The network with the initial weights that belong to ``seed``; the global random state stays as it is."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return SmallNet()


def digest(net: nn.Module) -> str:
    """A short name for exactly these weights."""
    whole = hashlib.sha256()
    for weight in net.state_dict().values():
        whole.update(weight.numpy().tobytes())
    return whole.hexdigest()[:16]
