"""What the runs say about the paper's claims, as one figure: a bar for every table and figure."""

from collections.abc import Mapping

from matplotlib.ticker import MaxNLocator

from ..claims import VERDICTS, Verdict
from .style import BLUE, GREY, LINE, ORANGE, SIZE, VERMILION, legend_below, panels, svg

COLOURS: Mapping[Verdict, str] = {
    "seen": BLUE,
    "not seen": ORANGE,
    "opposite": VERMILION,
    "too few runs": GREY,
    "not run": LINE,
}


def verdicts_figure(counts: Mapping[str, Mapping[Verdict, int]]) -> bytes:
    """SVG: how many claims of each table or figure have which verdict."""
    figure, [[axes]] = panels((SIZE[0], 1.0 + 0.28 * len(counts)))
    handles = {}
    left = [0] * len(counts)
    for word in VERDICTS:
        own = [of[word] for of in counts.values()]
        if any(own):
            handles[word] = axes.barh(range(len(counts)), own, 0.7, left, color=COLOURS[word], zorder=2)
            left = [sum(pair) for pair in zip(left, own, strict=True)]
    axes.set_yticks(range(len(counts)), list(counts))
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("claims")
    axes.grid(visible=False, axis="y")
    legend_below(figure, list(handles.values()), list(handles))
    return svg(figure)
