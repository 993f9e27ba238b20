"""Labels of an island by exact moves between two labels, compiled: where a table would get too large."""

import numpy as np

from ...compiled import inner
from .board import NOBODY, Board, Ints

EXCESS, INSIDE, QUEUE, CAME, NODES = 4, 5, 6, 7, 8  # rows of the moves' memory, after one of room for each direction


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
    label, has, inside, nodes = board.label, board.has, board.moves[INSIDE], board.moves[NODES]
    count = 0
    for i in island:
        inside[i] = 0
        if (label[i] == first or label[i] == second) and has[i, first] == 1 and has[i, second] == 1:
            inside[i] = 1
            nodes[count] = i
            count += 1
    nodes = nodes[:count]
    if count == 0 or not may_gain(board, nodes, first, second):
        return False
    gain = fill_move(board, nodes, first, second)
    if -saturate(board.moves, board.beside, nodes) >= gain:
        return False
    for i in nodes:
        label[i] = first if inside[i] == 2 else second
    return True


@inner
def may_gain(board: Board, nodes: Ints, first: int, second: int) -> bool:
    """Whether some block would be cheaper with the other label if its neighbours did what suits it; else no move is."""
    cost, near, label, inside = board.cost, board.near, board.label, board.moves[INSIDE]
    for i in nodes:
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
def fill_move(board: Board, nodes: Ints, first: int, second: int) -> int:
    """Room and excess of a move: what the second label costs more than the first, and borders inside.

    What the labels as they are cost more than the first everywhere.
    """
    cost, near, label = board.cost, board.near, board.label
    room, excess, inside = board.moves, board.moves[EXCESS], board.moves[INSIDE]
    gain = np.int64(0)
    for i in nodes:
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
def saturate(room: Ints, beside: Ints, nodes: Ints) -> int:
    """Send excess to deficits along short ways until none gets there; what is left of the deficits, as a positive number.

    Blocks that excess still reaches are marked 2: they show the first label.
    """
    excess, inside, queue, came = room[EXCESS], room[INSIDE], room[QUEUE], room[CAME]
    decide_alone(room, beside, nodes)
    send_next_door(room, beside, nodes)
    sent = True
    while sent:  # the last time nothing gets anywhere, and marks are right
        sent = False
        head = tail = 0
        for i in nodes:
            inside[i] = 1
            if excess[i] > 0:
                inside[i] = 2
                came[i] = -1
                queue[tail] = i
                tail += 1
        while head < tail:
            i = queue[head]
            head += 1
            for d in range(4):
                j = beside[i, d]
                if room[d, i] > 0 and inside[j] == 1:
                    inside[j] = 2
                    came[j] = d
                    queue[tail] = j
                    tail += 1
                    if excess[j] < 0:
                        sent |= push(room, beside, j)
    missing = np.int64(0)
    for i in nodes:
        missing -= min(excess[i], 0)
    return int(missing)


@inner
def decide_alone(room: Ints, beside: Ints, nodes: Ints) -> None:
    """Blocks whose excess or deficit outweighs all their borders are decided, whatever the others do: these reckon with it."""
    excess = room[EXCESS]
    changed = True
    while changed:
        changed = False
        for i in nodes:
            total = room[0, i] + room[1, i] + room[2, i] + room[3, i]
            if total == 0 or -total < excess[i] <= total:
                continue
            changed = True
            sign = 1 if excess[i] > 0 else -1
            for d in range(4):
                if room[d, i] > 0:
                    j = beside[i, d]
                    excess[i] -= sign * room[d, i]
                    excess[j] += sign * room[d, i]
                    room[d, i] = room[d ^ 1, j] = 0


@inner
def send_next_door(room: Ints, beside: Ints, nodes: Ints) -> None:
    """Send excess to deficits next door: most of it gets no farther."""
    excess = room[EXCESS]
    for i in nodes:
        for d in range(4):
            if excess[i] > 0 and room[d, i] > 0 and excess[beside[i, d]] < 0:
                j = beside[i, d]
                sent = min(excess[i], -excess[j], room[d, i])
                excess[i] -= sent
                excess[j] += sent
                room[d, i] -= sent
                room[d ^ 1, j] += sent


@inner
def push(room: Ints, beside: Ints, end: int) -> bool:
    """Send as much as fits along the way that ended at the deficit of ``end``; whether anything did, after others went before."""
    excess, came = room[EXCESS], room[CAME]
    sent, j = -excess[end], end
    while came[j] >= 0:
        i = beside[j, came[j] ^ 1]
        sent = min(sent, room[came[j], i])
        j = i
    sent = min(sent, excess[j])
    if sent == 0:
        return False
    excess[j] -= sent
    excess[end] += sent
    j = end
    while came[j] >= 0:
        d = came[j]
        i = beside[j, d ^ 1]
        room[d, i] -= sent
        room[d ^ 1, j] += sent
        j = i
    return True
