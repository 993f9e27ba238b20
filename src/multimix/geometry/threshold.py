"""A grey field and K shares → K nested masks of exact area."""

import torch
from torch import Tensor

ROUNDING = 2.0**-24  # of a share that comes in float32


def nested_masks(field: Tensor, lam: Tensor, round_up: Tensor, softness: float = 0.0) -> Tensor:
    """``[K, rows, 1, *size]``, float32: mask k is 1 on the n_k brightest places of ``field [rows, *size]``.

    n_k = ⌈λ_k N⌉ where ``round_up [rows]`` says so, else ⌊λ_k N⌋; one choice for all k, since one each could break the order.
    Ranking instead of thresholding a value keeps the area exact when values tie. With ``softness`` s the edge becomes a linear
    ramp over the ranks n_k ± min(s N, n_k, N − n_k). Both its ends rise with n_k, so the masks stay ordered (with λ_k N in place
    of n_k, rounding would break the order), and its mean is still n_k / N.
    """
    return masks_of_ranks(*ranks(field, lam, round_up), softness)


def ranks(field: Tensor, lam: Tensor, round_up: Tensor) -> tuple[Tensor, Tensor]:
    """``[rows, *size]``, int32: how many places of ``field`` are brighter; and the areas n_k ``[K, rows]`` of the masks."""
    places = field[0].numel()
    bright_first = field.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(bright_first, dtype=torch.int32)
    rank.scatter_(1, bright_first, torch.arange(places, dtype=torch.int32).expand_as(bright_first))
    wanted = lam * places
    # A whole number of places stays one: λ = 2/49 in float64, or float32, is a little more or less than two of 49 places. One
    # tolerance for all k keeps the order.
    wanted = torch.where((wanted - wanted.round()).abs() <= ROUNDING * places, wanted.round(), wanted)
    return rank.view(field.shape), torch.where(round_up, wanted.ceil(), wanted.floor())


def masks_of_ranks(rank: Tensor, count: Tensor, softness: float = 0.0) -> Tensor:
    """The masks of :func:`nested_masks` from ``rank [rows, *size]`` and ``count [K, rows]``: a K-th of the numbers to copy."""
    places = rank[0].numel()
    count = count.reshape(*count.shape, *[1] * rank.ndim)
    rank = rank.unsqueeze(1)
    if softness == 0:
        return (rank < count).float()
    ramp = torch.minimum(count, places - count).clamp(max=softness * places)
    # A ramp of no width is a step: dividing by a sliver instead of 0 gives it without a special case.
    return ((count + ramp - rank - 0.5) / (2 * ramp).clamp(min=1e-9)).clamp(0, 1).float()
