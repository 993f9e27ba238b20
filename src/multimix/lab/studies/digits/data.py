"""scikit-learn's digits: 1,797 real 8×8 grey images in 10 classes, which come with the package."""

import hashlib
from functools import cache
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Generator, Tensor

CLASSES = 10


class Split(NamedTuple):
    """Images ``[N, 1, 8, 8]`` and classes ``[N]`` for training and for the test; they share no sample."""

    x: Tensor
    label: Tensor
    x_test: Tensor
    label_test: Tensor

    def digest(self) -> str:
        """A short name for exactly this split."""
        whole = hashlib.sha256()
        for part in self:
            whole.update(part.numpy().tobytes())
        return whole.hexdigest()[:16]


def split(per_class: int, generator: Generator) -> Split:
    """``per_class`` samples of every class drawn for training, all others for the test; mean 0 and deviation 1 in training."""
    x, label = _images()
    fewest = int(torch.bincount(label).min())
    if not 1 <= per_class < fewest:
        raise ValueError(f"per_class must lie in 1 … {fewest - 1}, got {per_class}")
    shuffled = torch.randperm(len(label), generator=generator)
    drawn = torch.cat([shuffled[label[shuffled] == c][:per_class] for c in range(CLASSES)])
    rest = torch.ones(len(label), dtype=torch.bool)
    rest[drawn] = False
    # By the training images alone; 0 is then their mean, which is what Cutout fills its holes with.
    x = (x - x[drawn].mean()) / x[drawn].std()
    return Split(x[drawn], label[drawn], x[rest], label[rest])


def image_count() -> int:
    """How many images there are in all."""
    return len(_images()[1])


@cache
def _images() -> tuple[Tensor, Tensor]:
    bundle = load_digits()
    return torch.tensor(bundle.images, dtype=torch.float32).unsqueeze(1), torch.tensor(bundle.target, dtype=torch.int64)
