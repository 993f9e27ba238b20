"""Co-Mixup, compiled: parts of a batch, one after the other; in each K priors, sweeps over its outputs, one output at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import kernel
from .blocks import Board, solve_board
from .compiled import digest, inner
from .part import (
    Part,
    Weights,
    count_output,
    fill_push,
    find_parents,
    keep_apart,
    objective,
    output_cost,
    pushed_together,
    take_output,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EXTRA = 3  # labels that show two inputs half and half
MOST_STATES = 2048  # of the table of a front: some microseconds for each block


@inner
def solve_parts(
    held: Floats,
    tilt: Floats,
    affinity: Floats,
    start: Ints,
    edges: Ints,
    beside: Ints,
    weights: Weights,
    first: Ints,
    second: Ints,
    exact: Ints,
    begin: int,
    end: int,
) -> None:
    """Fill ``first``, ``second [K, B, N]``, indices within a part, for the parts ``begin … end − 1``.

    ``exact [parts, 2]`` counts outputs solved, and among them those solved exactly.
    """
    blocks = held.shape[1]
    for p in range(begin, end):
        low, high = edges[p], edges[p + 1]
        m = high - low
        part = new_part(start[low:high], affinity[p, :m, :m], beside)
        board = new_board(blocks, m + EXTRA, beside)
        for k in range(len(tilt)):
            if k > 0 and weights.fresh:
                part.first[:] = start[low:high]
                part.second[:] = start[low:high]
            for a in range(m):
                for i in range(blocks):
                    part.base[a, i] = tilt[k, low + a] - held[low + a, i]
                    part.whole[a, i] = np.int64(np.rint(part.base[a, i] * weights.scale))
            solve_part(part, board, weights, k > 0 and not weights.fresh, exact[p])
            first[k, low:high] = part.first
            second[k, low:high] = part.second


@inner
def new_part(start: Ints, affinity: Floats, beside: Ints) -> Part:
    """Memory for one part, its outputs as they start."""
    m, blocks = start.shape
    return Part(
        np.empty((m, blocks)),
        np.empty((m, blocks), np.int64),
        affinity,
        start.copy(),
        start.copy(),
        np.zeros((m, m), np.int64),
        np.zeros(m, np.int64),
        np.zeros((m, m)),
        np.zeros((m, m), np.int64),
        np.zeros((EXTRA, 2), np.int64),
        np.zeros(m, np.int64),
        beside,
    )


@inner
def new_board(blocks: int, labels: int, beside: Ints) -> Board:
    """Memory for one output."""
    return Board(
        np.zeros((blocks, labels), np.int64),
        np.zeros((labels, labels), np.int64),
        beside,
        np.zeros(blocks, np.int64),
        np.zeros((blocks, labels), np.int64),
        np.zeros(blocks, np.int64),
        np.zeros((blocks, labels), np.uint8),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
        np.zeros(MOST_STATES, np.int64),
        np.zeros(MOST_STATES, np.int64),
        np.empty(blocks * MOST_STATES, np.uint8),
        np.zeros(16, np.int64),
        np.zeros((blocks, 20), np.int64),
        np.zeros(blocks, np.int64),
        np.zeros((8, blocks), np.int64),
    )


@inner
def solve_part(part: Part, board: Board, weights: Weights, warm: bool, exact: Ints) -> None:
    """The published sweeps, until the objective stands still, then those that never raise what the outputs cost.

    In the last of the published ones, or once all stands still, outputs of the same inputs are asked to differ.
    """
    part.apart[:] = 0
    part.total[:] = 0
    part.tally[:] = 0
    for j in range(len(part.first)):
        count_output(part, j)
    before = objective(part, weights)
    last = False
    for sweep in range(weights.sweeps):
        run_sweep(part, board, weights, weights.soft_labels and (warm or sweep > 0), False, exact)
        now = objective(part, weights)
        still = abs(now - before) < weights.tolerance * abs(now)
        before = now
        if last:
            break
        if weights.resolve and sweep < weights.sweeps - 1 and (still or sweep == weights.sweeps - 2):
            last = keep_apart(part)
        if still and not last:
            break
    for _ in range(weights.descent):
        if not run_sweep(part, board, weights, weights.soft_labels, True, exact):
            break


@inner
def run_sweep(part: Part, board: Board, weights: Weights, soft: bool, descent: bool, exact: Ints) -> bool:
    """All outputs anew, one after the other, each given the others; whether any changed.

    With ``descent`` an output stays as it is where the outputs together would cost more.
    """
    changed = False
    together = pushed_together(part, weights) if descent else 0.0
    first, second = np.empty_like(part.first[0]), np.empty_like(part.first[0])
    for j in range(len(part.first)):
        first[:], second[:] = part.first[j], part.second[j]
        own = output_cost(part, weights, j)
        take_output(part, j)
        labels = fill_board(part, board, weights, j, soft)
        exact[0] += 1
        exact[1] += solve_board(board, labels, len(part.total))
        read_board(part, board, j)
        count_output(part, j)
        if not descent:
            continue
        now = pushed_together(part, weights)
        if output_cost(part, weights, j) + now < own + together:
            together = now
            changed = True
        else:
            take_output(part, j)
            part.first[j], part.second[j] = first, second
            count_output(part, j)
    return changed


@inner
def fill_board(part: Part, board: Board, weights: Weights, j: int, soft: bool) -> int:
    """Costs, borders and starting labels of output j; the number of its labels."""
    m, blocks = part.base.shape
    fill_push(part, weights, j)
    pairs = find_parents(part, j) if soft else 0
    bonus = np.int64(np.rint(weights.bonus * weights.scale))
    for i in range(blocks):
        for k in range(m):
            board.cost[i, k] = part.whole[k, i] + part.push[k]
        for e in range(pairs):
            board.cost[i, m + e] = (board.cost[i, part.parents[e, 0]] + board.cost[i, part.parents[e, 1]]) // 2 - bonus
        board.label[i] = part.first[j, i]
        for e in range(pairs):
            if part.first[j, i] == part.parents[e, 0] and part.second[j, i] == part.parents[e, 1]:
                board.label[i] = m + e
    quarter = np.int64(np.rint(weights.beta * weights.scale / 4))
    for a in range(m + pairs):
        for b in range(a + 1):
            parts = border(a, b, m, part.parents, weights.own_borders)
            board.near[a, b] = board.near[b, a] = parts * quarter
    return int(m + pairs)


@inner
def border(a: int, b: int, m: int, parents: Ints, own: bool) -> int:
    """Quarters of β between labels a ≥ b: 2 ‖o_a − o_b‖² if ``own``; as in the reference code 1 to a parent, 4 to all others."""
    if a == b:
        return 0
    if a < m:
        return 4
    if b < m:
        return 1 if b == parents[a - m, 0] or b == parents[a - m, 1] else 3 if own else 4
    return 1 if own else 4  # two of three inputs each: one of them is the same


@inner
def read_board(part: Part, board: Board, j: int) -> None:
    """The labels found, as inputs that output j shows."""
    m = len(part.total)
    for i in range(len(board.label)):
        label = board.label[i]
        part.first[j, i] = label if label < m else part.parents[label - m, 0]
        part.second[j, i] = label if label < m else part.parents[label - m, 1]


def kept(identity: str) -> Callable[..., Any]:
    """:func:`solve_parts` as a kernel that is kept on disk under ``identity``."""

    def solve_kept(*arguments: Any) -> None:
        if len(identity) > 0:
            solve_parts(*arguments)

    return kernel(solve_kept)


solve_all = kept(digest())
