"""Clouds of points ``[B, N, d]``: the plan that mixes them point by point, and how its anchors and weights come about.

The places of a cloud are its points, so ``size`` is ``[N]`` and a mask is ``[K, B, 1, N]``, as for a signal; but the points are
the second axis of the input and their coordinates the last one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...mixing import mixed_batch
from ...plan import PairPlan


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PointPlan(PairPlan):
    """Point i moves towards point ``order[i]`` of the partner, by its own share of the way.

    ``order [B, N]`` is a permutation for every pair, shared by all K; ``share [K, B, N]`` is in float64. What belongs to the
    points and not to the cloud, such as normals or colours ``[B, N, …]``, can be mixed by the same plan. A target per point is
    ``[B, C, N]``, classes before places as everywhere.
    """

    order: Tensor
    share: Tensor
    has_places = True
    shared: ClassVar[tuple[str, ...]] = ("partner", "order")

    @property
    def lam(self) -> Tensor:
        return self.share.mean(2)

    @property
    def mask(self) -> Tensor:
        return self.share.float().unsqueeze(2)

    def _mix(self, z: Tensor, out: Tensor | None) -> Tensor:
        n = self.size[0]
        if z.ndim < 2 or z.shape[1] != n:
            raise ValueError(f"z has shape {list(z.shape)}, the plan was made for {n} points, the second axis")
        # Every point is a sample here, whose partner lies in another cloud.
        partner = (self.partner.unsqueeze(1) * n + self.order).flatten()
        weight = self.share.reshape(self.k, -1, *[1] * (z.ndim - 2))
        rows = None if out is None or not out.is_contiguous() else out.flatten(0, 1)
        mixed = mixed_batch(z.flatten(0, 1), partner, weight, rows).view(-1, n, *z.shape[2:])
        return mixed if out is None else out if rows is not None else out.copy_(mixed)

    def _mix_places(self, target: Tensor) -> Tensor:
        return self.mix(target.transpose(1, 2)).transpose(1, 2).contiguous()


def drawn_points(weight: Tensor, uniform: Tensor) -> Tensor:
    """``[B]``: a point of each cloud, drawn with probability ∝ ``weight [B, N]`` by the numbers ``uniform [B]`` in [0, 1).

    Weights are float64, at least 0 and finite; where all are 0, every point is as likely as any other.
    """
    largest = weight.amax(1, keepdim=True)
    weight = torch.where(largest > 0, weight / largest, 1.0)  # sums of what a very sure model leaves would underflow
    summed = weight.cumsum(1)
    place = torch.searchsorted(summed, uniform.unsqueeze(1) * summed[:, -1:], right=True)
    return place.squeeze(1).clamp(max=weight.shape[1] - 1)


def taken(values: Tensor, point: Tensor) -> Tensor:
    """``[B, 1, …]``: one point of each cloud ``values [B, N, …]``."""
    return values[torch.arange(len(values)), point].unsqueeze(1)


def reordered(values: Tensor, order: Tensor) -> Tensor:
    """``[B, N, …]``: ``values`` with point ``order[i]`` at place i of each cloud."""
    return values[torch.arange(len(values)).unsqueeze(1), order]


def kernel_shares(lam: Tensor, tilt: Tensor) -> Tensor:
    """``[K, B, N]``: λκ' / ((1 − λ)κ + λκ') for ``lam [K, 1 or B]`` and ``tilt [B, N]`` = log κ' − log κ.

    In logarithms: however far a point is from both anchors, the share is exact, and it is 0 at λ = 0 and 1 at λ = 1.
    """
    return (lam.logit().unsqueeze(2) + tilt).sigmoid()


def check_points(x: Tensor, method: str) -> None:
    """Raise ValueError unless ``x`` holds clouds of points, ``[B, N, 3]`` or ``[B, N, 2]``."""
    shape = list(x.shape)
    if len(shape) == 3 and shape[2] in (2, 3):
        return
    hint = "; x.transpose(1, 2) puts the points first" if len(shape) == 3 and shape[1] in (2, 3) else ""
    raise ValueError(f"{method} needs clouds of points x of shape [B, N, 3] or [B, N, 2], got {shape}{hint}")


def checked_order(order: Tensor, points: Tensor) -> Tensor:
    """``order`` as an index on the CPU for clouds ``points [B, N, d]``, or ValueError with what is wrong with it."""
    order = torch.as_tensor(order, device="cpu")
    wanted, n = points.shape[:2], points.shape[1]
    if order.shape != wanted or order.is_floating_point() or order.is_complex() or order.dtype == torch.bool:
        raise ValueError(f"order must hold indices of shape {list(wanted)}, got {order.dtype} {list(order.shape)}")
    if not torch.equal(order.long().sort(1).values, torch.arange(n).expand(wanted)):
        raise ValueError(f"order must be a permutation of 0 … {n - 1} for every pair")
    return order.long()
