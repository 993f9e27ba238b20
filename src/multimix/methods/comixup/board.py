"""What solving one output of Co-Mixup works on.

All costs are whole numbers. Blocks are numbered so that the front is as short as the grid allows; ``beside [N, 4]`` holds the
neighbours after, before, below, above (−1: none), so that direction d ^ 1 leads back.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NOBODY = -1


class Board(NamedTuple):
    """What solving one output of N blocks works on, and memory.

    ``active`` lists the labels that may be best somewhere, mostly a handful; everything else counts along this list. ``label``
    holds the labels to start from, then those found. Arrays of N + 1 have one entry more for NOBODY, whose label is the last
    of ``near`` and borders on all others at no cost. ``left[i, : many[i]]`` are the labels that block i may still have,
    ``has`` is 1 for those; ``kinds`` tells blocks with different labels left apart, 0 once they are settled. ``gaps`` is how
    much dearer labels get at least beside a block, by its kind and the label they are compared with, as far as ``known``.
    ``stale [N]`` is 1 where more may have become certain. ``island`` lists blocks, ``within [N, 4]`` their neighbours in the
    same island. ``choice`` is the best label of an eliminated block for every state of its front, block after block, and
    ``fronts [N, …]`` the eliminated block, where its choices begin, the length of its front and the blocks of it. ``joins`` is
    what a block costs beside the blocks before and above it.
    """

    cost: Ints  # [N, labels]
    near: Ints  # [labels + 1, labels + 1]
    beside: Ints
    label: Ints  # [N + 1]
    active: Ints
    left: Bytes  # [N + 1, labels]
    many: Ints
    has: Bytes  # [N, labels + 1]
    kinds: Ints  # [N + 1]
    gaps: Ints
    known: Bytes
    stale: Bytes
    island: Ints
    within: Ints
    table: Ints
    spare: Ints
    joins: Ints  # [2, states]
    choice: Bytes
    front: Ints
    fronts: Ints
    seen: Ints
    moves: Ints  # [9, N + 1]: memory of the moves between two labels
