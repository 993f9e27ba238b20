"""The parametric cut, compiled: all levels, all K, one pair after the other.

Nodes are (level p, block i), numbered p·N + i. A node in the *own* set S means "the mask of block i does not exceed level p".
``e`` is what the node gains by being in S, plus flow received, minus flow sent: e > 0 asks for S, e < 0 is a deficit that
absorbs flow. Of all minimal cuts S is the largest, so the mask is the smallest. The sets of nodes are bit boards, 64 blocks to a
word, and the arcs that have room left are bit boards too, so that a breadth-first layer takes a few shifts and ands.

Blocks are joined in four directions: 0 right, 1 left, 2 down, 3 up; direction s ^ 1 leads back. Arc (q → p, s) leaves level q of
a block for level p of its neighbour. All arrays are flat and handed on whole: in a loop this short, making a view costs more
than the work on it.
"""

import numpy as np
from numpy.typing import NDArray

from .compiled import kernel

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
    has_room = np.zeros(steps * steps * 4 * words, np.uint64)
    e = np.zeros(steps * blocks, np.int64)
    asking = np.zeros(steps * words, np.uint64)
    reached = np.zeros(steps * words, np.uint64)
    layers = np.zeros((steps * blocks + 2) * steps * words, np.uint64)
    shifted = np.zeros(4 * words, np.uint64)
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
            settle(e, room, has_room, bend, asking, reached, layers, shifted, steps, blocks, columns, words)
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
    blocks = rows * columns
    room[:] = 0
    has_room[:] = ZERO
    for q in range(steps):
        for p in range(q, steps):
            first = (q * steps + p) * 4
            for r in range(rows):
                for c in range(columns):
                    i = r * columns + c
                    bit = ONE << np.uint64(i & 63)
                    if c < columns - 1:
                        weight = bend[p - q] * right[b, r, c]
                        if weight > 0:
                            room[first * blocks + i] = room[(first + 1) * blocks + i + 1] = weight
                            has_room[first * words + (i >> 6)] |= bit
                            has_room[(first + 1) * words + ((i + 1) >> 6)] |= ONE << np.uint64((i + 1) & 63)
                    if r < rows - 1:
                        weight = bend[p - q] * down[b, r, c]
                        below = i + columns
                        if weight > 0:
                            room[(first + 2) * blocks + i] = room[(first + 3) * blocks + below] = weight
                            has_room[(first + 2) * words + (i >> 6)] |= bit
                            has_room[(first + 3) * words + (below >> 6)] |= ONE << np.uint64(below & 63)


@kernel
def settle(
    e: Ints,
    room: Ints,
    has_room: Words,
    bend: Ints,
    asking: Words,
    reached: Words,
    layers: Words,
    shifted: Words,
    steps: int,
    blocks: int,
    columns: int,
    words: int,
) -> None:
    """Push until no node with e > 0 can reach a deficit; ``reached`` then holds all nodes that can, the complement of S."""
    asking[:] = ZERO
    for word in range(steps * words):
        layers[word] = ZERO
    for p in range(steps):
        for i in range(blocks):
            value, word, bit = e[p * blocks + i], p * words + (i >> 6), ONE << np.uint64(i & 63)
            if value > 0:
                asking[word] |= bit
            elif value < 0:
                layers[word] |= bit
    while True:
        last = find_layers(has_room, bend, asking, reached, layers, shifted, steps, columns, words)
        if last == 0:
            return
        for depth in range(last, 0, -1):
            push_layer(e, room, has_room, bend, asking, layers, depth, shifted, steps, blocks, columns, words)


@kernel
def find_layers(
    has_room: Words,
    bend: Ints,
    asking: Words,
    reached: Words,
    layers: Words,
    shifted: Words,
    steps: int,
    columns: int,
    words: int,
) -> int:
    """Distances to the deficits of layer 0, through arcs with room; the depth of the farthest asking node found, 0 if none is."""
    size = steps * words
    for word in range(size):
        reached[word] = layers[word]
    depth = farthest = 0
    while True:
        near, far = depth * size, (depth + 1) * size
        for word in range(size):
            layers[far + word] = ZERO
        for p in range(steps):
            if not shift_all(layers, near + p * words, shifted, columns, words):
                continue
            for q in range(steps):
                if bend[abs(p - q)] > 0:
                    arcs = (q * steps + p) * 4 * words
                    for w in range(words):
                        layers[far + q * words + w] |= (
                            (has_room[arcs + w] & shifted[w])
                            | (has_room[arcs + words + w] & shifted[words + w])
                            | (has_room[arcs + 2 * words + w] & shifted[2 * words + w])
                            | (has_room[arcs + 3 * words + w] & shifted[3 * words + w])
                        )
        grown = found = missing = ZERO
        for word in range(size):
            new = layers[far + word] & ~reached[word]
            layers[far + word] = new
            reached[word] |= new
            grown |= new
            found |= new & asking[word]
            missing |= asking[word] & ~reached[word]
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
    shifted: Words,
    steps: int,
    blocks: int,
    columns: int,
    words: int,
) -> None:
    """Send what asking nodes of layer ``depth`` have on to the layer before, as much as the arcs between them hold."""
    size = steps * words
    near, far = (depth - 1) * size, depth * size
    for p in range(steps):
        if not shift_all(layers, near + p * words, shifted, columns, words):
            continue
        for q in range(steps):
            if bend[abs(p - q)] == 0:
                continue
            for w in range(words):
                senders = asking[q * words + w] & layers[far + q * words + w]
                if senders == ZERO:
                    continue
                for s in range(4):
                    arcs, back = (q * steps + p) * 4 + s, (p * steps + q) * 4 + (s ^ 1)
                    offset = (columns if s > 1 else 1) * (1 - 2 * (s & 1))
                    bits = asking[q * words + w] & senders & has_room[arcs * words + w] & shifted[s * words + w]
                    while bits != ZERO:
                        bit = bits & (~bits + ONE)
                        bits ^= bit
                        i = (w << 6) + POSITION[(bit * DE_BRUIJN) >> TOP]
                        j = i + offset
                        there, j_bit = j >> 6, ONE << np.uint64(j & 63)
                        has, holds = e[q * blocks + i], room[arcs * blocks + i]
                        sent = min(has, holds)
                        e[q * blocks + i] = has - sent
                        if sent == has:
                            asking[q * words + w] ^= bit
                        room[arcs * blocks + i] = holds - sent
                        if sent == holds:
                            has_room[arcs * words + w] ^= bit
                        room[back * blocks + j] += sent
                        has_room[back * words + there] |= j_bit
                        got = e[p * blocks + j] + sent
                        e[p * blocks + j] = got
                        if got > 0:
                            asking[p * words + there] |= j_bit
                        if got >= 0 and depth == 1:
                            layers[p * words + there] &= ~j_bit  # no longer a deficit


@kernel
def shift_all(boards: Words, first: int, shifted: Words, columns: int, words: int) -> bool:
    """``shifted[s]``: nodes whose neighbour in direction s is on the board of ``words`` words at ``first``; false if it is empty.

    Rows run into each other: ``has_room`` knows where they end.
    """
    along, back = np.uint64(columns), np.uint64(WORD - columns)
    last = np.uint64(WORD - 1)
    some = ZERO
    before, here = ZERO, boards[first]
    for w in range(words):
        after = boards[first + w + 1] if w + 1 < words else ZERO
        shifted[w] = (here >> ONE) | (after << last)
        shifted[words + w] = (here << ONE) | (before >> last)
        shifted[2 * words + w] = (here >> along) | (after << back)
        shifted[3 * words + w] = (here << along) | (before >> back)
        some |= here
        before, here = here, after
    return bool(some != ZERO)
