"""The figures of a sweep, as PNG and SVG: error against K and against cost, and its course over rows and over seconds."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..recipes.arms import counts_k
from .figures.recipe import FEW
from .figures.style import COLOURS, DASHES, GREY, LINE, SOFT, save
from .rows import BASELINE, SCALE_WORDS, Line
from .sweep_comparison import Compared, Comparison, Spent, course, rows_of, seconds_of
from .table import short

MARKERS = ("o", "s", "^", "P", "X", "D")


def figures(found: Comparison, changed: str = "", stem: str = "sweep") -> dict[str, bytes]:
    """PNG and SVG by file name: ``k``, ``cost``, ``rows`` and ``seconds`` after the ``stem``; an empty one is left out."""
    drawn = {
        "k": _by_k(found),
        "cost": _by_cost(found),
        "rows": _courses(found, rows_of, "rows through the network"),
        "seconds": _courses(found, seconds_of, "CPU seconds of training" if found.timed == "CPU s" else "seconds of training"),
    }
    files: dict[str, bytes] = {}
    for name, figure in drawn.items():
        if figure is not None:
            words = f"{SCALE_WORDS[found.scale]}{'; ' + changed if changed else ''}"
            title = "\n".join([*textwrap.wrap(found.recipe.title, 95), *textwrap.wrap(words, 110)])
            figure.suptitle(title, fontsize=10, x=0.01, ha="left")
            files |= save(f"{stem}-{name}", figure)
    return files


def _by_k(found: Comparison) -> Figure | None:
    """A panel for every budget: mean error of every arm with its interval over K; grey lines are arms without K."""
    tables = {equal: [one for one in lines if one.error is not None] for equal, lines in found.tables.items()}
    if not any(counts_k(one.line.arm) for lines in tables.values() for one in lines):
        return None
    looks = _looks(found)
    figure, panels = _panels(list(tables), share_x=True)
    for axes, lines in zip(panels, tables.values(), strict=True):
        arms = list(dict.fromkeys(one.line.arm for one in lines if counts_k(one.line.arm)))
        for place, arm in enumerate(arms):
            own = sorted((one for one in lines if one.line.arm == arm), key=lambda one: one.line.k)
            # A little beside each other, or intervals would hide intervals.
            at = [one.line.k + 0.12 * (place - (len(arms) - 1) / 2) for one in own]
            axes.errorbar(at, _means(own), yerr=_halves(own), ms=5, lw=1.4, capsize=3, label=arm, zorder=3, **looks[arm])
        for one in lines:
            if not counts_k(one.line.arm) and one.error is not None:
                look = {"color": GREY, "lw": 1, "ls": "--" if one.line.arm == BASELINE else ":"}
                axes.axhline(one.error.mean, label=one.line.arm, zorder=1, **look)
        axes.set_xticks(sorted({one.line.k for one in lines}))
        axes.set_xlabel("K")
    panels[0].set_ylabel(f"{found.field} error (%)")
    return _finished(figure, panels, "mean over seeds, 95 % interval")


def _by_cost(found: Comparison) -> Figure | None:
    """A panel for every budget: mean error over mean seconds, arrows from each arm's smallest K to larger ones."""
    tables = {equal: [one for one in lines if one.error is not None and one.seconds] for equal, lines in found.tables.items()}
    if not any(tables.values()):
        return None
    looks = _looks(found)
    figure, panels = _panels(list(tables), share_x=True)
    for axes, lines in zip(panels, tables.values(), strict=True):
        for arm in dict.fromkeys(one.line.arm for one in lines):
            own = sorted((one for one in lines if one.line.arm == arm), key=lambda one: one.line.k)
            spots = list(zip([one.seconds for one in own], _means(own), strict=True))
            look = {**looks[arm], "ls": ""}
            axes.errorbar(*zip(*spots, strict=True), yerr=_halves(own), ms=6, elinewidth=0.8, label=arm, zorder=3, **look)
            arrow = {"arrowstyle": "->", "color": look["color"], "lw": 1.3, "shrinkA": 5, "shrinkB": 5}
            for here, there in pairwise(spots):
                axes.annotate("", there, here, arrowprops=arrow)
            for one, spot in zip(own, spots, strict=True):
                if counts_k(arm):
                    place = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 7, "color": look["color"]}
                    axes.annotate(str(one.line.k), spot, **place)
        axes.set_xscale("log")
        # Where the costs are close together, powers of ten alone would leave an axis without numbers.
        spent = [one.seconds for one in lines if one.seconds]
        near = bool(spent) and max(spent) < 4 * min(spent)
        axes.xaxis.set_major_locator(MaxNLocator(5) if near else LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))  # 0.2, not 2 × 10⁻¹
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(0.1)
        axes.set_xlabel("CPU seconds of a training" if found.timed == "CPU s" else "seconds of a training")
    panels[0].set_ylabel(f"{found.field} error (%)")
    return _finished(figure, panels, "numbers are K · mean over seeds, bars are 95 % intervals of the error")


def _courses(found: Comparison, spent: Spent, label: str) -> Figure | None:
    """Mean error after every evaluated epoch over what was spent by then, in a band from the least seed to the greatest."""
    lines = [line for line in found.lines if any(course(run, spent) for run in line.runs.values())]
    if not lines:
        return None
    figure, (axes,) = _panels([""])
    ks = sorted({line.k for line in lines if counts_k(line.arm)})
    looks = _looks(found)
    for line in lines:
        points = _points(line, spent)
        at, means, low, high = (list(values) for values in zip(*points, strict=True))
        dash = DASHES[ks.index(line.k) % len(DASHES)] if counts_k(line.arm) else "-"
        look = {**looks[line.arm], "ls": dash, "ms": 3.5} | ({} if len(points) <= FEW else {"marker": ""})
        axes.plot(at, means, lw=1.3, label=line.label, zorder=3, **look)
        if low != high:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12, lw=0, zorder=2)
    axes.set(xlabel=label, ylabel="error (%)")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: short(value) if spent is rows_of else f"{value:g}"))
    return _finished(figure, [axes], "error after every evaluated epoch · mean over seeds, band from least to greatest")


def _points(line: Line, spent: Spent) -> list[tuple[float, float, float, float]]:
    """Place, mean, least and greatest error by epoch, of those epochs that all seeds have evaluated."""
    spots = [{spot.epoch: spot for spot in course(run, spent)} for run in line.runs.values()]
    common = sorted(set.intersection(*(set(own) for own in spots)))
    points = []
    for epoch in common:
        errors = [own[epoch].error for own in spots]
        points.append((fmean(own[epoch].spent for own in spots), fmean(errors), min(errors), max(errors)))
    return points


def _looks(found: Comparison) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash of every arm, the same in all figures: grey where K means nothing."""
    arms = dict.fromkeys(one.line.arm for lines in found.tables.values() for one in lines)
    looks: dict[str, dict[str, Any]] = {}
    for place, arm in enumerate(arm for arm in arms if counts_k(arm)):
        dash = DASHES[place // len(COLOURS) % len(DASHES)]
        looks[arm] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "ls": dash}
    for place, arm in enumerate(arm for arm in arms if not counts_k(arm)):
        looks[arm] = {"color": GREY, "marker": ("h", "v")[place % 2], "ls": "--"}
    return looks


def _means(lines: Sequence[Compared]) -> list[float]:
    return [one.error.mean for one in lines if one.error is not None]


def _halves(lines: Sequence[Compared]) -> list[float]:
    """Half the intervals; one seed has none."""
    return [one.error.half if math.isfinite(one.error.half) else 0.0 for one in lines if one.error is not None]


def _panels(names: Sequence[str], share_x: bool = False) -> tuple[Figure, list[Any]]:
    """Panels beside each other with the names of the budgets above them."""
    figure = Figure(figsize=(4.2 + 3.4 * len(names), 4.2), layout="constrained")
    panels: list[Any] = list(figure.subplots(1, len(names), sharey=True, sharex=share_x, squeeze=False)[0])
    for axes, name in zip(panels, names, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=LINE, lw=0.6)
        axes.set_axisbelow(True)
        if name:
            axes.set_title(f"equal {name}", fontsize=9, loc="left")
    return figure, panels


def _finished(figure: Figure, panels: Sequence[Any], words: str) -> Figure:
    """With one legend for all panels and a line that says what is shown."""
    handles: Mapping[str, Any] = {
        name: handle for axes in panels for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(max(0.0, low), min(100.0, high))  # the interval of two seeds may reach beyond what an error can be
    last = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "fontsize": 8, "frameon": False}
    panels[-1].legend(list(handles.values()), list(handles), **last)
    figure.supxlabel(words, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure
