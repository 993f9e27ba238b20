"""Figures of trainings: error line by line, over epochs, rows and seconds; error and time against K; error against cost."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, MaxNLocator, NullFormatter

from ...recipes.base import counts_k
from ...statistics import Summary, half_shown, summary
from ...sweep.plan import Equal
from ...training.log import Epoch
from ..comparison import longest_schedules
from ..rows import BASELINE, ERROR_WORDS, ERRORS, SCALE_WORDS, Aggregate, Line, join_settings
from ..table import short
from .style import COLOURS, DASHES, GREY, INK, LINE, SIZE, TEXT, legend_below, panels, save, within

FEW = 15  # points that are marked one by one
MOST = 12  # lines or methods that can be told apart in one figure
MARKERS = ("o", "s", "^", "P", "X", "D")
POSSIBLE = (0.0, 100.0)  # of an error in per cent
SPREAD = "mean over seeds with its 95 % interval, or of two seeds both; cut off at 0 and 100 %"


class Point(NamedTuple):
    """Mean, least and greatest value of the seeds at one place."""

    at: float
    mean: float
    low: float
    high: float


class Drawn(NamedTuple):
    """A figure and what it shows, in words."""

    figure: Figure
    words: str


class Curves(NamedTuple):
    """A figure of what epochs have, over their number or, with ``over``, over what was spent by their end."""

    value: Callable[[Epoch], float | None]
    title: str
    label: str
    log: bool = False
    over: Equal | None = None


CURVES: Mapping[str, Curves] = {
    "error": Curves(lambda epoch: epoch.error, "error after every epoch", "error (%)"),
    "loss": Curves(lambda epoch: epoch.loss, "training loss of every epoch", "training loss"),
    "gradient": Curves(
        lambda epoch: epoch.squared_grad_norm, "squared gradient norm of an update, mean of the epoch", "‖g‖²", log=True
    ),
}
COURSES: Mapping[str, Curves] = {
    "rows": Curves(lambda epoch: epoch.error, "error after every evaluated epoch", "error (%)", over="samples"),
    "seconds": Curves(lambda epoch: epoch.error, "error after every evaluated epoch", "error (%)", over="compute"),
}


def recipe_figures(whole: Aggregate) -> dict[str, bytes]:
    """PNG and SVG by file name: error line by line; error, loss and gradient norm over the epochs; where an arm has several K,
    error and time against K. A figure that would be empty is left out.
    """
    drawn = {"dots": dots_figure(whole), **{name: curves_figure(whole, curves) for name, curves in CURVES.items()}}
    return _files(whole, drawn | {"k": _error_by_k(whole), "time": _time_by_k(whole.trained)})


def budget_figures(tables: Mapping[Equal, Aggregate], changed: str = "", stem: str = "sweep") -> dict[str, bytes]:
    """PNG and SVG by file name: error against ``k`` and ``cost``, a panel for every budget, and its course over ``rows`` and
    ``seconds``, all after the ``stem``. A figure that would be empty is left out.
    """
    longest = longest_schedules(tables)
    drawn = {"k": _budgets_by_k(tables), "cost": _budgets_by_cost(tables)}
    drawn |= {name: curves_figure(longest, curves) for name, curves in COURSES.items()}
    return _files(longest, {f"{stem}-{name}": figure for name, figure in drawn.items()}, changed)


def _files(whole: Aggregate, drawn: Mapping[str, Drawn | None], changed: str = "") -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name, found in drawn.items():
        if found is not None:
            scale = f"{SCALE_WORDS[whole.scale]}{'; ' + changed if changed else ''}"
            files |= save(name, found.figure, whole.recipe.title, scale, found.words)
    return files


def _lowest(whole: Aggregate) -> tuple[list[Line], str]:
    """The lines that one figure has room for: no mixing and those of the lowest error; and in words, if some are left out."""
    lines = whole.trained
    if len(lines) <= MOST:
        return lines, ""
    means = {id(line): mean.mean for line in lines if (mean := line.summary(whole.error)) is not None}
    ranked = sorted(lines, key=lambda line: (line.arm != BASELINE, means.get(id(line), math.inf)))
    chosen = {id(line) for line in ranked[:MOST]}
    return [
        line for line in lines if id(line) in chosen
    ], f" · {BASELINE} and the {MOST - 1} lines of lowest error of {len(lines)}"


def dots_figure(whole: Aggregate) -> Drawn | None:
    """The reported error of every line, the lowest on top: a row for every method, a mark for every K."""
    rows: dict[tuple[str, tuple[str, ...], int], list[tuple[Line, Summary]]] = {}
    for line in sorted(whole.trained, key=lambda line: line.k):
        if (mean := line.summary(whole.error)) is not None:
            rows.setdefault((line.arm, line.differs, line.processes), []).append((line, mean))
    if sum(map(len, rows.values())) < 2:
        return None
    order = sorted(rows.values(), key=lambda own: min(mean.mean for _, mean in own))
    ks = sorted({line.k for own in order for line, _ in own if counts_k(line.arm)})
    figure, [[axes]] = panels((SIZE[0], 1.1 + 0.28 * max(4, len(order))))
    for place, own in enumerate(order):
        for line, mean in own:
            counted = counts_k(line.arm)
            look = (
                {**_look(ks.index(line.k)), "marker": MARKERS[ks.index(line.k) % 6]}
                if counted
                else {"color": GREY, "marker": "o"}
            )
            aside = 0.26 * (ks.index(line.k) - (len(ks) - 1) / 2) / max(1, len(ks) - 1) if counted else 0.0
            _, halves = _means([(line.k, mean)])
            words = f"K = {line.k}" if counted else "without K"
            axes.errorbar(
                mean.mean, place + aside, xerr=halves, ms=6, elinewidth=1.4, label=words, zorder=3, **{**look, "ls": ""}
            )
    axes.set_yticks(range(len(order)), [own[0][0].arm + _mark(whole, own[0][0]) for own in order], parse_math=False)
    axes.set_ylim(len(order) - 0.5, -0.5)
    low, high = axes.get_xlim()
    axes.set_xlim(max(POSSIBLE[0], low), min(POSSIBLE[1], high))
    for drawn in (*axes.lines, *axes.collections):
        drawn.set_clip_on(False)  # a mark on the edge is whole
    axes.set_xlabel(f"{ERROR_WORDS[whole.error]} (%)")
    if len(order) > MOST:
        axes.tick_params(top=True, labeltop=True)
    return finish(figure, SPREAD)


def _mark(whole: Aggregate, line: Line) -> str:
    return f" {whole.marks()[line.differs]}" if line.differs else ""


def curve(line: Line, curves: Curves) -> list[Point]:
    """What the seeds of a line have at every epoch where at least one has something; a log axis takes what is above 0."""
    seen = []
    for run in line.runs.values():
        for count, epoch in enumerate(run.epochs, start=1):
            value, at = curves.value(epoch), float(epoch.number) if curves.over is None else run.spent(curves.over, count)
            if value is not None and (value > 0 or not curves.log):
                seen.append((epoch.number, at, value))
    points = []
    for _, group in groupby(sorted(seen), key=lambda one: one[0]):
        _, places, values = zip(*group, strict=True)
        points.append(Point(fmean(places), fmean(values), min(values), max(values)))
    return points


def times_of_one(line: Line, one: Line) -> Summary | None:
    """Seconds per epoch of ``line`` as multiples of those of ``one``: seed by seed, where both ran on the same machine."""
    here, there = line.runs, one.runs
    common = [seed for seed in here if seed in there and here[seed].machine == there[seed].machine]
    pairs = [(here[seed].outcome.seconds_per_epoch, there[seed].outcome.seconds_per_epoch) for seed in common]
    return summary([a / b for a, b in pairs if b > 0]) if any(b > 0 for _, b in pairs) else None


def curves_figure(whole: Aggregate, curves: Curves) -> Drawn | None:
    """One curve per line: the mean over its seeds in a band from the least to the greatest."""
    lines, few = _lowest(whole)
    found = [(line, look, curve(line, curves)) for line, look in zip(lines, _line_looks(lines), strict=True)]
    found = [(line, look, points) for line, look, points in found if points]
    if not found:
        return None
    figure, [[axes]] = panels(SIZE)
    places = sorted({point.at for _, _, points in found for point in points})
    for i, (line, look, points) in enumerate(found):
        # Beside each other where there is nothing but one epoch, or bars would hide bars.
        aside = 0.8 * ((i + 0.5) / len(found) - 0.5) if len(places) == 1 else 0.0
        at = [point.at + aside for point in points]
        mark = {"marker": "o", "ms": 3.5} if len(points) <= FEW else {}
        axes.plot(at, [point.mean for point in points], lw=1.4, label=_label(line), zorder=3, **mark, **look)
        low, high = [point.low for point in points], [point.high for point in points]
        if low != high and len(points) > 1:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.15, lw=0, zorder=2)
        elif low != high:
            axes.vlines(at, low, high, color=look["color"], alpha=0.4, lw=3, zorder=2)
    if curves.log:
        axes.set_yscale("log")
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which(_PlainLog(minor_thresholds=(2, 0.4)))
        axes.grid(axis="y", which="both", color=LINE)
    if curves.over is not None:
        axes.set_xlim(left=0)
        shown = short if curves.over == "samples" else "{:g}".format
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: shown(value)))
    elif len(places) <= FEW:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if len(places) == 1:
            axes.set_xticks(places)
            axes.set_xlim(places[0] - 0.7, places[0] + 0.7)
    words = {None: "epoch", "samples": "rows through the network", "compute": f"{_seconds(whole)} of training"}
    axes.set(xlabel=words[curves.over], ylabel=curves.label)
    if curves.label == "error (%)":
        within(axes, *POSSIBLE)
    return finish(figure, f"{curves.title} · mean over seeds, band from least to greatest{few}")


def _error_by_k(whole: Aggregate) -> Drawn | None:
    """Mean error of every arm with its interval at every K; dashed is no mixing, hollow are the paper's numbers at its scale."""
    lines, reported = whole.trained, whole.recipe.reported(whole.scale)
    field = reported if reported in ERRORS else "median"
    courses = _by_k(lines)
    drawn = _against_k({label: [(line.k, line.summary(field)) for line in own] for label, own in courses.items()})
    if drawn is None or len(courses) > MOST:
        return None
    figure, axes = drawn
    for line in lines:
        mean = line.summary(field)
        if line.arm == BASELINE and mean is not None and not line.changed:
            axes.axhline(mean.mean, color=GREY, lw=1, ls="--", zorder=1, label="no mixing")
    for place, (label, own) in enumerate(courses.items()):
        spots = [(line.k, line.paper) for line in own if line.paper is not None and not line.changed]
        if whole.scale == "paper" and spots and reported in ERRORS:
            hollow = {"marker": "D", "ls": "", "ms": 7, "mfc": "none", "color": _look(place)["color"]}
            axes.plot(*zip(*spots, strict=True), label=f"{label}, the paper", zorder=4, **hollow)
    axes.set_ylabel(f"{field} error (%)")
    within(axes, *POSSIBLE)
    return finish(figure, f"error against K · {SPREAD}")


def _time_by_k(lines: Sequence[Line]) -> Drawn | None:
    """Time of an epoch as a multiple of that at K = 1; dotted is K times as long."""
    courses = {
        label: [(line.k, times_of_one(line, own[0])) for line in own] for label, own in _by_k(lines).items() if own[0].k == 1
    }
    drawn = _against_k(courses, math.inf)
    if drawn is None:
        return None
    figure, axes = drawn
    ks = sorted({k for own in courses.values() for k, _ in own})
    axes.plot(ks, ks, color=GREY, lw=1, ls=":", zorder=1, label="K times as long")
    axes.set_ylabel("time, multiple of K = 1")
    axes.set_ylim(bottom=0)
    within(axes, low=0)
    return finish(figure, "seconds per epoch against K · mean over seeds with its 95 % interval, or of two seeds both")


def _by_k(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines that differ by nothing but K, in ascending order, by a label; those with a single K are left out."""
    found: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.k):
        if counts_k(line.arm):
            label = f"{line.arm}\n({join_settings(line.changed, 1)})" if line.changed else line.arm
            found.setdefault(label, []).append(line)
    return {label: own for label, own in found.items() if len({line.k for line in own}) > 1}


def _against_k(
    courses: Mapping[str, Sequence[tuple[int, Summary | None]]], high: float = POSSIBLE[1]
) -> tuple[Figure, Any] | None:
    """Means with intervals over K, a line for each course; None where there is nothing to connect."""
    known = {label: [(k, mean) for k, mean in own if mean is not None] for label, own in courses.items()}
    if not any(len(own) > 1 for own in known.values()):
        return None
    figure, [[axes]] = panels(SIZE)
    for place, (label, own) in enumerate(known.items()):
        _errorbars(axes, own, place - (len(known) - 1) / 2, high, label=label, marker="o", **_look(place))
    axes.set_xticks(sorted({k for own in known.values() for k, _ in own}))
    axes.set_xlabel("K")
    return figure, axes


def _errorbars(axes: Any, points: Sequence[tuple[int, Summary]], aside: float, high: float = POSSIBLE[1], **look: Any) -> None:
    # A little beside each other, or intervals would hide intervals.
    at = [k + 0.1 * aside for k, _ in points]
    axes.errorbar(at, *_means(points, high), ms=5, lw=1.4, capsize=3, zorder=3, **look)


def _means(points: Sequence[tuple[Any, Summary]], high: float = POSSIBLE[1]) -> tuple[list[float], list[list[float]]]:
    """Means, and how far their intervals reach below and above, within what is possible; one seed has none."""
    return [mean.mean for _, mean in points], reaches([(mean.mean, half_shown(mean)) for _, mean in points], 0.0, high)


def reaches(points: Sequence[tuple[float, float]], low: float, high: float) -> list[list[float]]:
    """How far bars of half a width reach below and above their means: not at all without one, and not beyond what is possible."""
    known = [(mean, half if math.isfinite(half) else 0.0) for mean, half in points]
    return [[min(half, mean - low) for mean, half in known], [min(half, high - mean) for mean, half in known]]


def _budgets_by_k(tables: Mapping[Equal, Aggregate]) -> Drawn | None:
    """A panel for every budget: mean error of every arm with its interval over K; grey lines are arms without K."""
    if not any(counts_k(line.arm) for whole in tables.values() for line in whole.trained):
        return None
    looks = _arm_looks(tables)
    if len(looks) > MOST:  # error line by line shows the same
        return None
    figure, grid = _budget_panels(tables)
    for axes, whole in zip(grid, tables.values(), strict=True):
        arms = _arms(whole.trained)
        mixing = [arm for arm in arms if counts_k(arm)]
        for place, arm in enumerate(mixing):
            own = [(line.k, mean) for line in arms[arm] if (mean := line.summary(whole.error)) is not None]
            _errorbars(axes, own, 1.2 * (place - (len(mixing) - 1) / 2), label=arm, **looks[arm])
        for arm, lines in arms.items():
            if arm not in mixing and (mean := lines[0].summary(whole.error)) is not None:
                axes.axhline(mean.mean, label=arm, zorder=1, color=GREY, lw=1, ls="--" if arm == BASELINE else ":")
        axes.set_xticks(sorted({line.k for line in whole.trained}))
        axes.set_xlabel("K")
    for axes in grid:
        within(axes, *POSSIBLE)
    return finish(figure, SPREAD)


def _budgets_by_cost(tables: Mapping[Equal, Aggregate]) -> Drawn | None:
    """A panel for every budget: mean error over mean seconds, arrows from each arm's smallest K to larger ones."""
    spent = {equal: [line.spent("compute") or 0.0 for line in whole.trained] for equal, whole in tables.items()}
    if not any(any(own) for own in spent.values()):
        return None
    looks = _arm_looks(tables)
    if len(looks) > MOST:
        tables = {equal: whole._replace(lines=tuple(_lowest(whole)[0])) for equal, whole in tables.items()}
        looks = _arm_looks(tables)
    figure, grid = _budget_panels(tables)
    for axes, (equal, whole) in zip(grid, tables.items(), strict=True):
        for arm, lines in _arms(whole.trained).items():
            look = {**looks[arm], "ls": ""}
            own = [(line, mean) for line in lines if line.spent("compute") and (mean := line.summary(whole.error)) is not None]
            means, halves = _means(own)
            spots = [(line.spent("compute"), mean) for (line, _), mean in zip(own, means, strict=True)]
            axes.errorbar(*zip(*spots, strict=True), yerr=halves, ms=6, elinewidth=0.8, label=arm, zorder=3, **look)
            arrow = {"arrowstyle": "->", "color": look["color"], "lw": 1.3, "shrinkA": 5, "shrinkB": 5}
            for here, there in pairwise(spots):
                axes.annotate("", there, here, arrowprops=arrow)
            for (line, _), spot in zip(own, spots, strict=True):
                if counts_k(arm):
                    place = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": TEXT - 2, "color": INK}
                    axes.annotate(str(line.k), spot, **place)
        axes.set_xscale("log")
        # Where the costs are close together, powers of ten alone would leave an axis without numbers.
        near = max(spent[equal], default=0.0) < 4 * min(spent[equal], default=0.0)
        axes.xaxis.set_major_locator(MaxNLocator(5) if near else LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))  # 0.2, not 2 × 10⁻¹
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(0.1)
        axes.set_xlabel(f"{_seconds(whole)} of a training")
    for axes in grid:
        within(axes, *POSSIBLE)
    return finish(figure, f"numbers are K · {SPREAD}")


def _budget_panels(tables: Mapping[Equal, Aggregate]) -> tuple[Figure, Sequence[Any]]:
    """Panels beside each other with the names of the budgets above them."""
    figure, [grid] = panels(
        (SIZE[0] if len(tables) == 1 else 3.2 * len(tables) + 0.6, SIZE[1]), 1, len(tables), sharex=True, sharey=True
    )
    for axes, (equal, whole) in zip(grid, tables.items(), strict=True):
        axes.set_title(f"equal {equal}", fontsize=TEXT, color=INK, loc="left")
        grid[0].set_ylabel(f"{whole.error} error (%)")
    return figure, grid


def finish(figure: Figure, words: str) -> Drawn:
    """With one legend for all panels, and a line that says what is shown."""
    every: Any = figure.axes
    handles = {name: handle for axes in every for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    # Matplotlib puts plain lines, such as that of no mixing, before what has bars.
    names = sorted(handles, key=lambda name: not isinstance(handles[name], ErrorbarContainer))
    if len(names) > 1:  # one line alone needs no name beside that of the page
        legend_below(figure, [handles[name] for name in names], names)
    return Drawn(figure, words)


class _PlainLog(LogFormatter):
    """3.5 and 0.6, not 3.5 × 10⁰ and 6e−01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _seconds(whole: Aggregate) -> str:
    return "CPU seconds" if whole.timed == "CPU s" else "seconds"


def _arms(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines by arm, in ascending order of K."""
    found: dict[str, list[Line]] = {line.arm: [] for line in lines}
    for line in sorted(lines, key=lambda line: line.k):
        found[line.arm].append(line)
    return found


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "ls": DASHES[place // len(COLOURS) % len(DASHES)]}


def _arm_looks(tables: Mapping[Equal, Aggregate]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash of every arm, the same in all panels: grey where K means nothing."""
    arms = dict.fromkeys(line.arm for whole in tables.values() for line in whole.lines)
    mixing, others = [arm for arm in arms if counts_k(arm)], [arm for arm in arms if not counts_k(arm)]
    looks = {arm: {**_look(place), "marker": MARKERS[place % len(MARKERS)]} for place, arm in enumerate(mixing)}
    return looks | {arm: {"color": GREY, "marker": "hv"[place % 2], "ls": "--"} for place, arm in enumerate(others)}


def _line_looks(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Colour and dash of every line: grey where K means nothing; shades where there is one arm with several K, else one each."""
    mixing = [line for line in lines if counts_k(line.arm)]
    if len({line.arm for line in mixing}) == 1 and len(mixing) > 1:
        shades = matplotlib.colormaps["viridis"]
        # Not to the end of the scale, which is too light on white.
        places = [0.85 * i / (len(mixing) - 1) for i in range(len(mixing))]
        own = iter([{"color": to_hex(shades(place)), "ls": "-"} for place in places])
    else:
        own = iter([_look(place) for place in range(len(mixing))])
    grey = iter([{"color": GREY, "ls": DASHES[i % len(DASHES)]} for i in range(len(lines) - len(mixing))])
    return [next(own if counts_k(line.arm) else grey) for line in lines]


def _label(line: Line) -> str:
    # Folded: a legend as wide as a list of settings would leave no room for the curves.
    return "\n".join([line.label, *textwrap.wrap(f"({join_settings(line.differs, 1)})", 26)]) if line.differs else line.label
