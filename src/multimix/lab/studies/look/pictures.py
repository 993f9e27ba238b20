"""Image files as tensors, among them a cat and a dog of this package (drawn for it, CC0)."""

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ...data.reading import PICTURE_FORMATS, picture_file, to_tensor

SIZES = (16, 512)


def cat(size: int = 256) -> Tensor:
    """Return a ginger cat on a roof at night, ``[3, size, size]`` in [0, 1]."""
    return _packaged("cat.png", size)


def dog(size: int = 256) -> Tensor:
    """Return a brown and white dog in a meadow on a sunny day, ``[3, size, size]`` in [0, 1]."""
    return _packaged("dog.png", size)


def read_picture(path: str | Path, size: int) -> Tensor:
    """Return the upright middle square of an image file, ``[3, size, size]`` in [0, 1], on white.

    Args:
        path: The image file.
        size: Side in pixels.

    Raises:
        ValueError: The file is missing or damaged, or ``size`` is out of range.
    """
    if not 0 < size <= SIZES[1]:  # a larger picture might not fit into memory
        raise ValueError(f"size must lie in {SIZES[0]} … {SIZES[1]} pixels, got {size}")
    try:
        with picture_file(path) as file:
            upright = ImageOps.exif_transpose(file)
            side = min(upright.size)
            left, top = (upright.width - side) // 2, (upright.height - side) // 2
            square = _over_white(upright.crop((left, top, left + side, top + side)))
    except FileNotFoundError:
        raise ValueError(f"there is no picture {str(path)!r}") from None
    except Exception as error:  # on damaged files Pillow's readers raise almost anything, from SyntaxError to struct.error
        raise ValueError(f"{str(path)!r} cannot be read as a picture ({_reason(error)})") from error
    return to_tensor(square.resize((size, size), Image.Resampling.LANCZOS))


def to_image(picture: Tensor, side: int) -> Image.Image:
    """Return an RGB image of ``side`` × ``side`` pixels.

    Args:
        picture: ``[3, H, H]`` in [0, 1].
        side: Side in pixels.
    """
    pixels = (picture * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS)


def _packaged(name: str, size: int) -> Tensor:
    with as_file(files(__package__).joinpath(name)) as path:
        return read_picture(path, size)


def _over_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # 16-bit gray: Pillow's own conversion cuts off at 255 instead of scaling.
        image = Image.fromarray((np.asarray(image) / 257).clip(0, 255).round().astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "#ffffff"), image).convert("RGB")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"not an image in {', '.join(PICTURE_FORMATS)}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
