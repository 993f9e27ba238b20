"""The study's figures: every seed of every arm with mean and interval, and error against cost."""

import math
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from ...results.figures.style import png
from .arms import BASELINE, Arm
from .comparison import Metric, Results, summarised, values

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY, SOFT, LINE = "#8a8a92", "#5c5c66", "#d4d2cb"
DOT_ALPHA = 0.55
MARKERS = ("o", "P", "X", "h", "^", "s")


def strip_figure(results: Results, metric: Metric) -> bytes:
    """PNG: one line per arm, a dot per seed, the mean with its 95 % interval; dashed is the mean of no mixing."""
    arms = list(results)
    colours = _colours(results)
    sheet = Figure(figsize=(6.4, 1.2 + 0.36 * len(arms)), layout="constrained")
    axes: Any = sheet.subplots()
    for place, arm in enumerate(arms):
        seen, whole = values(results[arm], metric.field), summarised(results[arm], metric.field)
        dots, bar = place - 0.2, place + 0.14
        axes.scatter(seen, [dots] * len(seen), s=24, color=colours[arm], alpha=DOT_ALPHA, linewidths=0, zorder=2)
        if math.isfinite(whole.half):
            axes.plot([whole.mean - whole.half, whole.mean + whole.half], [bar] * 2, color=colours[arm], lw=2, zorder=3)
        axes.plot([whole.mean], [bar], marker="D", ms=6, color=colours[arm], mec="white", mew=1, zorder=4)
    baseline = next(arm for arm in arms if arm.name == BASELINE)
    axes.axvline(summarised(results[baseline], metric.field).mean, color=GREY, lw=1, ls="--", zorder=1)
    axes.set_yticks(range(len(arms)), [arm.label for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_xlabel(f"{metric.name} (%), lower is better")
    axes.set_title("a dot per seed · diamond and bar: mean, 95 % interval · dashed: mean of no mixing", fontsize=8, color=SOFT)
    _plain(axes, "x")
    return png(sheet, dpi=200)


def cost_figure(results: Results, metric: Metric) -> bytes:
    """PNG: mean ``metric`` against mean CPU seconds; an arrow leads from a method's smallest K over the others to its largest."""
    sheet = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes: Any = sheet.subplots()
    for name, (colour, marker) in _looks(results).items():
        own = sorted((arm for arm in results if arm.name == name), key=lambda arm: arm.k or 0)
        spots = [(summarised(results[arm], "cpu_seconds").mean, summarised(results[arm], metric.field).mean) for arm in own]
        ks = " → ".join(str(arm.k) for arm in own if arm.k is not None)
        label = f"{name}, K = {ks}" if ks else name
        axes.plot(*zip(*spots, strict=True), marker=marker, ms=8, color=colour, mec="white", mew=1, ls="", label=label, zorder=3)
        for here, there in pairwise(spots):
            style = {"arrowstyle": "->", "color": colour, "lw": 1.4, "shrinkA": 5, "shrinkB": 5}
            axes.annotate("", there, here, arrowprops=style)
    axes.margins(0.08)
    axes.set_xlim(left=0)
    axes.set_xlabel("CPU seconds of training per run, mean over seeds")
    axes.set_ylabel(f"mean {metric.name} (%)")
    sheet.legend(loc="outside right upper", fontsize=8, frameon=False)
    _plain(axes, "both")
    return png(sheet, dpi=200)


def _looks(results: Results) -> dict[str, tuple[str, str]]:
    """Colour and marker of every method: grey where K means nothing, and another marker where the colours begin again."""
    names = list(dict.fromkeys(arm.name for arm in results))
    plain = [name for name in names if all(arm.k is None for arm in results if arm.name == name)]
    found = {name: (GREY, MARKERS[-1 - i % len(MARKERS)]) for i, name in enumerate(plain)}
    for i, name in enumerate(name for name in names if name not in plain):
        found[name] = (COLOURS[i % len(COLOURS)], MARKERS[i // len(COLOURS) % len(MARKERS)])
    return found


def _colours(results: Results) -> dict[Arm, str]:
    """Grey where K means nothing, else one colour per K."""
    ks = sorted({arm.k for arm in results if arm.k is not None})
    return {arm: GREY if arm.k is None else COLOURS[ks.index(arm.k) % len(COLOURS)] for arm in results}


def _plain(axes: Any, lines: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=lines, color=LINE, lw=0.6)
    axes.set_axisbelow(True)
