"""What K changes at fixed weights, as figures: the squared norm of the gradient, and the time of an update."""

from collections.abc import Sequence
from typing import Any

from ...evaluation.gradient_norm import GradientNorms
from ...evaluation.training_time import Quartiles, TrainingTimes
from ..table import counted
from .style import BLUE, GREY, VERMILION, panels, save

Spread = tuple[Sequence[float], Sequence[float]]


def norm_figures(norms: GradientNorms, title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: mean ‖g‖² against K with its 95 % interval, and beside it as a multiple of K = 1.

    The multiple is over the same batches, so its interval is the narrower one. It is left out where there is one K only.
    """
    ratios = [(row.k, row.ratio, row.ratio_half or 0.0) for row in norms.rows if row.ratio is not None]
    figure, [axes] = panels((9.0 if len(ratios) > 1 else 4.5, 3.5), 1, 2 if len(ratios) > 1 else 1)
    halves = [row.half or 0.0 for row in norms.rows]
    ks, means = [row.k for row in norms.rows], [row.mean for row in norms.rows]
    _draw(axes[0], ks, means, (halves, halves), BLUE, "o-", "mean, 95 % interval")
    axes[0].set_ylabel("‖g‖²")
    if len(ratios) > 1:
        ks, values, halves = map(list, zip(*ratios, strict=True))
        _draw(axes[1], ks, values, (halves, halves), BLUE, "o-", "ratio, 95 % interval")
        axes[1].axhline(1, color=GREY, lw=1, ls="--", zorder=1)
        axes[1].set_ylabel("‖g‖², multiple of K = 1")
    batches = "1 batch" if norms.batches == 1 else f"{norms.batches} batches"
    words = f"squared gradient norm at fixed weights · {batches} of {norms.batch} samples"
    return save("gradient_norm", figure, title, words)


def time_figures(times: TrainingTimes, title: str = "") -> dict[str, bytes]:
    """PNG and SVG by file name: seconds of an update against K, median with quartiles, and beside it as a multiple of K = 1.

    Dotted is K times as long. The multiple is left out where there is one K only.
    """
    ratios = [(row.k, row.ratio, row.cpu_ratio) for row in times.rows if row.ratio is not None and row.cpu_ratio is not None]
    figure, [axes] = panels((9.0 if len(ratios) > 1 else 4.5, 3.5), 1, 2 if len(ratios) > 1 else 1)
    ks = [row.k for row in times.rows]
    _draw_times(axes[0], ks, [row.seconds for row in times.rows], [row.cpu_seconds for row in times.rows])
    axes[0].set_ylabel("seconds of an update")
    if len(ratios) > 1:
        ks = [k for k, _, _ in ratios]
        _draw_times(axes[1], ks, [wall for _, wall, _ in ratios], [cpu for _, _, cpu in ratios])
        axes[1].plot(ks, ks, color=GREY, lw=1, ls=":", zorder=1, label="K times as long")
        axes[1].set_ylabel("multiple of K = 1")
        axes[1].legend(fontsize=10, frameon=False, loc="upper left")
    for own in axes:
        own.set_ylim(bottom=0)
    words = f"median of {counted(times.repeats, 'repeat')}, quartiles · batch of {times.batch} · {times.device}"
    words = f"one update, without loading · {words}, {counted(times.threads, 'thread')}"
    return save("training_time", figure, title, words)


def _draw_times(axes: Any, ks: Sequence[int], wall: Sequence[Quartiles], cpu: Sequence[Quartiles]) -> None:
    # A little beside each other, or intervals would hide intervals.
    for own, aside, colour, style, words in ((wall, -0.06, BLUE, "o-", "wall time"), (cpu, 0.06, VERMILION, "s--", "CPU time")):
        spread = [one.median - one.low for one in own], [one.high - one.median for one in own]
        _draw(axes, [k + aside for k in ks], [one.median for one in own], spread, colour, style, words)
    axes.set_xticks(ks)


def _draw(axes: Any, at: Sequence[float], values: Sequence[float], spread: Spread, colour: str, style: str, words: str) -> None:
    axes.errorbar(at, values, yerr=spread, fmt=style, color=colour, ms=5, lw=1.4, capsize=3, label=words, zorder=3)
    axes.set_xticks(at)
    axes.set_xlabel("K")
    axes.legend(fontsize=10, frameon=False)
