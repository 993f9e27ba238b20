"""Slow, independent versions of every base method and law: plain loops over pairs and places."""

import math

import torch
from torch import Generator, Tensor


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def places(size):
    """All index tuples of an array of that size."""
    if len(size) == 0:
        return [()]
    return [(i, *rest) for i in range(size[0]) for rest in places(size[1:])]


def mixup(x: Tensor, partner: list[int], lam: float) -> Tensor:
    return torch.stack([(1 - lam) * x[i] + lam * x[j] for i, j in enumerate(partner)])


def cutmix_box(lam: float, center: list[float], size, box: str, grid: str) -> list[tuple[int, int]]:
    """(low, high) along each axis, one axis at a time with Python's own numbers."""
    edges = []
    for c, side in zip(center, size, strict=True):
        full = side * lam ** (1 / len(size))
        if box == "shift":
            width = round(full)
            low = int(c) - width // 2 if grid == "integer" else math.floor(c - width / 2 + 0.5)
            low = max(0, min(low, side - width))
            edges.append((low, low + width))
        elif grid == "integer":
            half = int(full) // 2
            edges.append((max(0, int(c) - half), min(side, int(c) + half)))
        else:
            edges.append((int(max(0.0, c - full / 2)), int(min(float(side), c + full / 2))))
    return edges


def paste(x: Tensor, source: Tensor, partner: list[int], boxes) -> Tensor:
    """Place by place: inside box ``boxes[i]`` the source's partner row, outside the sample."""
    result = x.clone()
    for i, j in enumerate(partner):
        for place in places(x.shape[2:]):
            if all(low <= p < high for p, (low, high) in zip(place, boxes[i], strict=True)):
                result[(i, slice(None), *place)] = source[(j, slice(None), *place)]
    return result


def drawn_centers(rows: int, size, grid: str, generator: Generator) -> list[list[float]]:
    sides = torch.tensor(size, dtype=torch.float64)
    center = torch.rand(rows, len(size), dtype=torch.float64, generator=generator) * sides
    return (center.floor() if grid == "integer" else center).tolist()


def cutmix(x, partner, lam, generator, box="clip", grid="continuous", per_pair=False):
    centers = drawn_centers(len(x) if per_pair else 1, x.shape[2:], grid, generator)
    centers = centers if per_pair else centers * len(x)
    return paste(x, x, partner, [cutmix_box(lam, c, x.shape[2:], box, grid) for c in centers])


def cutout(x, generator, length=16, holes=1, fill=0.0):
    centers = drawn_centers(len(x) * holes, x.shape[2:], "integer", generator)
    result = x.clone()
    for hole in range(holes):
        boxes = [
            [
                (max(0, int(c) - length // 2), min(side, int(c) + length // 2))
                for c, side in zip(centers[i * holes + hole], x.shape[2:], strict=True)
            ]
            for i in range(len(x))
        ]
        result = paste(result, torch.full_like(x, fill), list(range(len(x))), boxes)
    return result


def gray_field(size, decay: float, generator: Generator) -> Tensor:
    """The FMix field by direct sums over every frequency of the two-sided spectrum and every place."""
    white = torch.randn(1, *size, generator=generator).double()[0]
    field = torch.zeros(size, dtype=torch.float64)
    for index in places(size):
        phase = torch.zeros(size, dtype=torch.float64)
        square = 0.0
        for axis, (i, side) in enumerate(zip(index, size, strict=True)):
            along = torch.arange(side, dtype=torch.float64) * (2 * math.pi * i / side)
            phase = phase + along.reshape(-1, *[1] * (len(size) - axis - 1))
            square += (min(i, side - i) / side) ** 2
        weight = max(math.sqrt(square) * max(size), 1) ** -decay / white.numel()
        cosine, sine = float((white * phase.cos()).sum()), float((white * phase.sin()).sum())
        field += weight * (cosine * phase.cos() + sine * phase.sin())
    return field


def fmix(x, partner, lam, generator, decay=3.0):
    size = tuple(x.shape[2:])
    field = gray_field(size, decay, generator)
    up = bool(torch.rand(1, generator=generator) < 0.5)
    n = math.prod(size)
    count = math.ceil(lam * n) if up else math.floor(lam * n)
    bright = sorted(places(size), key=lambda place: -float(field[place]))[:count]
    result = x.clone()
    for i, j in enumerate(partner):
        for place in bright:
            result[(i, slice(None), *place)] = x[(j, slice(None), *place)]
    return result
