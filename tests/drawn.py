"""Pictures drawn by hand as files with boxes, and a network whose activation maps are the pictures themselves."""

import pickle

import numpy
import torch
from PIL import Image
from torch import nn

from multimix.lab.data import Augment, Files, Loader, Resize
from multimix.lab.data.reading import read_picture

CLASSES = ("red", "green", "blue")
SIZES = [(20, 31), (33, 18), (24, 24), (40, 19), (21, 50)]
BOXES = [[[2, 3, 8, 9]], [[0, 0, 18, 3], [5, 14, 6, 6]], [[-4, -4, 9, 9]], [[4.5, 10.2, 9, 20]], [[40, 5, 30, 30]]]


class Painter(nn.Module):
    """The logit of class c is the mean of channel c, so the map of class c is that channel."""

    def __init__(self):
        super().__init__()
        self.features = nn.Identity()
        self.head = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(3))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def drawing(height, width, *rectangles):
    """uint8 [H, W, 3], black but for (channel, x, y, width, height[, value])."""
    pixels = numpy.zeros((height, width, 3), dtype=numpy.uint8)
    for channel, x, y, wide, high, *value in rectangles:
        pixels[y : y + high, x : x + wide, channel] = value[0] if value else 255
    return pixels


def written(folder, pictures, labels, boxes=None, reader=read_picture):
    """Files from arrays [H, W, 3], without loss."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i, pixels in enumerate(pictures):
        paths.append(str(folder / f"{i}.png"))
        Image.fromarray(pixels).save(paths[-1])
    if boxes is not None:
        boxes = tuple(torch.tensor(some, dtype=torch.float32).reshape(-1, 4) for some in boxes)
    return Files(tuple(paths), torch.tensor(labels), CLASSES, reader, boxes)


def noise(height, width, seed=0):
    return numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=numpy.uint8)


def photos(folder, boxes=BOXES, **options):
    """Five pictures of noise, with their boxes."""
    return written(folder, [noise(*size, seed=i) for i, size in enumerate(SIZES)], [2, 0, 1, 1, 0], boxes, **options)


def coloured(folder):
    """Objects whose colour is their class, apart from one another, the first one small, the last without a box."""
    places = [(1 + 4 * i, 1 + 3 * i, 3 if i == 0 else 4, 3) for i in range(7)]
    pictures = [drawing(24, 30, (i % 3, *place)) for i, place in enumerate(places)]
    return written(folder, pictures, [i % 3 for i in range(7)], [[place] if i < 6 else [] for i, place in enumerate(places)])


def check_draws(spoil):
    """What ``spoil(seed)`` makes of the five photos depends on the image and the seed alone."""
    augment, spoilt = Augment([Resize((16, 16))]), spoil(4)
    whole, _ = spoilt.batch(torch.arange(5))
    some, _ = spoilt.batch(torch.tensor([3, 0]))
    assert torch.equal(some[0], whole[3])
    assert torch.equal(some[1], whole[0])
    again, _ = pickle.loads(pickle.dumps(spoilt)).batch(torch.tensor([3]))  # as it goes to workers that are spawned
    assert torch.equal(again[0], whole[3])
    for workers in (0, 2):
        loader = Loader(spoilt, augment, batch=2, shuffle=False, drop_last=False, workers=workers)
        assert torch.equal(torch.cat([x for x, _ in loader]), augment.apply(whole, torch.zeros(5, 0)))
    other, _ = spoil(5).batch(torch.arange(5))
    assert any(not torch.equal(a, b) for a, b in zip(whole, other, strict=True))
