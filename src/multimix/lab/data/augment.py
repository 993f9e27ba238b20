"""Augmentations on whole batches, drawn first and applied later.

A draw is one tensor ``[B, n]`` of numbers in [0, 1): n for every sample, whatever its size. Rows can be taken out of it, so all
processes of a distributed run can take their part of one draw, and a draw can be made before any file is opened.

Pixels are uint8 in 0 … 255 or floating point in 0 … 1 until they are normalised, last: what padding and rotation bring in is 0,
black, as in the reference protocols, not the mean colour.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

# Images of one size are one tensor [B, C, H, W], images of several sizes a list of [C, H, W].
Pixels = Tensor | list[Tensor]
# A number is a square, a pair is height and width.
Size = int | tuple[int, int]
TRIES = 10  # of a random-resized crop until one fits


class Step(ABC):
    """One augmentation: how many ``numbers`` in [0, 1) it draws for a sample, and what it does with them."""

    numbers: ClassVar[int] = 0

    @abstractmethod
    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        """``x [B, C, H, W]`` changed as ``drawn [B, numbers]`` says; ``x`` itself stays as it is."""


@dataclass(frozen=True)
class Sized(Step):
    """A step whose images have a ``size`` of their own."""

    size: Size

    def __post_init__(self) -> None:
        if min(sides(self.size)) < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")


@dataclass(frozen=True)
class Flip(Step):
    """Mirrored left to right with probability ``p``."""

    p: float = 0.5
    numbers = 1

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"p must lie in 0 … 1, got {self.p}")

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        rows = (drawn[:, 0] < self.p).nonzero().flatten()
        return x.index_copy(0, rows, x.index_select(0, rows).flip(-1))


@dataclass(frozen=True)
class PaddedCrop(Sized):
    """A window of ``size`` anywhere in the image with ``padding`` black pixels around it; every place is equally likely."""

    padding: int
    numbers = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padding < 0:
            raise ValueError(f"padding must be at least 0, got {self.padding}")

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        height, width = sides(self.size)
        padded = functional.pad(x, (self.padding,) * 4)
        room = torch.tensor([padded.shape[2] - height + 1, padded.shape[3] - width + 1])
        if int(room.min()) < 1:
            shape = f"{padded.shape[2]} × {padded.shape[3]}"
            raise ValueError(f"size must fit into the padded image, got {height} × {width} in {shape}")
        return cut(padded, (drawn * room).long(), height, width)


@dataclass(frozen=True)
class RandomResizedCrop(Sized):
    """A part of the image with a random area and shape, resized to ``size`` (bilinear, smoothed when it shrinks).

    Its share of the area is uniform in ``scale``, the logarithm of width / height uniform in ``ratio``, its place uniform. What
    does not fit is drawn again, ten times at most; then it is the largest part in the middle whose shape is allowed.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    numbers = 2 * TRIES + 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale must be two ascending shares of the area in (0, 1], got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio must be two ascending positive numbers, got {self.ratio}")

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        boxes = crop_boxes(drawn, x.shape[2], x.shape[3], self.scale, self.ratio)
        parts = [x[i : i + 1, :, top : top + h, left : left + w] for i, (top, left, h, w) in enumerate(boxes.tolist())]
        return torch.cat([resize(part, self.size) for part in parts])


@dataclass(frozen=True)
class Rotation(Step):
    """Turned about the middle by an angle uniform in ±``degrees``, counter-clockwise if positive (bilinear, black outside)."""

    degrees: float
    numbers = 1

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise ValueError(f"degrees must lie in 0 … 180, got {self.degrees}")

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        angle = torch.deg2rad((2 * drawn[:, 0] - 1) * self.degrees)
        sine, cosine, zero = angle.sin(), angle.cos(), torch.zeros_like(angle)
        # grid_sample counts both sides from −1 to 1: turning there must not stretch images that are not square.
        aspect = x.shape[2] / x.shape[3]
        matrix = torch.stack([cosine, -sine * aspect, zero, sine / aspect, cosine, zero], 1).reshape(-1, 2, 3).float()
        grid = functional.affine_grid(matrix, list(x.shape), align_corners=False)
        return functional.grid_sample(in_unit_range(x), grid, mode="bilinear", padding_mode="zeros", align_corners=False)


@dataclass(frozen=True)
class Resize(Sized):
    """Resized (bilinear, smoothed when it shrinks): a number is the new short side, aspect kept; a pair is height and width."""

    def size_of(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing an image of this height and width."""
        if not isinstance(self.size, int):
            return self.size
        short = min(height, width)
        return max(1, round(height * self.size / short)), max(1, round(width * self.size / short))

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        size = self.size_of(x.shape[2], x.shape[3])
        return torch.cat([resize(x[i : i + 1], size) for i in range(len(x))])


@dataclass(frozen=True)
class CenterCrop(Sized):
    """The middle of the image."""

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        height, width = sides(self.size)
        if height > x.shape[2] or width > x.shape[3]:
            raise ValueError(f"size must fit into the image, got {height} × {width} in {x.shape[2]} × {x.shape[3]}")
        top, left = round((x.shape[2] - height) / 2), round((x.shape[3] - width) / 2)
        return x[:, :, top : top + height, left : left + width]


@dataclass(frozen=True)
class Normalise(Step):
    """(x − mean) / std for every channel, of pixels in 0 … 1. It comes last."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(f"mean and std must have one number per channel, got {self.mean} and {self.std}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def apply(self, x: Tensor, drawn: Tensor) -> Tensor:
        if x.shape[1] != len(self.mean):
            raise ValueError(f"mean must have one number per channel, got {len(self.mean)} for x of shape {list(x.shape)}")
        mean, std = (torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1) for values in (self.mean, self.std))
        scale = (255.0 if x.dtype == torch.uint8 else 1.0) * std
        # One multiplication and one subtraction in place: half the time of dividing by 255, subtracting and dividing again.
        return x.to(torch.float32, copy=True).mul_((1 / scale).float()).sub_((mean / std).float())


@dataclass(frozen=True)
class Augment:
    """Steps one after the other."""

    steps: Sequence[Step] = ()

    def __post_init__(self) -> None:
        if any(isinstance(step, Normalise) for step in self.steps[:-1]):
            raise ValueError("Normalise must be the last step: padding and rotation bring in black, which is 0 only before it")

    def draw(self, batch: int, generator: Generator) -> Tensor:
        """Numbers for ``batch`` samples, ``[batch, n]``; row i belongs to sample i."""
        numbers = sum(step.numbers for step in self.steps)
        return torch.rand(batch, numbers, dtype=torch.float64, generator=generator)

    def apply(self, pixels: Pixels, draws: Tensor) -> Tensor:
        """float32 ``[B, C, H, W]``, row i of ``pixels`` changed as row i of ``draws`` says.

        Images of several sizes may come as a list. Every row comes out as it would alone, so it does not matter how rows are
        shared among processes.
        """
        if len(pixels) != len(draws):
            raise ValueError(f"draws must have one row per image, got {len(draws)} for {len(pixels)}")
        if isinstance(pixels, Tensor):
            return self._apply_steps(pixels, draws)
        changed = [self._apply_steps(image.unsqueeze(0), draws[i : i + 1]) for i, image in enumerate(pixels)]
        shapes = sorted({tuple(image.shape[1:]) for image in changed})
        if len(shapes) != 1:
            raise ValueError(f"steps must bring images of several sizes to one, got {', '.join(map(str, shapes)) or 'no image'}")
        return torch.cat(changed)

    def _apply_steps(self, x: Tensor, draws: Tensor) -> Tensor:
        first = 0
        for step in self.steps:
            x = step.apply(x, draws[:, first : first + step.numbers])
            first += step.numbers
        return in_unit_range(x)


def in_unit_range(x: Tensor) -> Tensor:
    """float32: uint8 in 0 … 255 as 0 … 1, anything else as it is."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


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


def resize(x: Tensor, size: Size) -> Tensor:
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
