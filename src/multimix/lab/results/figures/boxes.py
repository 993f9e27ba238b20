"""Pictures of what a network found: its heat map over the image, its box and the true ones."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from PIL import Image
from torch import Tensor, nn

from ...data import Augment, Files, Normalise
from ...evaluation.boxes import boxed_batches, with_boxes
from ...evaluation.cam import heat_maps
from ...evaluation.localization import REFERENCE, Rule, cam_passes
from ...evaluation.predictions import Reading
from .style import INK, ORANGE, SKY, SOFT, png

TRUE, PREDICTED = SKY, ORANGE
RED, GREEN = "#e3342f", "#2fb344"  # as in the paper's Fig. 5
DASHED = (0, (3, 2))  # the predicted box, so that colour-blind readers and those of prints can tell it from the true one
SIDE = 1.9  # of a picture in inches
BIRD, GAP, NAME, FOOT, DPI = 160, 6, 210, 46, 100  # of Fig. 5, in pixels


@dataclass(frozen=True, eq=False)
class BoxExample:
    """``image [C, H, W]`` in 0 … 1, ``heat [H, W]`` in 0 … 1, the ``predicted`` box ``[4]`` and the ``true`` ones ``[n, 4]``."""

    image: Tensor
    heat: Tensor
    predicted: Tensor
    true: Tensor
    title: str


def box_examples(
    network: nn.Module, split: Files, augment: Augment, index: Tensor, *, rule: Rule = REFERENCE, foreign: bool = False
) -> list[BoxExample]:
    """The samples ``index`` with the box of the predicted class by ``rule``; titles give the overlap and whether it counts.

    ``foreign``: the network's classes are not those of the split, so titles do not judge them, nor does the rule.
    """
    some = with_boxes(split.take(index))
    ((boxed, seen),) = cam_passes(network, some, augment, Reading(len(some)))
    images = pictures_seen(some, augment)
    predicted = seen.logits.argmax(1)
    maps = heat_maps(seen.raw(predicted), (images.shape[2], images.shape[3]), as_script=rule.as_script)
    boxes = [rule.box(heat) for heat in maps]
    right = (predicted.cpu() == boxed.labels) | foreign
    examples = []
    for image, heat, box, true, correct in zip(images, maps, boxes, boxed.boxes, right, strict=True):
        overlap = torch.tensor(rule.overlap(box, true), dtype=torch.float64)
        verdict = "found" if rule.met(overlap, correct) else "class wrong" if not correct else "not found"
        examples.append(BoxExample(image, heat, box, true, f"IoU {float(overlap):.2f}, {verdict}"))
    return examples


def pictures_seen(split: Files, augment: Augment) -> Tensor:
    """``[N, C, H, W]`` in 0 … 1: what a network sees of a split with boxes, but not normalised."""
    plain = Augment([step for step in augment.steps if not isinstance(step, Normalise)])
    return next(boxed_batches(split, plain, len(split))).x


def box_picture(examples: Sequence[BoxExample], *, columns: int = 5, note: str = "") -> bytes:
    """PNG: all examples in a grid, solid lines around the objects, dashed ones where the network sees them."""
    if not examples:
        raise ValueError("examples must hold at least 1 picture, got none")
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    columns = min(columns, len(examples))
    rows = math.ceil(len(examples) / columns)
    sheet = Figure(figsize=(SIDE * max(columns, 2), 0.55 + (SIDE + 0.22) * rows), layout="constrained")
    grid: Any = sheet.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, example in zip(grid.flat, examples, strict=False):
        _draw(axes, example)
    lines = [
        Line2D([], [], color=TRUE, lw=2, label="true box"),
        Line2D([], [], color=PREDICTED, lw=2, ls=DASHED, label="box of the map"),
    ]
    sheet.legend(handles=lines, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    if note:
        sheet.suptitle(note, fontsize=8, color=SOFT)
    return png(sheet, dpi=150)


def birds_strip(images: Sequence[Tensor], predicted: Sequence[Tensor], true: Sequence[Tensor]) -> bytes:
    """PNG: ``images [C, H, W]`` in 0 … 1 side by side, each with its ``predicted`` box ``[4]`` in red and dashed and its ``true``
    ones ``[n, 4]`` in green. Boxes are x, y, width, height in pixels of the image.
    """
    if not images:
        raise ValueError("images must hold at least 1 picture, got none")
    width = len(images) * (BIRD + GAP) - GAP
    sheet = Figure(figsize=(width / DPI, BIRD / DPI))
    for place, (image, box, others) in enumerate(zip(images, predicted, true, strict=True)):
        axes = sheet.add_axes((place * (BIRD + GAP) / width, 0, BIRD / width, 1))
        axes.set_axis_off()
        _show(axes, image)
        for other in others.tolist():
            _frame(axes, other, GREEN, "-")
        _frame(axes, box.tolist(), RED, DASHED)
    return png(sheet, DPI)


def birds_panels(strips: Mapping[str, bytes]) -> bytes:
    """The paper's Fig. 5 as PNG: the strip of every method below each other, its name to the left, the colours explained."""
    if not strips:
        raise ValueError("strips must hold at least 1 method, got none")
    pictures = {name: Image.open(io.BytesIO(content)).convert("RGB") for name, content in strips.items()}
    width = NAME + max(one.width for one in pictures.values()) + GAP
    height = sum(one.height + GAP for one in pictures.values()) + GAP + FOOT
    sheet = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    top = GAP
    for name, one in pictures.items():
        sheet.figimage(np.asarray(one), NAME, height - top - one.height)
        words: Any = {"ha": "right", "va": "center", "fontsize": 11, "color": INK, "parse_math": False}
        folded = textwrap.fill(name.replace(" = ", "\u00a0=\u00a0"), 20)  # but not within K = 5
        sheet.text((NAME - 12) / width, 1 - (top + one.height / 2) / height, folded, **words)
        top += one.height + GAP
    lines = [
        Line2D([], [], color=RED, lw=2, ls=DASHED, label="predicted box"),
        Line2D([], [], color=GREEN, lw=2, label="true box"),
    ]
    sheet.legend(handles=lines, loc="lower right", ncols=2, fontsize=11, frameon=False)
    return png(sheet, DPI)


def _draw(axes: Any, example: BoxExample) -> None:
    _show(axes, example.image)
    # The higher, the more it covers, so that the picture stays visible where the network does not look.
    colours = matplotlib.colormaps["inferno"](example.heat.numpy())
    colours[..., 3] = 0.6 * example.heat.numpy()
    axes.imshow(colours)
    for box in example.true.tolist():
        _frame(axes, box, TRUE, "-")
    _frame(axes, example.predicted.tolist(), PREDICTED, DASHED)
    axes.set_title(example.title, fontsize=7, color=SOFT, pad=4)


def _show(axes: Any, image: Tensor) -> None:
    """The picture, and nothing else: boxes that reach out of it do not move its edges."""
    pixels = image.permute(1, 2, 0).clamp(0, 1)
    axes.imshow(pixels.expand(-1, -1, 3).numpy(), interpolation="bilinear")
    axes.set_xlim(-0.5, pixels.shape[1] - 0.5)
    axes.set_ylim(pixels.shape[0] - 0.5, -0.5)


def _frame(axes: Any, box: Sequence[float], colour: str, dashes: Any) -> None:
    x, y, width, height = box
    # Pixel 0 is drawn from −0.5 to 0.5.
    frame = Rectangle((x - 0.5, y - 0.5), width, height, fill=False, ec=colour, lw=1.8, ls=dashes, clip_on=False)
    frame.set_path_effects([Stroke(linewidth=3, foreground="black", alpha=0.5), Normal()])
    axes.add_patch(frame)
