"""Reliability diagrams: accuracy against confidence, bin by bin; of one run, or of all lines of a study beside each other."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...evaluation.calibration import Bin, Calibration, Scaling
from ...evaluation.error import proportion
from ...statistics import Summary
from ..table import counted, mean_cell, parts
from .style import BLUE, INK, SKY, SOFT, TEXT, VERMILION, legend_below, panels, save

COLUMNS = 3


class Panel(NamedTuple):
    """A line's name, the mean of its runs' ECE, and the bins of all runs together."""

    label: str
    ece: Summary
    bins: Sequence[Bin]


def reliability_figures(calibration: Calibration, title: str = "", scaling: Scaling | None = None) -> dict[str, bytes]:
    """PNG and SVG by file name: a bar of accuracy for every bin of confidence, hatched what is missing to the mean confidence or
    goes beyond it, with the 95 % interval of the accuracy; below, how many samples lie in each bin.

    ``scaling`` adds a line that says what a temperature would leave of the error.
    """
    figure, [[upper], [lower]] = panels((5.2, 6.2), 2, 1, sharex=True, height_ratios=(3, 1))
    bins = calibration.bins
    _draw_bars(upper, bins, 1.2)
    for place, one in enumerate(one for one in bins if one.count):
        interval = proportion(one.right, one.count)
        label = "95 % interval" if place == 0 else None
        upper.plot([(one.low + one.high) / 2] * 2, [interval.low, interval.high], color=INK, lw=1.1, zorder=4, label=label)
    _draw_diagonal(upper)
    upper.set(xlim=(0, 100), ylim=(0, 101), ylabel="accuracy (%)")
    _legend_above(upper, columns=2)
    _draw_counts(lower, calibration)
    words = f"ECE {calibration.ece:.2f} % · {len(bins)} bins · {counted(calibration.n, 'sample')}"
    return save("reliability", figure, title, words, *([] if scaling is None else [_scaled(scaling)]))


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


def _draw_counts(axes: Any, calibration: Calibration) -> None:
    for one in calibration.bins:
        middle, width = (one.low + one.high) / 2, 0.92 * (one.high - one.low)
        axes.bar(middle, 100 * one.count / calibration.n, width, color=SOFT, alpha=0.45, zorder=2)
    for value, name, colour, dashes in (
        (calibration.accuracy, "accuracy", BLUE, "-"),
        (calibration.confidence, "mean confidence", VERMILION, "--"),
    ):
        axes.axvline(value, color=colour, ls=dashes, lw=1.8, label=f"{name} {value:.1f} %", zorder=3)
    axes.set(xlabel="confidence (%)", ylabel="samples (%)")
    axes.set_xticks(range(0, 101, 20))
    _legend_above(axes, columns=2)


def _legend_above(axes: Any, columns: int) -> None:
    # Above the axes: inside, there is no place that no bar may need.
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "handlelength": 1.6, "columnspacing": 1.2}
    axes.legend(ncols=columns, fontsize=10, frameon=False, labelcolor=INK, **place)


def _scaled(scaling: Scaling) -> str:
    """What the temperature does, in words."""
    if scaling.temperature is None or scaling.ece is None:
        return f"No temperature is the best on {counted(scaling.fitted, 'sample')} ({scaling.part})."
    return (
        f"Temperature {scaling.temperature:.3f}, fitted on {counted(scaling.fitted, 'sample')} ({scaling.part}): "
        f"ECE {scaling.ece_before:.2f} % → {scaling.ece:.2f} % on {counted(scaling.n, 'sample')}."
    )
