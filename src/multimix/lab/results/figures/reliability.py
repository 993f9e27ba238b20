"""Reliability diagrams of all lines of a study: accuracy against confidence, bin by bin."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...evaluation.calibration import Bin
from ...statistics import Summary
from ..table import mean_cell, parts
from .style import BLUE, INK, SKY, SOFT, TEXT, VERMILION, legend_below, panels, save

COLUMNS = 3


class Panel(NamedTuple):
    """A line's name, the mean of its runs' ECE, and the bins of all runs together."""

    label: str
    ece: Summary
    bins: Sequence[Bin]


def reliability_grid(lines: Sequence[Panel]) -> dict[str, bytes]:
    """PNG and SVG by file name: accuracy against confidence, a panel for every line, the share of samples as grey bars."""
    columns = min(COLUMNS, len(lines))
    rows = math.ceil(len(lines) / columns)
    figure, grid = panels((max(4.4, 3.0 * columns), 0.5 + 2.9 * rows), rows, columns, sharex=True, sharey=True)
    for axes in grid.flat[len(lines) :]:
        axes.set_axis_off()
    for axes, line in zip(grid.flat, lines, strict=False):
        _draw_panel(axes, line)
    for axes in grid[-1]:
        axes.set_xlabel("confidence (%)")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    legend_below(figure, handles, labels)
    return save("reliability", figure)


def pooled_bins(results: Sequence[Mapping[str, Any]]) -> list[Bin]:
    """The bins of several runs with the samples of all; as many bins, of the same edges, in each."""
    bins = []
    for same in zip(*(result["bins"] for result in results), strict=True):
        count, right = (sum(one[name] for one in same) for name in ("count", "right"))
        total = math.fsum(one["count"] * one["confidence"] for one in same if one["count"])
        means = (total / count, 100 * right / count) if count else (None, None)
        bins.append(Bin(same[0]["low"], same[0]["high"], count, right, *means))
    return bins


def _draw_panel(axes: Any, line: Panel) -> None:
    _draw_bars(axes, line.bins, 1.0)
    whole = sum(one.count for one in line.bins)
    for place, one in enumerate(one for one in line.bins if one.count):
        look = {"color": SOFT, "alpha": 0.55, "zorder": 4, "label": "share of samples" if place == 0 else None}
        axes.bar((one.low + one.high) / 2, 100 * one.count / whole, 0.3 * 0.92 * (one.high - one.low), **look)
    _draw_diagonal(axes)
    mean, spread = parts(mean_cell(line.ece))
    axes.set_title(f"{line.label}\nECE {mean} % {spread}", fontsize=TEXT, color=INK, loc="left", parse_math=False)
    axes.set(xlim=(0, 100), ylim=(0, 100))


def _draw_bars(axes: Any, bins: Sequence[Bin], width_of_lines: float) -> None:
    """Of every bin that has samples the accuracy, and hatched the gap to the mean confidence."""
    labels = ["accuracy", "gap to confidence"]
    hatched = {"facecolor": "none", "edgecolor": VERMILION, "hatch": "////", "lw": width_of_lines, "zorder": 3}
    for one in bins:
        if one.accuracy is None or one.confidence is None:
            continue
        middle, width = (one.low + one.high) / 2, 0.92 * (one.high - one.low)
        axes.bar(middle, one.accuracy, width, facecolor=SKY, edgecolor=BLUE, label=labels[0], zorder=2)
        axes.bar(middle, one.confidence - one.accuracy, width, one.accuracy, label=labels[1], **hatched)
        labels = ["_nolegend_", "_nolegend_"]


def _draw_diagonal(axes: Any) -> None:
    axes.plot([0, 100], [0, 100], color=SOFT, ls="--", lw=1.1, label="calibrated", zorder=5)
