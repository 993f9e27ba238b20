"""Transport: which block of an image is shown at each place that the mask leaves visible."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...checks import check_choice, check_number
from ...compiled import in_chunks, noticed

Array = np.ndarray[Any, Any]
Rule = Literal["exact", "reference"]

LEAST = 2**16  # blocks: less than about a millisecond of work does not pay for a thread


def assigned_blocks(
    visible: Tensor,
    saliency: Tensor,
    eps: float,
    *,
    rule: Rule = "exact",
    threads: int | None = None,
) -> Tensor:
    """``[K, B, rows · columns]`` int32: which block, row by row, is shown at each place; its own where the place is hidden.

    ``visible [K, B, rows, columns]`` of bools says where this image shows, ``saliency [B, rows, columns]`` is at least 0 with
    sum 1. With d²(i, j) = ((r_i − r_j) / (rows − 1))² + ((c_i − c_j) / (columns − 1))² the rule ``exact`` minimises

        J = Σ over visible j of ε d²(source_j, j) − saliency[source_j],  visible sources distinct.

    ``reference`` is the rule of the public code: as many rounds as the longer side has blocks, in which each block bids
    ε d² − saliency where that is least and the lowest bid below 0 wins. It is not optimal, and where nobody won, the place keeps
    its own block, even if that block has won elsewhere; the public code leaves it blank.
    """
    check_number("eps", eps)
    check_choice("rule", rule, ("exact", "reference"))
    k, batch, rows, columns = visible.shape
    blocks = rows * columns
    source = torch.arange(blocks, dtype=torch.int32).repeat(k * batch, 1)
    arrays = (
        visible.to(torch.bool).reshape(-1, blocks).contiguous().numpy(),
        saliency.detach().to(torch.float64).reshape(-1, blocks).contiguous().numpy(),
        _moves(rows, eps),
        _moves(columns, eps),
        source.numpy(),
    )
    from . import assignment_kernel

    fill = assignment_kernel.exact if rule == "exact" else assignment_kernel.reference
    with noticed(fill):
        in_chunks(lambda start, stop: fill(*arrays, start, stop), k * batch, threads, max(1, LEAST // blocks))
    return source.reshape(k, batch, blocks)


def _moves(side: int, eps: float) -> Array:
    """What a move by 0, 1 … side − 1 blocks along this axis costs."""
    moves: Array = float(eps) * (np.arange(side) / max(side - 1, 1)) ** 2
    return moves
