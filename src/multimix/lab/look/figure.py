"""Pictures side by side: one line per method, from A over K steps to B; or one sample of every method."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from .pictures import to_image
from .steps import Steps

# In pixels.
CELL, GAP, NAME, HEAD, CAPTION, MARGIN = 200, 8, 176, 44, 34, 18
LINE = 16  # of a remark
DPI = 100
INK, SOFT = "#1c1c22", "#5b5b66"


class Row(NamedTuple):
    """One method's line of the figure; without ``b`` there is no partner. ``remark`` stands under the name, in short lines."""

    name: str
    a: Tensor
    steps: Steps
    b: Tensor | None
    remark: str = ""


class Sample(NamedTuple):
    """One picture ``[3, H, W]`` of a figure of samples; ``lam`` is B's share, None of what is not mixed."""

    name: str
    picture: Tensor
    lam: float | None = None
    remark: str = ""


def figure(rows: Sequence[Row]) -> bytes:
    """A PNG with one line per method: its name, A, the K steps with their realised λ, and B."""
    k = len(rows[0].steps.lam)
    left, top = corner(len(rows) - 1, k + 1)
    sheet, write, show = _empty_sheet(left + CELL + MARGIN, top + CELL + CAPTION + MARGIN)
    for column, words in ((0, "A"), (k + 1, "B")):
        write(corner(0, column)[0] + CELL / 2, MARGIN + HEAD / 2 - 4, words, 15, weight="bold")
    middle = (corner(0, 1)[0] + corner(0, k)[0] + CELL) / 2
    write(middle, MARGIN + HEAD / 2 - 4, _headline(k), 12, color=SOFT)
    for i, row in enumerate(rows):
        x, y = corner(i, 0)
        write(x - 16, y + CELL / 2, row.name, 14, weight="bold", ha="right")
        write(x - 16, y + CELL / 2 + 16, row.remark, 9.5, color=SOFT, ha="right", va="top", linespacing=1.35)
        for column, picture in enumerate([row.a, *row.steps.images, *([] if row.b is None else [row.b])]):
            show(*corner(i, column), picture)
        for column, lam in enumerate(row.steps.lam.tolist(), start=1):
            write(corner(i, column)[0] + CELL / 2, y + CELL + CAPTION / 2 - 2, f"λ = {lam:.2f}", 12)
        if row.b is None:
            write(corner(i, k + 1)[0] + CELL / 2, y + CELL / 2, "no partner,\nthe label stays", 11, color=SOFT)
    return _png(sheet)


def samples_figure(samples: Sequence[Sample], columns: int = 5) -> bytes:
    """A PNG with all pictures in a grid, each above its name, its λ and its remark."""
    columns = min(columns, len(samples))
    places = sample_corners(samples, columns)
    width = max(left for left, _ in places) + CELL + MARGIN
    sheet, write, show = _empty_sheet(width, places[-1][1] + CELL + _below(samples[-(len(samples) % columns or columns) :]))
    for (left, top), sample in zip(places, samples, strict=True):
        show(left, top, sample.picture)
        lam = "" if sample.lam is None else f"λ = {sample.lam:.2f}"
        write(left + CELL / 2, top + CELL + 16, sample.name, 13, weight="bold")
        write(left + CELL / 2, top + CELL + 38, lam, 12)
        write(left + CELL / 2, top + CELL + 54, sample.remark, 9.5, color=SOFT, va="top", linespacing=1.35)
    return _png(sheet)


def sample_corners(samples: Sequence[Sample], columns: int) -> list[tuple[int, int]]:
    """Left and top pixel of every picture in a figure of samples; a line is as high as its longest remark needs."""
    top, places = MARGIN, []
    for first in range(0, len(samples), columns):
        line = samples[first : first + columns]
        places += [(MARGIN + place * (CELL + GAP), top) for place in range(len(line))]
        top += CELL + _below(line)
    return places


def _below(line: Sequence[Sample]) -> int:
    """Room below a line of samples: for name, λ and remarks."""
    return 54 + LINE * max(sample.remark.count("\n") + bool(sample.remark) for sample in line) + MARGIN


def corner(row: int, column: int) -> tuple[int, int]:
    """Left and top pixel of a picture in the figure; column 0 is A, then come the K steps, then B."""
    return MARGIN + NAME + column * (CELL + GAP), MARGIN + HEAD + row * (CELL + CAPTION + GAP)


def _empty_sheet(width: int, height: int) -> tuple[Figure, Callable[..., None], Callable[[int, int, Tensor], None]]:
    """A white sheet of so many pixels; what writes words at a place of it, and what puts a picture there, pixel by pixel."""
    sheet = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")

    def write(x: float, y: float, words: str, size: float, **style: Any) -> None:
        style = {"ha": "center", "va": "center", "color": INK, "family": "DejaVu Sans"} | style
        sheet.text(x / width, 1 - y / height, words, fontsize=size, **style)

    def show(left: int, top: int, picture: Tensor) -> None:
        sheet.figimage(np.asarray(to_image(picture, CELL)), left, height - top - CELL)

    return sheet, write, show


def _headline(k: int) -> str:
    return f"K = {k}" if k < 3 else f"K = {k} steps; λ is the share of B that is really there"


def _png(sheet: Figure) -> bytes:
    canvas: Any = FigureCanvasAgg(sheet)
    content = io.BytesIO()
    canvas.draw()  # not savefig, which obeys the user's matplotlibrc and may cut or scale the sheet
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(content, "PNG", optimize=True)
    return content.getvalue()
