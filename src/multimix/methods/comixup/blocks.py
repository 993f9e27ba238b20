"""One output of Co-Mixup, compiled: the label of every block of a grid that makes costs and borders cheapest.

    E(ℓ) = Σ_i cost[i, ℓ_i] + Σ_{i~j} near[ℓ_i, ℓ_j]

Blocks whose label is certain are settled first: a label goes if another is cheaper there whatever the neighbours show. What is
left falls into islands. An island is solved exactly by eliminating block after block, with a table over the labels of its front;
if that table would get too large, by exact moves between two labels.

All costs are whole numbers. Blocks are numbered so that the front is as short as the grid allows; ``beside [N, 4]`` holds the
neighbours after, before, below, above (−1: none), so that direction d ^ 1 leads back.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import inner

Ints = NDArray[np.int64]

NOBODY = -1
EXCESS, INSIDE, QUEUE, CAME = 4, 5, 6, 7  # rows of the moves' memory, after one of room for each direction


class Board(NamedTuple):
    """What solving one output of N blocks works on, and memory.

    ``label [N]`` holds the labels to start from, then those found. ``left[i, : many[i]]`` are the labels that block i may still
    have, ``has [N, labels]`` is 1 for those, ``plains [N]`` how many of them show one input. ``island`` lists blocks, one island
    after the other. ``choice`` is the best label of an eliminated block for every state of its front, block after block, and
    ``fronts [N, …]`` the eliminated block, where its choices begin, the length of its front and the blocks of it.
    """

    cost: Ints  # [N, labels]
    near: Ints  # [labels, labels]
    beside: Ints
    label: Ints
    left: Ints
    many: Ints
    has: NDArray[np.uint8]
    plains: Ints
    island: Ints
    table: Ints
    spare: Ints
    choice: NDArray[np.uint8]
    front: Ints
    fronts: Ints
    seen: Ints
    moves: Ints  # [8, N]: memory of the moves between two labels


@inner
def solve_board(board: Board, labels: int, plain: int) -> int:
    """Fill ``board.label``; whether every island was solved exactly (1) or some by moves (0). ``board.cost`` is used up.

    The first ``plain`` labels show one input each, all equally far from each other.
    """
    settle_labels(board, labels, plain)
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
def settle_labels(board: Board, labels: int, plain: int) -> None:
    """Strike out labels that cannot be best, until none is left to strike; costs then include borders with settled blocks."""
    cost, near, beside, left, many = board.cost, board.near, board.beside, board.left, board.many
    blocks = len(many)
    border = np.int64(0)
    for label in range(labels):
        border = max(border, near[0, label])
    for i in range(blocks):
        lowest, joined = cost[i, 0], 0
        for label in range(1, labels):
            lowest = min(lowest, cost[i, label])
        for d in range(4):
            joined += beside[i, d] != NOBODY
        count = 0
        board.plains[i] = 0
        board.has[i] = 0
        for label in range(labels):
            if cost[i, label] <= lowest + joined * border:
                left[i, count] = label
                board.has[i, label] = 1
                board.plains[i] += label < plain
                count += 1
        many[i] = -count  # negative: not yet folded into the neighbours
    changed = True
    while changed:
        changed = False
        for i in range(blocks):
            if many[i] < -1:
                changed |= strike_out(board, i, plain)
            if many[i] == -1:
                board.label[i] = left[i, 0]
                many[i] = 1
                changed = True
                for d in range(4):
                    j = beside[i, d]
                    if j != NOBODY and many[j] < 0:
                        for a in range(-many[j]):
                            cost[j, left[j, a]] += near[left[i, 0], left[j, a]]
    for i in range(blocks):
        many[i] = abs(many[i])


@inner
def strike_out(board: Board, i: int, plain: int) -> bool:
    """Strike out labels of block i that its cheapest label beats whatever the neighbours show."""
    cost, near, beside, left, many = board.cost, board.near, board.beside, board.left, board.many
    has, plains = board.has, board.plains
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
    """Labels of an island that are exactly best."""
    cost, beside, left, many = board.cost, board.beside, board.left, board.many
    island, front, fronts = board.island, board.front, board.fronts
    table, spare = board.table, board.spare
    table[0] = 0
    size, length, used, gone = 1, 0, 0, 0
    for at in range(count):
        i = island[at]
        options = many[i]
        for s in range(size):
            for a in range(options):
                spare[s * options + a] = table[s] + cost[i, left[i, a]]
        table, spare = spare, table
        size *= options
        front[length] = i
        length += 1
        for d in (1, 3):
            j = beside[i, d]
            if j != NOBODY and many[j] > 1:
                add_border(board, table, size, length, j)
        place = 0
        while place < length:
            j = front[place]
            if (beside[j, 0] > i and many[beside[j, 0]] > 1) or (beside[j, 2] > i and many[beside[j, 2]] > 1):
                place += 1
                continue
            size = drop(board, table, spare, size, place, length, used)
            table, spare = spare, table
            length -= 1
            for f in range(place, length):
                front[f] = front[f + 1]
            fronts[gone, 0], fronts[gone, 1], fronts[gone, 2] = j, used, length
            fronts[gone, 3 : 3 + length] = front[:length]
            used += size
            gone += 1
    trace_back(board, gone)


@inner
def add_border(board: Board, table: Ints, size: int, length: int, j: int) -> None:
    """Add the border between the last block of the front and block j of it to every state."""
    front, many, left = board.front, board.many, board.left
    i = front[length - 1]
    place = 0
    while front[place] != j:
        place += 1
    within = 1
    for f in range(place + 1, length - 1):
        within *= many[front[f]]
    at = 0
    for _ in range(size // (many[j] * within * many[i])):
        for b in range(many[j]):
            for _ in range(within):
                for a in range(many[i]):
                    table[at] += board.near[left[j, b], left[i, a]]
                    at += 1


@inner
def drop(board: Board, table: Ints, spare: Ints, size: int, place: int, length: int, used: int) -> int:
    """Take the best label of one block of the front in every state of the others; the number of these states."""
    options, within = board.many[board.front[place]], 1
    for f in range(place + 1, length):
        within *= board.many[board.front[f]]
    for outer in range(size // (options * within)):
        for low in range(within):
            at = outer * options * within + low
            best, least = 0, table[at]
            for b in range(1, options):
                value = table[at + b * within]
                if value < least:
                    best, least = b, value
            spare[outer * within + low] = least
            board.choice[used + outer * within + low] = best
    return int(size // options)


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


@inner
def move_labels(board: Board, island: Ints) -> None:
    """Labels of the ``island`` that no move between two labels makes cheaper, from the cheapest of three starts.

    In a move every block that shows one of the two labels chooses anew between them, by a minimum cut. Any border costs will do
    that are symmetric, at least 0 and 0 between equal labels.
    """
    choose_start(board, island)
    labels = len(board.near)
    known = np.zeros(labels, np.bool_)
    shown = np.zeros(labels, np.int64)  # how many blocks have the label now
    for i in island:
        shown[board.label[i]] += 1
        for a in range(board.many[i]):
            known[board.left[i, a]] = True
    tried = np.zeros((labels, labels), np.int64)
    changes = 1  # a pair of labels is tried again only if something has changed since
    improved = True
    while improved:
        improved = False
        for first in range(labels):
            for second in range(first + 1, labels):
                if shown[first] + shown[second] == 0 or tried[first, second] >= changes:
                    continue
                if known[first] and known[second]:
                    tried[first, second] = changes
                    if move(board, island, first, second):
                        changes += 1
                        improved = True
                        shown[:] = 0
                        for i in island:
                            shown[board.label[i]] += 1


@inner
def choose_start(board: Board, island: Ints) -> None:
    """The cheapest of: the labels before, each block's own cheapest, and the best single label (where a block may have it)."""
    cost, label, left = board.cost, board.label, board.left
    labels = len(board.near)
    own, total, count = board.moves[0], np.zeros(labels, np.int64), np.zeros(labels, np.int64)
    for i in island:
        own[i] = left[i, 0]
        for a in range(board.many[i]):
            total[left[i, a]] += cost[i, left[i, a]]
            count[left[i, a]] += 1
            if cost[i, left[i, a]] < cost[i, own[i]]:
                own[i] = left[i, a]
        if board.has[i, label[i]] == 0:
            label[i] = own[i]
    best = -1
    for a in range(labels):
        if count[a] == len(island) and (best < 0 or total[a] < total[best]):
            best = a
    least, value = energy(board, label, island), energy(board, own, island)
    single = best >= 0 and total[best] < min(least, value)
    if single or value < least:
        for i in island:
            label[i] = best if single else own[i]


@inner
def energy(board: Board, label: Ints, island: Ints) -> int:
    """What an island costs with ``label``."""
    total = np.int64(0)
    for i in island:
        total += board.cost[i, label[i]]
        for d in (0, 2):
            j = board.beside[i, d]
            if j != NOBODY and board.many[j] > 1:
                total += board.near[label[i], label[j]]
    return int(total)


@inner
def move(board: Board, island: Ints, first: int, second: int) -> bool:
    """Whether the best choice between two labels, made for every block that shows one of them, is cheaper; then it is made."""
    label, inside = board.label, board.moves[INSIDE]
    count = 0
    for i in island:
        inside[i] = 0
        if (label[i] == first or label[i] == second) and board.has[i, first] == 1 and board.has[i, second] == 1:
            inside[i] = 1
            count += 1
    if count == 0 or not may_gain(board, island, first, second):
        return False
    gain = fill_move(board, island, first, second)
    if -saturate(board, island) >= gain:
        return False
    for i in island:
        if inside[i] > 0:
            label[i] = first if inside[i] == 2 else second
    return True


@inner
def may_gain(board: Board, island: Ints, first: int, second: int) -> bool:
    """Whether some block would be cheaper with the other label if its neighbours did what suits it; else no move is."""
    cost, near, label, inside = board.cost, board.near, board.label, board.moves[INSIDE]
    for i in island:
        if inside[i] == 0:
            continue
        now = label[i]
        other = first + second - now
        gain = cost[i, now] - cost[i, other]
        for d in range(4):
            j = board.beside[i, d]
            if j == NOBODY or board.many[j] == 1:
                continue
            gain += near[now, label[j]]
            if inside[j] == 0:
                gain -= near[other, label[j]]
        if gain > 0:
            return True
    return False


@inner
def fill_move(board: Board, island: Ints, first: int, second: int) -> int:
    """Room and excess of a move: what the second label costs more than the first, and borders inside.

    What the labels as they are cost more than the first everywhere.
    """
    cost, near, label = board.cost, board.near, board.label
    room, excess, inside = board.moves, board.moves[EXCESS], board.moves[INSIDE]
    gain = np.int64(0)
    for i in island:
        if inside[i] == 0:
            continue
        excess[i] = cost[i, second] - cost[i, first]
        for d in range(4):
            j = board.beside[i, d]
            room[d, i] = 0
            if j == NOBODY or board.many[j] == 1:
                continue
            if inside[j] == 1:
                room[d, i] = near[first, second]
                if d % 2 == 0 and label[i] != label[j]:
                    gain += near[first, second]
            else:
                excess[i] += near[second, label[j]] - near[first, label[j]]
        if label[i] == second:
            gain += excess[i]
    return int(gain)


@inner
def saturate(board: Board, island: Ints) -> int:
    """Send excess to deficits along shortest ways until none gets there; what is left of the deficits, as a positive number.

    Blocks that excess still reaches are marked 2: they show the first label.
    """
    room, beside = board.moves, board.beside
    excess, inside, queue, came = room[EXCESS], room[INSIDE], room[QUEUE], room[CAME]
    while True:
        head = tail = 0
        for i in island:
            if inside[i] > 0:
                inside[i] = 1
                if excess[i] > 0:
                    inside[i] = 2
                    came[i] = -1
                    queue[tail] = i
                    tail += 1
        end = -1
        while head < tail and end < 0:
            i = queue[head]
            head += 1
            for d in range(4):
                j = beside[i, d]
                if j != NOBODY and inside[j] == 1 and room[d, i] > 0:
                    inside[j] = 2
                    came[j] = d
                    queue[tail] = j
                    tail += 1
                    if excess[j] < 0:
                        end = j
                        break
        if end < 0:
            break
        push(board, end)
    missing = np.int64(0)
    for i in island:
        if inside[i] > 0 and excess[i] < 0:
            missing -= excess[i]
    return int(missing)


@inner
def push(board: Board, end: int) -> None:
    """Send as much as fits along the way that ended at the deficit of ``end``."""
    room, beside = board.moves, board.beside
    excess, came = room[EXCESS], room[CAME]
    sent, j = -excess[end], end
    while came[j] >= 0:
        i = beside[j, came[j] ^ 1]
        sent = min(sent, room[came[j], i])
        j = i
    sent = min(sent, excess[j])
    excess[j] -= sent
    excess[end] += sent
    j = end
    while came[j] >= 0:
        d = came[j]
        i = beside[j, d ^ 1]
        room[d, i] -= sent
        room[d ^ 1, j] += sent
        j = i
