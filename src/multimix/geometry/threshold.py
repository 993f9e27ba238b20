"""K nested masks: of exact area from a gray field, or as products over the axes."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

import torch
from torch import Tensor

ROUNDING = 2.0**-24  # of a share in float32


def nested_masks(field: Tensor, lam: Tensor, round_up: Tensor, softness: float = 0.0) -> Tensor:
    """Threshold a field such that mask k covers its n_k brightest places.

    Ranks instead of a threshold value keep the area exact where values tie. With ``softness`` s the
    edge is a linear ramp over the ranks n_k ± min(s N, n_k, N − n_k): masks stay ordered, and their
    mean stays n_k / N.

    Args:
        field: ``[rows, *size]``.
        lam: ``[K, 1 or rows]`` shares.
        round_up: ``[rows]`` bools: n_k is ⌈λ_k N⌉ or ⌊λ_k N⌋. One choice for all k keeps the order.
        softness: Half the width of the ramp as a share of the places, in [0, 0.5].

    Returns:
        ``[K, rows, 1, *size]``, float32.
    """
    return masks_of_ranks(*ranks(field, lam, round_up), softness)


def ranks(field: Tensor, lam: Tensor, round_up: Tensor) -> tuple[Tensor, Tensor]:
    """Return ranks ``[rows, *size]`` (int32, 0 is the brightest) and areas n_k ``[K, rows]``."""
    places = field[0].numel()
    bright_first = field.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(bright_first, dtype=torch.int32)
    order = torch.arange(places, dtype=torch.int32).expand_as(bright_first)
    rank.scatter_(1, bright_first, order)
    area = lam * places
    # λ = 2/49 is slightly more or less than 2 of 49 places: keep whole numbers whole. One tolerance
    # for all k keeps the order.
    is_whole = (area - area.round()).abs() <= ROUNDING * places
    area = torch.where(is_whole, area.round(), area)
    return rank.view(field.shape), torch.where(round_up, area.ceil(), area.floor())


def masks_of_ranks(rank: Tensor, count: Tensor, softness: float = 0.0) -> Tensor:
    """The masks of :func:`nested_masks` from its :func:`ranks`."""
    places = rank[0].numel()
    count = count.reshape(*count.shape, *[1] * rank.ndim)
    rank = rank.unsqueeze(1)
    if softness == 0:
        return (rank < count).float()
    ramp = torch.minimum(count, places - count).clamp(max=softness * places)
    # The minimum turns a ramp of no width into a step.
    return ((count + ramp - rank - 0.5) / (2 * ramp).clamp(min=1e-9)).clamp(0, 1).float()


def outer_masks(along: Sequence[Tensor]) -> Tensor:
    """``[K, rows, 1, *size]``: the product of the values ``[K, rows, side]`` of each axis."""
    d = len(along)
    factors = [
        values.reshape(*values.shape[:2], 1, *[1] * axis, -1, *[1] * (d - axis - 1))
        for axis, values in enumerate(along)
    ]
    return reduce(mul, factors)
