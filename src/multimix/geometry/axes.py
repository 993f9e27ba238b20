"""What is told axis by axis, so that there is as little to copy as the sides are long: masks, and places that are shown."""

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

from torch import Tensor


def outer_masks(along: Sequence[Tensor]) -> Tensor:
    """``[K, rows, 1, *size]``: the product of the values ``[K, rows, side]`` along each axis."""
    d = len(along)
    wide = [values.reshape(*values.shape[:2], 1, *[1] * axis, -1, *[1] * (d - axis - 1)) for axis, values in enumerate(along)]
    return reduce(mul, wide)


class Taps(NamedTuple):
    """What is shown along one axis: ``first`` and ``second [K, rows, side]`` are places, ``weight`` is the second's share.

    ``nearest`` has no second place.
    """

    first: Tensor
    second: Tensor | None = None
    weight: Tensor | None = None

    def of(self, k: int, row: int | slice = slice(None), places: slice = slice(None)) -> "Taps":
        """Those of one step, row (or all rows) and run of places."""
        first, second, weight = (None if part is None else part[k, row, places] for part in self)
        assert first is not None
        return Taps(first, second, weight)
