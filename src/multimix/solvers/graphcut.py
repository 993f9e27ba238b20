"""Exact masks: all K levels of all pairs, by one parametric minimum cut per pair."""

from typing import get_args

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice
from .compiled import Backend, in_chunks, noticed, uses_numba
from .energy import CutProblem, CutTerms, LabelCost, quantised

MOST_BLOCKS = 32  # per side: a row of blocks must fit half a word of the kernel


def solve_masks(
    terms: CutTerms,
    lam: Tensor,
    *,
    labels: int = 3,
    eta: float = 0.2,
    cost: LabelCost = "l2",
    threads: int | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """``[K, B, rows, columns]`` uint8 levels 0 … labels − 1: the smallest of the masks that minimise the energy, for every λ.

    ``lam [K, 1 or B]`` may come in any order; a larger λ never has the smaller level anywhere. λ = 0 is all 0 and λ = 1 all
    ``labels`` − 1, the limits of the prior. The result depends on nothing but a pair's own terms and λ.
    """
    check_choice("cost", cost, get_args(LabelCost))
    if not 2 <= labels <= 256:
        raise ValueError(f"labels must lie in 2 … 256, got {labels}")
    if max(terms.cost.shape[1:]) > MOST_BLOCKS:
        raise ValueError(f"blocks must be at most {MOST_BLOCKS} per side, got a grid of {list(terms.cost.shape[1:])}")
    levels = problem_levels(quantised(terms, lam, labels, eta, cost), threads=threads, backend=backend)
    share = np.broadcast_to(lam.cpu().numpy(), levels.shape[:2])
    levels.numpy()[share <= 0] = 0
    levels.numpy()[share >= 1] = labels - 1
    return levels


def problem_levels(problem: CutProblem, *, threads: int | None = None, backend: Backend = "auto") -> Tensor:
    """``[K, B, rows, columns]`` uint8: the smallest minimisers of a problem in whole numbers."""
    if not uses_numba(backend):
        from .rof import rof_levels

        return rof_levels(problem).levels
    from .graphcut_kernel import cut_levels

    batch, _, rows, columns = problem.base.shape
    levels = torch.empty(len(problem.slope), batch, rows, columns, dtype=torch.uint8)
    base, down, right, slope = (part.numpy() for part in problem[:4])
    order = np.argsort(-slope, axis=0, kind="stable")
    arrays = (base, down, right, slope, order, np.array(problem.bend), levels.numpy())
    least = max(1, 20_000 // problem.base[0].numel())  # about a millisecond of work, below which a second thread costs more
    with noticed(cut_levels):
        in_chunks(lambda start, stop: cut_levels(*arrays, start, stop), batch, threads, least)
    return levels
