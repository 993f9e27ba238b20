"""Where to cut and how to resize: the geometry behind the augmentations."""

import math

import torch
from torch import Tensor
from torch.nn import functional

# A number is a square, a pair is height and width.
Size = int | tuple[int, int]
TRIES = 10


def check_size(size: Size) -> None:
    """Raise unless ``size`` is one or two positive numbers."""
    if min(sides(size)) < 1:
        raise ValueError(f"size must be at least 1, got {size}")


def sides(size: Size) -> tuple[int, int]:
    """Height and width."""
    return (size, size) if isinstance(size, int) else size


def cut(x: Tensor, corner: Tensor, height: int, width: int) -> Tensor:
    """``[B, C, height, width]``: of every image the window whose upper left pixel is ``corner [B, 2]`` (row, column)."""
    batch, channels, _, full = x.shape
    rows = corner[:, 0, None] + torch.arange(height)
    columns = corner[:, 1, None] + torch.arange(width)
    index = (rows[:, :, None] * full + columns[:, None, :]).reshape(batch, 1, -1)
    return x.reshape(batch, channels, -1).gather(2, index.expand(-1, channels, -1)).reshape(batch, channels, height, width)


def crop_boxes(drawn: Tensor, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """``[B, 4]``: top, left, height, width of random-resized crops of images of one size.

    ``drawn [B, 22]`` holds ten tries of (area, shape), and one place. The first try that fits is taken.
    """
    area = (scale[0] + (scale[1] - scale[0]) * drawn[:, :TRIES]) * (height * width)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(low + (high - low) * drawn[:, TRIES : 2 * TRIES])
    sizes = torch.stack([(area / shape).sqrt(), (area * shape).sqrt()], 2).round().long()
    fits = ((sizes >= 1) & (sizes <= torch.tensor([height, width]))).all(2)
    # argmax finds the first of equal values.
    first = fits.byte().argmax(1)
    size = sizes[torch.arange(len(drawn)), first]
    size = torch.where(fits.any(1, keepdim=True), size, torch.tensor(_largest(height, width, ratio)))
    room = torch.tensor([height, width]) - size
    corner = torch.where(fits.any(1, keepdim=True), (drawn[:, 2 * TRIES :] * (room + 1)).long(), room // 2)
    return torch.cat([corner, size], 1)


def resized(x: Tensor, size: Size) -> Tensor:
    """``x [B, C, H, W]`` at another size, bilinear, smoothed when it shrinks; uint8 stays uint8, rounded."""
    # The fastest memory order, and one for all: rows go the same way whether they were stacked or came one by one.
    x = x.contiguous(memory_format=torch.channels_last)
    return functional.interpolate(x, size=sides(size), mode="bilinear", antialias=True, align_corners=False)


def _largest(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Height and width of the largest part with an allowed shape."""
    if width < height * ratio[0]:
        return min(height, round(width / ratio[0])), width
    if width > height * ratio[1]:
        return height, min(width, round(height * ratio[1]))
    return height, width
