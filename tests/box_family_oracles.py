"""Slow, independent versions of SaliencyMix, ResizeMix, GridMix and SmoothMix: plain loops with Python's own numbers."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from oracles import cutmix_box, drawn_centers, paste, places


def reflected(i: int, side: int) -> int:
    """Place ``i`` of an endless row that is mirrored at the first and last place of a side."""
    if side == 1:
        return 0
    i = abs(i) % (2 * side - 2)
    return min(i, 2 * side - 2 - i)


def blurred(grey: dict, size) -> dict:
    for axis in range(len(size)):
        moved = {}
        for place in grey:
            around = []
            for step in (-1, 0, 1):
                there = list(place)
                there[axis] = reflected(place[axis] + step, size[axis])
                around.append(grey[tuple(there)])
            moved[place] = (around[0] + 2 * around[1] + around[2]) / 4
        grey = moved
    return grey


def fine_saliency(image: Tensor, mean=0.0, std=None) -> Tensor:
    """The map of one image ``[C, *size]``: every surround is added up place by place."""
    channels, size = len(image), tuple(image.shape[1:])
    low, high = float(image.min()), float(image.max())
    scaled = []
    for c in range(channels):
        if std is None:
            scaled.append((image[c].double() - low) / (high - low) if high > low else torch.zeros(size).double())
        else:
            pick = [value[c % len(value)] if isinstance(value, tuple) else value for value in (mean, std)]
            scaled.append(image[c].double() * pick[1] + pick[0])
    weights = [0.299, 0.587, 0.114] if channels == 3 else [1 / channels] * channels
    grey = {place: 255 * sum(w * float(part[place]) for w, part in zip(weights, scaled, strict=True)) for place in places(size)}
    grey = blurred(blurred(grey, size), size)
    values = torch.tensor([grey[place] for place in places(size)], dtype=torch.float64).reshape(size)
    on, off = dict.fromkeys(grey, 0.0), dict.fromkeys(grey, 0.0)
    for n in (12, 24, 48, 28, 56, 112):
        for place, own in grey.items():
            window = values[tuple(slice(max(0, p - n + 1), min(side, p + n + 1)) for p, side in zip(place, size, strict=True))]
            rest = (math.fsum(window.flatten().tolist()) - own) / (window.numel() - 1) if window.numel() > 1 else own
            on[place] += max(own - rest, 0)
            off[place] += max(rest - own, 0)
    # What is left of a constant image after rounding is nothing.
    tops = [top if top > 1e-9 else math.inf for top in (max(on.values()), max(off.values()))]
    return torch.tensor([on[p] / tops[0] + off[p] / tops[1] for p in places(size)], dtype=torch.float64).reshape(size)


def peak(saliency: Tensor) -> list[int]:
    """The first place of the highest value, where values that differ by rounding are one; the middle if there is one value."""
    values = {place: round(float(saliency[place]), 9) for place in places(tuple(saliency.shape))}
    best = max(values.values())
    if best == min(values.values()):
        return [side // 2 for side in saliency.shape]
    return list(next(place for place in values if values[place] == best))


def saliency_boxes(maps, partner, lam, size, box, grid, reference):
    boxes = []
    for j in partner:
        place = peak(maps[partner[0] if reference else j])
        boxes.append(cutmix_box(lam, [p if grid == "integer" else p + 0.5 for p in place], size, box, grid))
    return boxes


def saliency_mix(x, partner, lam, maps=None, box="clip", grid="integer", reference=False, mean=0.0, std=None, **_):
    maps = [fine_saliency(image, mean, std) for image in x] if maps is None else maps
    return paste(x, x, partner, saliency_boxes(maps, partner, lam, x.shape[2:], box, grid, reference))


def roaming_box(lam: float, point: list[float], size) -> list[tuple[int, int]]:
    edges = []
    for p, side in zip(point, size, strict=True):
        width = round(side * lam ** (1 / len(size)))
        low = math.floor(p / side * (side - width + 1))
        edges.append((low, low + width))
    return edges


def shown(image: Tensor, at: list[Fraction], resize: str) -> Tensor:
    """The channels of ``image [C, *size]`` at a point, counted in places from the first corner of the image."""
    if resize == "nearest":
        return image[(slice(None), *(math.floor(p) for p in at))]
    total = torch.zeros(len(image), dtype=torch.float64)
    for corner in places([2] * len(at)):
        weight, place = Fraction(1), []
        for p, side, far in zip(at, image.shape[1:], corner, strict=True):
            middle = min(max(p - Fraction(1, 2), Fraction(0)), Fraction(side - 1))
            share = middle - math.floor(middle)
            weight *= share if far else 1 - share
            place.append(min(math.floor(middle) + far, side - 1))
        total += float(weight) * image[(slice(None), *place)].double()
    return total.to(image.dtype)


def paste_resized(x: Tensor, partner: list[int], boxes, resize: str) -> Tensor:
    """Place by place: inside its box the point of the partner that lies where the place lies in the box."""
    result = x.clone()
    half = Fraction(1, 2) if resize == "bilinear" else Fraction(0)
    for i, j in enumerate(partner):
        for place in places(x.shape[2:]):
            if all(low <= p < high for p, (low, high) in zip(place, boxes[i], strict=True)):
                at = [
                    (p - low + half) * side / (high - low)
                    for p, (low, high), side in zip(place, boxes[i], x.shape[2:], strict=True)
                ]
                result[(i, slice(None), *place)] = shown(x[j], at, resize)
    return result


def resize_mix(x, partner, lam, generator, box="anywhere", grid="continuous", resize="nearest", per_pair=False, scale=None):
    size = x.shape[2:]
    points = drawn_centers(len(x) if per_pair else 1, size, "continuous" if box == "anywhere" else grid, generator)
    points = points if per_pair else points * len(x)
    boxes = [roaming_box(lam, p, size) if box == "anywhere" else cutmix_box(lam, p, size, box, grid) for p in points]
    return paste_resized(x, partner, boxes, resize)


def ends(value) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def grid_mask(lam, uniform: list[float], size, holes, hole_aspect, crop, crop_aspect, random_offset) -> Tensor:
    """Hole after hole is cut into an empty plane; places beyond the crop come back in on its other side."""
    d = len(size)

    def drawn(value, u):
        return ends(value)[0] + (ends(value)[1] - ends(value)[0]) * u

    area = drawn(crop, uniform[1])
    relative = [area ** (1 / d)] * d
    if d > 1:
        tall = math.sqrt(drawn(crop_aspect, uniform[2]))
        tall = min(max(tall, relative[0]), 1 / relative[0])
        relative[-2], relative[-1] = relative[-2] * tall, relative[-1] / tall
    sides = [min(max(round(s * r), 1), s) for s, r in zip(size, relative, strict=True)]
    lows = [min(math.floor(u * (s - c + 1)), s - c) for u, s, c in zip(uniform[4 : 4 + d], size, sides, strict=True)]
    count = min(math.floor(ends(holes)[0] + uniform[0] * (ends(holes)[1] - ends(holes)[0] + 1)), ends(holes)[1])
    across = min(count, max(1, sides[-1] // 2))
    pitch = sides[-1] / across * drawn(hole_aspect, uniform[3])
    cells = [min(max(1, round(side / pitch)), max(1, side // 2)) for side in sides[:-1]] + [across]
    offset = uniform[4 + d :] if random_offset else [0.0] * d
    mask = torch.zeros(tuple(size))
    along = []
    for axis in range(d):
        cell = sides[axis] / cells[axis]
        covered = set()
        for j in range(cells[axis]):
            begin = (j + offset[axis]) * cell
            for p in range(2 * sides[axis]):
                if begin <= p + 0.5 < begin + cell * lam ** (1 / d):
                    covered.add(lows[axis] + p % sides[axis])
        along.append(covered)
    for place in places(size):
        mask[place] = float(all(p in covered for p, covered in zip(place, along, strict=True)))
    return mask


def grid_mix(
    x,
    partner,
    lam,
    generator,
    per_pair=False,
    holes=(2, 6),
    hole_aspect=1.0,
    crop=(0.5, 1.0),
    crop_aspect=(0.5, 2.0),
    random_offset=True,
):
    size = tuple(x.shape[2:])
    rows = len(x) if per_pair else 1
    uniform = torch.rand(rows, 4 + 2 * len(size), dtype=torch.float64, generator=generator).tolist() * (len(x) // rows)
    masks = [grid_mask(lam, u, size, holes, hole_aspect, crop, crop_aspect, random_offset) for u in uniform]
    return torch.stack([torch.where(m.bool(), x[j], x[i]) for i, (j, m) in enumerate(zip(partner, masks, strict=True))])


def bump(width: float, center: list[float], size) -> dict:
    """Place by place; the centre is given in places."""
    return {
        place: math.exp(-sum(((p + 0.5 - c) / s) ** 2 for p, c, s in zip(place, center, size, strict=True)) / (2 * width**2))
        for place in places(size)
    }


def bump_of_mean(lam: float, center: list[float], size) -> dict:
    """By halving the interval of widths, on a logarithmic scale."""
    low, high = -12.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = math.fsum(bump(math.exp(middle), center, size).values()) / math.prod(size)
        low, high = (middle, high) if mean < lam else (low, middle)
    return bump(math.exp((low + high) / 2), center, size)


def smooth_mix(x, partner, lam, generator, per_pair=False, width=None):
    size = tuple(x.shape[2:])
    centers = drawn_centers(len(x) if per_pair else 1, size, "continuous", generator)
    bumps = [bump_of_mean(lam, center, size) for center in centers]
    bumps = bumps if per_pair else bumps * len(x)
    result = x.double().clone()
    for i, j in enumerate(partner):
        for place in places(size):
            at = (slice(None), *place)
            result[(i, *at)] = (1 - bumps[i][place]) * x[(i, *at)].double() + bumps[i][place] * x[(j, *at)].double()
    return result.to(x.dtype)
