"""The reliability diagram: accuracy against confidence, bin by bin, over the histogram of confidences."""

import textwrap
from typing import Any

from matplotlib.figure import Figure

from ..evaluation.calibration import Calibration, Scaling
from ..evaluation.error import proportion
from .html import png, svg

# Okabe and Ito's blue and vermilion, which colour-blind readers can tell apart.
ACCURACY, GAP, LIGHT = "#0072b2", "#d55e00", "#a9cde4"
INK, SOFT, LINE = "#1d1d22", "#5c5c66", "#d4d2cb"


def reliability_figures(calibration: Calibration, title: str = "", scaling: Scaling | None = None) -> dict[str, bytes]:
    """PNG and SVG by file name: a bar of accuracy for every bin of confidence, hatched what is missing to the mean confidence or
    goes beyond it, with the 95 % interval of the accuracy; below, how many samples lie in each bin.

    ``scaling`` adds a line that says what a temperature would leave of the error.
    """
    sheet = Figure(figsize=(5.2, 6.2), layout="constrained")
    upper, lower = sheet.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _draw_accuracy(upper, calibration)
    _draw_counts(lower, calibration)
    words = f"ECE {calibration.ece:.2f} % · {len(calibration.bins)} bins · {_samples(calibration.n)}"
    lines = "\n".join([*textwrap.wrap(title, 55), words])
    sheet.suptitle(lines, fontsize=11, color=INK, x=0.02, ha="left", parse_math=False)
    if scaling is not None:
        sheet.supxlabel(_scaled(scaling), fontsize=8, color=SOFT, x=0.02, ha="left")
    return {"reliability.png": png(sheet, dpi=200), "reliability.svg": svg(sheet)}


def _draw_accuracy(axes: Any, calibration: Calibration) -> None:
    first = True
    for entry in calibration.bins:
        if entry.accuracy is None or entry.confidence is None:
            continue
        middle, width = (entry.low + entry.high) / 2, 0.92 * (entry.high - entry.low)
        axes.bar(middle, entry.accuracy, width, color=LIGHT, edgecolor=ACCURACY, label="accuracy" if first else None, zorder=2)
        hatched = {"facecolor": "none", "edgecolor": GAP, "hatch": "////", "lw": 1.2, "zorder": 3}
        axes.bar(middle, -entry.gap, width, entry.accuracy, label="gap to confidence" if first else None, **hatched)
        interval = proportion(entry.right, entry.count)
        style = {"color": INK, "lw": 1.1, "zorder": 4}
        axes.plot([middle] * 2, [interval.low, interval.high], label="95 % interval" if first else None, **style)
        first = False
    axes.plot([0, 100], [0, 100], color=SOFT, ls="--", lw=1.1, label="calibrated", zorder=5)
    axes.set(xlim=(0, 100), ylim=(0, 101), ylabel="accuracy (%)")
    _plain(axes, columns=4)


def _draw_counts(axes: Any, calibration: Calibration) -> None:
    for entry in calibration.bins:
        middle, width = (entry.low + entry.high) / 2, 0.92 * (entry.high - entry.low)
        axes.bar(middle, 100 * entry.count / calibration.n, width, color=SOFT, alpha=0.45, zorder=2)
    for value, name, colour, dashes in (
        (calibration.accuracy, "accuracy", ACCURACY, "-"),
        (calibration.confidence, "mean confidence", GAP, "--"),
    ):
        axes.axvline(value, color=colour, ls=dashes, lw=1.8, label=f"{name} {value:.1f} %", zorder=3)
    axes.set(xlabel="confidence (%)", ylabel="samples (%)")
    axes.set_xticks(range(0, 101, 20))
    _plain(axes, columns=2)


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count:,} samples"


def _scaled(scaling: Scaling) -> str:
    """What the temperature does, in words."""
    if scaling.temperature is None or scaling.ece is None:
        return f"No temperature is the best on {_samples(scaling.fitted)} ({scaling.part})."
    return (
        f"Temperature {scaling.temperature:.3f}, fitted on {_samples(scaling.fitted)} ({scaling.part}):\n"
        f"ECE {scaling.ece_before:.2f} % → {scaling.ece:.2f} % on {_samples(scaling.n)}."
    )


def _plain(axes: Any, columns: int) -> None:
    # Above the axes: inside, there is no place that no bar may need.
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "handlelength": 1.6, "columnspacing": 1.2}
    axes.legend(ncols=columns, fontsize=8, frameon=False, **place)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
