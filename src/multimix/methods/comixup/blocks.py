"""One output of Co-Mixup, compiled: the label of every block of a grid that makes costs and borders cheapest.

    E(ℓ) = Σ_i cost[i, ℓ_i] + Σ_{i~j} near[ℓ_i, ℓ_j]

Blocks whose label is certain are settled first: a label goes if another is cheaper there whatever the neighbours show. What is
left falls into islands. An island is solved exactly by eliminating block after block, with a table over the labels of its front;
if that table would get too large, by exact moves between two labels.
"""

import numpy as np

from ...compiled import inlined, inner
from .board import NOBODY, Board, Bytes, Ints
from .moves import move_labels

FEW = 8  # labels: many blocks then have the same of them left, so that what follows from these is kept
MOST = 1 << 62  # above all costs
SHIFT = 256  # costs in tables are multiples of it, so that there is room for a label


@inner
def solve_board(board: Board, labels: int, plain: int, border: int) -> int:
    """Fill ``board.label``; whether every island was solved exactly (1) or some by moves (0). ``board.cost`` is used up.

    The first ``plain`` of the ``labels`` show one input each, all ``border`` from each other; others are no farther from any.
    """
    settle_labels(board, labels, plain, border)
    blocks = len(board.many)
    board.seen[:] = 0
    exact = 1
    for i in range(blocks):
        if board.many[i] == 1 or board.seen[i] == 1:
            continue
        count = find_island(board, i)
        if fits(board, count):
            eliminate(board, count)
        else:
            move_labels(board, board.island[:count], labels)
            exact = 0
    return exact


@inner
def settle_labels(board: Board, labels: int, plain: int, border: int) -> None:
    """Strike out labels that cannot be best, until none is left to strike; costs then include borders with settled blocks."""
    cost, near, beside, left, many = board.cost, board.near, board.beside, board.left, board.many
    has, kinds, gaps, known, stale, label = board.has, board.kinds, board.gaps, board.known, board.stale, board.label
    starts = board.front
    list_labels(cost, beside, left, many, has, kinds, labels, border)
    known[FEW:] = 0
    stale[:] = 1
    changed = True
    while changed:
        changed = False
        for i in range(len(many)):
            if stale[i] == 0 or kinds[i] == 0:
                continue
            stale[i] = 0
            struck = many[i] > 1 and strike_out(cost, near, beside, left, many, has, kinds, gaps, known, starts, labels, plain, i)
            if many[i] == 1:
                label[i] = left[i, 0]
                kinds[i] = 0
                struck = True
                for d in range(4):
                    j = beside[i, d]
                    if kinds[j] != 0:
                        for a in range(many[j]):
                            cost[j, left[j, a]] += near[left[i, 0], left[j, a]]
            if struck:
                changed = True
                for d in range(4):
                    if beside[i, d] != NOBODY:
                        stale[beside[i, d]] = 1


@inlined
def list_labels(cost: Ints, beside: Ints, left: Bytes, many: Ints, has: Bytes, kinds: Ints, labels: int, border: int) -> None:
    """The labels that a block may have, as far as its own costs tell."""
    for i in range(len(many)):
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
            kind |= has[i, label] << min(label, FEW - 1)
        many[i], kinds[i] = count, kind


@inlined
def strike_out(
    cost: Ints,
    near: Ints,
    beside: Ints,
    left: Bytes,
    many: Ints,
    has: Bytes,
    kinds: Ints,
    gaps: Ints,
    known: Bytes,
    starts: Ints,
    labels: int,
    plain: int,
    i: int,
) -> bool:
    """Strike out labels of block i that its cheapest label beats whatever the neighbours show."""
    options = many[i]
    best = left[i, 0]
    for a in range(1, options):
        if cost[i, left[i, a]] < cost[i, best]:
            best = left[i, a]
    few = labels <= FEW
    asker, asked = (NOBODY, labels) if few else (i, options)
    for d in range(4):
        j = beside[i, d]
        row = kinds[j] * FEW + best
        starts[d] = row * FEW if few else (FEW * FEW << FEW) + d * labels
        if few and known[row] == 1:
            continue
        known[row] = 1
        shown = many[j] if kinds[j] != 0 else 0
        fill_gaps(near, left, gaps, starts[d], labels, plain, asker, asked, j, shown, best)
    after, before, below, above = starts[0], starts[1], starts[2], starts[3]
    count, kind = 0, 0
    for a in range(options):
        label = left[i, a]
        lead = cost[i, label] - cost[i, best]
        lead += gaps[after + label] + gaps[before + label] + gaps[below + label] + gaps[above + label]
        if label == best or lead <= 0:
            left[i, count] = label
            count += 1
            kind |= 1 << min(label, FEW - 1)
        else:
            has[i, label] = 0
    many[i], kinds[i] = count, kind
    return bool(count < options)


@inlined
def fill_gaps(
    near: Ints, left: Bytes, gaps: Ints, start: int, labels: int, plain: int, i: int, asked: int, j: int, options: int, best: int
) -> None:
    """The least of near[label, l] − near[best, l] over ``options`` labels l of block j, for ``asked`` labels of block i."""
    for a in range(asked):
        gaps[start + left[i, a]] = 0 if options == 0 else MOST
    begin = 0
    for at in range(options):
        shown = left[j, at]
        even = shown != best and max(shown, best) < plain
        for a in range(begin if even else 0, asked):
            label = left[i, a]
            gaps[start + label] = min(gaps[start + label], near[shown, label] - near[shown, best])
        gaps[start + shown] = min(gaps[start + shown], -near[shown, best])
        if even:  # labels of one input each are equally far from each other: for these, once will do
            begin = max(0, asked - (labels - plain))


@inner
def find_island(board: Board, start: int) -> int:
    """The number of unsettled blocks joined to ``start``, put into ``board.island`` in ascending order."""
    island, beside, many, seen = board.island, board.beside, board.many, board.seen
    island[0] = start
    seen[start] = 1
    at, count = 0, 1
    while at < count:
        for d in range(4):
            j = beside[island[at], d]
            if j != NOBODY and many[j] > 1 and seen[j] == 0:
                seen[j] = 1
                island[count] = j
                count += 1
        at += 1
    island[:count].sort()
    return count


@inner
def fits(board: Board, count: int) -> bool:
    """Whether the table stays small enough all the way through an island."""
    beside, many, island = board.beside, board.many, board.island
    size, open_from = 1.0, 0
    for at in range(count):
        i = island[at]
        size *= many[i]
        if size > len(board.table):
            return False
        for before in range(open_from, at + 1):
            j = island[before]
            ended = np.int64(-1)  # the last block of the island that j is joined to
            for d in range(4):
                if beside[j, d] != NOBODY and many[beside[j, d]] > 1:
                    ended = max(ended, beside[j, d])
            if max(ended, j) == i or (before == at and ended < j):
                size /= many[j]
    return True


@inner
def eliminate(board: Board, count: int) -> None:
    """Labels of an island that are exactly best.

    The table holds SHIFT times what the blocks so far cost, for every state of the front, oldest block first. The block above the
    new one is always the first of the front, the one before it always the last.
    """
    beside, many, joins = board.beside, board.many, board.joins
    cost, near, left = board.cost, board.near, board.left
    island, front, fronts = board.island, board.front, board.fronts
    table, spare, choice = board.table, board.spare, board.choice
    table[0] = 0
    size, length, used, gone = 1, 0, 0, 0
    for at in range(count):
        i = island[at]
        before, above = beside[i, 1], beside[i, 3]
        within = many[before] if before != NOBODY and many[before] > 1 else 1
        over = many[above] if above != NOBODY and many[above] > 1 else 1
        fill_joins(cost, near, beside, left, joins, i, many[i], within, over)
        size = size // over
        add_block(table, spare, choice[used:], joins, size, within, over, many[i])
        table, spare = spare, table
        size *= many[i]
        front[length] = i
        length += 1
        if over > 1:
            used += size
            length = forget(front, fronts[gone], 0, length, used - size)
            gone += 1
        place = max(0, length - 2)
        while place < length:
            j = front[place]
            if (beside[j, 0] > i and many[beside[j, 0]] > 1) or (beside[j, 2] > i and many[beside[j, 2]] > 1):
                place += 1
                continue
            last = many[i] if place < length - 1 else 1
            size = size // many[j]
            drop(table, spare, choice[used:], size, many[j], last)
            table, spare = spare, table
            used += size
            length = forget(front, fronts[gone], place, length, used - size)
            gone += 1
    trace_back(board, gone)


@inner
def fill_joins(
    cost: Ints, near: Ints, beside: Ints, left: Bytes, joins: Ints, i: int, options: int, within: int, over: int
) -> None:
    """What labels of block i cost beside those of the block before it, and borders with the block above it, both times SHIFT."""
    before, above = beside[i, 1], beside[i, 3]
    for a in range(options):
        label = left[i, a]
        for b in range(within):
            joins[0, b * options + a] = SHIFT * (cost[i, label] + (near[left[before, b], label] if within > 1 else 0))
        for b in range(over):
            joins[1, a * over + b] = SHIFT * near[left[above, b], label] + b if over > 1 else 0


@inner
def add_block(table: Ints, spare: Ints, choice: Bytes, joins: Ints, size: int, within: int, over: int, options: int) -> None:
    """Add a block to every state, and take the best label of the block above it, if any: numbers below SHIFT tell which."""
    at = 0
    for low in range(0, size, within):
        for b in range(within):
            for a in range(options):
                least = table[low + b] + joins[1, a * over]
                for c in range(1, over):
                    least = min(least, table[c * size + low + b] + joins[1, a * over + c])
                best = least & (SHIFT - 1)
                spare[at] = least - best + joins[0, b * options + a]
                choice[at] = best
                at += 1


@inner
def drop(table: Ints, spare: Ints, choice: Bytes, size: int, options: int, within: int) -> None:
    """Take the best label of one block of the front in every of the ``size`` states of the others."""
    for at in range(size):
        start = at // within * options * within + at % within
        least = table[start]
        for b in range(1, options):
            least = min(least, table[start + b * within] + b)
        best = least & (SHIFT - 1)
        spare[at] = least - best
        choice[at] = best


@inner
def forget(front: Ints, fronts: Ints, place: int, length: int, used: int) -> int:
    """Take a block out of the front; note it, where its choices begin, and the front that is left, whose length is given back."""
    fronts[0], fronts[1], fronts[2] = front[place], used, length - 1
    for f in range(place, length - 1):
        front[f] = front[f + 1]
    for f in range(length - 1):
        fronts[3 + f] = front[f]
    return length - 1


@inner
def trace_back(board: Board, gone: int) -> None:
    """The labels behind the cheapest state, last eliminated block first."""
    fronts, many, picked = board.fronts, board.many, board.moves[0]
    for g in range(gone - 1, -1, -1):
        state = 0
        for f in range(fronts[g, 2]):
            j = fronts[g, 3 + f]
            state = state * many[j] + picked[j]
        i = fronts[g, 0]
        picked[i] = board.choice[fronts[g, 1] + state]
        board.label[i] = board.left[i, picked[i]]
