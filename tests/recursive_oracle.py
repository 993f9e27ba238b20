"""Slow, independent versions of RecursiveMix and its parts: plain loops with Python's own numbers."""

import math
from fractions import Fraction

import torch
from torch import nn

from multimix.random import sample_path
from oracles import cutmix_box, drawn_centers, places


def shrunk(image, width, resize):
    """``image [C, *size]`` as ``[C, *width]``: every place looked up by itself."""
    size = tuple(image.shape[1:])
    small = torch.zeros(len(image), *width, dtype=torch.float64)
    for place in places(width):
        if resize == "nearest":
            taps = [[(p * side // w, 1.0)] for p, w, side in zip(place, width, size, strict=True)]
        else:
            taps = []
            for p, w, side in zip(place, width, size, strict=True):
                middle = min(max((Fraction(2 * p + 1, 2) * Fraction(side, w) - Fraction(1, 2)), Fraction(0)), Fraction(side - 1))
                low = math.floor(middle)
                taps.append([(low, float(1 - (middle - low))), (min(low + 1, side - 1), float(middle - low))])
        for chosen in places([len(tap) for tap in taps]):
            at = tuple(tap[c][0] for tap, c in zip(taps, chosen, strict=True))
            weight = math.prod(tap[c][1] for tap, c in zip(taps, chosen, strict=True))
            small[(slice(None), *place)] += weight * image[(slice(None), *at)].double()
    return small


def boxes(areas, batch, rows, size, generator, box="clip", grid="integer", per_pair=False):
    """For every area and sample its edges; samples the history has no row for have an empty box."""
    centers = drawn_centers(batch if per_pair else 1, size, grid, generator)
    centers = centers if per_pair else centers * batch
    found = []
    for area in areas:
        own = [cutmix_box(area, center, size, box, grid) for center in centers]
        found.append([edges if i < rows else [(0, 0) for _ in size] for i, edges in enumerate(own)])
    return found


def pasted(x, past, edges, resize="nearest"):
    """One step: sample i with all of ``past[i]`` in the box ``edges[i]``, and the share of the box."""
    result, shares = x.clone(), []
    for i, box in enumerate(edges):
        width = [max(0, high - low) for low, high in box]
        shares.append(math.prod(width) / math.prod(x.shape[2:]))
        if math.prod(width) == 0:
            continue
        small = shrunk(past[i], width, resize)
        for place in places(width):
            at = tuple(p + low for p, (low, _) in zip(place, box, strict=True))
            result[(i, slice(None), *at)] = small[(slice(None), *place)].to(x.dtype)
    return result, shares


def recursive_mix(x, past, generator, area=0.5, resize="nearest", per_pair=False, **options):
    """The base method, one step: areas drawn, then centres."""
    areas = (area * sample_path(1, 1.0, rows=len(x) if per_pair else 1, generator=generator))[0].tolist() * (
        1 if per_pair else len(x)
    )
    centers = drawn_centers(len(x) if per_pair else 1, x.shape[2:], options.get("grid", "integer"), generator)
    centers = centers if per_pair else centers * len(x)
    fit, grid = options.get("box", "clip"), options.get("grid", "integer")
    edges = [cutmix_box(one, center, x.shape[2:], fit, grid) for one, center in zip(areas, centers, strict=True)]
    return pasted(x, past, edges, resize)[0]


def roi(features, box, size):
    """RoI-align of one map ``[C, H, W]`` on a box ``((top, bottom), (left, right))`` of an image of ``size``, to one place."""
    sides = tuple(features.shape[1:])
    starts, lengths, cells = [], [], []
    for (low, high), side, image in zip(box, sides, size, strict=True):
        starts.append(Fraction(low * side, image) - Fraction(1, 2))
        lengths.append(Fraction((high - low) * side, image))
        cells.append(math.ceil(lengths[-1]))
    total = torch.zeros(len(features), dtype=torch.float64)
    for cell in places(cells):
        at = [start + (c + Fraction(1, 2)) * length / n for c, start, length, n in zip(cell, starts, lengths, cells, strict=True)]
        total += bilinear(features.double(), at[0], at[1])
    return total / max(1, math.prod(cells))


def bilinear(features, y, x):
    """The map at (y, x): 0 more than a place outside, else the nearest inside."""
    height, width = features.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(len(features), dtype=torch.float64)
    y, x = min(max(y, Fraction(0)), Fraction(height - 1)), min(max(x, Fraction(0)), Fraction(width - 1))
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = float(y - top), float(x - left)
    upper = (1 - across) * features[:, top, left] + across * features[:, top, right]
    lower = (1 - across) * features[:, bottom, left] + across * features[:, bottom, right]
    return (1 - down) * upper + down * lower


def cross_entropy(logits, target):
    """−Σ target log softmax of one row."""
    top = logits.max()
    return -(target * (logits - top - (logits - top).exp().sum().log())).sum()


def consistency(features, head, edges, past_logits, size, omega):
    """The mean over samples of ω λ̂ CE(head(RoI features), softmax(past logits)), for one step."""
    total = 0.0
    for i, box in enumerate(edges):
        share = math.prod(high - low for low, high in box) / math.prod(size)
        if share > 0:
            expected = past_logits[i].double().exp() / past_logits[i].double().exp().sum()
            total += omega * share * cross_entropy(head(roi(features[i], box, size)[None])[0], expected)
    return total / len(edges)


class PooledNet(nn.Module):
    """Batch norm, dropout, a feature map and its mean over places: all that a training with a consistency term needs."""

    def __init__(self, num_classes=10, width=8):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.drop(self.stage2(self.stage1(x)).mean((2, 3))))
