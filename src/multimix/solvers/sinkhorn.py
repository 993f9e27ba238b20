"""Entropic optimal transport between even weights, in the log domain: no kernel under- or overflows, however small ε is."""

import math

import torch
from torch import Tensor


def transport_plan(cost: Tensor, eps: float, rounds: int, tolerance: float) -> Tensor:
    """``P [B, n, m]``: of all P ≥ 0 with row sums 1/n and column sums 1/m nearly the one that minimises
    ⟨P, cost⟩ + ε Σ P (log P − 1).

    Sinkhorn's rounds, first the potential u of the rows, then v of the columns, from 0; at most ``rounds``, and no more once the
    mean over the batch of Σ|Δu| is below ``tolerance``. The columns were served last: their sums are exact up to rounding, those
    of the rows as good as the rounds made them.
    """
    _, n, m = cost.shape
    # In units of ε; a second copy, so that both sums run along memory.
    by_row = cost / -eps
    by_column = by_row.transpose(1, 2).contiguous()
    row_work, column_work = torch.empty_like(by_row), torch.empty_like(by_column)
    u, v = by_row.new_zeros(len(cost), n), by_row.new_zeros(len(cost), m)
    for _ in range(rounds):
        before = u
        u = -math.log(n) - _log_sums(by_row, v, row_work)
        v = -math.log(m) - _log_sums(by_column, u, column_work)
        if float((u - before).abs().sum(1).mean()) * eps < tolerance:
            break
    # The last v, exactly: as the exponential of a sum of large numbers the sums of columns would be off by per cents.
    return (by_column + u.unsqueeze(1)).softmax(2).transpose(1, 2) / m


def _log_sums(logs: Tensor, potential: Tensor, work: Tensor) -> Tensor:
    """``[B, n]``: log Σ_j exp(logs[B, n, j] + potential[B, j]), in the memory of ``work``."""
    torch.add(logs, potential.unsqueeze(1), out=work)
    top = work.amax(2)
    # Below e⁻⁸⁰ a term counts for nothing, but as a denormal number it would slow the rounds down, up to fourteen times.
    work.sub_(top.unsqueeze(2)).clamp_(min=-80.0).exp_()
    return top + work.sum(2).log_()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``[B, n, m]``: ‖a_i − b_j‖² between the columns of ``a [B, C, n]`` and ``b [B, C, m]``."""
    # About a common point near both, since the squares of a large shared offset would drown the differences.
    middle = a.mean(2, keepdim=True)
    a, b = a - middle, b - middle
    squares = a.square().sum(1).unsqueeze(2) + b.square().sum(1).unsqueeze(1)
    return torch.baddbmm(squares, a.transpose(1, 2), b, alpha=-2).clamp_(min=0)
