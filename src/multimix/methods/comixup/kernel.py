"""Co-Mixup, compiled: sweeps over the outputs of one part, each solved given the others."""

from typing import NamedTuple

import numpy as np

from ...core.compiled import inlined, inner, kernel
from .board import (
    ABOVE_ALL_COSTS,
    COUNT,
    HALF_LABELS,
    PLACE,
    TOTAL,
    Board,
    Floats,
    Ints,
)
from .board_kernel import solve_board


class Weights(NamedTuple):
    """The options of :class:`multimix.CoMixup`, per block where that applies."""

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
    descent: int
    scale: float  # turns costs into integers


class Part(NamedTuple):
    """m inputs and m outputs of N blocks, which show two inputs each (twice the same if one)."""

    base: Floats  # [N, m]: the cost of input k at block i
    whole: Ints  # [m, N]: the same as integers
    affinity: Floats  # [m, m]
    beside: Ints  # [N, 4]
    first: Ints  # [m, N] by output, as is second
    second: Ints
    tally: Ints  # [m, m]: twice how often output j shows input k
    total: Ints  # [m]: the sum of tally over the outputs
    reach: Floats  # [m, m]: A c_j
    apart: Ints  # [m, m]: 1 where output j is asked to leave input k to another
    parents: Ints  # [3, 2] of the labels that show two inputs
    push: Ints  # [m]: the cost of each input because of the other outputs
    sums: Floats  # [m]: memory
    saved: Ints  # [2, N]: an output before it is solved


def new_part(start: Ints, affinity: Floats, beside: Ints) -> Part:
    """Allocate a part whose outputs show ``start [m, N]``."""
    m, blocks = start.shape
    return Part(
        base=np.empty((blocks, m)),
        whole=np.empty((m, blocks), np.int64),
        affinity=np.ascontiguousarray(affinity),
        beside=beside,
        first=start.copy(),
        second=start.copy(),
        tally=np.zeros((m, m), np.int64),
        total=np.zeros(m, np.int64),
        reach=np.zeros((m, m)),
        apart=np.zeros((m, m), np.int64),
        parents=np.zeros((HALF_LABELS, 2), np.int64),
        push=np.zeros(m, np.int64),
        sums=np.zeros(m),
        saved=np.zeros((2, blocks), np.int64),
    )


@kernel
def solve_part(part: Part, board: Board, weights: Weights) -> None:
    """Improve ``part.first`` and ``part.second``, from the outputs they hold.

    First the published sweeps, until the objective stands still. In the last of them outputs of
    the same inputs are asked to differ. Then sweeps that change an output only if all outputs
    together become cheaper.
    """
    m = len(part.total)
    for j in range(m):
        part.total[j] = 0
        for k in range(m):
            part.apart[j, k] = 0
    for j in range(m):
        count_output(part, j)
    first, second, saved = part.first, part.second, part.saved
    blocks = first.shape[1]
    before = objective(part, weights)
    together, alone = 0.0, 0.0
    published, descents, last, descending = 0, 0, False, False
    while True:
        if descending:
            together = pushed_together(part, weights)
        changed = False
        soft = weights.soft_labels and (descending or published > 0)
        for j in range(m):
            if descending:
                alone = output_cost(part, weights, j)
            for i in range(blocks):
                saved[0, i], saved[1, i] = first[j, i], second[j, i]
            for k in range(m):
                part.total[k] -= part.tally[j, k]
            plain, labels, dearest = fill_board(part, board, weights, j, soft)
            solve_board(board, part.beside, labels, plain, dearest)
            for i in range(blocks):
                label = board.active[board.label[i]]
                first[j, i] = label if label < m else part.parents[label - m, 0]
                second[j, i] = label if label < m else part.parents[label - m, 1]
            count_output(part, j)
            if not descending:
                continue
            now = pushed_together(part, weights)
            if output_cost(part, weights, j) + now < alone + together:
                together = now
                changed = True
                continue
            for k in range(m):
                part.total[k] -= part.tally[j, k]
            for i in range(blocks):
                first[j, i], second[j, i] = saved[0, i], saved[1, i]
            count_output(part, j)
        if descending:
            descents += 1
            if not changed or descents == weights.descent:
                return
            continue
        published += 1
        now = objective(part, weights)
        still = abs(now - before) < weights.tolerance * abs(now)
        before = now
        descending = last or published == weights.sweeps
        if not descending:
            if weights.resolve and (still or published == weights.sweeps - 1):
                last = keep_apart(part)
            descending = still and not last
        if descending and weights.descent == 0:
            return


@inner
def fill_board(
    part: Part, board: Board, weights: Weights, j: int, soft: bool
) -> tuple[int, int, int]:
    """Fill costs, borders and starting labels of output j.

    Returns how many active labels show one input, the number of active labels, and the largest
    border cost. Most inputs are shown by other outputs already and cannot be best anywhere.
    """
    blocks, m = part.base.shape
    fill_push(part, weights, j)
    pairs = find_parents(part, j) if soft else 0
    bonus = np.int64(np.rint(weights.bonus * weights.scale))
    quarter = np.int64(np.rint(weights.beta * weights.scale / 4))
    dearest = 4 * quarter if m > 1 else np.int64(0)
    whole, push, parents, active = part.whole, part.push, part.parents, board.active
    place, low, high = board.labels[PLACE], board.labels[TOTAL], board.labels[COUNT]
    bound = np.int64(ABOVE_ALL_COSTS)
    for k in range(m):
        least = most = whole[k, 0]
        for i in range(1, blocks):
            least, most = min(least, whole[k, i]), max(most, whole[k, i])
        low[k], high[k] = least + push[k], most + push[k]
        bound = min(bound, high[k])
    labels, plain = 0, 0
    for k in range(m + pairs):
        a, b, less = k, k, np.int64(0)
        if k >= m:
            a, b, less = parents[k - m, 0], parents[k - m, 1], bonus
        place[k] = len(board.near) - 1
        if (low[a] + low[b]) // 2 - less > bound + 4 * dearest:
            continue
        active[labels] = k
        place[k] = labels
        plain += k < m
        pushed = push[a] + push[b]
        for i in range(blocks):
            board.cost[i, labels] = (whole[a, i] + whole[b, i] + pushed) // 2 - less
        for other in range(labels + 1):
            apart = quarter * border(k, active[other], m, parents, weights.own_borders)
            board.near[labels, other] = board.near[other, labels] = apart
        labels += 1
    first, second = part.first[j], part.second[j]
    for i in range(blocks):
        board.label[i] = place[first[i]]
        for e in range(pairs):
            if first[i] == parents[e, 0] and second[i] == parents[e, 1]:
                board.label[i] = place[m + e]
    return plain, labels, dearest


@inner
def border(a: int, b: int, m: int, parents: Ints, own: bool) -> int:
    """Quarters of β between labels a ≥ b.

    2 ‖o_a − o_b‖² if ``own``; as in the reference code 1 to a parent and 4 to all others.
    """
    if a == b:
        return 0
    if a < m:
        return 4
    if b < m:
        if b == parents[a - m, 0] or b == parents[a - m, 1]:
            return 1
        return 3 if own else 4
    return 1 if own else 4  # two of three inputs each: they share one


@inner
def count_output(part: Part, j: int) -> None:
    """Count the inputs of output j, and add them to the total."""
    first, second, tally, reach = part.first[j], part.second[j], part.tally[j], part.reach[j]
    m = len(part.total)
    for k in range(m):
        tally[k], reach[k] = 0, 0.0
    for i in range(len(first)):
        tally[first[i]] += 1
        tally[second[i]] += 1
    for k in range(m):
        part.total[k] += tally[k]
        if tally[k] > 0:
            for other in range(m):  # A is symmetric
                reach[other] += part.affinity[k, other] * (0.5 * tally[k])


@inner
def fill_push(part: Part, weights: Weights, j: int) -> None:
    """The cost of each input to output j because others show it, or because it must be left."""
    m = len(part.total)
    shown, affinity = part.sums, part.affinity
    for k in range(m):
        shown[k] = 0.0
    for other in range(m):
        half = 0.5 * part.total[other]
        for k in range(m):  # A is symmetric
            shown[k] += affinity[other, k] * half
    for k in range(m):
        pushed = 0.0
        if weights.rule == 1:
            for other in range(m):
                if shown[other] > weights.tau:
                    pushed += affinity[k, other] * (0.5 * part.total[other])
        elif shown[k] > weights.tau:
            pushed = shown[k] - weights.tau if weights.rule == 2 else shown[k]
        cost = 2 * weights.gamma * pushed + weights.gamma * part.apart[j, k]
        part.push[k] = np.int64(np.rint(cost * weights.scale))


@inner
def find_parents(part: Part, j: int) -> int:
    """The pairs of the two or three inputs that output j shows most, lower indices first."""
    tally, m = part.tally[j], len(part.total)
    a = b = c = -1
    for k in range(m):
        if tally[k] == 0:
            continue
        if a < 0 or tally[k] > tally[a]:
            a, b, c = k, a, b
        elif b < 0 or tally[k] > tally[b]:
            b, c = k, b
        elif c < 0 or tally[k] > tally[c]:
            c = k
    pairs = 0
    for first in range(m):
        for second in range(first + 1, m):
            if first in (a, b, c) and second in (a, b, c):
                part.parents[pairs, 0], part.parents[pairs, 1] = first, second
                pairs += 1
    return pairs


@inner
def keep_apart(part: Part) -> bool:
    """Ask one of two outputs of the same inputs to leave the first, the other the second input."""
    m = len(part.total)
    any_alike = False
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
                any_alike = True
    return any_alike


@inner
def pushed_together(part: Part, weights: Weights) -> float:
    """g Σ_j c_j · push(A p_j): the cost of outputs that show the same inputs."""
    m = len(part.total)
    value, total = 0.0, part.sums
    for k in range(m):
        total[k] = 0.0
    for j in range(m):
        for k in range(m):
            total[k] += part.reach[j, k]
    for j in range(m):
        for k in range(m):
            others = total[k] - part.reach[j, k]
            if others <= weights.tau:
                continue
            if weights.rule == 1:  # c_j · A (v ∘ p_j), and A is symmetric
                value += part.reach[j, k] * 0.5 * (part.total[k] - part.tally[j, k])
            else:
                over = others - weights.tau if weights.rule == 2 else others
                value += 0.5 * part.tally[j, k] * over
    return weights.gamma * value


@inlined
def output_cost(part: Part, weights: Weights, j: int) -> float:
    """Unary and smoothness of output j, and the cost of inputs that it was asked to leave."""
    value = 0.0
    base, beside, apart = part.base, part.beside, part.apart[j]
    first, second = part.first[j], part.second[j]
    for i in range(len(first)):
        a, b = first[i], second[i]
        value += 0.5 * (base[i, a] + base[i, b] + weights.gamma * (apart[a] + apart[b]))
        for d in (0, 2):
            near = beside[i, d]
            if near >= 0 and (a != first[near] or b != second[near]):
                c, e = first[near], second[near]
                same = (a == c) + (a == e) + (b == c) + (b == e)
                squares = 2 + 2 * (a == b) + 2 + 2 * (c == e)
                value += 0.125 * weights.beta * (squares - 2 * same)
    return value


@inner
def objective(part: Part, weights: Weights) -> float:
    """The objective of the reference code: diversity without threshold and compatibility."""
    m = len(part.total)
    value, overlap = 0.0, 0
    for j in range(m):
        value += output_cost(part, weights, j)
        overlap += part.total[j] ** 2
        for k in range(m):
            overlap -= part.tally[j, k] ** 2
    return value + weights.gamma * 0.25 * overlap
