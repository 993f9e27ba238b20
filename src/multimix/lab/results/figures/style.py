"""What all figures share: one size, plain axes, text as large as a page's, and how they become PNG and SVG."""

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

from ...terminal import printable
from ..colours import BLUE, COLOURS, GREY, INK, LINE, ORANGE, SHEET, SKY, SOFT, VERMILION

__all__ = ["BLUE", "COLOURS", "GREY", "INK", "LINE", "ORANGE", "SHEET", "SKY", "SOFT", "VERMILION"]

DASHES = ("-", "--", ":", "-.")
SIZE = (5.4, 3.4)  # of a figure with one panel, in inches
TEXT = 12  # points, which are the 16 pixels of a page
NUMBER = re.compile(r"\$\\mathdefault\{[-−+0-9.^{}]*(\\times[0-9^{}]*)?\}\$")  # as matplotlib writes powers of ten


def panels(size: tuple[float, float] = SIZE, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, Any]:
    """A figure of ``size`` inches and its axes ``[rows, columns]``, with a grid and without a frame."""
    figure = Figure(figsize=size, layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        plain(axes)
    return figure, grid


def plain(axes: Any) -> None:
    """No frame above and to the right, a grid behind everything, text of one size."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(GREY)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=TEXT, labelcolor=INK, color=GREY)
    for words in (axes.xaxis.label, axes.yaxis.label, axes.title, axes.xaxis.get_offset_text(), axes.yaxis.get_offset_text()):
        words.set(fontsize=TEXT, color=INK)


def within(axes: Any, low: float = -math.inf, high: float = math.inf) -> None:
    """End the vertical axis where values end; whatever lies on the edge is drawn whole."""
    least, most = axes.get_ylim()
    axes.set_ylim(max(low, least), min(high, most))
    for drawn in (*axes.lines, *axes.collections):
        drawn.set_clip_on(False)


def set_title(figure: Figure, *lines: str, width: int | None = None) -> None:
    """Lines at the upper left, folded at so many characters or where the figure ends; empty ones are left out."""
    letters = width or int(figure.get_figwidth() * 12)
    folded = [part for line in lines for part in textwrap.wrap(line, letters)]
    figure.suptitle("\n".join(folded), fontsize=10, color=INK, x=0.01, ha="left", parse_math=False)


def take_literally(figure: Figure) -> None:
    """Show all words as they are: a name with dollar signs in it is not a formula. Only numbers on the axes are."""
    for words in figure.findobj(Text):
        words.set_text(printable(words.get_text()))  # an SVG cannot hold control characters
        if "$" in words.get_text() and not NUMBER.fullmatch(words.get_text()):
            words.set_parse_math(False)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend below everything, in as many columns as fit; the figure grows by what it needs."""
    if not handles:
        return
    widest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 72 / (0.58 * TEXT * widest + 2.9 * TEXT))))
    lines = math.ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    figure.set_figheight(figure.get_figheight() + 0.25 * lines)
    look: dict[str, Any] = {"fontsize": TEXT, "labelcolor": INK, "frameon": False, "ncols": columns}
    look |= {"handlelength": 1.6, "columnspacing": 1.2, "handletextpad": 0.5, "borderaxespad": 0.2, "labelspacing": 0.3}
    legend = figure.legend(handles, labels, loc="outside lower left", **look)
    for words in legend.get_texts():
        words.set_parse_math(False)


def save(name: str, figure: Figure, *title: str, dpi: int = 150) -> dict[str, bytes]:
    """``name.svg`` to stand on a page, and ``name.png``, which has the ``title`` in it."""
    drawn = svg(figure)
    if any(title):
        set_title(figure, *title)
    return {f"{name}.png": png(figure, dpi), f"{name}.svg": drawn}


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as PNG bytes, on white, whatever the user's matplotlib settings."""
    take_literally(figure)
    canvas: Any = FigureCanvasAgg(figure)
    content = io.BytesIO()
    canvas.print_figure(content, format="png", dpi=dpi, facecolor="white")
    return content.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as SVG bytes, on white, its text as text, the same bytes for the same content."""
    take_literally(figure)
    canvas: Any = FigureCanvasSVG(figure)
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "multimix", "svg.fonttype": "none"}):
        canvas.print_figure(content, format="svg", facecolor="white", metadata={"Date": None})
    return content.getvalue()
