"""The figure of benchmarks/goals.py: how far every line is from its aim."""

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from multimix.lab.report.style import COLORS, GRAY, LINE, SOFT, png

if TYPE_CHECKING:
    from goals import Line


def goals_figure(lines: "list[Line]") -> bytes:
    """PNG: a bar for each line on a logarithmic axis; left of 1 the aim is met."""
    sheet = Figure(figsize=(7.5, 1 + 0.24 * len(lines)), layout="constrained")
    axes: Any = sheet.subplots()
    for row, line in enumerate(reversed(lines)):
        axes.barh(row, line.distance - 1, left=1, color=COLORS[0] if line.is_met else COLORS[1], height=0.7, zorder=3)
    axes.set_yticks(range(len(lines)), [line.what.replace("`", "") for line in reversed(lines)], fontsize=7)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 10, 100, 1000]
    furthest = max(2.0, *(line.distance for line in lines))
    axes.set_xticks([tick for tick in ticks if tick <= 2 * furthest])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.axvline(1, color=GRAY, lw=1)
    axes.set_xlabel("measured / aim: met up to 1", fontsize=8, color=SOFT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    return png(sheet, dpi=200)
