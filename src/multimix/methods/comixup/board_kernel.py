"""The solver of one output of Co-Mixup, compiled.

All costs are integers, so that optima and ties are exact:

    E(ℓ) = Σ_i cost[i, ℓ_i] + Σ_{i~j} near[ℓ_i, ℓ_j]

A label of a block is struck out if another is cheaper whatever the neighbors show. The blocks that
remain form islands. An island is solved exactly by eliminating one block after the other, with a
table over the labels of its front. If that table would be too large, it is solved by exact moves
between two labels.

Blocks are numbered so that the front is as short as the grid allows. ``beside [N, 4]`` holds the
neighbors after, before, below and above (−1: none), so that direction d ^ 1 leads back.
"""

import numpy as np

from ...core.compiled import inlined, inner
from .board import ABOVE_ALL_COSTS, FEW, MAX_STATES, NOBODY, SHIFT, Board, Bytes, Ints
from .moves_kernel import move_labels


@inner
def solve_board(board: Board, beside: Ints, labels: int, plain: int, border: int) -> None:
    """Fill ``board.label``. ``board.cost`` is used up.

    The first ``plain`` of the ``labels`` show one input each, at distance ``border`` from each
    other; no distance is larger.
    """
    settle_labels(board, beside, labels, plain, border)
    many, island, marks = board.many, board.island[0], board.island[1]
    blocks = len(many)
    for i in range(blocks):
        marks[i] = 0
    for start in range(blocks):
        if many[start] == 1 or marks[start] > 0:
            continue
        island[0], marks[start] = start, start + 1
        at, count = 0, 1
        while at < count:
            for d in range(4):
                j = beside[island[at], d]
                if j != NOBODY and many[j] > 1 and marks[j] == 0:
                    marks[j] = start + 1
                    island[count] = j
                    count += 1
            at += 1
        count = 0
        for i in range(start, blocks):
            if marks[i] == start + 1:
                island[count] = i
                count += 1
        blocks_left = island[:count]
        if fits(board.many, beside, blocks_left):
            eliminate(board, beside, blocks_left)
        else:
            move_labels(board, beside, blocks_left, labels)


@inner
def settle_labels(board: Board, beside: Ints, labels: int, plain: int, border: int) -> None:
    """Strike out labels that cannot be best. Costs then include borders with settled blocks."""
    cost, near, left, many = board.cost, board.near, board.left, board.many
    has, stale, gaps, kinds, known = board.has, board.stale, board.gaps, board.kinds, board.known
    blocks, few = len(many), labels <= FEW
    for row in range(len(known) if few else 0):
        known[row] = 0
    for i in range(blocks):
        lowest, joined = cost[i, 0], 0
        for label in range(1, labels):
            lowest = min(lowest, cost[i, label])
        for d in range(4):
            joined += beside[i, d] != NOBODY
        count, kind = 0, 0
        for label in range(labels):
            has[i, label] = cost[i, label] <= lowest + joined * border
            left[i, count] = label
            count += has[i, label]
            kind |= has[i, label] << label
        many[i], stale[i], kinds[i] = count, 1, kind
    rows = board.front
    changed = True
    while changed:
        changed = False
        for i in range(blocks):
            if stale[i] != 1:
                continue
            stale[i] = 0
            options = many[i]
            if options > 1:
                best = left[i, 0]
                for a in range(1, options):
                    if cost[i, left[i, a]] < cost[i, best]:
                        best = left[i, a]
                asker, asked = (NOBODY, labels) if few else (i, options)
                for d in range(4):
                    j = beside[i, d]
                    # With few labels many neighbors have the same left, and equal gaps.
                    rows[d] = kinds[j] * FEW + best if few else d
                    if few and known[rows[d]] == 1:
                        continue
                    known[rows[d]] = 1
                    shown = 0 if stale[j] == 2 else many[j]
                    fill_gaps(
                        near,
                        left[asker, :asked],
                        left[j, :shown],
                        best,
                        labels,
                        plain,
                        gaps[rows[d]],
                    )
                after, before, below, above = (
                    gaps[rows[0]],
                    gaps[rows[1]],
                    gaps[rows[2]],
                    gaps[rows[3]],
                )
                count, kind = 0, 0
                for a in range(options):
                    label = left[i, a]
                    lead = cost[i, label] - cost[i, best]
                    lead += after[label] + before[label] + below[label] + above[label]
                    if label == best or lead <= 0:
                        left[i, count] = label
                        count += 1
                        kind |= 1 << label
                    else:
                        has[i, label] = 0
                many[i], kinds[i] = count, kind
            if many[i] == 1:
                board.label[i] = left[i, 0]
                stale[i], kinds[i] = 2, 0
                for d in range(4):
                    j = beside[i, d]
                    if stale[j] != 2:
                        for a in range(many[j]):
                            cost[j, left[j, a]] += near[left[i, 0], left[j, a]]
            if many[i] < options or many[i] == 1:
                changed = True
                for d in range(4):
                    if stale[beside[i, d]] != 2:
                        stale[beside[i, d]] = 1


@inlined
def fill_gaps(
    near: Ints, options: Bytes, neighbor: Bytes, best: int, labels: int, plain: int, gap: Ints
) -> None:
    """The least of near[label, l] − near[best, l] over the labels l of a neighbor, 0 without any.

    ``gap`` is filled for the labels in ``options``.
    """
    for label in options:
        gap[label] = 0 if len(neighbor) == 0 else ABOVE_ALL_COSTS
    begin = 0
    for shown in neighbor:
        even = shown != best and max(shown, best) < plain
        for a in range(begin if even else 0, len(options)):
            label = options[a]
            gap[label] = min(gap[label], near[shown, label] - near[shown, best])
        gap[shown] = min(gap[shown], -near[shown, best])
        if even:  # labels of one input are equally far from each other: one of them is enough
            begin = max(0, len(options) - (labels - plain))


@inner
def fits(many: Ints, beside: Ints, island: Ints) -> bool:
    """Whether the table stays small enough all the way through an island."""
    size = 1.0
    for at, i in enumerate(island):
        size *= many[i]
        if size > MAX_STATES:
            return False
        for before in range(at + 1):
            j = island[before]
            ended = np.int64(-1)  # the last block of the island that j is joined to
            for d in range(4):
                if beside[j, d] != NOBODY and many[beside[j, d]] > 1:
                    ended = max(ended, beside[j, d])
            if max(ended, j) == i or (before == at and ended < j):
                size /= many[j]
    return True


@inner
def eliminate(board: Board, beside: Ints, island: Ints) -> None:
    """Find labels of an island that are exactly best.

    The table holds SHIFT times the cost of the blocks so far, for every state of the front, oldest
    block first. The block above the new one is always the first of the front, the one before it
    always the last.
    """
    many, left, front, fronts = board.many, board.left, board.front, board.fronts
    table, spare, choice = board.tables[0], board.tables[1], board.choice
    table[0] = 0
    size, length, used, gone = 1, 0, 0, 0
    for i in island:
        before, above = beside[i, 1], beside[i, 3]
        within = many[before] if before != NOBODY and many[before] > 1 else 1
        over = many[above] if above != NOBODY and many[above] > 1 else 1
        size = size // over
        add_block(board, table, spare, choice[used:], i, before, above, size, within, over)
        table, spare = spare, table
        size *= many[i]
        front[length] = i
        length += 1
        place = 0 if over > 1 else max(0, length - 2)
        has_chosen = over > 1  # the label of the block above
        while place < length:
            j = front[place]
            if not has_chosen:
                after, below = beside[j, 0], beside[j, 2]
                if (after > i and many[after] > 1) or (below > i and many[below] > 1):
                    place += 1
                    continue
                last = many[i] if place < length - 1 else 1
                size = size // many[j]
                drop(table, spare, choice[used:], size, many[j], last)
                table, spare = spare, table
            # Move block j from the front to the eliminated ones, with the front that is left.
            length -= 1
            fronts[gone, 0], fronts[gone, 1], fronts[gone, 2] = j, used, length
            for f in range(length):
                front[f] = front[f + (f >= place)]
                fronts[gone, 3 + f] = front[f]
            used += size
            gone += 1
            if has_chosen:
                has_chosen = False
                place = max(0, length - 2)
    picked = board.moves[0]
    for g in range(gone - 1, -1, -1):  # the labels behind the cheapest state
        state = 0
        for f in range(fronts[g, 2]):
            j = fronts[g, 3 + f]
            state = state * many[j] + picked[j]
        i = fronts[g, 0]
        picked[i] = choice[fronts[g, 1] + state]
        board.label[i] = left[i, picked[i]]


@inlined
def add_block(
    board: Board,
    table: Ints,
    spare: Ints,
    choice: Bytes,
    i: int,
    before: int,
    above: int,
    size: int,
    within: int,
    over: int,
) -> None:
    """Add block i to every state, and take the best label of the block above it, if any.

    Numbers below SHIFT tell which label that is.
    """
    cost, near, left, options = board.cost, board.near, board.left, board.many[i]
    joins, borders = board.tables[2], board.tables[3]
    for a in range(options):
        label = left[i, a]
        for b in range(within):
            joined = near[left[before, b], label] if within > 1 else 0
            joins[b * options + a] = SHIFT * (cost[i, label] + joined)
        for b in range(over):
            borders[a * over + b] = SHIFT * near[left[above, b], label] + b if over > 1 else 0
    at = 0
    for low in range(0, size, within):
        for b in range(within):
            for a in range(options):
                least = table[low + b] + borders[a * over]
                for c in range(1, over):
                    least = min(least, table[c * size + low + b] + borders[a * over + c])
                best = least & (SHIFT - 1)
                spare[at] = least - best + joins[b * options + a]
                choice[at] = best
                at += 1


@inlined
def drop(table: Ints, spare: Ints, choice: Bytes, size: int, options: int, within: int) -> None:
    """Take the best label of a block of the front in each of the ``size`` states of the others."""
    for at in range(size):
        start = at // within * options * within + at % within
        least = table[start]
        for b in range(1, options):
            least = min(least, table[start + b * within] + b)
        best = least & (SHIFT - 1)
        spare[at] = least - best
        choice[at] = best
