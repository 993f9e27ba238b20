"""A recipe's figures from rows alone: curves over the epochs, and error and time against K."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from ...recipes.arms import counts_k
from ...recipes.base import Recipe, Scale
from ...statistics import Summary, summary
from ...training.log import Epoch
from ..rows import BASELINE, ERRORS, SCALE_WORDS, Line, Rows, aggregate, join_settings
from .style import COLOURS, DASHES, GREY, LINE, SOFT, legend_beside, panels, save, set_title

SIZE = (7.6, 4.2)
FEW = 15  # points that are marked one by one


class Point(NamedTuple):
    """Mean, least and greatest value of the seeds at one place."""

    at: float
    mean: float
    low: float
    high: float


class Curves(NamedTuple):
    """A figure over the epochs: what of an epoch it shows, and how."""

    value: Callable[[Epoch], float | None]
    title: str
    label: str
    log: bool = False


CURVES: Mapping[str, Curves] = {
    "error": Curves(lambda epoch: epoch.error, "error after every epoch", "error (%)"),
    "loss": Curves(lambda epoch: epoch.loss, "training loss of every epoch", "training loss"),
    "gradient": Curves(lambda epoch: epoch.squared_grad_norm, "squared gradient norm of an update", "‖g‖²", log=True),
}


def recipe_figures(recipe: Recipe, scale: Scale, rows: Rows) -> dict[str, bytes]:
    """PNG and SVG by file name: error, loss and gradient norm over the epochs; and where an arm was run with several K,
    error and time against K. A figure that would be empty is left out.
    """
    lines = [line for line in aggregate(recipe, scale, rows).lines if line.runs]
    looks = _looks(lines)
    drawn = {name: _curves(lines, looks, curves) for name, curves in CURVES.items()}
    drawn |= {"k": _error_by_k(recipe, scale, lines), "time": _time_by_k(lines)}
    files: dict[str, bytes] = {}
    for name, figure in drawn.items():
        if figure is not None:
            set_title(figure, recipe.title, SCALE_WORDS[scale])
            files |= save(name, figure)
    return files


def curve(line: Line, value: Callable[[Epoch], float | None], log: bool = False) -> list[Point]:
    """What the seeds of a line have at every epoch where at least one has something; a log axis takes what is above 0."""
    seen = [(epoch.number, value(epoch)) for run in line.runs.values() for epoch in run.epochs]
    known = sorted((number, found) for number, found in seen if found is not None and (found > 0 or not log))
    points = []
    for number, group in groupby(known, key=lambda pair: pair[0]):
        values = [found for _, found in group]
        points.append(Point(number, fmean(values), min(values), max(values)))
    return points


def times_of_one(line: Line, one: Line) -> Summary | None:
    """Seconds per epoch of ``line`` as multiples of those of ``one``: seed by seed, where both ran on the same machine."""
    here, there = line.runs, one.runs
    common = [seed for seed in here if seed in there and here[seed].machine == there[seed].machine]
    pairs = [(here[seed].outcome.seconds_per_epoch, there[seed].outcome.seconds_per_epoch) for seed in common]
    return summary([a / b for a, b in pairs if b > 0]) if any(b > 0 for _, b in pairs) else None


def _curves(lines: Sequence[Line], looks: Sequence[dict[str, Any]], curves: Curves) -> Figure | None:
    """One curve per line: the mean over its seeds in a band from the least to the greatest."""
    found = [(line, look, curve(line, curves.value, curves.log)) for line, look in zip(lines, looks, strict=True)]
    found = [(line, look, points) for line, look, points in found if points]
    if not found:
        return None
    figure, [[axes]] = panels(SIZE)
    epochs = sorted({point.at for _, _, points in found for point in points})
    for place, (line, look, points) in enumerate(found):
        # Beside each other where there is nothing but one epoch, or bars would hide bars.
        aside = 0.8 * ((place + 0.5) / len(found) - 0.5) if len(epochs) == 1 else 0.0
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
            which(LogFormatter(minor_thresholds=(2, 0.4)))  # 3.5, not 3.5 × 10⁰
        axes.grid(axis="y", which="both", color=LINE)
    if len(epochs) <= FEW:
        axes.set_xticks(epochs)
    if len(epochs) == 1:
        axes.set_xlim(epochs[0] - 0.7, epochs[0] + 0.7)
    axes.set(xlabel="epoch", ylabel=curves.label)
    return _finished(figure, f"{curves.title} · mean over seeds, band from least to greatest")


def _error_by_k(recipe: Recipe, scale: Scale, lines: Sequence[Line]) -> Figure | None:
    """Mean error of every arm with its interval at every K; dashed is no mixing, hollow are the paper's numbers at its scale."""
    field = recipe.reported(scale) if recipe.reported(scale) in ERRORS else "median"
    courses = _by_k(lines)
    drawn = _against_k([(label, [(line.k, line.summary(field)) for line in own]) for label, own in courses])
    if drawn is None:
        return None
    figure, axes = drawn
    for line in lines:
        whole = line.summary(field)
        if line.arm == BASELINE and whole is not None and not line.changed:
            axes.axhline(whole.mean, color=GREY, lw=1, ls="--", zorder=1, label="no mixing")
    for place, (label, own) in enumerate(courses):
        spots = [(line.k, line.paper) for line in own if line.paper is not None and not line.changed]
        if scale == "paper" and spots and recipe.reported(scale) in ERRORS:
            hollow = {"marker": "D", "ls": "", "ms": 7, "mfc": "none", "color": _look(place)["color"]}
            axes.plot(*zip(*spots, strict=True), label=f"{label}, the paper", zorder=4, **hollow)
    axes.set_ylabel(f"{field} error (%)")
    return _finished(figure, "error against K · mean over seeds, 95 % interval")


def _time_by_k(lines: Sequence[Line]) -> Figure | None:
    """Time of an epoch as a multiple of that at K = 1; dotted is K times as long."""
    courses = []
    for label, own in _by_k(lines):
        one = next((line for line in own if line.k == 1), None)
        if one is not None:
            courses.append((label, [(line.k, times_of_one(line, one)) for line in own]))
    drawn = _against_k(courses)
    if drawn is None:
        return None
    figure, axes = drawn
    ks = sorted({k for _, own in courses for k, _ in own})
    axes.plot(ks, ks, color=GREY, lw=1, ls=":", zorder=1, label="K times as long")
    axes.set_ylabel("seconds per epoch, multiple of K = 1")
    axes.set_ylim(bottom=0)
    return _finished(figure, "training time against K · mean over seeds, 95 % interval")


def _by_k(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Lines that differ by nothing but K, in ascending order, with a label; those with a single K are left out."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.k):
        if counts_k(line.arm):
            found.setdefault((line.arm, *line.changed), []).append(line)
    several = {key: own for key, own in found.items() if len({line.k for line in own}) > 1}
    return [(f"{arm}\n({join_settings(changed, 1)})" if changed else arm, own) for (arm, *changed), own in several.items()]


def _against_k(courses: Sequence[tuple[str, Sequence[tuple[int, Summary | None]]]]) -> tuple[Figure, Any] | None:
    """Means with intervals over K, a line for each course; None where there is nothing to connect."""
    known = [(label, [(k, whole) for k, whole in own if whole is not None]) for label, own in courses]
    if not any(len(own) > 1 for _, own in known):
        return None
    figure, [[axes]] = panels(SIZE)
    for place, (label, own) in enumerate(known):
        halves = [whole.half if math.isfinite(whole.half) else 0.0 for _, whole in own]
        style = {"marker": "o", "ms": 5, "lw": 1.4, "capsize": 3, **_look(place)}
        # A little beside each other, or intervals would hide intervals.
        at = [k + 0.1 * (place - (len(known) - 1) / 2) for k, _ in own]
        axes.errorbar(at, [whole.mean for _, whole in own], yerr=halves, label=label, zorder=3, **style)
    axes.set_xticks(sorted({k for _, own in known for k, _ in own}))
    axes.set_xlabel("K")
    return figure, axes


def _finished(figure: Figure, words: str) -> Figure:
    """With a line that says what is shown, and the legend."""
    axes: Any = figure.axes[0]
    axes.set_title(words, fontsize=8, color=SOFT, loc="left")
    legend_beside(axes)
    return figure


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "ls": DASHES[place // len(COLOURS) % len(DASHES)]}


def _looks(lines: Sequence[Line]) -> list[dict[str, Any]]:
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
