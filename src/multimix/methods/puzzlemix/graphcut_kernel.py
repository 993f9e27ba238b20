"""The parametric cut, compiled: all levels and all K of one pair after the other.

Nodes are (level p, block i), numbered p·N + i. Node (p, i) is in the set S if the mask of block i
does not exceed level p. ``excess`` is the gain of being in S, plus flow received, minus flow sent.
Negative excess is a deficit, which absorbs flow. Of all minimal cuts S is the largest, so the mask
is the smallest. Sets of nodes are bit boards, 64 blocks to a word, and so are the arcs with room
left: a breadth-first layer takes a few shifts and ands.

Directions are 0 right, 1 left, 2 down, 3 up; direction s ^ 1 leads back. Arc (q → p, s) leaves
level q of a block for level p of its neighbor. Arrays are flat: in loops this short a view costs
more than the work on it. In ``layers`` the words of a level have an empty word on either side, so
that shifts need no special case at the ends.
"""

import numpy as np
from numpy.typing import NDArray

from ...core.compiled import inner, kernel

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

ONE = np.uint64(1)
ZERO = np.uint64(0)
WORD_BITS = 64

# Position of a single set bit: every 6-bit window of this constant is different.
_SEQUENCE = 0x03F79D71B4CB0A89
DE_BRUIJN = np.uint64(_SEQUENCE)
TOP = np.uint64(58)
POSITION = np.zeros(64, np.int64)
for _bit in range(64):
    POSITION[((_SEQUENCE << _bit) & (2**64 - 1)) >> 58] = _bit


@kernel
def cut_pairs(
    base: Ints,
    slope: Ints,
    order: Ints,
    room: Ints,
    has_room: Words,
    layers: Words,
    asking: Words,
    reached: Words,
    steps: int,
    columns: int,
    crossed: bool,
) -> None:
    """Fill ``reached [B, K, steps · words]``, the complement of S.

    Args:
        base: ``[B, steps · N]``, used up.
        slope: ``[B, K]``.
        order: ``[B, K]``, the steps of each pair by falling λ.
        room: ``[B, steps · steps · 4 · N]``, the arcs' capacities, used up.
        has_room: ``[B, steps · steps · words · 4]``, the same as bits, used up.
        layers: Memory for ``steps · N + 2`` layers.
        asking: Memory for ``steps · words``, the nodes with positive excess.
        reached: The result.
        steps: Number of levels above 0.
        columns: Columns of the grid.
        crossed: Whether arcs join different levels.
    """
    blocks = base.shape[1] // steps
    words = (blocks + WORD_BITS - 1) // WORD_BITS
    for b in range(len(base)):
        excess, arcs, bits = base[b], room[b], has_room[b]
        before = np.int64(0)
        for k in order[b]:
            reach = reached[b, k]
            for word in range(steps * words):
                asking[word] = ZERO
            for word in range(steps * (words + 2)):
                layers[word] = ZERO
            for node in range(steps * blocks):
                value = excess[node] + before - slope[b, k]
                excess[node] = value
                p, i = node // blocks, node % blocks
                bit = ONE << np.uint64(i & 63)
                if value > 0:
                    asking[p * words + (i >> 6)] |= bit
                elif value < 0:
                    layers[p * (words + 2) + 1 + (i >> 6)] |= bit
            before = slope[b, k]
            last = 1
            while last > 0:
                last = find_layers(bits, crossed, asking, reach, layers, steps, columns, words)
                for depth in range(last, 0, -1):
                    push_layer(
                        excess, arcs, bits, crossed, asking, layers, depth, steps, columns, words
                    )


@inner
def find_layers(
    has_room: Words,
    crossed: bool,
    asking: Words,
    reached: Words,
    layers: Words,
    steps: int,
    columns: int,
    words: int,
) -> int:
    """Distances to the deficits of layer 0, through arcs with room.

    Returns the depth of the farthest asking node, 0 if none is reached.
    """
    size = steps * (words + 2)
    for p in range(steps):
        for w in range(words):
            reached[p * words + w] = layers[p * (words + 2) + 1 + w]
    depth = farthest = 0
    while True:
        near, far = depth * size + 1, (depth + 1) * size + 1
        grown = met = missing = ZERO
        for w in range(words):
            for q in range(steps):
                layers[far + q * (words + 2) + w] = ZERO
            for p in range(steps):
                s0, s1, s2, s3 = shifted(layers, near + p * (words + 2) + w, columns)
                if s0 | s1 | s2 | s3 == ZERO:
                    continue
                for q in range(0 if crossed else p, steps if crossed else p + 1):
                    arcs = ((q * steps + p) * words + w) * 4
                    layers[far + q * (words + 2) + w] |= (
                        (has_room[arcs] & s0)
                        | (has_room[arcs + 1] & s1)
                        | (has_room[arcs + 2] & s2)
                        | (has_room[arcs + 3] & s3)
                    )
            for q in range(steps):
                seen, asks = reached[q * words + w], asking[q * words + w]
                new = layers[far + q * (words + 2) + w] & ~seen
                layers[far + q * (words + 2) + w] = new
                reached[q * words + w] = seen | new
                grown |= new
                met |= new & asks
                missing |= asks & ~(seen | new)
        if grown == ZERO:
            return farthest
        depth += 1
        if met != ZERO:
            farthest = depth
            if missing == ZERO:
                return farthest


@inner
def push_layer(
    excess: Ints,
    room: Ints,
    has_room: Words,
    crossed: bool,
    asking: Words,
    layers: Words,
    depth: int,
    steps: int,
    columns: int,
    words: int,
) -> None:
    """Send the excess of layer ``depth`` to the layer before, as much as the arcs hold."""
    blocks = len(excess) // steps
    near, far = (depth - 1) * steps * (words + 2) + 1, depth * steps * (words + 2) + 1
    for q in range(steps):
        for w in range(words):
            senders = asking[q * words + w] & layers[far + q * (words + 2) + w]
            if senders == ZERO:
                continue
            left = senders
            for p in range(0 if crossed else q, steps if crossed else q + 1):
                around = shifted(layers, near + p * (words + 2) + w, columns)
                for s in range(4):
                    arcs = ((q * steps + p) * 4 + s) * blocks
                    back = ((p * steps + q) * 4 + (s ^ 1)) * blocks
                    has = ((q * steps + p) * words + w) * 4 + s
                    offset = (columns if s > 1 else 1) * (1 - 2 * (s & 1))
                    bits, filled = left & has_room[has] & around[s], ZERO
                    while bits != ZERO:
                        bit = bits & (~bits + ONE)
                        bits ^= bit
                        i = (w << 6) + POSITION[(bit * DE_BRUIJN) >> TOP]
                        j = i + offset
                        there, j_bit = j >> 6, ONE << np.uint64(j & 63)
                        mine, capacity = excess[q * blocks + i], room[arcs + i]
                        sent = min(mine, capacity)
                        got = excess[p * blocks + j] + sent
                        excess[q * blocks + i] = mine - sent
                        excess[p * blocks + j] = got
                        room[arcs + i] = capacity - sent
                        room[back + j] += sent
                        # Products instead of branches, which cannot be predicted.
                        left ^= bit * np.uint64(sent == mine)
                        filled |= bit * np.uint64(sent == capacity)
                        has_room[((p * steps + q) * words + there) * 4 + (s ^ 1)] |= j_bit
                        asking[p * words + there] |= j_bit * np.uint64(got > 0)
                        if depth == 1:  # it may no longer be a deficit
                            layers[p * (words + 2) + 1 + there] &= ~(j_bit * np.uint64(got >= 0))
                    has_room[has] &= ~filled
            asking[q * words + w] &= ~(senders ^ left)


@inner
def shifted(
    boards: Words, at: int, columns: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The nodes of a word whose neighbor to the right, left, below or above is on the board.

    Rows run into each other: ``has_room`` has no bits where they end.
    """
    along, back = np.uint64(columns), np.uint64(WORD_BITS - columns)
    last = np.uint64(WORD_BITS - 1)
    before, here, after = boards[at - 1], boards[at], boards[at + 1]
    return (
        (here >> ONE) | (after << last),
        (here << ONE) | (before >> last),
        (here >> along) | (after << back),
        (here << along) | (before >> back),
    )
