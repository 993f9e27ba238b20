"""The figure of benchmarks/step.py: time of an epoch against K."""

from typing import Any

from matplotlib.figure import Figure
from step_parts import step_of

from multimix.lab.report.style import COLORS, GRAY, LINE, SOFT, png

SHOWN = {"puzzlemix": "puzzle mix", "mixup": "input mixup", "cutmix": "cutmix", "manifoldmix": "manifold mixup"}
MARKERS = ("^", "o", "s", "D")


def time_figure(content: dict[str, Any]) -> bytes:
    """PNG: one panel for each network, a line for each method; the unit is a step without mixing, dashed is K of them."""
    names = list(content["networks"])
    sheet = Figure(figsize=(1.2 + 3.4 * len(names), 3.6), layout="constrained")
    panels: Any = sheet.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        draw(axes, name, content["networks"][name])
    panels[0].set_ylabel("time of an epoch, no mixing = 1")
    handles, labels = panels[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return png(sheet, dpi=200)


def draw(axes: Any, name: str, found: dict[str, Any]) -> None:
    ks, times = found["ks"], found["times"]
    unit = step_of(times, "none", 1).whole
    for i, (arm, label) in enumerate(SHOWN.items()):
        # Cutmix lies on input mixup: a large open marker lets both be seen.
        look = {"mfc": "none", "lw": 0.8, "ms": 10} if arm == "cutmix" else {"mec": "white", "lw": 1.6, "ms": 6}
        heights = [step_of(times, arm, k).whole / unit for k in ks]
        axes.plot(ks, heights, color=COLORS[i], marker=MARKERS[i], label=label, zorder=3, **look)
    axes.plot(ks, ks, color=GRAY, lw=1, ls="--", label="K times no mixing", zorder=1)
    axes.axhline(1, color=GRAY, lw=1, ls=":", label="no mixing", zorder=1)
    axes.set_xticks(ks)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("K")
    axes.set_title(name, fontsize=8, color=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=LINE, lw=0.6)
    axes.set_axisbelow(True)
