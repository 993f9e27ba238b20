"""Puzzle-mix masks: what each block costs, what each border costs, what λ says, and all K levels by one minimum cut per pair.

A mask gives every block one of L = d + 1 levels v ∈ {0 … d}; v/d is the partner's share there. The mask minimises

    E(v) = Σ_i [ v_i/d · cost_i − η/N · (v_i · logit λ + log C(d, v_i)) ] + Σ_(ij) w_ij |v_i − v_j|^q / d^q

over the grid of N blocks: cost_i is what is lost by showing the partner in block i, w_ij joins neighbours, and the binomial prior
of λ leaves, apart from a constant, one slope for all blocks and all steps. q is 1, 2 or 4.
"""

from collections.abc import Sequence
from math import comb, log, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import can_inspect, check_choice
from ...compiled import in_chunks, noticed
from ...devices import downloaded
from ...geometry.grid import block_means, cut_finer
from .problem import MOST_MEMORY, CutProblem
from .rof import rof_levels

Array = NDArray[np.float64]
LabelCost = Literal["l1", "l2", "l4"]
Backend = Literal["auto", "torch"]
OutOfRange = Literal["refuse", "clamp"]

# Costs are rounded to whole multiples of 2^−36, so that optima, ties and their order in λ are exact; sums stay below 2^62.
SCALE = 2.0**36
LARGEST = 2.0**62
EDGE = 1e-7
SLACK = 1e-3  # what rounding may add to pixels that were normalised and are taken back


class CutTerms(NamedTuple):
    """What does not depend on λ, in float64: ``cost [B, rows, columns]`` and weights ``down [B, rows − 1, columns]`` to the block
    below, ``right [B, rows, columns − 1]`` to the block on the right, all weights at least 0."""

    cost: Tensor
    down: Tensor
    right: Tensor


def slack_of(x: Tensor) -> float:
    """How far pixels of x may lie outside their range for the sake of rounding alone."""
    return SLACK + torch.finfo(x.dtype).eps


def cut_terms(
    x: Tensor,
    partner: Tensor,
    saliency: Tensor,
    *,
    beta: float = 1.2,
    gamma: float = 0.5,
    neighbourhood: int = 4,
    std: float | Sequence[float] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> CutTerms:
    """The terms for ``x [B, C, H, W]`` and its partners on the grid of ``saliency [B, rows, columns]``.

    With b = β / (16 √N) and D the mean difference of colours, times ``std``, of two blocks across their border,
    showing the partner costs the saliency it hides and bγ/2 times the differences it makes; an edge weighs
    b (1 + γ/2 (D(x, x') + D(x', x) − D(x, x) − D(x', x'))). Colours are averaged over ``neighbourhood`` places next to the
    border, or over the block if they do not fit into it twice. Without ``std`` x must be pixels in 0 … 1. The weights cannot be
    negative while γ times the range of ``std · x`` is at most 1; otherwise ``out_of_range`` says whether to refuse or to raise
    negative ones to 0.
    """
    seen = downloaded(*seen_colours(x, saliency.shape[1:], neighbourhood), saliency)
    return terms_of(x, partner, *seen, beta=beta, gamma=gamma, std=std, out_of_range=out_of_range)


def seen_colours(x: Tensor, grid: Sequence[int], neighbourhood: int) -> tuple[Tensor, Tensor]:
    """The mean colours of ``x [B, C, H, W]`` in cells of about ``neighbourhood`` places, and the bounds ``[2, 1 or C]`` of x."""
    x = x.detach()
    cells = [cut_finer(side, count, neighbourhood) for side, count in zip(x.shape[2:], grid, strict=True)]
    # Of the pixels, not of the averaged colours, so that they do not depend on the grid that was drawn.
    # By channel it is slower, but an accelerator is asked once only.
    bounds = x.aminmax() if can_inspect(x) else (x.amin((0, 2, 3)), x.amax((0, 2, 3)))
    return block_means(x.float(), (cells[0], cells[1])), torch.stack(list(bounds)).reshape(2, -1)


def terms_of(
    x: Tensor,
    partner: Tensor,
    colour: Tensor,
    bounds: Tensor,
    saliency: Tensor,
    *,
    beta: float,
    gamma: float,
    std: float | Sequence[float] | None,
    out_of_range: OutOfRange,
) -> CutTerms:
    """:func:`cut_terms` on the CPU, from what was seen of ``x`` and its saliency there."""
    rows, columns = saliency.shape[1:]
    deviation = torch.as_tensor(1.0 if std is None else std, dtype=torch.float32, device="cpu")
    if out_of_range == "refuse":
        _check_range(x.detach(), bounds, gamma, deviation, normalised=std is not None)
    colour, saliency = colour * deviation.reshape(-1, 1, 1), saliency.to(torch.float64)
    b = beta / (16 * sqrt(rows * columns))
    cost = saliency - saliency[partner]
    weights = []
    for axis in (2, 3):
        colour, cost = (colour, cost) if axis == 2 else (colour.transpose(2, 3), cost.transpose(1, 2))
        blocks = cost.shape[1]
        deep = colour.shape[2] // blocks
        before, after = colour[:, :, deep - 1 : -1 : deep], colour[:, :, deep::deep]
        across = cost.shape[2]
        same = _difference(before, after, across)
        own_pair = _difference(before, after[partner], across)
        pair_own = _difference(before[partner], after, across)
        pair_pair = same[partner]
        weights.append(b * (1 + gamma / 2 * (own_pair + pair_own - same - pair_pair)))
        cost = cost.clone()
        # Of the pair at a border, the first block is before it, the second after it.
        cost[:, :-1] += b * gamma / 2 * (pair_own + pair_pair - own_pair - same)
        cost[:, 1:] += b * gamma / 2 * (own_pair + pair_pair - pair_own - same)
    return CutTerms(cost.transpose(1, 2), weights[0].clamp(min=0), weights[1].transpose(1, 2).clamp(min=0))


def _difference(before: Tensor, after: Tensor, blocks: int) -> Tensor:
    """``[B, borders, blocks]`` in float64: the mean over channels and cells of |before − after| ``[B, C, borders, cells]``."""
    apart = (before - after).abs().mean(1)
    return apart.reshape(*apart.shape[:2], blocks, apart.shape[2] // blocks).mean(-1).to(torch.float64)


def _check_range(x: Tensor, bounds: Tensor, gamma: float, std: Tensor, *, normalised: bool) -> None:
    low, high = float(bounds[0].min()), float(bounds[1].max())
    slack = slack_of(x)
    if not normalised and not -slack <= low <= high <= 1 + slack:
        raise ValueError(
            f"x must be pixels in 0 … 1, got {low:.4g} … {high:.4g}: say with std= what they were divided by "
            "(1.0 if nothing), or, for values without bounds, out_of_range='clamp'"
        )
    widest = float(((bounds[1] - bounds[0]).float() * std).max())
    if gamma * widest > 1 + slack and can_inspect(x):
        widest = float(((x.amax((0, 2, 3)) - x.amin((0, 2, 3))).float() * std).max())  # channel by channel, which is slower
    if gamma * widest > 1 + slack:
        raise ValueError(
            f"gamma times the range of the pixels must be at most 1, got {gamma:g} · {widest:.4g}: "
            "std · x + mean should be pixels in 0 … 1; lower gamma, or raise negative weights to 0 with out_of_range='clamp'"
        )


def quantised(terms: CutTerms, lam: Tensor, labels: int, eta: float, cost: LabelCost) -> CutProblem:
    """``terms`` with the prior of ``lam [K, 1 or B]`` in whole numbers; base and slope are rounded apart, so that masks nest.

    λ is kept 10⁻⁷ away from 0 and 1, where the slope would be infinite.
    """
    d, power = labels - 1, int(cost[1])
    weight = eta / terms.cost[0].numel() * SCALE
    # In numpy, whose calls cost a fraction of torch's on arrays this small.
    costs, down, right, shares = (part.cpu().numpy() for part in (*terms, lam.detach().to(torch.float64)))
    shares = shares.clip(EDGE, 1 - EDGE)
    prior = np.array([log(comb(d, p + 1)) - log(comb(d, p)) for p in range(d)]) * weight
    base = costs[:, None] * (SCALE / d) - prior[:, None, None]
    down, right = down * (SCALE / d**power), right * (SCALE / d**power)
    slope = np.broadcast_to(np.log(shares / (1 - shares)) * weight, (len(shares), len(costs)))
    _check_size(base, slope, down, right, d**power)
    whole = [np.rint(part).astype(np.int64, order="C") for part in (base, down.clip(0), right.clip(0), slope)]
    bend = (1, *((gap + 1) ** power - 2 * gap**power + (gap - 1) ** power for gap in range(1, d)))
    base_, down_, right_, slope_ = map(torch.from_numpy, whole)
    return CutProblem(base_, down_, right_, slope_, bend)


def _check_size(base: Array, slope: Array, down: Array, right: Array, steepest: int) -> None:
    """Refuse what does not fit into whole numbers of 64 bits, with room for every sum the solvers make."""
    largest = np.abs(base).sum((1, 2, 3)) + base[0].size * np.abs(slope).max(0)
    largest = (largest + 2 * steepest * (np.abs(down).sum((1, 2)) + np.abs(right).sum((1, 2)))).max()
    if not largest < LARGEST:
        raise ValueError(
            f"the mask energy is too large to be solved exactly, got {largest / SCALE:.3g}: "
            "are x and the saliency finite, and beta and eta of ordinary size?"
        )


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
    device: torch.device | None = None,
) -> Tensor:
    """``[K, B, rows, columns]`` uint8 levels 0 … labels − 1: the smallest of the masks that minimise the energy, for every λ.

    ``lam [K, 1 or B]`` may come in any order; a larger λ never has the smaller level anywhere. λ = 0 is all 0 and λ = 1 all
    ``labels`` − 1, the limits of the prior. The result depends on nothing but a pair's own terms and λ.

    ``auto`` is the compiled solver, on the CPU; ``torch`` is :func:`.rof.rof_levels` on ``device`` (None: the terms'), whose
    memory does not grow with the square of the grid; it proves its masks and logs how many it could not prove.
    """
    check_choice("cost", cost, get_args(LabelCost))
    check_choice("backend", backend, get_args(Backend))
    check_labels_option(labels, cost)
    if max(terms.cost.shape[1:]) > MOST_BLOCKS:
        raise ValueError(f"blocks must be at most {MOST_BLOCKS} per side, got a grid of {list(terms.cost.shape[1:])}")
    problem = quantised(terms, lam, labels, eta, cost)
    if backend == "torch":
        levels = rof_levels(problem, device=device or terms.cost.device).levels
    else:
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
            f"{MOST_MEMORY / 2**30:g}: use fewer labels or blocks, or backend='torch'"
        )
    levels = torch.empty(len(problem.slope), batch, rows, columns, dtype=torch.uint8)
    base, down, right, slope = (part.numpy() for part in problem[:4])
    order = np.argsort(-slope, axis=0, kind="stable")
    arrays = (base, down, right, slope, order, np.array(problem.bend), levels.numpy())
    least = max(1, 20_000 // problem.base[0].numel())  # about a millisecond of work, below which a second thread costs more
    with noticed(cut_levels):
        in_chunks(lambda start, stop: cut_levels(*arrays, start, stop), batch, threads, least)
    return levels
