"""What all figures share: colours, plain axes, titles, and how they become PNG and SVG."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; with four dashes 24 curves differ.
COLOURS = (BLUE, VERMILION, *_) = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
ORANGE, SKY, LIGHT_BLUE = "#e69f00", "#56b4e9", "#a9cde4"
DASHES = ("-", "--", ":", "-.")
INK, GREY, SOFT, LINE = "#1d1d22", "#6b6b74", "#5c5c66", "#d4d2cb"


def panels(size: tuple[float, float], rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, Any]:
    """A figure of ``size`` inches and its axes ``[rows, columns]``, with a grid and without a frame."""
    figure = Figure(figsize=size, layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        plain(axes)
    return figure, grid


def plain(axes: Any) -> None:
    """No frame above and to the right, a grid behind everything."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)


def set_title(figure: Figure, *lines: str, width: int = 95, size: int = 10) -> None:
    """Lines at the upper left, folded at ``width`` characters; empty ones are left out."""
    folded = [part for line in lines for part in textwrap.wrap(line, width)]
    figure.suptitle("\n".join(folded), fontsize=size, color=INK, x=0.01, ha="left", parse_math=False)


def legend_beside(axes: Any, handles: Sequence[Any] | None = None, labels: Sequence[str] | None = None) -> None:
    """A legend to the right of the axes, where it hides nothing."""
    given = () if handles is None or labels is None else (handles, labels)
    axes.legend(*given, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=8, frameon=False)


def save(name: str, figure: Figure, dpi: int = 200) -> dict[str, bytes]:
    """The figure as ``name.png`` and ``name.svg``."""
    return {f"{name}.png": png(figure, dpi), f"{name}.svg": svg(figure)}


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as PNG bytes, on white, whatever the user's matplotlib settings."""
    canvas: Any = FigureCanvasAgg(figure)
    content = io.BytesIO()
    canvas.print_figure(content, format="png", dpi=dpi, facecolor="white")
    return content.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as SVG bytes, on white, the same bytes for the same content."""
    canvas: Any = FigureCanvasSVG(figure)
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "multimix"}):
        canvas.print_figure(content, format="svg", facecolor="white", metadata={"Date": None})
    return content.getvalue()
