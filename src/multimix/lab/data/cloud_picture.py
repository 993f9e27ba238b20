"""Clouds of points as pictures: seen a little from above, near points large and dark, from A's colour to B's."""

import math

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from ..look.pictures import to_tensor

# Drawn this many times larger and scaled down, because Pillow's shapes have hard edges.
SUPERSAMPLING = 3
PAPER, OF_A, OF_B = (246, 245, 242), (217, 103, 13), (31, 95, 191)
TURN, TILT = math.radians(25), math.radians(36)
FILLED = 0.86  # of half the picture is the unit sphere
DOT, USUAL, LARGEST = (
    0.0125,
    400,
    2.2,
)  # radius of one of so many points, as a share of the picture; fewer are larger, up to so much
FOG, NEAR = 0.55, 0.25  # how much the farthest points fade into the paper, and how much the nearest are larger


def cloud_picture(cloud: Tensor, share: Tensor, size: int) -> Tensor:
    """``[3, size, size]`` in 0 … 1: a cloud ``[N, 3]`` in the unit sphere, every point coloured by B's ``share [N]`` of it."""
    across, up, near = (cloud.double() @ _view()).unbind(1)
    whole = size * SUPERSAMPLING
    image = Image.new("RGB", (whole, whole), PAPER)
    pen = ImageDraw.Draw(image)
    x, y = ((1 + FILLED * side) * whole / 2 for side in (across, -up))
    radius = DOT * whole * min(LARGEST, max(1.0, math.sqrt(USUAL / len(cloud)))) * (1 + NEAR * near)
    colour = _colours(share.double(), near)
    for i in near.argsort(stable=True).tolist():
        at, r = (float(x[i]), float(y[i])), float(radius[i])
        pen.ellipse([(at[0] - r, at[1] - r), (at[0] + r, at[1] + r)], colour[i])
    return to_tensor(image.resize((size, size), Image.Resampling.LANCZOS))


def _view() -> Tensor:
    """``[3, 3]``: from the axes of a cloud, the last of which points upwards, to right, up and near."""
    c, s = math.cos(TURN), math.sin(TURN)
    turned = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
    c, s = math.cos(TILT), math.sin(TILT)
    return turned @ torch.tensor([[1, 0, 0], [0, s, -c], [0, c, s]], dtype=torch.float64)


def _colours(share: Tensor, near: Tensor) -> list[tuple[int, ...]]:
    paper, of_a, of_b = (torch.tensor(colour, dtype=torch.float64) for colour in (PAPER, OF_A, OF_B))
    own = torch.lerp(of_a, of_b, share[:, None])
    faded = torch.lerp(own, paper, (FOG * (1 - near) / 2).clamp(0, 1)[:, None])
    return [tuple(colour) for colour in faded.round().long().tolist()]
