"""Co-Mixup, compiled: parts of a batch, one after the other; in each K priors, sweeps over its outputs, one output at a time."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import inner, kernel
from .blocks import FEW, solve_board
from .board import Board, Ints

Floats = NDArray[np.float64]

EXTRA = 3  # labels that show two inputs half and half
MOST_STATES = 2048  # of the table of a front: some microseconds for each block


class Weights(NamedTuple):
    """The numbers of :class:`multimix.CoMixup`, per block where they are so; ``scale`` turns costs into whole numbers."""

    beta: float
    gamma: float
    tau: float
    bonus: float
    tolerance: float
    sweeps: int
    rule: int  # 0 hard, 1 hard as in the reference code, 2 soft
    soft_labels: bool
    resolve: bool
    own_borders: bool
    fresh: bool
    descent: int
    scale: float


class Part(NamedTuple):
    """A part at work: m inputs, m outputs of N blocks, two inputs for each block (twice the same if it shows one)."""

    base: Floats  # [N, m]: what input k costs at block i
    whole: Ints  # [m, N]: the same as whole numbers
    least: Ints  # [m]: of an input, over the blocks
    most: Ints
    affinity: Floats
    first: Ints  # [m, N] by output, as is second
    second: Ints
    tally: Ints  # [m, m]: twice how often output j shows input k
    total: Ints
    reach: Floats  # [m, m]: A c_j
    apart: Ints  # [m, m]: 1 where output j is asked to leave input k to another
    parents: Ints  # [3, 2]: of the labels that show two inputs
    push: Ints
    beside: Ints


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
            fill_base(part, held[low:high], tilt[k, low:high], weights.scale)
            solve_part(part, board, weights, k > 0 and not weights.fresh, exact[p])
            first[k, low:high] = part.first
            second[k, low:high] = part.second


@inner
def fill_base(part: Part, held: Floats, tilt: Floats, scale: float) -> None:
    """What every input costs at every block, as it is and as a whole number."""
    base, whole, least, most = part.base, part.whole, part.least, part.most
    for a in range(len(tilt)):
        for i in range(len(base)):
            base[i, a] = tilt[a] - held[a, i]
            whole[a, i] = np.int64(np.rint(base[i, a] * scale))
        least[a], most[a] = whole[a].min(), whole[a].max()


@inner
def new_part(start: Ints, affinity: Floats, beside: Ints) -> Part:
    """Memory for one part, its outputs as they start."""
    m, blocks = start.shape
    return Part(
        np.empty((blocks, m)),
        np.empty((m, blocks), np.int64),
        np.empty(m, np.int64),
        np.empty(m, np.int64),
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
        np.zeros((labels + 1, labels + 1), np.int64),
        beside,
        np.full(blocks + 1, labels),
        np.zeros(labels, np.int64),
        np.zeros((blocks + 1, 1), np.uint8) + np.arange(labels).astype(np.uint8),  # NOBODY may have any
        np.zeros(blocks, np.int64),
        np.zeros((blocks, labels + 1), np.uint8),
        np.zeros(blocks + 1, np.int64),
        np.zeros((FEW * FEW << FEW) + 4 * labels, np.int64),
        np.ones((FEW << FEW) + labels, np.uint8),
        np.zeros(blocks, np.uint8),
        np.zeros(blocks, np.int64),
        np.zeros((blocks, 4), np.int64),
        np.zeros(MOST_STATES, np.int64),
        np.zeros(MOST_STATES, np.int64),
        np.zeros((2, MOST_STATES), np.int64),
        np.empty(blocks * MOST_STATES, np.uint8),
        np.zeros(16, np.int64),
        np.zeros((blocks, 20), np.int64),
        np.zeros(blocks, np.int64),
        np.zeros((9, blocks + 1), np.int64),
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
        own = output_cost(part, weights, j) if descent else 0.0
        take_output(part, j)
        labels, plain, border = fill_board(part, board, weights, j, soft)
        exact[0] += 1
        exact[1] += solve_board(board, labels, plain, border)
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
def fill_board(part: Part, board: Board, weights: Weights, j: int, soft: bool) -> tuple[int, int, int]:
    """Costs, borders and starting labels of output j.

    The number of labels that may be best somewhere, how many of these show one input, and the dearest border.
    """
    blocks, m = part.base.shape
    fill_push(part, weights, j)
    pairs = find_parents(part, j) if soft else 0
    bonus, quarter = np.int64(np.rint(weights.bonus * weights.scale)), np.int64(np.rint(weights.beta * weights.scale / 4))
    dearest = 4 * quarter if m > 1 else 0
    labels = list_active(part, board, pairs, bonus, dearest)
    cost, near, whole, push, parents = board.cost, board.near, part.whole, part.push, part.parents
    place, plain = np.full(m + EXTRA, len(near) - 1), 0  # where a label is among the active ones
    for at in range(labels):
        label = board.active[at]
        place[label] = at
        plain += label < m
        for other in range(at + 1):
            near[at, other] = near[other, at] = quarter * border(label, board.active[other], m, parents, weights.own_borders)
        a, b = (label, label) if label < m else (parents[label - m, 0], parents[label - m, 1])
        pushed, less = push[a] + push[b], bonus if label >= m else 0
        for i in range(blocks):
            cost[i, at] = (whole[a, i] + whole[b, i] + pushed) // 2 - less
    first, second = part.first[j], part.second[j]
    for i in range(blocks):
        board.label[i] = place[first[i]]
        for e in range(pairs):
            if first[i] == parents[e, 0] and second[i] == parents[e, 1]:
                board.label[i] = place[m + e]
    return labels, plain, dearest


@inner
def list_active(part: Part, board: Board, pairs: int, bonus: int, dearest: int) -> int:
    """The number of labels that may be best at some block, put into ``board.active``: most inputs are shown by others already."""
    least, push, active = part.least, part.push, board.active
    m = len(push)
    bound = part.most[0] + push[0]
    for k in range(1, m):
        bound = min(bound, part.most[k] + push[k])
    count = 0
    for k in range(m + pairs):
        if k < m:
            lowest = least[k] + push[k]
        else:
            a, b = part.parents[k - m, 0], part.parents[k - m, 1]
            lowest = (least[a] + push[a] + least[b] + push[b]) // 2 - bonus
        if lowest <= bound + 4 * dearest:
            active[count] = k
            count += 1
    return count


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
    for i in range(len(board.many)):
        label = board.active[board.label[i]]
        part.first[j, i] = label if label < m else part.parents[label - m, 0]
        part.second[j, i] = label if label < m else part.parents[label - m, 1]


@inner
def count_output(part: Part, j: int) -> None:
    """Count what output j shows, and add it to the total."""
    first, second, tally = part.first[j], part.second[j], part.tally[j]
    tally[:] = 0
    for i in range(len(first)):
        tally[first[i]] += 1
        tally[second[i]] += 1
    m = len(part.total)
    reach, affinity = part.reach[j], part.affinity
    reach[:] = 0.0
    for k in range(m):
        part.total[k] += tally[k]
        if tally[k] > 0:
            for other in range(m):  # A is symmetric
                reach[other] += affinity[k, other] * (0.5 * tally[k])


@inner
def take_output(part: Part, j: int) -> None:
    """Take output j out of the total."""
    for k in range(len(part.total)):
        part.total[k] -= part.tally[j, k]


@inner
def fill_push(part: Part, weights: Weights, j: int) -> None:
    """What input k costs output j at every block because the other outputs show it, or must be left to another."""
    m = len(part.total)
    shown, affinity = np.zeros(m), part.affinity
    for other in range(m):
        half = 0.5 * part.total[other]
        for k in range(m):  # A is symmetric
            shown[k] += affinity[other, k] * half
    for k in range(m):
        pushed = 0.0
        if weights.rule == 1:
            for other in range(m):
                if shown[other] > weights.tau:
                    pushed += part.affinity[k, other] * (0.5 * part.total[other])
        elif shown[k] > weights.tau:
            pushed = shown[k] - weights.tau if weights.rule == 2 else shown[k]
        cost = 2 * weights.gamma * pushed + weights.gamma * part.apart[j, k]
        part.push[k] = np.int64(np.rint(cost * weights.scale))


@inner
def find_parents(part: Part, j: int) -> int:
    """The pairs of the two or three inputs that output j shows most, first those of lower index where they show alike."""
    top = np.full(3, -1)
    for k in range(len(part.total)):
        at = 0
        while at < 3 and top[at] >= 0 and part.tally[j, k] <= part.tally[j, top[at]]:
            at += 1
        if part.tally[j, k] == 0 or at == 3:
            continue
        for later in range(2, at, -1):
            top[later] = top[later - 1]
        top[at] = k
    top.sort()
    if top[1] < 0:
        return 0
    pairs = 0
    for a in range(3):
        for b in range(a + 1, 3):
            if top[a] >= 0:
                part.parents[pairs, 0], part.parents[pairs, 1] = top[a], top[b]
                pairs += 1
    return pairs


@inner
def keep_apart(part: Part) -> bool:
    """For outputs of the same two or more inputs: the first one gives up the first input, the other the second."""
    m = len(part.total)
    found = False
    for j in range(m):
        for other in range(j + 1, m):
            alike, first, second = True, -1, -1
            for k in range(m):
                used = part.tally[j, k] > 0
                alike &= used == (part.tally[other, k] > 0)
                if used and first < 0:
                    first = k
                elif used and second < 0:
                    second = k
            if alike and second >= 0:
                part.apart[j, first] = 1
                part.apart[other, second] = 1
                found = True
    return found


@inner
def pushed_together(part: Part, weights: Weights) -> float:
    """g Σ_j c_j · push(A p_j): what outputs cost because they show the same inputs."""
    m = len(part.total)
    value = 0.0
    whole = np.zeros(m)
    for j in range(m):
        for k in range(m):
            whole[k] += part.reach[j, k]
    for j in range(m):
        for k in range(m):
            if part.tally[j, k] == 0 and weights.rule != 1:
                continue
            others = whole[k] - part.reach[j, k]
            if others <= weights.tau:
                continue
            if weights.rule == 1:  # c_j · A (v ∘ p_j), and A is symmetric
                value += part.reach[j, k] * 0.5 * (part.total[k] - part.tally[j, k])
            else:
                value += 0.5 * part.tally[j, k] * (others - weights.tau if weights.rule == 2 else others)
    return weights.gamma * value


@inner
def output_cost(part: Part, weights: Weights, j: int) -> float:
    """Unary and smoothness of output j, and what it was asked to leave."""
    value = 0.0
    base, beside, apart, first, second = part.base, part.beside, part.apart[j], part.first[j], part.second[j]
    for i in range(len(first)):
        a, b = first[i], second[i]
        value += 0.5 * (base[i, a] + base[i, b] + weights.gamma * (apart[a] + apart[b]))
        for d in (0, 2):
            near = beside[i, d]
            if near >= 0 and (a != first[near] or b != second[near]):
                c, e = first[near], second[near]
                same = (a == c) + (a == e) + (b == c) + (b == e)
                own = 2 + 2 * (a == b) + 2 + 2 * (c == e)
                value += 0.125 * weights.beta * (own - 2 * same)
    return value


@inner
def objective(part: Part, weights: Weights) -> float:
    """Unary, smoothness, and diversity without threshold and compatibility: what the reference code watches."""
    m = len(part.total)
    value, overlap = 0.0, 0
    for j in range(m):
        value += output_cost(part, weights, j)
        overlap += part.total[j] ** 2
        for k in range(m):
            overlap -= part.tally[j, k] ** 2
    return value + weights.gamma * 0.25 * overlap


def kept(identity: str) -> Callable[..., Any]:
    """:func:`solve_parts` as a kernel that is kept on disk under ``identity``.

    numba takes what it has kept for fresh as long as the file of the outermost function is the same, whatever has become of files
    that it imports. So only the outermost function is kept, and a digest of all files is part of its identity.
    """

    def solve_kept(*arguments: Any) -> None:
        if len(identity) > 0:
            solve_parts(*arguments)

    return kernel(solve_kept)


solve_all = kept(
    sha256(
        b"".join((Path(__file__).parent / name).read_bytes() for name in ("blocks.py", "board.py", "moves.py", "kernel.py"))
    ).hexdigest()
)
