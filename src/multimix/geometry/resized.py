"""The whole partner, resized into K boxes."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..core.devices import float32_or_better, widest_float
from ..core.mixing import mix, stacked
from .boxes import BoxPlan, inside

Resize = Literal["nearest", "bilinear"]


class Taps(NamedTuple):
    """The places shown along one axis: ``first [K, rows, side]``, and for bilinear resizing also
    ``second``, of share ``weight``.
    """

    first: Tensor
    second: Tensor | None = None
    weight: Tensor | None = None


def uniform_boxes(lam: Tensor, point: Tensor, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Compute nested boxes inside the image of sides λ^(1/d) times its sides, rounded.

    The room left of a box has the same share as the image left of the point, which is in every box
    that is not empty. For a uniform point all positions of a box are equally likely.

    Args:
        lam: ``[K, 1 or rows]`` shares.
        point: ``[rows, d]``.
        size: The image's sides.

    Returns:
        ``low`` and ``high [K, rows, d]``, int64.
    """
    sides = torch.tensor(size, dtype=torch.float64)
    side = (sides * lam.unsqueeze(-1) ** (1 / len(size))).round()
    low = torch.minimum((point / sides * (sides - side + 1)).floor(), sides - side)
    return low.long(), (low + side).long()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ResizedPlan(BoxPlan):
    """The whole partner resized into a box, the sample outside.

    Args:
        resize: ``nearest`` or ``bilinear``.
    """

    resize: Resize

    def _mix(self, z: Tensor) -> Tensor:
        return self._pasted(z, z[self.partner])

    def _pasted(self, z: Tensor, pair: Tensor) -> Tensor:
        """``z`` with all of ``pair [B, …]`` resized into its boxes."""
        within = inside(self.low, self.high, self.size)
        taps = [
            _axis_taps(self.low[..., axis, None], self.high[..., axis, None], side, self.resize)
            for axis, side in enumerate(self.size)
        ]
        steps = [
            torch.where(within[k], _resized(pair, taps, k).to(z.dtype), z) for k in range(self.k)
        ]
        return stacked(steps, z)


def _axis_taps(low: Tensor, high: Tensor, side: int, resize: Resize) -> Taps:
    """The partner's places shown along an axis; arbitrary outside ``low, high [K, rows, 1]``."""
    width = (high - low).clamp(min=1)
    place = torch.minimum((torch.arange(side, device=low.device) - low).clamp(min=0), width - 1)
    if resize == "nearest":
        return Taps(place * side // width)
    # The center of a shown place, in places of the partner, clamped to its outermost centers.
    center = ((2 * place + 1) * side - width).to(widest_float(low.device)) / (2 * width)
    center = center.clamp(0, side - 1)
    first = center.floor()
    return Taps(first.long(), (first.long() + 1).clamp(max=side - 1), center - first)


def _resized(z: Tensor, taps: list[Taps], k: int) -> Tensor:
    """``z [B, C, *size]`` read along every axis at the places of step k."""
    bilinear = taps[0].second is not None
    result = float32_or_better(z) if bilinear else z  # round once, at the end
    for axis, (first, second, weight) in enumerate(taps, 2):
        near = _gathered(result, axis, first[k])
        if second is None or weight is None:
            result = near
        else:
            after = [1] * (z.ndim - axis - 1)
            along = weight[k].reshape(-1, *[1] * (axis - 1), z.shape[axis], *after)
            result = mix(near, _gathered(result, axis, second[k]), along)
    return result


def _gathered(z: Tensor, axis: int, place: Tensor) -> Tensor:
    if len(place) == 1:
        return z.index_select(axis, place[0])
    place = place.reshape(len(place), *[1] * (axis - 1), -1, *[1] * (z.ndim - axis - 1))
    return z.gather(axis, place.expand(*z.shape[:axis], -1, *z.shape[axis + 1 :]))
