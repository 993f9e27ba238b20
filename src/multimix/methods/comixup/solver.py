"""The Co-Mixup objective and its solver: all outputs of a part of the batch, jointly, for K priors.

A part has m inputs and m outputs on a grid of N blocks. Output j shows at block i the mixture o_ji of inputs, one of them or two
half and half; c_j = Σ_i o_ji. With b = β/N, g = γ/N, t = τN, compatibility A and the prior α the sweeps work on

    Σ_ji o_ji · u_i + b/2 Σ_j Σ_{i~i'} ‖o_ji − o_ji'‖² + g Σ_j c_j · push(A p_j),  p_j = Σ_{j' ≠ j} c_j'
    u_ki = −s_k(i) − η/N · log(α_k + 10⁻⁸)

where push(q) is q where it exceeds t, and 0 elsewhere (``hard``), or what exceeds t (``soft``). One output after the other is
solved for its blocks, with twice the push of the others as a cost of each input: the gradient, were there no threshold.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ...compiled import Backend, in_chunks, noticed, uses_numba

Rule = Literal["hard", "soft"]
Precedence = Literal["intended", "reference"]
Borders = Literal["objective", "reference"]
Start = Literal["previous", "fresh"]

FLOOR = 1e-8  # keeps the logarithm of the prior finite
BONUS = 5e-4  # what two inputs half and half cost less than the mean of both
TOLERANCE = 1e-6
MOST_INPUTS = 200  # of a part: labels of a block are kept in one byte
FINEST, BITS = 36, 60  # costs are multiples of 2⁻³⁶, or coarser if their sums would not fit 60 bits


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The weights of the objective and how it is gone about; see :class:`multimix.CoMixup`."""

    beta: float = 0.32
    gamma: float = 1.0
    eta: float = 0.05
    tau: float = 0.83
    sweeps: int = 4
    soft_labels: bool = True
    resolve: bool = True
    rule: Rule = "hard"
    precedence: Precedence = "intended"
    borders: Borders = "objective"
    start: Start = "previous"
    descent: int = 1


class Groups(NamedTuple):
    """Parts of a batch to be mixed, part after part: inputs ``edges[p] … edges[p + 1] − 1`` belong to part p."""

    held: Tensor
    """``[B, rows, columns]``: what each block holds of a sample's saliency, sum 1 per sample."""

    prior: Tensor
    """``[K, B]``: the weight of each input in its part."""

    affinity: Tensor
    """``[parts, m, m]``: compatibility, 0 where a part is smaller."""

    start: Tensor
    """``[B, rows, columns]``: the input, counted within the part, that each output shows before the first sweep."""

    edges: tuple[int, ...]


class Shown(NamedTuple):
    """The two inputs that every block of every output shows half and half, twice the same where it is one.

    ``first`` and ``second`` are ``[K, B, rows, columns]``, indices into the batch, first ≤ second. ``exact`` is the share of the
    solves of one output that are certainly best.
    """

    first: Tensor
    second: Tensor
    exact: float


def part_edges(batch: int, part: int) -> tuple[int, ...]:
    """Where parts of ``part`` samples begin, and the batch itself; the last one may be smaller."""
    return (*range(0, batch, part), batch)


def compatibility(saliency: Tensor, edges: tuple[int, ...], *, omega: float, window: int = 8, stride: int = 1) -> Tensor:
    """``[parts, m, m]``: A = (1 − ω) I + ω m Δ / ΣΔ, Δ the L1 distances between the most salient windows of two samples.

    ``saliency`` is ``[B, H, W]``; windows have ``window`` places a side, or as many as there are. If all peaks of a part coincide
    there is nothing to tell inputs apart: Δ counts as 0.
    """
    sides = [min(window, side) for side in saliency.shape[1:]]
    pooled = avg_pool2d(saliency.double().unsqueeze(1), sides, stride=stride).squeeze(1)
    peak = pooled.flatten(1).argmax(1)
    place = torch.stack([peak // pooled.shape[2], peak % pooled.shape[2]], 1).double()
    most = max(high - low for low, high in pairwise(edges))
    found = torch.zeros(len(edges) - 1, most, most, dtype=torch.float64)
    for p, (low, high) in enumerate(pairwise(edges)):
        here = place[low:high]
        apart = (here[:, None] - here[None]).abs().sum(2).cpu()
        total = float(apart.sum())
        found[p, : high - low, : high - low] = (1 - omega) * torch.eye(high - low, dtype=torch.float64)
        if total > 0:
            found[p, : high - low, : high - low] += omega * (high - low) * apart / total
    return found


def solve_groups(groups: Groups, rules: Rules, *, threads: int | None = None, backend: Backend = "auto") -> Shown:
    """What every output shows, for each of the K priors; it depends on nothing but a part's own inputs."""
    held = groups.held.detach().cpu().double()
    batch, rows, columns = held.shape
    k, edges = len(groups.prior), groups.edges
    # Lines along the shorter side keep the front of the elimination short.
    turned = columns > rows
    short = min(rows, columns)

    def numbered(grid: Tensor) -> NDArray[Any]:
        return (grid.mT if turned else grid).reshape(batch, -1).contiguous().numpy()

    tilt = -rules.eta / (rows * columns) * (groups.prior.double() + FLOOR).log()
    first, second = np.empty((2, k, batch, rows * columns), np.int64)
    exact = np.zeros((len(edges) - 1, 2), np.int64)
    arrays = (
        numbered(held),
        tilt.contiguous().numpy(),
        groups.affinity.double().contiguous().numpy(),
        numbered(groups.start.long()),
        np.array(edges),
        neighbours(rows * columns // short, short),
    )
    found = (first, second, exact)
    if uses_numba(backend):
        from .kernel import solve_all
        from .part import Weights

        weights = Weights(**block_weights(rules, groups))
        with noticed(solve_all):
            in_chunks(lambda low, high: solve_all(*arrays, weights, *found, low, high), len(edges) - 1, threads)
    else:
        from .numpy_solver import solve_parts as solve_slowly

        solve_slowly(*arrays, block_weights(rules, groups), *found)
    offset = torch.tensor(edges[:-1]).repeat_interleave(torch.tensor(edges).diff())[None, :, None]
    shown = [(torch.from_numpy(part) + offset).view(k, batch, rows * columns // short, short) for part in (first, second)]
    shown = [(part.mT if turned else part).contiguous() for part in shown]
    return Shown(shown[0], shown[1], float(exact[:, 1].sum() / exact[:, 0].sum()))


def block_weights(rules: Rules, groups: Groups) -> dict[str, Any]:
    """The numbers a kernel needs; ``scale`` turns costs into whole numbers."""
    blocks = groups.held[0].numel()
    gamma = rules.gamma / blocks
    inputs = groups.affinity.shape[1]
    least = float(groups.prior.min()) + FLOOR
    largest = 1 + rules.eta * abs(math.log(least)) + 2 * gamma * inputs * blocks * float(groups.affinity.abs().max()) + gamma
    largest += 4 * rules.beta + BONUS
    return {
        "beta": rules.beta / blocks,
        "gamma": gamma,
        "tau": float(rules.tau * blocks),  # of one type always: another would be compiled for anew
        "bonus": BONUS,
        "tolerance": TOLERANCE,
        "sweeps": int(rules.sweeps),
        "rule": 2 if rules.rule == "soft" else int(rules.precedence == "reference"),
        "soft_labels": bool(rules.soft_labels),
        "resolve": bool(rules.resolve),
        "own_borders": rules.borders == "objective",
        "fresh": rules.start == "fresh",
        "descent": int(rules.descent),
        "scale": 2.0 ** min(FINEST, BITS - math.ceil(math.log2(largest * blocks))),
    }


@lru_cache(maxsize=64)
def neighbours(lines: int, length: int) -> NDArray[np.int64]:
    """``[lines · length, 4]``: the blocks after, before, below and above each block; −1 where there is none."""
    number = np.pad(np.arange(lines * length).reshape(lines, length), 1, constant_values=-1)
    around = (number[1:-1, 2:], number[1:-1, :-2], number[2:, 1:-1], number[:-2, 1:-1])
    return np.ascontiguousarray(np.stack(around, 2).reshape(-1, 4))
