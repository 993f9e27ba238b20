"""The memory that the solver of one output of Co-Mixup works in."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

NOBODY = -1
HALF_LABELS = 3
"""Labels that show two inputs half and half."""
MAX_STATES = 2048
"""States of the table of a front: some microseconds for each block."""
ABOVE_ALL_COSTS = 1 << 62
FEW = 8
"""Labels up to which gaps are cached by the labels that a neighbor has left."""
SHIFT = 256
"""Costs in tables are multiples of it, so that there is room for a label."""
EXCESS, INSIDE, QUEUE, CAME, NODES, MOVE_ROWS = 4, 5, 6, 7, 8, 9
"""Rows of the memory of moves, after one of room for each direction."""
PLACE, SHOWN, KNOWN, TOTAL, COUNT, LABEL_ROWS = 0, 1, 2, 3, 4, 5
"""Rows of the memory with one number per label, before the moves that were tried."""


class Board(NamedTuple):
    """One output of N blocks, and memory to solve it.

    ``active`` lists the labels that may be best somewhere; all else counts along this list.
    ``label`` holds the labels to start from, then the result. Arrays of N + 1 have an entry for
    NOBODY, whose label is the last of ``near`` and borders on all others at no cost.
    ``left[i, : many[i]]`` are the labels that block i may still have, ``has`` is 1 for those.
    ``stale`` is 2 for settled blocks and 1 where labels may have become certain. ``choice`` is the
    best label of an eliminated block for every state of its front. ``fronts [N, …]`` are the
    eliminated block, where its choices begin, the length of its front and the blocks of it.
    ``joins`` is the cost of a block beside the blocks before and above it.
    """

    cost: Ints  # [N, labels]
    near: Ints  # [labels + 1, labels + 1]
    label: Ints  # [N + 1]
    active: Ints
    left: Bytes  # [N + 1, labels]; NOBODY may have all
    many: Ints  # [N]
    has: Bytes  # [N, labels + 1]
    stale: Ints  # [N + 1]
    kinds: Ints  # [N + 1]: the labels left as bits, 0 for settled blocks
    gaps: Ints  # by kind of the neighbor and best label, or by direction
    known: Bytes  # whether gaps are cached
    island: Ints  # [2, N]: its blocks, and the island of every block
    within: Ints  # [N, 4]: neighbors in the same island
    tables: Ints  # [4, MAX_STATES]: two tables and two of joins
    choice: Bytes
    front: Ints
    fronts: Ints
    moves: Ints  # [MOVE_ROWS, N + 1]
    labels: Ints  # [LABEL_ROWS + labels, labels + 1]


def new_board(blocks: int, inputs: int) -> Board:
    """Allocate the memory for one output."""
    labels = inputs + HALF_LABELS
    return Board(
        cost=np.zeros((blocks, labels), np.int64),
        near=np.zeros((labels + 1, labels + 1), np.int64),
        label=np.full(blocks + 1, labels),
        active=np.zeros(labels, np.int64),
        left=np.tile(np.arange(labels, dtype=np.uint8), (blocks + 1, 1)),
        many=np.zeros(blocks, np.int64),
        has=np.zeros((blocks, labels + 1), np.uint8),
        stale=np.full(blocks + 1, 2),
        kinds=np.zeros(blocks + 1, np.int64),
        gaps=np.zeros((FEW << FEW, max(labels, FEW)), np.int64),
        known=np.zeros(FEW << FEW, np.uint8),
        island=np.zeros((2, blocks), np.int64),
        within=np.zeros((blocks, 4), np.int64),
        tables=np.zeros((4, MAX_STATES), np.int64),
        choice=np.empty(blocks * MAX_STATES, np.uint8),
        front=np.zeros(16, np.int64),
        fronts=np.zeros((blocks, 20), np.int64),
        moves=np.zeros((MOVE_ROWS, blocks + 1), np.int64),
        labels=np.zeros((LABEL_ROWS + labels, labels + 1), np.int64),
    )
