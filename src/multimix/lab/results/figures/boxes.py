"""The paper's Fig. 5: strips of birds with boxes below each other."""

import io
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from .style import INK, png

RED, GREEN = "#e3342f", "#2fb344"  # as in the paper
DASHED = (0, (3, 2))
GAP, NAME, FOOT, DPI = 6, 210, 46, 100  # in pixels


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
