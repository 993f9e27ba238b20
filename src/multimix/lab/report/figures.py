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
from .style import GREY, INK, LINE, ORANGE, SIZE, SKY, TEXT_SIZE, VERMILION, end_at, legend_below, look, panels, reach

UNBOUNDED = (-math.inf, math.inf)
PERCENT = (0.0, 100.0)
MAX_MARKED_POINTS = 15  # a curve with more points has no marks
PICTURE_SIDE = 1.15  # inches
TITLE_SIZE = 9  # points


class Dot(NamedTuple):
    """A mean with its interval in a row of a dot plot.

    Args:
        mean: What is drawn.
        series: Legend entry; equal entries share a color, "" is grey without an entry.
        points: Single values, drawn small.
        reference: A number to compare with, drawn hollow.
    """

    mean: Summary | Paired
    series: str = ""
    points: Sequence[float] = ()
    reference: float | None = None


class Series(NamedTuple):
    """Points of a line.

    Args:
        label: Legend entry; "" for none.
        x: Places.
        y: Values.
        below: How far the interval reaches below each value; empty for none.
        above: How far it reaches above.
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


REFERENCE: Mapping[str, Any] = {"color": GREY, "ls": ":", "marker": "", "lw": 1.2}
BASELINE_STYLE: Mapping[str, Any] = {"color": GREY, "ls": "--", "marker": "", "lw": 1.2}


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
        bounds: Values that are possible.
        zero: Whether to draw a line at 0.
        reference: Legend entry of the references.
        series: Order of the series; empty for the order of their first dots.
    """
    series = series or list(dict.fromkeys(dot.series for own in rows.values() for dot in own if dot.series))
    figure, [axes] = panels((SIZE[0], 1.1 + 0.28 * max(4, len(rows))))
    if zero:
        axes.axvline(0, color=GREY, lw=1)
    for row, own in enumerate(rows.values()):
        for dot in own:
            number = series.index(dot.series) if dot.series else 0
            style = look(number) if dot.series else {"color": GREY, "marker": "o"}
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
        bounds: Values that are possible.
        log: Whether the vertical axis is logarithmic.
        from_zero: Whether the horizontal axis begins at 0.
    """
    figure, [axes] = panels(SIZE)
    single = len({x for own in series for x in own.x}) == 1
    for i, own in enumerate(series):
        # With a single place on the axis, lines lie beside each other.
        x = [at + (0.8 * ((i + 0.5) / len(series) - 0.5) if single else 0.0) for at in own.x]
        style = {**own.style, "marker": "o" if len(x) <= MAX_MARKED_POINTS else "", "ms": 3.5, "lw": 1.4}
        axes.plot(x, own.y, label=_folded(own.label), zorder=3, **style)
        low = [y - below for y, below in zip(own.y, own.below, strict=True)]
        high = [y + above for y, above in zip(own.y, own.above, strict=True)]
        if any(own.below) or any(own.above):
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
    elif max((len(own.x) for own in series), default=0) <= MAX_MARKED_POINTS:
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
        bounds: Values that are possible.
        xlog: Whether the horizontal axes are logarithmic.
        ylog: Whether the vertical axes are logarithmic.
        ticks: Marked places of the horizontal axes; empty for automatic ones.
        connected: Whether the points of a series are joined.
        columns: Panels side by side.
    """
    count = len(series_by_panel)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    size = SIZE if count == 1 else (3.2 * columns + 0.6, SIZE[1] if rows == 1 else 0.5 + 2.9 * rows)
    figure, every = panels(size, columns, rows, sharex=True, sharey=True)
    for axes in every[count:]:
        axes.set_axis_off()
    for axes, (title, series) in zip(every, series_by_panel.items(), strict=False):
        axes.set_title(title, fontsize=TEXT_SIZE, color=INK, loc="left", parse_math=False)
        for own in series:
            _errorbars(axes, own, bounds, connected)
        for on, set_scale in ((xlog, axes.set_xscale), (ylog, axes.set_yscale)):
            if on:
                set_scale("log")
        if ticks:
            axes.set_xticks(ticks)
        if xlog:
            places = [x for own in series for x in own.x]
            near = bool(places) and max(places) < 4 * min(places)
            axes.xaxis.set_major_locator(MaxNLocator(5) if near else LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        for on, axis in ((xlog, axes.xaxis), (ylog, axes.yaxis)):
            if on:
                axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,g}"))
    for axes in every[:count]:  # after all panels are drawn, since they share their limits
        end_at(axes, *bounds)
    for axes in every[max(0, count - columns) : count]:
        axes.set_xlabel(xlabel)
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in every[::columns]:
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
    height = 0.35 + side * ratio * rows + sum(0.04 + 0.16 * number for number in lines if number)
    figure = Figure(figsize=(max(4 * PICTURE_SIDE, side * columns), height), layout="constrained")
    every: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in every.flat:
        axes.set_axis_off()
    for axes, image, title in zip(every.flat, grid.images, titles, strict=False):
        axes.imshow(image, interpolation="nearest" if image.shape[1] < 100 else "bilinear")
        axes.set_title(title, fontsize=TITLE_SIZE, color=INK, pad=2, parse_math=False)
    drawn = {}
    for index, x, y, width, box_height, kind in grid.boxes.tolist():
        predicted = kind == PREDICTED_BOX
        style = {"ec": ORANGE, "ls": (0, (3, 2))} if predicted else {"ec": SKY, "ls": "-"}
        box = Rectangle((x - 0.5, y - 0.5), width, box_height, fill=False, lw=1.8, **style)
        box.set_path_effects([Stroke(linewidth=3, foreground="black", alpha=0.5), Normal()])
        drawn[pairs_of_boxes[predicted]] = every.flat[int(index)].add_patch(box)
    legend_below(figure, list(drawn.values()), list(drawn))
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
    every: Any = figure.axes
    entries = {name: handle for axes in every for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    # matplotlib puts plain lines before lines with error bars.
    names = sorted(entries, key=lambda name: not isinstance(entries[name], ErrorbarContainer))
    names = [*(name for name in order if name in entries), *(name for name in names if name not in order)]
    if len(names) > 1:
        legend_below(figure, [entries[name] for name in names], names)
    return figure


def _folded(text: str, width: int = 26, lines: int = 4) -> str:
    """Fold at spaces; a legend as wide as a list of settings would leave no room for the figure."""
    if len(text) <= width:
        return text
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …"))


class _PlainLog(LogFormatter):
    """Write 3.5 and 0.6, not 3.5 × 10⁰ and 6e−01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""
