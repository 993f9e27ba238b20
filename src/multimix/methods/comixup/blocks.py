"""One output of Co-Mixup, compiled: the label of every block of a grid that makes costs and borders cheapest.

    E(ℓ) = Σ_i cost[i, ℓ_i] + Σ_{i~j} near[ℓ_i, ℓ_j]

Blocks whose label is certain are settled first: a label goes if another is cheaper there whatever the neighbours show. What is
left falls into islands. An island is solved exactly by eliminating block after block, with a table over the labels of its front;
if that table would get too large, by exact moves between two labels.
"""

import numpy as np

from ...compiled import inner
from .board import NOBODY, Board, Bytes, Ints
from .moves import move_labels

SHIFT = 256  # costs in tables are multiples of it, so that there is room for a label


@inner
def solve_board(board: Board, active: int, plain: int) -> int:
    """Fill ``board.label``; whether every island was solved exactly (1) or some by moves (0). ``board.cost`` is used up.

    The first ``plain`` labels show one input each, all equally far from each other; ``active`` labels are looked at.
    """
    settle_labels(board, board.active[:active], plain)
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
            move_labels(board, board.island[:count])
            exact = 0
    return exact


@inner
def settle_labels(board: Board, active: Ints, plain: int) -> None:
    """Strike out labels that cannot be best, until none is left to strike; costs then include borders with settled blocks."""
    cost, near, beside, left, many = board.cost, board.near, board.beside, board.left, board.many
    has, plains, stale, label = board.has, board.plains, board.stale, board.label
    list_labels(cost, near, beside, left, many, has, plains, active, plain)
    stale[:] = 1
    changed = True
    while changed:
        changed = False
        for i in range(len(many)):
            if stale[i] == 0 or many[i] > 0:
                continue
            stale[i] = 0
            struck = many[i] < -1 and strike_out(cost, near, beside, left, many, has, plains, i, plain)
            if many[i] == -1:
                label[i] = left[i, 0]
                many[i] = 1
                struck = True
                for d in range(4):
                    j = beside[i, d]
                    if j != NOBODY and many[j] < 0:
                        for a in range(-many[j]):
                            cost[j, left[j, a]] += near[left[i, 0], left[j, a]]
            if struck:
                changed = True
                for d in range(4):
                    if beside[i, d] != NOBODY:
                        stale[beside[i, d]] = 1
    for i in range(len(many)):
        many[i] = abs(many[i])


@inner
def list_labels(
    cost: Ints,
    near: Ints,
    beside: Ints,
    left: Ints,
    many: Ints,
    has: Bytes,
    plains: Ints,
    active: Ints,
    plain: int,
) -> None:
    """The labels that a block may have, as far as its own costs tell; ``many`` is negative until a block is settled."""
    border = near[0, 1] if plain > 1 else np.int64(0)
    for i in range(len(many)):
        lowest, joined = cost[i, active[0]], 0
        for label in active:
            lowest = min(lowest, cost[i, label])
        for d in range(4):
            joined += beside[i, d] != NOBODY
        count, alone = 0, 0
        has[i] = 0
        for label in active:
            if cost[i, label] <= lowest + joined * border:
                left[i, count] = label
                has[i, label] = 1
                alone += int(label < plain)
                count += 1
        plains[i] = alone
        many[i] = -count


@inner
def strike_out(
    cost: Ints,
    near: Ints,
    beside: Ints,
    left: Ints,
    many: Ints,
    has: Bytes,
    plains: Ints,
    i: int,
    plain: int,
) -> bool:
    """Strike out labels of block i that its cheapest label beats whatever the neighbours show."""
    best = left[i, 0]
    for a in range(1, -many[i]):
        if cost[i, left[i, a]] < cost[i, best]:
            best = left[i, a]
    count = 0
    for a in range(-many[i]):
        label = left[i, a]
        lead = cost[i, label] - cost[i, best]
        for d in range(4):
            j = beside[i, d]
            if j == NOBODY or many[j] > 0:
                continue
            # The least of near[label, l] − near[best, l]. Labels of one input each are equally far from all others of one input,
            # so that most l need not be looked at.
            if label >= plain or best >= plain:
                least = near[label, left[j, 0]] - near[best, left[j, 0]]
                for b in range(1, -many[j]):
                    least = min(least, near[label, left[j, b]] - near[best, left[j, b]])
            elif has[j, label] == 1:
                least = -near[best, label]
            else:
                least = np.int64(0) if plains[j] > has[j, best] else near[label, best]
                for mixed in range(plain, near.shape[0]):
                    if has[j, mixed] == 1:
                        least = min(least, near[label, mixed] - near[best, mixed])
            lead += least
        if label == best or lead <= 0:
            left[i, count] = label
            count += 1
        else:
            has[i, label] = 0
            plains[i] -= label < plain
    changed = count < -many[i]
    many[i] = -count
    return bool(changed)


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
    cost: Ints, near: Ints, beside: Ints, left: Ints, joins: Ints, i: int, options: int, within: int, over: int
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
