"""Boxes around objects: how much two overlap, and where they lie in what a network sees.

A box is x, y, width, height in pixels, float, and covers x ≤ place < x + width: the first pixel of a row covers 0 … 1.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy
import torch
from scipy import ndimage
from torch import Tensor

from ..data import Augment, BadFile, CenterCrop, Files, Normalise, Resize
from ..data.augment import sides
from ..data.loader import made_ahead
from ..data.reading import picture_size

EIGHT = numpy.ones((3, 3), dtype=bool)
ROUNDING = 1e-6  # what scaling may add to a whole number of pixels


def iou(first: Tensor, second: Tensor) -> Tensor:
    """``[n, m]`` float64: intersection over union of each of the boxes ``first [n, 4]`` with each of ``second [m, 4]``.

    Boxes apart (also if they only touch) have 0, equal ones exactly 1. A box without area has 0 with every box, itself included.

    >>> iou(torch.tensor([[0, 0, 2, 2]]), torch.tensor([[1, 0, 2, 2], [2, 2, 2, 2], [5, 6, 2, 2]])).tolist()
    [[0.3333333333333333, 0.0, 0.0]]
    """
    low, high, area = _corners(first)
    other_low, other_high, other_area = _corners(second)
    overlap = torch.minimum(high[:, None], other_high) - torch.maximum(low[:, None], other_low)
    # Each axis is cut off at 0 by itself: boxes apart on both would otherwise get a positive product.
    shared = overlap.clamp(min=0).prod(2)
    union = area[:, None] + other_area - shared
    return torch.where(shared > 0, shared / union, 0.0)


def clipped(boxes: Tensor, height: int, width: int) -> Tensor:
    """``[k, 4]``: what of ``boxes [n, 4]`` lies in an image of that size; those of which nothing does are left out."""
    low, high, _ = _corners(boxes)
    limit = torch.tensor([width, height], dtype=torch.float64)
    low, high = low.clamp(min=0).minimum(limit), high.clamp(min=0).minimum(limit)
    inside = torch.cat([low, high - low], 1)
    return inside[(inside[:, 2:] > 0).all(1)]


def covered(boxes: Tensor, height: int, width: int) -> Tensor:
    """bool ``[height, width]``: the pixels that any of ``boxes [n, 4]`` touches."""
    mask = torch.zeros(height, width, dtype=torch.bool)
    for left, top, wide, high in clipped(boxes, height, width).tolist():
        first_row, first_column = math.floor(top + ROUNDING), math.floor(left + ROUNDING)
        mask[first_row : math.ceil(top + high - ROUNDING), first_column : math.ceil(left + wide - ROUNDING)] = True
    return mask


def rescaled(boxes: Tensor, before: tuple[int, int], after: tuple[int, int]) -> Tensor:
    """``boxes [n, 4]`` of an image of height and width ``before`` in the same image of size ``after``, float64."""
    (height, width), (new_height, new_width) = before, after
    x, y = new_width / width, new_height / height
    return boxes.double() * torch.tensor([x, y, x, y], dtype=torch.float64)


def seen_boxes(boxes: Tensor, stored: tuple[int, int], read: tuple[int, int], augment: Augment) -> Tensor:
    """``boxes [n, 4]`` of the stored file where ``augment`` puts them, clipped; those outside the view are left out.

    ``stored`` and ``read`` are height and width of the file and of what was read from it, which a reader may have resized.
    """
    boxes, size = rescaled(boxes, stored, read), read
    for step in augment.steps:
        if isinstance(step, Resize):
            after = step.size_of(*size)
            boxes, size = rescaled(boxes, size, after), after
        elif isinstance(step, CenterCrop):
            after = sides(step.size)
            top, left = (round((full - part) / 2) for full, part in zip(size, after, strict=True))
            boxes, size = boxes - torch.tensor([left, top, 0, 0], dtype=torch.float64), after
        elif not isinstance(step, Normalise):
            raise ValueError(
                f"boxes can be followed through Resize, CenterCrop and Normalise only, augment has {type(step).__name__}"
            )
    return clipped(boxes, *size)


def largest_box(mask: numpy.ndarray) -> tuple[int, int, int, int]:
    """x, y, width, height around the largest region of ``mask [H, W]``, or zeros if there is none.

    Pixels that touch at a corner belong together. As in the reference script, the largest is that whose outer contour, a polygon
    through the centres of its outermost pixels, encloses most: holes count, and a line encloses nothing. Of equally large
    regions it is the one that begins last, line by line, with which OpenCV begins its list.
    """
    # What is not outside is filled: the background connects along edges only, so it cannot slip between pixels at a corner.
    outside, _ = ndimage.label(numpy.pad(~mask, 1, constant_values=True))
    numbered, count = ndimage.label(outside != outside[0, 0], structure=EIGHT)
    if count == 0:
        return 0, 0, 0, 0
    # Of the square between the centres of 2 × 2 pixels the polygon has all if all are filled, half with three, else nothing.
    # All four are neighbours, so those filled are of one region.
    corners = numpy.stack([numbered[:-1, :-1], numbered[:-1, 1:], numbered[1:, :-1], numbered[1:, 1:]])
    enclosed = ((corners > 0).sum(0) - 2).clip(0)
    largest = numpy.bincount(corners.max(0).ravel(), enclosed.ravel(), count + 1)[:0:-1].argmax()
    down, across = ndimage.find_objects(numbered)[count - 1 - largest]
    return across.start - 1, down.start - 1, across.stop - across.start, down.stop - down.start


class Boxed(NamedTuple):
    """Samples as a network sees them: ``x [B, C, H, W]``, ``labels [B]``, ``boxes`` of each in pixels of ``x`` (``[n, 4]``).

    ``vanished`` counts the boxes of each sample that lay outside the view.
    """

    x: Tensor
    labels: Tensor
    boxes: list[Tensor]
    vanished: list[int]


def boxed_batches(split: Files, augment: Augment, batch: int = 50, workers: int = 0) -> Iterator[Boxed]:
    """The samples of ``split`` in order, ``batch`` at a time, made by ``workers`` other processes (0: by this one)."""
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    seen_boxes(torch.zeros(0, 4), (1, 1), (1, 1), augment)  # an augmentation that cannot be followed is refused now
    return made_ahead(partial(_boxed, split, augment, batch), range(-(-len(split) // batch)), workers)


def _boxed(split: Files, augment: Augment, batch: int, step: int) -> Boxed | BadFile:
    rows = range(step * batch, min(len(split), (step + 1) * batch))
    stored = [annotated(split)[row] for row in rows]
    try:
        images, labels = split.batch(torch.tensor(rows))
        sizes = [picture_size(split.paths[row]) for row in rows]
    except BadFile as bad:
        return bad
    boxes = [
        seen_boxes(some, size, (image.shape[1], image.shape[2]), augment)
        for some, size, image in zip(stored, sizes, images, strict=True)
    ]
    x = augment.apply(images, torch.zeros(len(rows), 0))
    return Boxed(x, labels, boxes, [len(before) - len(after) for before, after in zip(stored, boxes, strict=True)])


def annotated(split: Any) -> tuple[Tensor, ...]:
    """The boxes of a split; ValueError if it has none."""
    if not isinstance(split, Files) or split.boxes is None:
        raise ValueError(f"split must have boxes (Files.boxes; for ImageNet read with boxes=True), got {type(split).__name__}")
    return split.boxes


def with_boxes(split: Files) -> Files:
    """Only the samples that have a box."""
    rows = torch.tensor([row for row, boxes in enumerate(annotated(split)) if len(boxes)], dtype=torch.int64)
    if len(rows) == 0:
        raise ValueError("split must hold at least 1 sample with a box, it has none")
    return split if len(rows) == len(split) else split.take(rows)


def _corners(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Upper left and lower right corners ``[n, 2]`` and areas, float64; areas from the corners, so that they cancel exactly."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes must be [n, 4]: x, y, width, height, got {list(boxes.shape)}")
    boxes = boxes.double()
    if not bool(boxes.isfinite().all()):
        raise ValueError("boxes must be finite, got NaN or infinity")
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:].clamp(min=0)
    return low, high, (high - low).prod(1)
