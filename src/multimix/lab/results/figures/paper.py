"""The paper's Fig. 6, 7 and 8 from our runs: error and time against K, and the norm of the gradient over the epochs."""

import math
from collections.abc import Sequence
from typing import Any

from ...recipes import recipe
from ...recipes.base import Follow
from ..paper import CURVES as METHODS
from ..paper import NONE, Exhibit, Key
from ..paper_table import Entry, FilledTable, with_own_settings
from ..rows import SCALE_WORDS, Aggregate, Rows, aggregate
from .recipe import CURVES, MARKERS, Drawn, curves_figure, finish, reaches
from .style import BLUE, COLOURS, GREY, panels, save, within

SPREAD = "mean over the seeds ± standard deviation"
ERRORS = (0.0, 100.0)  # what an error in per cent can be
INCREASES = (-100.0, math.inf)  # nothing takes less than no time


def measured_figure(filled: FilledTable, rows: Rows, follow: Follow = "text") -> dict[str, bytes]:
    """Fig. 6, 7 or 8 as PNG and SVG by file name, drawn from ``filled`` and the rows it was filled from; empty without runs."""
    exhibit = filled.paper
    if exhibit.number == 8:
        drawn = norm_figure(exhibit, aggregate(recipe(exhibit.columns[0].recipe, follow), filled.scale, rows))
    else:
        drawn = {6: error_figure, 7: time_figure}[exhibit.number](filled)
    if drawn is None:
        return {}
    return save(exhibit.file_stem, drawn.figure, f"{exhibit.label}: {exhibit.title}", SCALE_WORDS[filled.scale], drawn.words)


def error_figure(filled: FilledTable) -> Drawn | None:
    """Fig. 6: test error against K, a line for every method; dotted is no mixup.

    At paper scale hollow marks and a second dotted line are what the paper has for the same trainings.
    """
    entries = _entries(filled)
    if not any(entry.values for key, entry in entries.items() if key != NONE):
        return None
    figure, [[axes]] = panels()
    for place, (arm, label) in enumerate(METHODS.items()):
        # A little beside each other, or bars would hide bars.
        aside, look = 0.12 * (place - (len(METHODS) - 1) / 2), {"color": COLOURS[place], "marker": MARKERS[place]}
        own = [(k, entry) for (name, k), entry in entries.items() if name == arm]
        _bars(axes, own, ERRORS, aside=aside, label=label, **look)
        known = [(k + aside, entry.paper.mean) for k, entry in own if entry.paper is not None]
        if filled.scale == "paper" and known:
            hollow = {"ls": "", "ms": 10, "mfc": "none", "clip_on": False, "zorder": 4, **look}
            axes.plot(*zip(*known, strict=True), label=f"{label}, the paper", **hollow)
    baseline = entries[NONE]
    if baseline.summary is not None:
        axes.axhline(baseline.summary.mean, color=GREY, lw=1.4, ls=":", zorder=1, label="no mixup")
    if filled.scale == "paper" and baseline.paper is not None:
        axes.axhline(baseline.paper.mean, color=GREY, lw=0.8, ls=(0, (1, 5)), zorder=1, label="no mixup, the paper")
    _against_k(axes, [k for _, k in entries], ERRORS)
    axes.set_ylabel("test error (%)")
    return finish(figure, SPREAD)


def time_figure(filled: FilledTable) -> Drawn | None:
    """Fig. 7: by how many per cent an update takes longer than with K = 1, against K; dashed is linear growth, 100·(K − 1) %."""
    entries = [(k, entry) for (_, k), entry in _entries(filled).items()]
    if not any(entry.values for k, entry in entries if k > 1):
        return None
    figure, [[axes]] = panels()
    _bars(axes, entries, INCREASES, color=BLUE, marker="o", label="puzzle-mix")
    ks = [k for k, _ in entries]
    axes.plot(ks, [100.0 * (k - 1) for k in ks], color=GREY, lw=1.2, ls="--", zorder=1, label="linear growth")
    _against_k(axes, ks, INCREASES)
    axes.set_ylabel("increase in time over K = 1 (%)")
    return finish(figure, SPREAD)


def norm_figure(exhibit: Exhibit, whole: Aggregate) -> Drawn | None:
    """Fig. 8: the squared norm of the gradient averaged over each epoch, against the epoch, a curve for every K."""
    keys = [row.key for row in exhibit.rows]
    lines = [line for line in with_own_settings(whole) if (line.arm, line.k) in keys]
    ordered = sorted(lines, key=lambda line: keys.index((line.arm, line.k)))
    return curves_figure(whole._replace(lines=tuple(ordered)), CURVES["gradient"])


def _entries(filled: FilledTable) -> dict[Key, Entry]:
    """The cells of the only measurement, by arm and K."""
    return {row.key: filled.cells[i, 0] for i, row in enumerate(filled.paper.rows)}


def _bars(axes: Any, points: Sequence[tuple[int, Entry]], possible: tuple[float, float], aside: float = 0.0, **look: Any) -> None:
    """Means over K with their standard deviations, which one seed does not have, as far as values can be."""
    known = [(k + aside, entry.summary) for k, entry in points if entry.summary is not None]
    if not known:
        return
    means, spread = [mean.mean for _, mean in known], reaches([(mean.mean, mean.sd) for _, mean in known], *possible)
    # Not clipped: a mark at 100 % would lose its upper half.
    axes.errorbar([at for at, _ in known], means, spread, ms=5, lw=1.4, capsize=3, zorder=3, clip_on=False, **look)


def _against_k(axes: Any, ks: Sequence[int], possible: tuple[float, float]) -> None:
    """Every K on the horizontal axis, and a vertical one that ends where values do."""
    axes.set_xticks(sorted(set(ks)))
    axes.set_xlim(min(ks) - 0.5, max(ks) + 0.5)
    axes.set_xlabel("K")
    within(axes, *possible)
