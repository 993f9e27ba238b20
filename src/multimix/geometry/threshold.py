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
    places = field[0].numel()
    bright_first = field.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(bright_first)
    rank.scatter_(1, bright_first, torch.arange(places).expand_as(bright_first))
    wanted = lam * places
    # A whole number of places stays one: λ = 2/49 in float64, or float32, is a little more or less than two of 49 places. One
    # tolerance for all k keeps the order.
    wanted = torch.where((wanted - wanted.round()).abs() <= ROUNDING * places, wanted.round(), wanted)
    count = torch.where(round_up, wanted.ceil(), wanted.floor()).unsqueeze(-1)
    if softness == 0:
        mask = (rank < count).float()
    else:
        ramp = torch.minimum(count, places - count).clamp(max=softness * places)
        # A ramp of no width is a step: dividing by a sliver instead of 0 gives it without a special case.
        mask = ((count + ramp - rank - 0.5) / (2 * ramp).clamp(min=1e-9)).clamp(0, 1).float()
    return mask.reshape(*mask.shape[:2], 1, *field.shape[1:])
