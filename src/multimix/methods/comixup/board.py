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

    ``label [N]`` holds the labels to start from, then those found. ``active`` lists the labels that may be best somewhere: no
    other is looked at. ``left[i, : many[i]]`` are the labels that block i may still have, ``has [N, labels]`` is 1 for those,
    ``plains [N]`` how many of them show one input; ``stale [N]`` is 1 where more may have become certain. ``island`` lists
    blocks. ``choice`` is the best label of an eliminated block for every state of its front, block after block, and ``fronts
    [N, …]`` the eliminated block, where its choices begin, the length of its front and the blocks of it. ``joins`` is what a
    block costs beside the blocks before and above it.
    """

    cost: Ints  # [N, labels]
    near: Ints  # [labels, labels]
    beside: Ints
    label: Ints
    active: Ints
    left: Ints
    many: Ints
    has: Bytes
    plains: Ints
    stale: Bytes
    island: Ints
    table: Ints
    spare: Ints
    joins: Ints  # [2, states]
    choice: Bytes
    front: Ints
    fronts: Ints
    seen: Ints
    moves: Ints  # [9, N]: memory of the moves between two labels
