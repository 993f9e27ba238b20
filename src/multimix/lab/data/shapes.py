"""Five kinds of synthetic bodies as a data set like the others: clouds of points, no files needed."""

from dataclasses import dataclass
from pathlib import Path

import torch

from ...sampling import seeded
from .base import Images, Splits
from .clouds import KINDS, split

CLASSES = tuple(KINDS)
POINTS, PER_KIND, TEST_PER_KIND = 48, 100, 200
SEED = 0x5AFE


@dataclass(frozen=True, eq=False)
class Clouds(Images):
    """Clouds in memory, in the place of pixels: float32 ``[M, N, 3]``, N points each."""

    def check_pixels(self) -> None:
        """Raise one sentence unless they are clouds."""
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != torch.float32:
            raise ValueError(f"clouds must be float32 [M, N, 3], got {self.pixels.dtype} {list(self.pixels.shape)}")


def read_shapes(folder: str | Path | None = None) -> Splits[Clouds]:
    """Always the same bodies, as many of each kind; ``folder`` is not used.

    Each lies in the unit sphere, centred, turned around the vertical at random, with noise of 0.05 of its radius on the points.
    """
    made = split(PER_KIND, TEST_PER_KIND, POINTS, seeded(SEED))
    train = Clouds(made.x, made.label, CLASSES)
    return Splits("shapes", {"train": train, "test": Clouds(made.x_test, made.label_test, CLASSES)})
