"""Reliability diagrams of all lines of a study beside each other, all seeds of a line together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ..statistics import Summary
from .html import png, svg
from .reliability import ACCURACY, GAP, INK, LIGHT, LINE, SOFT

COLUMNS = 4


class Panel(NamedTuple):
    """A line's name, the mean of its runs' ECE, and the bins of all runs together."""

    label: str
    ece: Summary
    bins: list["PooledBin"]


@dataclass(frozen=True)
class PooledBin:
    """Samples with a confidence in (low, high], in per cent; the means are None without samples."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


def pooled(results: Sequence[Mapping[str, Any]]) -> list[PooledBin]:
    """The bins of several runs with the samples of all; as many bins, of the same edges, in each."""
    found = []
    for same in zip(*(result["bins"] for result in results), strict=True):
        count = sum(one["count"] for one in same)
        right = sum(one["right"] for one in same)
        total = math.fsum(one["count"] * one["confidence"] for one in same if one["count"])
        means = (total / count, 100 * right / count) if count else (None, None)
        found.append(PooledBin(same[0]["low"], same[0]["high"], count, *means))
    return found


def reliability_grid(panels: Sequence[Panel]) -> dict[str, bytes]:
    """PNG and SVG by file name: accuracy against confidence, a panel for every line, the share of samples as grey bars."""
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    sheet = Figure(figsize=(max(4.4, 2.3 * columns), 0.5 + 2.45 * rows), layout="constrained")
    grid: Any = sheet.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel)
    for axes in grid[-1]:
        axes.set_xlabel("confidence (%)", fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)", fontsize=8)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return {"reliability.png": png(sheet, dpi=170), "reliability.svg": svg(sheet)}


def _draw(axes: Any, panel: Panel) -> None:
    whole = sum(entry.count for entry in panel.bins)
    for place, entry in enumerate(entry for entry in panel.bins if entry.count):
        assert entry.confidence is not None
        assert entry.accuracy is not None
        middle, width, first = (entry.low + entry.high) / 2, 0.92 * (entry.high - entry.low), place == 0
        axes.bar(middle, entry.accuracy, width, color=LIGHT, edgecolor=ACCURACY, label="accuracy" if first else None, zorder=2)
        hatched = {"facecolor": "none", "edgecolor": GAP, "hatch": "////", "lw": 1.0, "zorder": 3}
        gap = entry.confidence - entry.accuracy
        axes.bar(middle, gap, width, entry.accuracy, label="gap to confidence" if first else None, **hatched)
        share = {"color": SOFT, "alpha": 0.55, "zorder": 4}
        axes.bar(middle, 100 * entry.count / whole, 0.3 * width, label="share of samples" if first else None, **share)
    axes.plot([0, 100], [0, 100], color=SOFT, ls="--", lw=1, label="calibrated", zorder=5)
    half = f" ± {panel.ece.half:.2f}" if math.isfinite(panel.ece.half) else ""
    axes.set_title(f"{panel.label}\nECE {panel.ece.mean:.2f}{half} %", fontsize=8, color=INK, loc="left", parse_math=False)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
