"""Pictures drawn by hand as files with boxes, and a network whose activation maps are the pictures themselves."""

import numpy
import torch
from PIL import Image
from torch import nn

from multimix.lab.data import Files
from multimix.lab.data.reading import read_picture

CLASSES = ("red", "green", "blue")


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
