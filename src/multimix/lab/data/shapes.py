"""Five kinds of synthetic bodies as clouds of points: a data set that needs no files, and pictures of clouds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from PIL import Image, ImageDraw
from torch import Generator, Tensor

from ...core.sampling import seeded
from .datasets import DataSet, Images, Splits, register
from .reading import to_tensor

STRETCH = 0.2  # each axis by up to this share, so that no two bodies of a kind are alike
TUBE, HEIGHT = 0.4, 2.0  # radius of the torus's tube around a circle of radius 1; height of cone and cylinder over a circle of 1
POINTS, PER_KIND, TEST_PER_KIND, SEED = 48, 100, 200, 0x5AFE

# Pictures are drawn this many times larger and scaled down, because Pillow's shapes have hard edges.
SUPERSAMPLING = 3
PAPER, OF_A, OF_B = (246, 245, 242), (217, 103, 13), (31, 95, 191)
TURN, TILT = math.radians(25), math.radians(36)
FILLED = 0.86  # of half the picture is the unit sphere
DOT, USUAL, LARGEST = 0.0125, 400, 2.2  # radius of one of 400 points, as a share of the picture; up to 2.2 times that for fewer
FOG, NEAR = 0.55, 0.25  # how much the farthest points fade into the paper, and how much larger the nearest are


@dataclass(frozen=True, eq=False)
class Clouds(Images):
    """Clouds in memory, in the place of pixels: float32 ``[M, N, 3]``, N points each."""

    def check_pixels(self) -> None:
        """Raise ValueError unless these are clouds."""
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != torch.float32:
            raise ValueError(f"clouds must be float32 [M, N, 3], got {self.pixels.dtype} {list(self.pixels.shape)}")


def read_shapes(folder: str | Path | None = None) -> Splits[Clouds]:
    """Always the same bodies, as many of each kind; ``folder`` is not used.

    Each lies in the unit sphere, centred, turned around the vertical at random, with noise of 0.05 of its radius on the points.
    """
    generator, parts = seeded(SEED), {}
    for part, count in (("train", PER_KIND), ("test", TEST_PER_KIND)):
        label = torch.arange(len(KINDS)).repeat_interleave(count)
        parts[part] = Clouds(bodies(label, POINTS, generator), label, tuple(KINDS))
    return Splits("shapes", parts)


def bodies(label: Tensor, points: int, generator: Generator, *, noise: float = 0.05, upright: bool = True) -> Tensor:
    """``[M, N, 3]``: a cloud of the kind that each ``label [M]`` names, its points uniform on the surface before stretching.

    Every body has its own stretch along its axes and is turned at random, ``upright`` ones around the vertical only; ``noise`` is
    the deviation of the points, relative to the radius of the cloud. Centred, with the farthest point at distance 1.
    """
    x = torch.empty(len(label), points, 3)
    for number, surface in enumerate(KINDS.values()):
        of_kind = (label == number).nonzero().flatten()
        x[of_kind] = surface(len(of_kind), points, generator)
    x = x * (1 + STRETCH * (2 * torch.rand(len(x), 1, 3, generator=generator) - 1))
    x = unit(x) @ rotations(len(x), generator, upright=upright)
    return unit(x + noise * torch.randn(x.shape, generator=generator))


def unit(x: Tensor) -> Tensor:
    """Clouds ``[M, N, 3]`` centred at their mean, the farthest point at distance 1."""
    x = x - x.mean(1, keepdim=True)
    farthest: Tensor = x.norm(dim=2, keepdim=True).amax(1, keepdim=True)
    return x / farthest.clamp(min=torch.finfo(x.dtype).tiny)


def rotations(count: int, generator: Generator, *, upright: bool) -> Tensor:
    """``[M, 3, 3]``: rotations drawn uniformly among all or, if ``upright``, among those around the last axis."""
    quaternion = torch.randn(count, 4, generator=generator)
    quaternion[:, 1:3] *= not upright
    a, b, c, d = torch.nn.functional.normalize(quaternion, dim=1).unbind(1)
    rows = (
        (1 - 2 * (c * c + d * d), 2 * (b * c - a * d), 2 * (b * d + a * c)),
        (2 * (b * c + a * d), 1 - 2 * (b * b + d * d), 2 * (c * d - a * b)),
        (2 * (b * d - a * c), 2 * (c * d + a * b), 1 - 2 * (b * b + c * c)),
    )
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


def sphere(count: int, points: int, generator: Generator) -> Tensor:
    """Points on the unit sphere."""
    return torch.nn.functional.normalize(torch.randn(count, points, 3, generator=generator), dim=2)


def cube(count: int, points: int, generator: Generator) -> Tensor:
    """Points on the six faces of a cube of side 2."""
    x = 2 * torch.rand(count, points, 3, generator=generator) - 1
    axis = torch.randint(3, (count, points, 1), generator=generator)
    side = 2.0 * torch.randint(2, (count, points, 1), generator=generator) - 1
    return x.scatter(2, axis, side)


def torus(count: int, points: int, generator: Generator) -> Tensor:
    """Points on a tube around a circle."""
    around, along, coin = torch.rand(3, count, points, generator=generator)
    around, along = 2 * math.pi * around, 2 * math.pi * along
    # The outer half of the tube is larger: turning some points of the inner one outwards makes the density exactly right.
    around = torch.where(coin < (1 - TUBE * around.cos()) / 2, math.pi - around, around)
    reach = 1 + TUBE * around.cos()
    return torch.stack([reach * along.cos(), reach * along.sin(), TUBE * around.sin()], dim=2)


def cone(count: int, points: int, generator: Generator) -> Tensor:
    """Points on the mantle and the base of a cone."""
    radius, angle, part = torch.rand(3, count, points, generator=generator)
    radius, angle = radius.sqrt(), 2 * math.pi * angle
    slant = math.hypot(1, HEIGHT)
    on_base = part < 1 / (1 + slant)
    return _around(radius, angle, torch.where(on_base, 0.0, HEIGHT * (1 - radius)))


def cylinder(count: int, points: int, generator: Generator) -> Tensor:
    """Points on the mantle and both ends of a cylinder."""
    place, angle, part = torch.rand(3, count, points, generator=generator)
    end = 1 / (2 + 2 * HEIGHT)  # share of one end in the whole surface
    at_end = part < 2 * end
    radius = torch.where(at_end, place.sqrt(), 1.0)
    height = torch.where(at_end, torch.where(part < end, 0.0, HEIGHT), HEIGHT * place)
    return _around(radius, 2 * math.pi * angle, height)


def _around(radius: Tensor, angle: Tensor, height: Tensor) -> Tensor:
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], dim=2)


KINDS: Mapping[str, Callable[[int, int, Generator], Tensor]] = MappingProxyType(
    {"sphere": sphere, "cube": cube, "torus": torus, "cone": cone, "cylinder": cylinder}
)


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


# fmt: off
register(DataSet(
    "shapes", read_shapes, len(KINDS), (), (), (3, POINTS),
    {"train": len(KINDS) * PER_KIND, "test": len(KINDS) * TEST_PER_KIND}, layout="points",
    not_fetched="shapes need not be fetched, they are computed",
))
