"""Colors of pages and figures, and what all figures share: axes, text size, legend, PNG and SVG."""

import io
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

from ..terminal import printable

# Okabe and Ito's colors for color-blind readers; with four dashes they distinguish 24 curves.
COLORS = BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = (
    *("#0072b2", "#d55e00", "#009e73"),
    *("#cc79a7", "#e69f00", "#56b4e9"),
)
INK, GRAY, SOFT, LINE, SHEET = "#1d1d22", "#6b6b74", "#5c5c66", "#d4d2cb", "#ffffff"
# Variables of page.css for the colors of figures, which adapt to light and dark themes.
ON_PAGE = {INK: "currentColor", GRAY: "var(--soft)", SOFT: "var(--soft)"}
ON_PAGE |= {LINE: "var(--line)", SHEET: "var(--sheet)"}
COLOR_NAMES = ("blue", "vermilion", "green", "pink", "orange", "sky")
ON_PAGE |= {color: f"var(--{name})" for color, name in zip(COLORS, COLOR_NAMES, strict=True)}

MARKERS = ("o", "s", "^", "P", "X", "D")
DASHES = ("-", "--", ":", "-.")
SIZE = (5.4, 3.4)  # inches
TEXT_SIZE = 12  # points; 16 pixels of a page
# How matplotlib writes powers of ten.
NUMBER = re.compile(r"\$\\mathdefault\{[-−+0-9.^{}]*(\\times[0-9^{}]*)?\}\$")


def panels(size: tuple[float, float] = SIZE, columns: int = 1, rows: int = 1, **shared: Any) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, row by row, with a grid and without a frame.

    Args:
        size: Inches.
        columns: Panels side by side.
        rows: Panels below each other.
        **shared: Passed to ``Figure.subplots``.
    """
    figure = Figure(figsize=size, layout="constrained")
    all_axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[:].set_color(GRAY)
        axes.grid(color=LINE, lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", labelsize=TEXT_SIZE, labelcolor=INK, color=GRAY)
        offsets = axes.xaxis.get_offset_text(), axes.yaxis.get_offset_text()
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title, *offsets):
            text.set(fontsize=TEXT_SIZE, color=INK)
    return figure, all_axes


def look(index: int) -> dict[str, Any]:
    """Return color, marker, and dashes of a series.

    Args:
        index: Index of the series.
    """
    marker, dash = MARKERS[index % len(MARKERS)], DASHES[index // len(COLORS) % len(DASHES)]
    return {"color": COLORS[index % len(COLORS)], "marker": marker, "ls": dash}


def reach(mean: float, half: float, low: float, high: float) -> tuple[float, float]:
    """Return the lengths of an error bar below and above, clipped to the bounds.

    Args:
        mean: Center of the bar.
        half: Half its length; NaN for no bar.
        low: Lower bound.
        high: Upper bound.
    """
    half = half if math.isfinite(half) else 0.0
    return min(half, mean - low), min(half, high - mean)


def end_at(axes: Any, low: float, high: float, *, horizontal: bool = False) -> None:
    """Clip the limits of an axis to the possible values without clipping marks on the edge.

    Args:
        axes: The axes.
        low: Smallest possible value.
        high: Largest possible value.
        horizontal: Whether to clip the horizontal axis.
    """
    limits, limit = (axes.get_xlim(), axes.set_xlim) if horizontal else (axes.get_ylim(), axes.set_ylim)
    limit(max(low, limits[0]), min(high, limits[1]))
    for artist in (*axes.lines, *axes.collections):
        artist.set_clip_on(False)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Add a legend below all panels, in as many columns as fit; the figure grows by its height.

    Args:
        figure: The figure.
        handles: Drawn artists.
        labels: Their legend entries.
    """
    if not handles:
        return
    widest = max(len(line) for label in labels for line in label.split("\n"))
    width = 0.58 * TEXT_SIZE * widest + 2.9 * TEXT_SIZE
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 72 / width)))
    lines = math.ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    figure.set_figheight(figure.get_figheight() + 0.25 * lines)
    style: dict[str, Any] = {"fontsize": TEXT_SIZE, "labelcolor": INK, "frameon": False, "ncols": columns}
    style |= {"handlelength": 1.6, "columnspacing": 1.2, "handletextpad": 0.5, "borderaxespad": 0.2, "labelspacing": 0.3}
    legend = figure.legend(handles, labels, loc="outside lower left", **style)
    for text in legend.get_texts():
        text.set_parse_math(False)


def save(name: str, figure: Figure, *title: str) -> dict[str, bytes]:
    """Return ``name.svg`` for a page and ``name.png`` with a title.

    Args:
        name: Stem of the files.
        figure: The figure.
        *title: Lines of the title.
    """
    files = {f"{name}.svg": svg(figure)}
    if any(title):
        letters = int(figure.get_figwidth() * 12)
        lines = [part for line in title for part in textwrap.wrap(line, letters)]
        figure.suptitle("\n".join(lines), fontsize=10, color=INK, x=0.01, ha="left", parse_math=False)
    return {f"{name}.png": png(figure)} | files


def png(figure: Figure, dpi: int = 150) -> bytes:
    """Return the figure as PNG on white, independent of the user's matplotlib settings.

    Args:
        figure: The figure.
        dpi: Pixels per inch.
    """
    _take_literally(figure)
    canvas: Any = FigureCanvasAgg(figure)
    content = io.BytesIO()
    canvas.print_figure(content, format="png", dpi=dpi, facecolor="white")
    return content.getvalue()


def svg(figure: Figure) -> bytes:
    """Return the figure as SVG with text as text; equal figures give equal bytes.

    Args:
        figure: The figure.
    """
    _take_literally(figure)
    canvas: Any = FigureCanvasSVG(figure)
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "multimix", "svg.fonttype": "none"}):
        canvas.print_figure(content, format="svg", facecolor="white", metadata={"Date": None})
    return content.getvalue()


def _take_literally(figure: Figure) -> None:
    """Disable math mode, except for tick labels that matplotlib writes as formulas."""
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))  # SVG cannot hold control characters
        if "$" in text.get_text() and not NUMBER.fullmatch(text.get_text()):
            text.set_parse_math(False)
