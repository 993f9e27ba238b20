"""Exact moves between two labels, compiled: every block that shows one of two labels chooses anew between them, by a minimum cut.

For islands too large to be solved as a whole. Any border costs will do that are symmetric, at least 0 and 0 between equal labels.
"""

import numpy as np
from numpy.typing import NDArray

from .compiled import inner

Ints = NDArray[np.int64]

NOBODY = -1
ROOM, EXCESS, INSIDE, QUEUE, CAME = 0, 4, 5, 6, 7  # rows of the moves' memory; four of room, one for each direction


@inner
def moved_labels(cost: Ints, near: Ints, beside: Ints, label: Ints, left: Ints, many: Ints, island: Ints, memory: Ints) -> None:
    """Labels of the ``island`` that no move between two labels makes cheaper, from the cheapest of three starts."""
    choose_start(cost, near, beside, label, left, many, island, memory)
    labels = len(near)
    usable = np.zeros((len(many), labels), np.bool_)
    known = np.zeros(labels, np.bool_)
    for i in island:
        for a in range(many[i]):
            usable[i, left[i, a]] = True
            known[left[i, a]] = True
    shown = np.zeros(labels, np.int64)  # how many blocks have the label now
    for i in island:
        shown[label[i]] += 1
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
                    if move(cost, near, beside, label, many, usable, island, memory, first, second):
                        changes += 1
                        improved = True
                        shown[:] = 0
                        for i in island:
                            shown[label[i]] += 1


@inner
def choose_start(cost: Ints, near: Ints, beside: Ints, label: Ints, left: Ints, many: Ints, island: Ints, memory: Ints) -> None:
    """The cheapest of: the labels before, each block's own cheapest, and the best single label (where a block may have it)."""
    own, single, total = memory[0], memory[1], np.zeros(len(near), np.int64)
    count = np.zeros(len(near), np.int64)
    for i in island:
        own[i] = left[i, 0]
        kept = False
        for a in range(many[i]):
            kept |= left[i, a] == label[i]
            total[left[i, a]] += cost[i, left[i, a]]
            count[left[i, a]] += 1
            if cost[i, left[i, a]] < cost[i, own[i]]:
                own[i] = left[i, a]
        if not kept:
            label[i] = own[i]
    best = -1
    for a in range(len(near)):
        if count[a] == len(island) and (best < 0 or total[a] < total[best]):
            best = a
    least = energy(cost, near, beside, label, many, island)
    value = energy(cost, near, beside, own, many, island)
    if value < least:
        least = value
        for i in island:
            label[i] = own[i]
    if best >= 0:
        for i in island:
            single[i] = best
        if energy(cost, near, beside, single, many, island) < least:
            for i in island:
                label[i] = best


@inner
def energy(cost: Ints, near: Ints, beside: Ints, label: Ints, many: Ints, island: Ints) -> int:
    """What an island costs with ``label``."""
    total = np.int64(0)
    for i in island:
        total += cost[i, label[i]]
        for d in (0, 2):
            j = beside[i, d]
            if j != NOBODY and many[j] > 1:
                total += near[label[i], label[j]]
    return int(total)


@inner
def move(
    cost: Ints,
    near: Ints,
    beside: Ints,
    label: Ints,
    many: Ints,
    usable: NDArray[np.bool_],
    island: Ints,
    memory: Ints,
    first: int,
    second: int,
) -> bool:
    """Whether the best choice between two labels, made for every block that shows one of them, is cheaper; then it is made."""
    inside = memory[INSIDE]
    count = 0
    for i in island:
        inside[i] = 0
        if (label[i] == first or label[i] == second) and usable[i, first] and usable[i, second]:
            inside[i] = 1
            count += 1
    if count == 0 or not may_gain(cost, near, beside, label, many, island, inside, first, second):
        return False
    gain = fill_move(cost, near, beside, label, many, island, memory, first, second)
    least = -saturate(memory, beside, island)
    if least >= gain:
        return False
    for i in island:
        if inside[i] > 0:
            label[i] = first if inside[i] == 2 else second
    return True


@inner
def may_gain(
    cost: Ints,
    near: Ints,
    beside: Ints,
    label: Ints,
    many: Ints,
    island: Ints,
    inside: Ints,
    first: int,
    second: int,
) -> bool:
    """Whether some block would be cheaper with the other label if its neighbours did what suits it; else no move is."""
    for i in island:
        if inside[i] == 0:
            continue
        now = label[i]
        other = first + second - now
        gain = cost[i, now] - cost[i, other]
        for d in range(4):
            j = beside[i, d]
            if j == NOBODY or many[j] == 1:
                continue
            gain += near[now, label[j]]
            if inside[j] == 0:
                gain -= near[other, label[j]]
        if gain > 0:
            return True
    return False


@inner
def fill_move(
    cost: Ints,
    near: Ints,
    beside: Ints,
    label: Ints,
    many: Ints,
    island: Ints,
    memory: Ints,
    first: int,
    second: int,
) -> int:
    """Room and excess of a move: what the second label costs more than the first, and borders inside.

    What the labels as they are cost more than the first everywhere.
    """
    excess, inside = memory[EXCESS], memory[INSIDE]
    gain = np.int64(0)
    for i in island:
        if inside[i] == 0:
            continue
        excess[i] = cost[i, second] - cost[i, first]
        for d in range(4):
            j = beside[i, d]
            memory[ROOM + d, i] = 0
            if j == NOBODY or many[j] == 1:
                continue
            if inside[j] == 1:
                memory[ROOM + d, i] = near[first, second]
                if d % 2 == 0 and label[i] != label[j]:
                    gain += near[first, second]
            else:
                excess[i] += near[second, label[j]] - near[first, label[j]]
        if label[i] == second:
            gain += excess[i]
    return int(gain)


@inner
def saturate(memory: Ints, beside: Ints, island: Ints) -> int:
    """Send excess to deficits along shortest ways until none gets there; what is left of the deficits, as a positive number.

    Blocks that excess still reaches are marked 2: they show the first label.
    """
    excess, inside, queue, came = memory[EXCESS], memory[INSIDE], memory[QUEUE], memory[CAME]
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
                if j != NOBODY and inside[j] == 1 and memory[ROOM + d, i] > 0:
                    inside[j] = 2
                    came[j] = d
                    queue[tail] = j
                    tail += 1
                    if excess[j] < 0:
                        end = j
                        break
        if end < 0:
            break
        push(memory, beside, end)
    missing = np.int64(0)
    for i in island:
        if inside[i] > 0 and excess[i] < 0:
            missing -= excess[i]
    return int(missing)


@inner
def push(memory: Ints, beside: Ints, end: int) -> None:
    """Send as much as fits along the way that ended at the deficit of ``end``."""
    excess, came = memory[EXCESS], memory[CAME]
    sent, j = -excess[end], end
    while came[j] >= 0:
        i = beside[j, came[j] ^ 1]
        sent = min(sent, memory[ROOM + came[j], i])
        j = i
    sent = min(sent, excess[j])
    excess[j] -= sent
    excess[end] += sent
    j = end
    while came[j] >= 0:
        d = came[j]
        i = beside[j, d ^ 1]
        memory[ROOM + d, i] -= sent
        memory[ROOM + (d ^ 1), j] += sent
        j = i
