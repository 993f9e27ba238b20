"""One-to-one assignment of the points of two clouds such that the sum of their distances is least, or nearly so."""

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ...checks import check_choice, check_number
from ...compiled import in_chunks, noticed

Array = np.ndarray[Any, Any]
Matching = Literal["auto", "exact", "auction"]

EXACT_UP_TO = 512  # points: about 14 ms a pair on one core; the auction at the default ε takes half the time
FIRST, FALL = 0.2, 6.0  # ε of the first phase of an auction, and by how much it falls from phase to phase
LAST = 1e-4  # ε of the auction before exact augmentation: 1e-2 … 1e-5 all give the optimum, this one soonest
SMALLEST = 1e-9  # below it a bid could be lost in rounding, and the auction would never end


def matched_points(
    points: Tensor,
    points_pair: Tensor,
    *,
    rule: Matching = "auto",
    eps: float = 0.002,
    threads: int | None = None,
) -> Tensor:
    """``order [B, N]`` int64: point i of cloud ``points [B, N, d]`` goes with point ``order[i]`` of ``points_pair [B, N, d]``.

    Always a permutation; d is 1, 2 or 3. ``exact`` minimises Σ_i ‖p_i − p'_order(i)‖. ``auction`` comes within N·ε·D of the
    least sum, D the diagonal of the smallest box with sides along the axes that holds both clouds; in practice far closer.
    ``auto`` is exact for up to 512 points.
    """
    check_choice("rule", rule, get_args(Matching))
    check_number("eps", eps, above=0)
    if points.shape != points_pair.shape or points.ndim != 3 or not 1 <= points.shape[2] <= 3 or points.numel() == 0:
        raise ValueError(f"clouds must both be [B, N, d] with d up to 3, got {list(points.shape)} and {list(points_pair.shape)}")
    first, second = _scaled(points, points_pair)
    pairs, _, n = first.shape
    exact = rule == "exact" or (rule == "auto" and n <= EXACT_UP_TO)
    order = np.empty((pairs, n), np.int64)
    from .assignment_kernel import match

    phases, price = _phases(LAST if exact else eps), np.zeros((pairs, n))
    with noticed(match):
        in_chunks(lambda start, stop: match(first, second, phases, exact, price, order, start, stop), pairs, threads)
    return torch.from_numpy(order)


def _scaled(points: Tensor, points_pair: Tensor) -> tuple[Array, Array]:
    """Both clouds as ``[B, 3, N]``, moved and scaled into one box of diagonal 1, so that neither size nor place matters."""
    both = torch.stack([points.detach(), points_pair.detach()]).to("cpu", torch.float64)
    if not bool(torch.isfinite(both).all()):
        raise ValueError("points must be finite to be matched, got NaN or infinity")
    low = both.amin((0, 2), keepdim=True)
    diagonal = (both.amax((0, 2), keepdim=True) - low).norm(dim=3, keepdim=True)
    # All points in one place, or so close that squares would underflow without it.
    both = (both - low) / diagonal.clamp(min=torch.finfo(torch.float64).tiny)
    both = torch.nn.functional.pad(both, (0, 3 - both.shape[3])).transpose(2, 3).contiguous()
    return both[0].numpy(), both[1].numpy()


def _phases(eps: float) -> Array:
    """The falling ε of an auction, ``eps`` last."""
    last = max(eps, SMALLEST)
    count = max(0, math.ceil(math.log(FIRST / last, FALL)))
    phases: Array = last * FALL ** np.arange(count, -1, -1.0)
    return phases
