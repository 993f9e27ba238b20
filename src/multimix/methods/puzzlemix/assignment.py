"""Transport: which block of an image is shown at each place that the mask leaves visible."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...checks import check_choice, check_number
from ...compiled import Backend, in_chunks, noticed, uses_numba

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
    backend: Backend = "auto",
) -> Tensor:
    """``[K, B, rows · columns]`` int32: which block, row by row, is shown at each place; its own where the place is hidden.

    ``visible [K, B, rows, columns]`` of bools says where this image shows, ``saliency [B, rows, columns]`` is at least 0 with
    sum 1. With d²(i, j) = ((r_i − r_j) / (rows − 1))² + ((c_i − c_j) / (columns − 1))² the rule ``exact`` minimises

        J = Σ over visible j of ε d²(source_j, j) − saliency[source_j],  visible sources distinct.

    ``reference`` is the rule of the public code: as many rounds as the longer side has blocks, in which each block bids
    ε d² − saliency where that is least and the lowest bid below 0 wins. It is not optimal, and where nobody won, the place keeps
    its own block, even if that block has won elsewhere; the public code leaves it blank.

    Without numba ``exact`` needs scipy; the cost J is the same, but of several optima another one may be returned.
    """
    check_number("eps", eps)
    check_choice("rule", rule, ("exact", "reference"))
    compiled = uses_numba(backend)
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
    if not compiled:
        (_fill_exact if rule == "exact" else _fill_reference)(*arrays)
        return source.reshape(k, batch, blocks)
    from . import assignment_kernel

    fill = assignment_kernel.exact if rule == "exact" else assignment_kernel.reference
    with noticed(fill):
        in_chunks(lambda start, stop: fill(*arrays, start, stop), k * batch, threads, max(1, LEAST // blocks))
    return source.reshape(k, batch, blocks)


def _moves(side: int, eps: float) -> Array:
    """What a move by 0, 1 … side − 1 blocks along this axis costs."""
    moves: Array = float(eps) * (np.arange(side) / max(side - 1, 1)) ** 2
    return moves


def _fill_exact(visible: Array, saliency: Array, down: Array, right: Array, source: Array) -> None:
    """``source`` by scipy, mask by mask: visible blocks and those that gain by a move, against the visible places."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise ImportError(
            "exact transport needs numba or scipy: install one of them (numba is fast), or use transport='none'"
        ) from None
    moves = _moves_between(down, right)
    for mask, shown in enumerate(visible):
        costs = moves[:, shown] - saliency[mask % len(saliency)][:, None]
        blocks = np.flatnonzero(shown | (costs < 0).any(1))
        chosen, places = linear_sum_assignment(costs[blocks])
        source[mask, np.flatnonzero(shown)[places]] = blocks[chosen]


def _fill_reference(visible: Array, saliency: Array, down: Array, right: Array, source: Array) -> None:
    """``source`` by the published rule, mask by mask. Only losers bid anew: the others would repeat their bids."""
    moves = _moves_between(down, right)
    every = np.arange(len(moves))
    for mask, shown in enumerate(visible):
        costs = np.where(shown, moves - saliency[mask % len(saliency)][:, None], np.inf)
        winners, losers, bids = every, every, every.copy()
        for _ in range(max(len(down), len(right))):
            bids[losers] = costs[losers].argmin(1)
            offers = costs[every, bids]
            ranked = np.argsort(offers, kind="stable")
            winners = ranked[np.unique(bids[ranked], return_index=True)[1]]
            winners = winners[offers[winners] < 0]
            losers = np.setdiff1d(np.flatnonzero(offers < 0), winners)
            costs[losers, bids[losers]] = np.inf
        source[mask, bids[winners]] = winners


def _moves_between(down: Array, right: Array) -> Array:
    """``[blocks, blocks]``: what moving a block to another's place costs."""
    row, column = np.divmod(np.arange(len(down) * len(right)), len(right))
    moves: Array = down[abs(row[:, None] - row)] + right[abs(column[:, None] - column)]
    return moves
