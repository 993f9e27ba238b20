"""Pictures of the spiral: training points, and the decision boundaries of trained networks."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...images import ImageGrid
from ...recipes.spiral import ARMS, SpiralSettings
from ...report.style import BLUE, INK, ORANGE
from .data import SpiralData, spiral_data
from .runs import SpiralResult, SpiralRun
from .training import net_with_weights

SIDE = 360  # pixels
SCALE = 2  # drawn larger and reduced, for smooth edges
EDGE = 1.15  # the pictures show [-EDGE, EDGE] of both coordinates
MAX_SHADE = 0.35
CLASS_COLORS = (BLUE, ORANGE)
CAPTION = (
    "For every training the run with the median accuracy, so the pictures may show different seeds. The shade is the network's "
    "probability of label 1, the line its decision boundary. Blue points carry label 0, orange ones label 1; a ring marks a "
    "flipped label."
)


def boundary_grid(result: SpiralResult) -> ImageGrid:
    """Draw the training data of the first seed, and the median run of every arm.

    Args:
        result: Finished runs.
    """
    first = spiral_data(result.settings, result.seeds[0])
    images = [_with_points(np.full((SCALE * SIDE, SCALE * SIDE, 3), 255, np.uint8), first)]
    titles = [f"training: {len(first.x)} points,\n{int(first.flipped.sum())} labels flipped (seed {result.seeds[0]})"]
    for arm in ARMS:
        run = result.median_run(arm)
        images.append(_with_points(_shaded(boundary_field(run, result.settings)), spiral_data(result.settings, run.seed)))
        titles.append(f"{arm.words}\nmedian run (seed {run.seed}): {run.accuracy:.2f} %")
    return ImageGrid(np.stack(images), tuple(titles), columns=2, caption=CAPTION)


def boundary_field(run: SpiralRun, settings: SpiralSettings) -> NDArray[np.float32]:
    """Return the probability of label 1 at every pixel, with the second coordinate growing upward.

    Args:
        run: A trained network.
        settings: Its settings.
    """
    line = torch.linspace(-EDGE, EDGE, SCALE * SIDE)
    points = torch.stack(torch.meshgrid(line, -line, indexing="xy"), dim=-1).flatten(0, 1)
    with torch.no_grad():
        share = net_with_weights(torch.tensor(run.weights), settings.slope)(points).softmax(dim=1)[:, 1]
    return np.asarray(share.reshape(len(line), len(line)))


def _shaded(field: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Color a field of probabilities and draw its boundary."""
    colors = np.array([_rgb(color) for color in CLASS_COLORS], np.float32)
    shade = MAX_SHADE * np.abs(2 * field - 1)[..., None]
    image: NDArray[np.float32] = (1 - shade) * 255 + shade * colors[(field > 0.5).astype(int)]
    upper = np.pad(field > 0.5, SCALE, mode="edge")
    neighbors = [np.roll(upper, shift, axis) for axis in (0, 1) for shift in (-SCALE, SCALE)]
    boundary = np.logical_or.reduce([upper != other for other in neighbors])
    image[boundary[SCALE:-SCALE, SCALE:-SCALE]] = _rgb(INK)
    return np.asarray(image.round(), np.uint8)


def _with_points(background: NDArray[np.uint8], data: SpiralData) -> NDArray[np.uint8]:
    """Draw training points onto an image and reduce it to ``SIDE`` pixels."""
    image = Image.fromarray(background)
    pen = ImageDraw.Draw(image)
    places = ((data.x * torch.tensor([1.0, -1.0]) + EDGE) / (2 * EDGE) * (SCALE * SIDE - 1)).tolist()
    for (x, y), label, flipped in zip(places, data.y.tolist(), data.flipped.tolist(), strict=True):
        if flipped:
            pen.ellipse(_square(x, y, 5.5 * SCALE), outline=INK, width=SCALE)
        pen.ellipse(_square(x, y, 2.7 * SCALE), fill=CLASS_COLORS[label])
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def _square(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))
