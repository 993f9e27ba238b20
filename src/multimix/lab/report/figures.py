"""The four figure types of all pages: dots with intervals, curves, metric against x, image grid."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, MaxNLocator, NullFormatter

from ..images import PREDICTED_BOX, ImageGrid
from .stats import Paired, Summary, half_shown
from .style import GRAY, INK, LINE, ORANGE, SIZE, SKY, TEXT_SIZE, VERMILION, end_at, legend_below, look, panels, reach

UNBOUNDED = (-math.inf, math.inf)
PERCENT = (0.0, 100.0)
MAX_MARKED_POINTS = 15  # longer curves have no marks
PICTURE_SIDE = 1.15  # inches
TITLE_SIZE = 9  # points


class Dot(NamedTuple):
    """A mean with its interval in a row of a dot plot.

    Args:
        mean: The mean or difference.
        series: Legend entry; equal entries share a color. An empty string is gray without an entry.
        points: Single values, drawn as small dots.
        reference: A number to compare with, drawn as a hollow mark.
    """

    mean: Summary | Paired
    series: str = ""
    points: Sequence[float] = ()
    reference: float | None = None


class Series(NamedTuple):
    """Points of a line.

    Args:
        label: Legend entry; "" for none.
        x: Horizontal positions.
        y: Values.
        below: Length of the interval below each value; empty for no interval.
        above: Length of the interval above each value.
        style: Options of matplotlib.
        names: Text beside the points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    below: Sequence[float] = ()
    above: Sequence[float] = ()
    style: Mapping[str, Any] = {}
    names: Sequence[str] = ()


REFERENCE: Mapping[str, Any] = {"color": GRAY, "ls": ":", "marker": "", "lw": 1.2}
BASELINE_STYLE: Mapping[str, Any] = {"color": GRAY, "ls": "--", "marker": "", "lw": 1.2}


def dots(
    rows: Mapping[str, Sequence[Dot]],
    xlabel: str,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
    zero: bool = False,
    reference: str = "",
    series: Sequence[str] = (),
) -> Figure:
    """Draw means with intervals, one row per label.

    Args:
        rows: Dots by label, from the top.
        xlabel: Label of the axis.
        bounds: Range of possible values.
        zero: Whether to draw a line at 0.
        reference: Legend entry of the references.
        series: Order of the series; empty for the order of their first dots.
    """
    series = series or list(dict.fromkeys(dot.series for row_dots in rows.values() for dot in row_dots if dot.series))
    figure, [axes] = panels((SIZE[0], 1.1 + 0.28 * max(4, len(rows))))
    if zero:
        axes.axvline(0, color=GRAY, lw=1)
    for row, row_dots in enumerate(rows.values()):
        for dot in row_dots:
            number = series.index(dot.series) if dot.series else 0
            style = look(number) if dot.series else {"color": GRAY, "marker": "o"}
            aside = 0.26 * (number - (len(series) - 1) / 2) / max(1, len(series) - 1) if dot.series else 0.0
            below, above = reach(dot.mean.mean, half_shown(dot.mean), *bounds)
            options = {**style, "ls": "", "ms": 6, "elinewidth": 1.4, "zorder": 3, "label": dot.series or None}
            if dot.points:
                height = [row + aside + 0.2 * (i / max(1, len(dot.points) - 1) - 0.5) for i in range(len(dot.points))]
                axes.plot(dot.points, height, ls="", marker="o", ms=3, color=style["color"], alpha=0.45, zorder=2)
            axes.errorbar(dot.mean.mean, row + aside, xerr=[[below], [above]], **options)
            if dot.reference is not None:
                hollow = {"marker": "D", "ls": "", "ms": 7, "mfc": "none", "color": VERMILION, "label": reference}
                axes.plot([dot.reference], [row + aside], zorder=4, **hollow)
    axes.set_yticks(range(len(rows)), list(rows), parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    end_at(axes, *bounds, horizontal=True)
    axes.set_xlabel(xlabel)
    return _with_legend(figure, series)


def curves(
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
    log: bool = False,
    from_zero: bool = False,
) -> Figure:
    """Draw lines in bands.

    Args:
        series: The lines; ``below`` and ``above`` bound the band.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.
        bounds: Range of possible values.
        log: Whether the vertical axis is logarithmic.
        from_zero: Whether the horizontal axis begins at 0.
    """
    figure, [axes] = panels(SIZE)
    single = len({x for line in series for x in line.x}) == 1
    for i, line in enumerate(series):
        # With a single value of x, lines are drawn beside each other.
        x = [position + (0.8 * ((i + 0.5) / len(series) - 0.5) if single else 0.0) for position in line.x]
        style = {**line.style, "marker": "o" if len(x) <= MAX_MARKED_POINTS else "", "ms": 3.5, "lw": 1.4}
        axes.plot(x, line.y, label=_folded(line.label), zorder=3, **style)
        low = [y - below for y, below in zip(line.y, line.below, strict=True)]
        high = [y + above for y, above in zip(line.y, line.above, strict=True)]
        if any(line.below) or any(line.above):
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=3 if single else 0, zorder=2)
    if log:
        axes.set_yscale("log")
        for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            set_formatter(_PlainLog(minor_thresholds=(2, 0.4)))
        axes.grid(axis="y", which="both", color=LINE)
    elif bounds != UNBOUNDED:
        end_at(axes, *bounds)
    if from_zero:
        axes.set_xlim(left=0)
    elif max((len(line.x) for line in series), default=0) <= MAX_MARKED_POINTS:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return _with_legend(figure)


def against(
    series_by_panel: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
    xlog: bool = False,
    ylog: bool = False,
    ticks: Sequence[float] = (),
    connected: bool = True,
    columns: int = 3,
) -> Figure:
    """Draw a metric with intervals against a number.

    Args:
        series_by_panel: Lines by the title of their panel. Titles may have two lines.
        xlabel: Label of the horizontal axes.
        ylabel: Label of the vertical axes.
        bounds: Range of possible values.
        xlog: Whether the horizontal axes are logarithmic.
        ylog: Whether the vertical axes are logarithmic.
        ticks: Ticks of the horizontal axes; empty for automatic ticks.
        connected: Whether to connect the points of a series.
        columns: Panels side by side.
    """
    count = len(series_by_panel)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    size = SIZE if count == 1 else (3.2 * columns + 0.6, SIZE[1] if rows == 1 else 0.5 + 2.9 * rows)
    figure, all_axes = panels(size, columns, rows, sharex=True, sharey=True)
    for axes in all_axes[count:]:
        axes.set_axis_off()
    for axes, (title, series) in zip(all_axes, series_by_panel.items(), strict=False):
        axes.set_title(title, fontsize=TEXT_SIZE, color=INK, loc="left", parse_math=False)
        for line in series:
            _errorbars(axes, line, bounds, connected)
        for on, set_scale in ((xlog, axes.set_xscale), (ylog, axes.set_yscale)):
            if on:
                set_scale("log")
        if ticks:
            axes.set_xticks(ticks)
        if xlog:
            x = [x for line in series for x in line.x]
            narrow = bool(x) and max(x) < 4 * min(x)
            axes.xaxis.set_major_locator(MaxNLocator(5) if narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        for on, axis in ((xlog, axes.xaxis), (ylog, axes.yaxis)):
            if on:
                axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,g}"))
    for axes in all_axes[:count]:  # after all panels are drawn, since they share their limits
        end_at(axes, *bounds)
    for axes in all_axes[max(0, count - columns) : count]:
        axes.set_xlabel(xlabel)
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in all_axes[::columns]:
        axes.set_ylabel(ylabel)
    return _with_legend(figure)


def image_grid(
    grid: ImageGrid,
    pairs_of_boxes: tuple[str, str] = ("true box", "predicted box"),
    *,
    side: float = PICTURE_SIDE,
) -> Figure:
    """Draw pictures in rows, each with its title and boxes.

    Args:
        grid: The pictures.
        pairs_of_boxes: Legend entries of true and predicted boxes.
        side: Width of a picture in inches.
    """
    columns, count = grid.columns, len(grid.images)
    rows = math.ceil(count / columns)
    letters = int(14 * side)
    titles = ["\n".join(_folded(line, letters, 3) for line in title.split("\n")) for title in grid.titles]
    lines = [
        max((title.count("\n") + 1 for title in titles[i : i + columns] if title), default=0) for i in range(0, count, columns)
    ]
    ratio = grid.images.shape[1] / grid.images.shape[2]
    height = 0.35 + side * ratio * rows + sum(0.04 + 0.16 * line_count for line_count in lines if line_count)
    figure = Figure(figsize=(max(4 * PICTURE_SIDE, side * columns), height), layout="constrained")
    all_axes: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in all_axes.flat:
        axes.set_axis_off()
    for axes, image, title in zip(all_axes.flat, grid.images, titles, strict=False):
        axes.imshow(image, interpolation="nearest" if image.shape[1] < 100 else "bilinear")
        axes.set_title(title, fontsize=TITLE_SIZE, color=INK, pad=2, parse_math=False)
    patches = {}
    for index, x, y, width, box_height, kind in grid.boxes.tolist():
        predicted = kind == PREDICTED_BOX
        style = {"ec": ORANGE, "ls": (0, (3, 2))} if predicted else {"ec": SKY, "ls": "-"}
        box = Rectangle((x - 0.5, y - 0.5), width, box_height, fill=False, lw=1.8, **style)
        box.set_path_effects([Stroke(linewidth=3, foreground="black", alpha=0.5), Normal()])
        patches[pairs_of_boxes[predicted]] = all_axes.flat[int(index)].add_patch(box)
    legend_below(figure, list(patches.values()), list(patches))
    return figure


def _errorbars(axes: Any, series: Series, bounds: tuple[float, float], connected: bool) -> None:
    style = {"ms": 5, "lw": 1.4, "zorder": 3, "label": _folded(series.label), **series.style}
    if not series.below:
        axes.plot(series.x, series.y, **{"zorder": 1, **style})
        return
    reaches = [
        (min(below, y - bounds[0]), min(above, bounds[1] - y))
        for y, below, above in zip(series.y, series.below, series.above, strict=True)
    ]
    options = style if connected else {**style, "ls": ""}
    axes.errorbar(series.x, series.y, list(zip(*reaches, strict=True)), capsize=3, **options)
    if series.names:
        for i, name in enumerate(series.names):
            offset = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": TEXT_SIZE - 2, "color": INK}
            axes.annotate(name, (series.x[i], series.y[i]), **offset)
            if i:
                arrow = {"arrowstyle": "->", "color": style.get("color", INK), "lw": 1.3, "shrinkA": 5, "shrinkB": 5}
                axes.annotate("", (series.x[i], series.y[i]), (series.x[i - 1], series.y[i - 1]), arrowprops=arrow)


def _with_legend(figure: Figure, order: Sequence[str] = ()) -> Figure:
    """Add one legend for all panels, unless there is a single entry; entries in ``order`` come first."""
    all_axes: Any = figure.axes
    entries = {name: handle for axes in all_axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    # matplotlib puts plain lines before lines with error bars.
    names = sorted(entries, key=lambda name: not isinstance(entries[name], ErrorbarContainer))
    names = [*(name for name in order if name in entries), *(name for name in names if name not in order)]
    if len(names) > 1:
        legend_below(figure, [entries[name] for name in names], names)
    return figure


def _folded(text: str, width: int = 26, lines: int = 4) -> str:
    """Fold at spaces, so that a long legend leaves room for the figure."""
    if len(text) <= width:
        return text
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …"))


class _PlainLog(LogFormatter):
    """Write 3.5 and 0.6, not 3.5 × 10⁰ and 6e−01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""
