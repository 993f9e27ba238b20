"""What K changes at fixed weights, as figures: the squared norm of the gradient, and the time of an update."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from ..evaluation.gradient_norm import GradientNorms
from ..evaluation.training_time import Quartiles, TrainingTimes
from .html import png, svg

# Okabe and Ito's blue and vermilion, which colour-blind readers can tell apart.
FIRST, SECOND = "#0072b2", "#d55e00"
INK, GREY, LINE = "#1d1d22", "#6b6b74", "#d4d2cb"


def norm_figures(norms: GradientNorms, title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: mean ‖g‖² against K with its 95 % interval, and beside it as a multiple of K = 1.

    The multiple is over the same batches, so its interval is the narrower one. It is left out where there is one K only.
    """
    known = [(row.k, row.ratio, row.ratio_half) for row in norms.rows if row.ratio is not None]
    several = len(known) > 1
    sheet, axes = _sheet(2 if several else 1)
    rows = norms.rows
    half = [row.half or 0.0 for row in rows]
    _draw(axes[0], [row.k for row in rows], [row.mean for row in rows], (half, half), FIRST, "o-", "mean, 95 % interval")
    axes[0].set_ylabel("‖g‖²")
    if several:
        half = [half or 0.0 for _, _, half in known]
        words = "ratio, 95 % interval"
        _draw(axes[1], [k for k, _, _ in known], [ratio for _, ratio, _ in known], (half, half), FIRST, "o-", words)
        axes[1].axhline(1, color=GREY, lw=1, ls="--", zorder=1)
        axes[1].set_ylabel("‖g‖², multiple of K = 1")
    words = f"squared gradient norm at fixed weights · {_batches(norms)} of {norms.batch} samples"
    return _files("gradient_norm", sheet, title, words)


def time_figures(times: TrainingTimes, title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: seconds of an update against K, median with quartiles, and beside it as a multiple of K = 1.

    Dotted is K times as long. The multiple is left out where there is one K only.
    """
    known = [(row.k, row.ratio, row.cpu_ratio) for row in times.rows if row.ratio is not None and row.cpu_ratio is not None]
    several = len(known) > 1
    sheet, axes = _sheet(2 if several else 1)
    ks = [row.k for row in times.rows]
    _draw_times(axes[0], ks, [row.seconds for row in times.rows], [row.cpu_seconds for row in times.rows])
    axes[0].set_ylabel("seconds of an update")
    if several:
        ks = [k for k, _, _ in known]
        _draw_times(axes[1], ks, [wall for _, wall, _ in known], [cpu for _, _, cpu in known])
        axes[1].plot(ks, ks, color=GREY, lw=1, ls=":", zorder=1, label="K times as long")
        axes[1].set_ylabel("multiple of K = 1")
        axes[1].legend(fontsize=8, frameon=False, loc="upper left")
    for own in axes:
        own.set_ylim(bottom=0)
    threads = "1 thread" if times.threads == 1 else f"{times.threads} threads"
    words = f"median of {_repeats(times)}, quartiles · batch of {times.batch} · {times.device}, {threads}"
    return _files("training_time", sheet, title, f"one update, without loading · {words}")


def _draw_times(axes: Any, ks: Sequence[int], wall: Sequence[Quartiles], cpu: Sequence[Quartiles]) -> None:
    # A little beside each other, or intervals would hide intervals.
    for own, aside, colour, style, words in ((wall, -0.06, FIRST, "o-", "wall time"), (cpu, 0.06, SECOND, "s--", "CPU time")):
        spread = [one.median - one.low for one in own], [one.high - one.median for one in own]
        _draw(axes, [k + aside for k in ks], [one.median for one in own], spread, colour, style, words)
    axes.set_xticks(ks)


def _draw(
    axes: Any,
    at: Sequence[float],
    values: Sequence[float],
    spread: tuple[Sequence[float], Sequence[float]],
    colour: str,
    style: str,
    words: str,
) -> None:
    axes.errorbar(at, values, yerr=spread, fmt=style, color=colour, ms=5, lw=1.4, capsize=3, label=words, zorder=3)
    axes.set_xticks(at)
    axes.set_xlabel("K")
    axes.legend(fontsize=8, frameon=False)


def _sheet(panels: int) -> tuple[Figure, list[Any]]:
    sheet = Figure(figsize=(3.9 * panels, 3.5), layout="constrained")
    axes: list[Any] = list(sheet.subplots(1, panels, squeeze=False)[0])
    for own in axes:
        own.spines[["top", "right"]].set_visible(False)
        own.grid(color=LINE, lw=0.6)
        own.set_axisbelow(True)
    return sheet, axes


def _files(name: str, sheet: Figure, title: str, words: str) -> dict[str, bytes]:
    width = 45 * len(sheet.axes)
    lines = [*textwrap.wrap(title, width), *textwrap.wrap(words, width)]
    sheet.suptitle("\n".join(lines), fontsize=10, color=INK, x=0.01, ha="left", parse_math=False)
    return {f"{name}.png": png(sheet, dpi=200), f"{name}.svg": svg(sheet)}


def _batches(norms: GradientNorms) -> str:
    return "1 batch" if norms.batches == 1 else f"{norms.batches} batches"


def _repeats(times: TrainingTimes) -> str:
    return "1 repeat" if times.repeats == 1 else f"{times.repeats} repeats"
