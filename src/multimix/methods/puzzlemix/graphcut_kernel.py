"""The parametric cut, compiled: all levels, all K, one pair after the other.

Nodes are (level p, block i), numbered p·N + i. A node in the *own* set S means "the mask of block i does not exceed level p".
``e`` is what the node gains by being in S, plus flow received, minus flow sent: e > 0 asks for S, e < 0 is a deficit that
absorbs flow. Of all minimal cuts S is the largest, so the mask is the smallest. The sets of nodes are bit boards, 64 blocks to a
word, and the arcs that have room left are bit boards too, so that a breadth-first layer takes a few shifts and ands.

Blocks are joined in four directions: 0 right, 1 left, 2 down, 3 up; direction s ^ 1 leads back. Arc (q → p, s) leaves level q of
a block for level p of its neighbour. All arrays are flat and handed on whole: in a loop this short, making a view costs more
than the work on it. In ``layers`` the words of a level have an empty word on either side, so that shifts need no ends.
"""

import numpy as np
from numpy.typing import NDArray

from ...compiled import kernel

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

ONE = np.uint64(1)
ZERO = np.uint64(0)
WORD = 64

# Position of a single set bit: every 6-bit window of this constant is different.
_SEQUENCE = 0x03F79D71B4CB0A89
DE_BRUIJN = np.uint64(_SEQUENCE)
TOP = np.uint64(58)
POSITION = np.zeros(64, np.int64)
for _bit in range(64):
    POSITION[((_SEQUENCE << _bit) & (2**64 - 1)) >> 58] = _bit


@kernel
def cut_levels(
    base: Ints,
    down: Ints,
    right: Ints,
    slope: Ints,
    order: Ints,
    bend: Ints,
    levels: NDArray[np.uint8],
    start: int,
    stop: int,
) -> None:
    """Fill ``levels [K, B, rows, columns]`` for pairs ``start … stop − 1``; ``order [K, B]`` has each pair's λ, largest first."""
    steps, rows, columns = base.shape[1:]
    blocks = rows * columns
    words = (blocks + WORD - 1) // WORD
    room = np.zeros(steps * steps * 4 * blocks, np.int64)
    has_room = np.zeros(steps * steps * words * 4, np.uint64)
    e = np.zeros(steps * blocks, np.int64)
    asking = np.zeros(steps * words, np.uint64)
    reached = np.zeros(steps * words, np.uint64)
    layers = np.zeros((steps * blocks + 2) * steps * (words + 2), np.uint64)
    for b in range(start, stop):
        fill_room(room, has_room, down, right, b, bend, words)
        before = np.int64(0)
        for p in range(steps):
            for r in range(rows):
                for c in range(columns):
                    e[p * blocks + r * columns + c] = base[b, p, r, c]
        for place in range(len(order)):
            k = order[place, b]
            for node in range(steps * blocks):
                e[node] += before - slope[k, b]
            before = slope[k, b]
            settle(e, room, has_room, bend, asking, reached, layers, blocks, columns, words)
            for r in range(rows):
                for c in range(columns):
                    i = r * columns + c
                    level = ZERO
                    for p in range(steps):
                        level += (reached[p * words + (i >> 6)] >> np.uint64(i & 63)) & ONE
                    levels[k, b, r, c] = level


@kernel
def fill_room(room: Ints, has_room: Words, down: Ints, right: Ints, b: int, bend: Ints, words: int) -> None:
    """The capacities before any flow: from a level to the same or a higher level of the neighbour."""
    steps, rows, columns = len(bend), right.shape[1], down.shape[2]
    room[:] = 0
    has_room[:] = ZERO
    for q in range(steps):
        for p in range(q, steps):
            for r in range(rows):
                for c in range(columns):
                    i = r * columns + c
                    if c < columns - 1:
                        open_arc(room, has_room, q * steps + p, 0, i, i + 1, bend[p - q] * right[b, r, c], rows * columns, words)
                    if r < rows - 1:
                        below = i + columns
                        open_arc(room, has_room, q * steps + p, 2, i, below, bend[p - q] * down[b, r, c], rows * columns, words)


@kernel
def open_arc(room: Ints, has_room: Words, pair: int, s: int, i: int, j: int, weight: int, blocks: int, words: int) -> None:
    """Room for ``weight`` from block i in direction s to block j, and from j back to i."""
    if weight > 0:
        room[(pair * 4 + s) * blocks + i] = room[(pair * 4 + s + 1) * blocks + j] = weight
        has_room[(pair * words + (i >> 6)) * 4 + s] |= ONE << np.uint64(i & 63)
        has_room[(pair * words + (j >> 6)) * 4 + s + 1] |= ONE << np.uint64(j & 63)


@kernel
def settle(
    e: Ints,
    room: Ints,
    has_room: Words,
    bend: Ints,
    asking: Words,
    reached: Words,
    layers: Words,
    blocks: int,
    columns: int,
    words: int,
) -> None:
    """Push until no node with e > 0 can reach a deficit; ``reached`` then holds all nodes that can, the complement of S."""
    steps = len(bend)
    asking[:] = ZERO
    for word in range(steps * (words + 2)):
        layers[word] = ZERO
    for p in range(steps):
        for i in range(blocks):
            value, word, bit = e[p * blocks + i], i >> 6, ONE << np.uint64(i & 63)
            if value > 0:
                asking[p * words + word] |= bit
            elif value < 0:
                layers[p * (words + 2) + 1 + word] |= bit
    while True:
        last = find_layers(has_room, bend, asking, reached, layers, columns, words)
        if last == 0:
            return
        for depth in range(last, 0, -1):
            push_layer(e, room, has_room, bend, asking, layers, depth, blocks, columns, words)


@kernel
def find_layers(has_room: Words, bend: Ints, asking: Words, reached: Words, layers: Words, columns: int, words: int) -> int:
    """Distances to the deficits of layer 0, through arcs with room; the depth of the farthest asking node found, 0 if none is."""
    steps = len(bend)
    size = steps * (words + 2)
    crossed = steps > 1 and bend[1] > 0
    for p in range(steps):
        for w in range(words):
            reached[p * words + w] = layers[p * (words + 2) + 1 + w]
    depth = farthest = 0
    while True:
        near, far = depth * size + 1, (depth + 1) * size + 1
        grown = found = missing = ZERO
        for w in range(words):
            for q in range(steps):
                layers[far + q * (words + 2) + w] = ZERO
            for p in range(steps):
                s0, s1, s2, s3 = neighbours(layers, near + p * (words + 2) + w, columns)
                if s0 | s1 | s2 | s3 == ZERO:
                    continue
                for q in range(0 if crossed else p, steps if crossed else p + 1):
                    arcs = ((q * steps + p) * words + w) * 4
                    layers[far + q * (words + 2) + w] |= (
                        (has_room[arcs] & s0) | (has_room[arcs + 1] & s1) | (has_room[arcs + 2] & s2) | (has_room[arcs + 3] & s3)
                    )
            for q in range(steps):
                seen, asks = reached[q * words + w], asking[q * words + w]
                new = layers[far + q * (words + 2) + w] & ~seen
                layers[far + q * (words + 2) + w] = new
                reached[q * words + w] = seen | new
                grown |= new
                found |= new & asks
                missing |= asks & ~(seen | new)
        if grown == ZERO:
            return farthest
        depth += 1
        if found != ZERO:
            farthest = depth
            if missing == ZERO:
                return farthest


@kernel
def push_layer(
    e: Ints,
    room: Ints,
    has_room: Words,
    bend: Ints,
    asking: Words,
    layers: Words,
    depth: int,
    blocks: int,
    columns: int,
    words: int,
) -> None:
    """Send what asking nodes of layer ``depth`` have on to the layer before, as much as the arcs between them hold."""
    steps = len(bend)
    near, far = (depth - 1) * steps * (words + 2) + 1, depth * steps * (words + 2) + 1
    crossed = steps > 1 and bend[1] > 0
    for q in range(steps):
        for w in range(words):
            senders = asking[q * words + w] & layers[far + q * (words + 2) + w]
            if senders == ZERO:
                continue
            left = senders
            for p in range(0 if crossed else q, steps if crossed else q + 1):
                around = neighbours(layers, near + p * (words + 2) + w, columns)
                for s in range(4):
                    arcs, back = ((q * steps + p) * 4 + s) * blocks, ((p * steps + q) * 4 + (s ^ 1)) * blocks
                    has = ((q * steps + p) * words + w) * 4 + s
                    offset = (columns if s > 1 else 1) * (1 - 2 * (s & 1))
                    bits, filled = left & has_room[has] & around[s], ZERO
                    while bits != ZERO:
                        bit = bits & (~bits + ONE)
                        bits ^= bit
                        i = (w << 6) + POSITION[(bit * DE_BRUIJN) >> TOP]
                        j = i + offset
                        there, j_bit = j >> 6, ONE << np.uint64(j & 63)
                        mine, holds = e[q * blocks + i], room[arcs + i]
                        sent = min(mine, holds)
                        got = e[p * blocks + j] + sent
                        e[q * blocks + i] = mine - sent
                        e[p * blocks + j] = got
                        room[arcs + i] = holds - sent
                        room[back + j] += sent
                        # Products instead of branches, which nobody could predict.
                        left ^= bit * np.uint64(sent == mine)
                        filled |= bit * np.uint64(sent == holds)
                        has_room[((p * steps + q) * words + there) * 4 + (s ^ 1)] |= j_bit
                        asking[p * words + there] |= j_bit * np.uint64(got > 0)
                        if depth == 1:
                            layers[p * (words + 2) + 1 + there] &= ~(j_bit * np.uint64(got >= 0))  # no longer a deficit
                    has_room[has] &= ~filled
            asking[q * words + w] &= ~(senders ^ left)


@kernel
def neighbours(boards: Words, at: int, columns: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The nodes of a word whose neighbour to the right, left, below or above is on the board that ``boards[at]`` belongs to.

    Rows run into each other: ``has_room`` knows where they end.
    """
    along, back, last = np.uint64(columns), np.uint64(WORD - columns), np.uint64(WORD - 1)
    before, here, after = boards[at - 1], boards[at], boards[at + 1]
    return (
        (here >> ONE) | (after << last),
        (here << ONE) | (before >> last),
        (here >> along) | (after << back),
        (here << along) | (before >> back),
    )
