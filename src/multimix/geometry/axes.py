"""Masks that are products over the axes: as little to copy as the sides are long."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

from torch import Tensor


def outer_masks(along: Sequence[Tensor]) -> Tensor:
    """``[K, rows, 1, *size]``: the product of the values ``[K, rows, side]`` along each axis."""
    d = len(along)
    wide = [values.reshape(*values.shape[:2], 1, *[1] * axis, -1, *[1] * (d - axis - 1)) for axis, values in enumerate(along)]
    return reduce(mul, wide)
