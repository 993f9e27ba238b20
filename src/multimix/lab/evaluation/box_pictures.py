"""Grids of pictures with heat maps and boxes."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import torch
from torch import Tensor

from ..data import Augment, Files, Normalise
from ..images import PREDICTED_BOX, TRUE_BOX, ImageGrid
from .boxes import boxed_batches

MAX_OPACITY = 0.6  # of the heat map


def pictures_seen(split: Files, augment: Augment) -> Tensor:
    """Return the images of a split with boxes after augmentation and before normalization.

    Args:
        split: Samples with boxes.
        augment: Preparation of the samples.

    Returns:
        ``[N, C, H, W]`` in [0, 1].
    """
    unnormalized = Augment([step for step in augment.steps if not isinstance(step, Normalise)])
    return next(boxed_batches(split, unnormalized, len(split))).x


def blend_heat(images: Tensor, heat: Tensor) -> Tensor:
    """Blend heat maps into images; the opacity grows with the heat.

    Args:
        images: ``[N, C, H, W]`` in [0, 1], with 1 or 3 channels.
        heat: ``[N, H, W]`` in [0, 1].

    Returns:
        ``[N, 3, H, W]``.
    """
    colors = torch.from_numpy(matplotlib.colormaps["inferno"](heat.numpy())[..., :3]).permute(0, 3, 1, 2)
    return torch.lerp(images.expand(-1, 3, -1, -1), colors.to(images.dtype), MAX_OPACITY * heat.unsqueeze(1))


def box_grid(
    images: Tensor,
    predicted: Sequence[Tensor],
    true: Sequence[Tensor],
    titles: Sequence[str],
    *,
    columns: int,
    caption: str,
) -> ImageGrid:
    """Return pictures with predicted and true boxes (x, y, width, height in pixels).

    Args:
        images: ``[N, C, H, W]`` in [0, 1], with 1 or 3 channels.
        predicted: One box ``[4]`` for each picture. A box without area is omitted.
        true: Boxes ``[n, 4]`` of each picture.
        titles: One title for each picture.
        columns: Pictures in a row, at most.
        caption: One sentence about all pictures.
    """
    pixels = (images.expand(-1, 3, -1, -1) * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    boxes = [(i, *box, TRUE_BOX) for i, image_boxes in enumerate(true) for box in image_boxes.tolist()]
    boxes += [(i, *box.tolist(), PREDICTED_BOX) for i, box in enumerate(predicted) if box[2:].prod() > 0]
    return ImageGrid(
        images=pixels.contiguous().numpy(),
        titles=tuple(titles),
        columns=min(columns, len(images)),
        caption=caption,
        boxes=np.array(boxes, dtype=np.float64).reshape(-1, 6),
    )
