"""A grid of cells inside a crop, with a hole in every cell: K nested masks that share crop, cells and offset."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..options import Range, between


class HoleGrid(NamedTuple):
    """``low`` and ``side [rows, d]``: the crop, in places; ``cells`` how many it has along each axis; ``offset`` in cells."""

    low: Tensor
    side: Tensor
    cells: Tensor
    offset: Tensor


def cropped_grid(
    uniform: Tensor, size: tuple[int, ...], *, holes: Range, hole_aspect: Range, crop: Range, crop_aspect: Range
) -> HoleGrid:
    """The grids that ``uniform [rows, 4 + 2 d]`` in 0 … 1 stand for.

    A crop has the share ``crop`` of the image and is ``crop_aspect`` times as tall for its width as the image, as far as it fits;
    all its positions are equally likely. It has ``holes`` cells along the last axis, at most every second place one, and so
    many along the others that they are ``hole_aspect`` times as tall as wide: a whole number, so that no cell is cut off.
    """
    d = len(size)
    sides = torch.tensor(size, dtype=torch.float64)
    share = between(crop, uniform[:, 1]) ** (1 / d)
    stretch = torch.ones(len(uniform), d, dtype=torch.float64)
    if d > 1:
        tall = torch.minimum(torch.maximum(between(crop_aspect, uniform[:, 2]).sqrt(), share), 1 / share)
        stretch[:, -2], stretch[:, -1] = tall, 1 / tall
    side = (sides * share.unsqueeze(1) * stretch).round().clamp(min=1).minimum(sides)
    low = (uniform[:, 4 : 4 + d] * (sides - side + 1)).floor().minimum(sides - side)
    count = (holes[0] + uniform[:, 0] * (holes[1] - holes[0] + 1)).floor().clamp(max=holes[1])
    most = (side / 2).floor().clamp(min=1)
    across = torch.minimum(count, most[:, -1])
    pitch = (side[:, -1] / across * between(hole_aspect, uniform[:, 3])).unsqueeze(1)
    cells = (side / pitch).round().clamp(min=1).minimum(most)
    cells[:, -1] = across
    return HoleGrid(low, side, cells, uniform[:, 4 + d :])


def hole_masks(lam: Tensor, grid: HoleGrid, size: tuple[int, ...]) -> Tensor:
    """``[K, rows, 1, *size]``, float32: 1 in the holes, whose sides are λ_k^(1/d) times their cell's.

    A place belongs to a hole if its middle does: with the hole's corner at 0 and the cell's length 1, if it lies below λ_k^(1/d).
    So holes grow from one corner, the masks nest, and a hole may reach over the crop's border to its other side.
    """
    reach = (lam ** (1 / len(size))).unsqueeze(-1)
    mask = torch.ones((), dtype=torch.bool)
    for axis, side in enumerate(size):
        place = torch.arange(side, dtype=torch.float64) + 0.5 - grid.low[:, axis, None]
        inside = (place > 0) & (place < grid.side[:, axis, None])
        where = place * grid.cells[:, axis, None] / grid.side[:, axis, None] - grid.offset[:, axis, None]
        # The remainder of a sliver below 0 is rounded to 1: a hole as large as its cell takes it all the same.
        covered = inside & ((where.remainder(1) < reach) | (reach >= 1))
        mask = mask.unsqueeze(-1) & covered.reshape(*covered.shape[:2], *[1] * axis, side)
    return mask.float().unsqueeze(2)
