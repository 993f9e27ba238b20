"""Grids of titled pictures that runs store as ``.npz`` files."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .terminal import note

TRUE_BOX, PREDICTED_BOX = 0, 1
SAMPLES = "samples.npz"  # file in the folder of a run


def _no_boxes() -> NDArray[np.float64]:
    return np.zeros((0, 6))


@dataclass(frozen=True, eq=False)
class ImageGrid:
    """Pictures of one size in rows, each with a title.

    Args:
        images: ``[N, H, W, 3]``, uint8.
        titles: ``N`` titles, possibly empty.
        columns: Pictures in a row.
        caption: One sentence about all of them.
        boxes: ``[M, 6]``: index of the picture, x, y, width and height in pixels, and
            ``TRUE_BOX`` or ``PREDICTED_BOX``.
    """

    images: NDArray[np.uint8]
    titles: tuple[str, ...]
    columns: int
    caption: str = ""
    boxes: NDArray[np.float64] = field(default_factory=_no_boxes)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[3] != 3 or self.images.dtype != np.uint8:
            shape = list(self.images.shape)
            raise ValueError(f"images must be uint8 [N, H, W, 3], got {self.images.dtype} {shape}")
        if len(self.titles) != len(self.images) or not 1 <= self.columns <= len(self.images):
            sizes = f"{len(self.titles)} titles and {self.columns} columns"
            raise ValueError(f"titles and columns must fit {len(self.images)} images, got {sizes}")
        if self.boxes.ndim != 2 or self.boxes.shape[1] != 6:
            raise ValueError(f"boxes must be [M, 6], got {list(self.boxes.shape)}")

    def to_bytes(self) -> bytes:
        """Return the content of an ``.npz`` file."""
        content = io.BytesIO()
        np.savez_compressed(
            content,
            images=self.images,
            titles=np.array(self.titles, dtype=np.str_),
            columns=np.array(self.columns),
            caption=np.array(self.caption, dtype=np.str_),
            boxes=self.boxes,
        )
        return content.getvalue()


def read_image_grid(path: Path) -> ImageGrid | None:
    """Return the stored grid, or None if the file is missing, or damaged, which a message says.

    Args:
        path: A file with the content of :meth:`ImageGrid.to_bytes`.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return ImageGrid(
                images=stored["images"],
                titles=tuple(map(str, stored["titles"])),
                columns=int(stored["columns"]),
                caption=str(stored["caption"]),
                boxes=stored["boxes"],
            )
    except FileNotFoundError:
        return None
    except Exception:  # damaged archives raise many types, from KeyError to zlib.error
        note(f"{path} is damaged and left out: these pictures are missing")
        return None
