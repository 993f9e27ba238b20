"""Exact moves between two labels of an island, by a minimum cut, compiled."""

from typing import Any

import numpy as np

from ...core.compiled import inlined, inner
from .board import (
    CAME,
    COUNT,
    EXCESS,
    INSIDE,
    KNOWN,
    LABEL_ROWS,
    NOBODY,
    NODES,
    QUEUE,
    SHOWN,
    TOTAL,
    Board,
    Ints,
)


@inner
def move_labels(board: Board, beside: Ints, island: Ints, labels: int) -> None:
    """Find labels that no move between two labels makes cheaper, from the cheapest of three starts.

    In a move every block that shows one of the two labels chooses anew between them, by a minimum
    cut. It is correct for border costs that are symmetric, at least 0, and 0 between equal labels.
    """
    within, many, label = board.within, board.many, board.label
    shown, known, tried = board.labels[SHOWN], board.labels[KNOWN], board.labels[LABEL_ROWS:]
    for i in island:
        for d in range(4):
            j = beside[i, d]
            within[i, d] = j if j != NOBODY and many[j] > 1 else NOBODY
    choose_start(board, island, labels)
    for a in range(labels):
        shown[a], known[a] = 0, 0
        for b in range(labels):
            tried[a, b] = 0
    for i in island:
        shown[label[i]] += 1
        for a in range(many[i]):
            known[board.left[i, a]] = 1
    changes = 1  # a pair of labels is tried again only if a label has changed since
    improved = True
    while improved:
        improved = False
        for first in range(labels):
            for second in range(first + 1, labels):
                if shown[first] + shown[second] == 0 or tried[first, second] >= changes:
                    continue
                if known[first] == 0 or known[second] == 0:
                    continue
                tried[first, second] = changes
                if move(board, island, first, second):
                    changes += 1
                    improved = True
                    for a in range(labels):
                        shown[a] = 0
                    for i in island:
                        shown[label[i]] += 1


@inlined
def choose_start(board: Board, island: Ints, labels: int) -> None:
    """Start from the cheapest of the current labels, each block's cheapest, and a single label."""
    cost, label, left, near, within = board.cost, board.label, board.left, board.near, board.within
    cheapest, total, count = board.moves[0], board.labels[TOTAL], board.labels[COUNT]
    for a in range(labels):
        total[a], count[a] = 0, 0
    cheapest[NOBODY] = label[NOBODY]
    for i in island:
        cheapest[i] = left[i, 0]
        for a in range(board.many[i]):
            total[left[i, a]] += cost[i, left[i, a]]
            count[left[i, a]] += 1
            if cost[i, left[i, a]] < cost[i, cheapest[i]]:
                cheapest[i] = left[i, a]
        if board.has[i, label[i]] == 0:
            label[i] = cheapest[i]
    best = -1
    for a in range(labels):
        if count[a] == len(island) and (best < 0 or total[a] < total[best]):
            best = a
    current, alone = np.int64(0), np.int64(0)
    for i in island:
        after, below = within[i, 0], within[i, 2]
        a, b = label[i], cheapest[i]
        current += cost[i, a] + near[a, label[after]] + near[a, label[below]]
        alone += cost[i, b] + near[b, cheapest[after]] + near[b, cheapest[below]]
    single = best >= 0 and total[best] < min(current, alone)
    if single or alone < current:
        for i in island:
            label[i] = best if single else cheapest[i]


@inlined
def move(board: Board, island: Ints, first: int, second: int) -> bool:
    """Make the best choice between two labels for every block that shows one, if it is cheaper.

    Excess is the additional cost of the second label. It is sent to deficits along shortest paths
    of borders with room. Blocks that excess still reaches show the first label.
    """
    cost, near, label, has, within = board.cost, board.near, board.label, board.has, board.within
    room, excess, inside = board.moves, board.moves[EXCESS], board.moves[INSIDE]
    nodes, queue, came = board.moves[NODES], board.moves[QUEUE], board.moves[CAME]
    count = 0
    for i in island:
        shows = (label[i] == first) | (label[i] == second)
        inside[i] = shows & has[i, first] & has[i, second]
        nodes[count] = i
        count += inside[i]
    nodes = nodes[:count]
    border = near[first, second]
    gain, unlike, hope, missing = np.int64(0), np.int64(0), False, np.int64(0)
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
        # Without a block that would gain if its neighbors did what suits it, no move does.
        hope |= (more if is_second else -more) + border * others > 0
    enough = -(gain + border * (unlike // 2))  # deficits of the labels as they are
    if hope:
        missing = push_next_door(room, within, nodes)
    sent = hope
    while sent and missing > enough:  # the last time nothing arrives, and marks are right
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
                        amount = push_flow(room, within, j)
                        missing -= amount
                        sent |= amount > 0
    if not hope or missing <= enough:
        return False
    for i in nodes:
        label[i] = first if inside[i] == 2 else second
    return True


@inlined
def push_next_door(room: Ints, within: Ints, nodes: Ints) -> Any:
    """Decide blocks that outweigh their borders, send excess to neighbors; returns the deficits.

    Most blocks are decided and most excess arrives this way.
    """
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
    missing = np.int64(0)
    for i in nodes:
        for d in range(4):
            if excess[i] > 0 and room[d, i] > 0 and excess[within[i, d]] < 0:
                j = within[i, d]
                sent = min(excess[i], -excess[j], room[d, i])
                excess[i] -= sent
                excess[j] += sent
                room[d, i] -= sent
                room[d ^ 1, j] += sent
    for i in nodes:
        missing -= min(excess[i], 0)
    return missing


@inlined
def push_flow(room: Ints, within: Ints, end: int) -> Any:
    """Send as much as fits along the path that ended at the deficit of ``end``."""
    excess, came = room[EXCESS], room[CAME]
    sent, j = -excess[end], end
    while came[j] >= 0:
        i = within[j, came[j] ^ 1]
        sent = min(sent, room[came[j], i])
        j = i
    sent = min(sent, excess[j])
    if sent == 0:
        return sent
    excess[j] -= sent
    excess[end] += sent
    j = end
    while came[j] >= 0:
        d = came[j]
        i = within[j, d ^ 1]
        room[d, i] -= sent
        room[d ^ 1, j] += sent
        j = i
    return sent
