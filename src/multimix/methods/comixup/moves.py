"""Labels of an island by exact moves between two labels, compiled: where a table would get too large."""

import numpy as np

from ...compiled import inlined, inner
from .board import NOBODY, Board, Ints

EXCESS, INSIDE, QUEUE, CAME, NODES = 4, 5, 6, 7, 8  # rows of the moves' memory, after one of room for each direction


@inner
def move_labels(board: Board, island: Ints, labels: int) -> None:
    """Labels of the ``island`` that no move between two labels makes cheaper, from the cheapest of three starts.

    In a move every block that shows one of the two labels chooses anew between them, by a minimum cut. Any border costs will do
    that are symmetric, at least 0 and 0 between equal labels.
    """
    within = board.within
    for i in island:
        for d in range(4):
            j = board.beside[i, d]
            within[i, d] = j if j != NOBODY and board.many[j] > 1 else NOBODY
    choose_start(board, island, labels)
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
                if not (known[first] and known[second]):
                    continue
                tried[first, second] = changes
                if move(board, island, first, second):
                    changes += 1
                    improved = True
                    shown[:] = 0
                    for i in island:
                        shown[board.label[i]] += 1


@inlined
def choose_start(board: Board, island: Ints, labels: int) -> None:
    """The cheapest of: the labels before, each block's own cheapest, and the best single label (where a block may have it)."""
    cost, label, left = board.cost, board.label, board.left
    own, total, count = board.moves[0], np.zeros(labels, np.int64), np.zeros(labels, np.int64)
    own[NOBODY] = label[NOBODY]
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


@inlined
def energy(board: Board, label: Ints, island: Ints) -> int:
    """What an island costs with ``label``."""
    near, within = board.near, board.within
    total = np.int64(0)
    for i in island:
        total += board.cost[i, label[i]] + near[label[i], label[within[i, 0]]] + near[label[i], label[within[i, 2]]]
    return int(total)


@inlined
def move(board: Board, island: Ints, first: int, second: int) -> bool:
    """Whether the best choice between two labels, made for every block that shows one of them, is cheaper; then it is made."""
    label, has, inside, nodes = board.label, board.has, board.moves[INSIDE], board.moves[NODES]
    count = 0
    for i in island:
        shows = (label[i] == first) | (label[i] == second)
        inside[i] = shows & has[i, first] & has[i, second]
        nodes[count] = i
        count += inside[i]
    nodes = nodes[:count]
    gain, hope = fill_move(board, nodes, first, second)
    if not hope or not saturate(board.moves, board.within, nodes, -gain):
        return False
    for i in nodes:
        label[i] = first if inside[i] == 2 else second
    return True


@inlined
def fill_move(board: Board, nodes: Ints, first: int, second: int) -> tuple[int, bool]:
    """Room and excess of a move: what the second label costs more than the first, and borders inside.

    What the labels as they are cost more than the first everywhere; whether some block would be cheaper with the other label if
    its neighbours did what suits it: else no move is.
    """
    cost, near, label, within = board.cost, board.near, board.label, board.within
    room, excess, inside = board.moves, board.moves[EXCESS], board.moves[INSIDE]
    border = near[first, second]
    gain, unlike, hope = np.int64(0), np.int64(0), False
    for i in nodes:
        more, others = cost[i, second] - cost[i, first], np.int64(0)
        for d in range(4):
            j = within[i, d]
            room[d, i] = border * inside[j]
            more += (near[second, label[j]] - near[first, label[j]]) * (1 - inside[j])
            others += inside[j] & (label[j] != label[i])
        excess[i] = more
        unlike += others
        is_second = label[i] == second
        gain += more * is_second
        hope |= (more if is_second else -more) + border * others > 0
    return int(gain + border * (unlike // 2)), hope


@inlined
def saturate(room: Ints, within: Ints, nodes: Ints, enough: int) -> bool:
    """Send excess to deficits along short ways until none gets there; whether deficits of more than ``enough`` are left.

    Then blocks that excess still reaches are marked 2: they show the first label.
    """
    excess, inside, queue, came = room[EXCESS], room[INSIDE], room[QUEUE], room[CAME]
    decide_alone(room, within, nodes)
    send_next_door(room, within, nodes)
    missing = np.int64(0)
    for i in nodes:
        missing -= min(excess[i], 0)
    sent = True
    while sent and missing > enough:  # the last time nothing gets anywhere, and marks are right
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
                j = within[i, d]
                if room[d, i] > 0 and inside[j] == 1:
                    inside[j] = 2
                    came[j] = d
                    queue[tail] = j
                    tail += 1
                    if excess[j] < 0:
                        amount = push(room, within, j)
                        missing -= amount
                        sent |= amount > 0
    return bool(missing > enough)


@inlined
def decide_alone(room: Ints, within: Ints, nodes: Ints) -> None:
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
                    j = within[i, d]
                    excess[i] -= sign * room[d, i]
                    excess[j] += sign * room[d, i]
                    room[d, i] = room[d ^ 1, j] = 0


@inlined
def send_next_door(room: Ints, within: Ints, nodes: Ints) -> None:
    """Send excess to deficits next door: most of it gets no farther."""
    excess = room[EXCESS]
    for i in nodes:
        for d in range(4):
            if excess[i] > 0 and room[d, i] > 0 and excess[within[i, d]] < 0:
                j = within[i, d]
                sent = min(excess[i], -excess[j], room[d, i])
                excess[i] -= sent
                excess[j] += sent
                room[d, i] -= sent
                room[d ^ 1, j] += sent


@inlined
def push(room: Ints, within: Ints, end: int) -> int:
    """Send as much as fits along the way that ended at the deficit of ``end``: how much, after others went before."""
    excess, came = room[EXCESS], room[CAME]
    sent, j = -excess[end], end
    while came[j] >= 0:
        i = within[j, came[j] ^ 1]
        sent = min(sent, room[came[j], i])
        j = i
    sent = min(sent, excess[j])
    if sent == 0:
        return 0
    excess[j] -= sent
    excess[end] += sent
    j = end
    while came[j] >= 0:
        d = came[j]
        i = within[j, d ^ 1]
        room[d, i] -= sent
        room[d ^ 1, j] += sent
        j = i
    return int(sent)
