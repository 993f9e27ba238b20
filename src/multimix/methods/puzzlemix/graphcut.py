"""Exact masks: all K levels of all pairs, by one parametric minimum cut per pair."""

from typing import get_args

import numpy as np
import torch
from torch import Tensor

from ...checks import check_choice
from ...compiled import in_chunks, noticed
from .energy import CutProblem, CutTerms, LabelCost, quantised

MOST_MEMORY = 2**30  # bytes of the kernel's layers, which grow with the square of the number of labels
MOST_BLOCKS = 32  # per side: a row of blocks must fit half a word of the kernel


def solve_masks(
    terms: CutTerms,
    lam: Tensor,
    *,
    labels: int = 3,
    eta: float = 0.2,
    cost: LabelCost = "l2",
    threads: int | None = None,
) -> Tensor:
    """``[K, B, rows, columns]`` uint8 levels 0 … labels − 1: the smallest of the masks that minimise the energy, for every λ.

    ``lam [K, 1 or B]`` may come in any order; a larger λ never has the smaller level anywhere. λ = 0 is all 0 and λ = 1 all
    ``labels`` − 1, the limits of the prior. The result depends on nothing but a pair's own terms and λ.
    """
    check_choice("cost", cost, get_args(LabelCost))
    check_labels_option(labels, cost)
    if max(terms.cost.shape[1:]) > MOST_BLOCKS:
        raise ValueError(f"blocks must be at most {MOST_BLOCKS} per side, got a grid of {list(terms.cost.shape[1:])}")
    problem = quantised(terms, lam, labels, eta, cost)
    levels = problem_levels(problem, threads=threads)
    share = np.broadcast_to(lam.detach().cpu().numpy(), levels.shape[:2])
    levels.numpy()[share <= 0] = 0
    levels.numpy()[share >= 1] = labels - 1
    return levels


def check_labels_option(labels: int, cost: LabelCost) -> None:
    """Raise ValueError unless ``labels`` is a number of values a mask can have."""
    # A step costs a d^−4th of the weight with l4: with more labels rounding to whole numbers would take too much of it.
    most = 32 if cost == "l4" else 256
    if not isinstance(labels, int) or not 2 <= labels <= most:
        raise ValueError(f"labels must be a whole number in 2 … {most} with cost={cost!r}, got {labels!r}")


def problem_levels(problem: CutProblem, *, threads: int | None = None) -> Tensor:
    """``[K, B, rows, columns]`` uint8: the smallest minimisers of a problem in whole numbers, found on the CPU."""
    from .graphcut_kernel import cut_levels

    batch, steps, rows, columns = problem.base.shape
    memory = (steps * rows * columns + 2) * steps * (rows * columns / 64 + 3) * 8
    if memory > MOST_MEMORY:
        raise ValueError(
            f"{steps + 1} labels on {rows} × {columns} blocks need {memory / 2**30:.1f} GB for each thread, more than "
            f"{MOST_MEMORY / 2**30:g}: use fewer labels or blocks"
        )
    levels = torch.empty(len(problem.slope), batch, rows, columns, dtype=torch.uint8)
    base, down, right, slope = (part.numpy() for part in problem[:4])
    order = np.argsort(-slope, axis=0, kind="stable")
    arrays = (base, down, right, slope, order, np.array(problem.bend), levels.numpy())
    least = max(1, 20_000 // problem.base[0].numel())  # about a millisecond of work, below which a second thread costs more
    with noticed(cut_levels):
        in_chunks(lambda start, stop: cut_levels(*arrays, start, stop), batch, threads, least)
    return levels
