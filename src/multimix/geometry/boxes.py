"""K boxes around one center, half-open ``[low, high)`` along each axis, for 1-D to 3-D samples."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from ..core.checks import can_inspect
from ..core.devices import widest_float
from ..core.mixing import mixed_batch
from ..core.plan import PairPlan

Fit = Literal["clip", "shift"]
Grid = Literal["continuous", "integer"]


def random_center(rows: int, size: tuple[int, ...], grid: Grid, generator: Generator) -> Tensor:
    """Draw ``[rows, d]`` centers, uniform on [0, side) or on the integers 0 … side − 1."""
    uniform = torch.rand(rows, len(size), dtype=torch.float64, generator=generator)
    center = uniform.numpy() * np.array(size)
    return torch.from_numpy(np.floor(center) if grid == "integer" else center)


def centered_boxes(
    lam: Tensor, center: Tensor, size: tuple[int, ...], fit: Fit, grid: Grid
) -> tuple[Tensor, Tensor]:
    """Compute boxes with sides λ^(1/d) of the image's, nested in λ for one center.

    Args:
        lam: ``[K, 1 or rows]`` shares.
        center: ``[rows, d]``.
        size: The image's sides.
        fit: ``clip`` cuts boxes off at the border, as in the paper, so areas near it are less than
            λ. ``shift`` moves boxes inside: area λ up to rounding, the whole image at 1.
        grid: ``continuous`` has real centers and sides. Clipped edges are rounded down, as in the
            code the paper builds on; shifted edges to the nearest, so that no border is favored.
            ``integer`` (the original code) has integer centers and half sides, so unclipped sides
            of clipped boxes are even.

    Returns:
        ``low`` and ``high [K, rows, d]``, int64.
    """
    sides, middle = np.array(size, np.float64), center.numpy()
    side = sides * lam.numpy()[..., None] ** (1 / len(size))
    if fit == "shift":
        side = np.rint(side)
        if grid == "integer":
            low = middle - np.floor(side / 2)
        else:
            low = np.floor(middle - side / 2 + 0.5)
        low = np.clip(low, 0, sides - side)
        high = low + side
    else:
        half = np.floor(np.floor(side) / 2) if grid == "integer" else side / 2
        low, high = np.clip(middle - half, 0, sides), np.clip(middle + half, 0, sides)
    return torch.from_numpy(low.astype(np.int64)), torch.from_numpy(high.astype(np.int64))


def inside(low: Tensor, high: Tensor, size: torch.Size) -> Tensor:
    """Return ``[…, 1, *size]`` bools: which places are in the box ``low, high […, d]``."""
    within = torch.ones((), dtype=torch.bool, device=low.device)
    for axis, side in enumerate(size):
        place = torch.arange(side, device=low.device)
        along = (place >= low[..., axis, None]) & (place < high[..., axis, None])
        shape = [1] * (len(size) + 1)
        shape[axis + 1] = side
        within = within & along.reshape(*along.shape[:-1], *shape)
    return within


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoxPlan(PairPlan):
    """A plan that shows the partner inside a box and the sample outside.

    Args:
        low: ``[K, 1 or B, d]``, int64, first positions of the boxes.
        high: ``[K, 1 or B, d]``, int64, end positions of the boxes, exclusive.
    """

    low: Tensor
    high: Tensor
    has_places = True

    @property
    def lam(self) -> Tensor:
        sides = (self.high - self.low).to(widest_float(self.low.device))
        return (sides.prod(-1) / self.size.numel()).expand(-1, self.partner.shape[0])

    @property
    def mask(self) -> Tensor:
        share = inside(self.low, self.high, self.size).float()
        return share.expand(-1, len(self.partner), *share.shape[2:])

    def check(self, batch: int) -> None:
        """Validate partners and boxes.

        Args:
            batch: Number of samples B.

        Raises:
            ValueError: If ``partner`` does not hold B indices of the batch, or a box is not in the
                image.
        """
        super().check(batch)
        shapes = ((1, len(self.size)), (len(self.partner), len(self.size)))
        if self.low.shape != self.high.shape or self.low.shape[1:] not in shapes:
            got = f"{list(self.low.shape)} and {list(self.high.shape)}"
            raise ValueError(f"low and high must be [K, 1 or B, {len(self.size)}], got {got}")
        if can_inspect(self.low):
            low, high = self.low.numpy(), self.high.numpy()
            if not ((low >= 0) & (low <= high) & (high <= self.size)).all():
                raise ValueError(f"low and high must be inside the image of size {list(self.size)}")

    def _mix(self, z: Tensor) -> Tensor:
        return mixed_batch(z, self.partner, inside(self.low, self.high, self.size))
