"""The page of the multiverse: how K = 5 minus K = 1 and the distance to the paper's numbers are spread over the settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ...recipes.spiral import ARMS, K1, K5
from ...results.figures.style import BLUE, GREY, INK, SIZE, SKY, VERMILION, legend_below, panels, png, svg
from ...results.page import document, drawing, paragraph, section
from ...results.table import Cell, Table, counted, signed
from ..files import StudyFiles, write_study
from .multiverse import FACTORS, MARGIN, Universe, Verdict, by_level, level_words, multiverse_findings

COLOURS: dict[Verdict, str] = {"better": BLUE, "worse": VERMILION, "equal": SKY, "not settled": GREY}
FACTOR_WORDS = {
    "turns": "turns",
    "noise": "point noise",
    "slope": "activation",
    "decay": "weight decay",
    "alpha": "α",
    "per_pair": "λ",
    "uniform_in": "points uniform in",
}


def write_multiverse(universes: Sequence[Universe], out: str | Path, stem: str = "multiverse") -> StudyFiles:
    """``multiverse.html``, two PNGs and ``multiverse.json`` in the folder ``out``."""
    findings = multiverse_findings(universes)
    drawn = {"gain": gain_figure(universes), "distance": distance_figure(universes)}
    alts = {
        "gain": "K = 5 minus K = 1 of every setting with its 95 % interval, in ascending order.",
        "distance": "How many settings lie how far from the paper's three accuracies.",
    }
    pictures = {name: drawing(svg(figure), alts[name], alts[name]) for name, figure in drawn.items()}
    seeds = len(universes[0].result.seeds)
    lead = (
        f"The paper publishes neither its spiral nor most of its settings. These are {counted(len(universes), 'setting')} that "
        f"it may have had, each trained on {counted(seeds, 'seed')} without mixup, with manifold mixup (K = 1) and with "
        "multi-mix (K = 5)."
    )
    levels, every = level_table(universes), settings_table(universes)
    parts = [
        section("What the settings show", *(paragraph(one, finding=True) for one in findings[1:]), unfolded=True),
        section("By setting", *levels.html(), unfolded=True),
        section("Distance to the paper's numbers", pictures["distance"]),
        section("Every setting", *every.html()),
    ]
    page = document("The noisy spiral under many settings", lead, parts, headline=findings[0], figure=pictures["gain"])
    files = {name: png(figure) for name, figure in drawn.items()}
    return write_study(out, stem, page=page, results=numbers(universes), figures=files, table=levels, findings=findings)


def gain_figure(universes: Sequence[Universe]) -> Figure:
    """Every setting's K = 5 − K = 1 with its interval, in ascending order, in the colour of its verdict."""
    figure, [[axes]] = panels((SIZE[0], 4.2))
    handles: dict[Verdict, Any] = {}
    for place, one in enumerate(sorted(universes, key=lambda one: one.gain.mean)):
        drawn = axes.errorbar(place, one.gain.mean, one.gain.half, fmt="o", ms=3.5, lw=1, color=COLOURS[one.verdict])
        handles.setdefault(one.verdict, drawn)
    axes.axhline(0, color=INK, lw=1)
    paper = axes.axhline(K5.paper - K1.paper, color=INK, lw=1, ls="--")
    axes.set(xlabel="settings, in ascending order", ylabel="K = 5 minus K = 1, points", xticks=[])
    legend_below(figure, [*handles.values(), paper], [*handles, "the paper's one run"])
    return figure


def distance_figure(universes: Sequence[Universe]) -> Figure:
    """How many settings lie how far from the paper's triple."""
    figure, [[axes]] = panels()
    axes.hist([one.distance for one in universes], bins=16, color=BLUE, zorder=2)
    axes.set(xlabel="root mean square distance, points", ylabel="settings", xlim=(0, None))
    return figure


def level_table(universes: Sequence[Universe]) -> Table:
    """Every level of every factor: the mean gain, and how the settings were judged."""
    lines: list[list[Cell]] = []
    for one in by_level(universes):
        counts = [str(one.verdicts[verdict]) for verdict in COLOURS]
        lines.append([f"{FACTOR_WORDS[one.factor]}: {one.level}", str(one.settings), signed(one.mean), *counts])
    notes = [
        "K = 5 minus K = 1 in points of accuracy, mean over the settings that have the level",
        f"equal: within ±{MARGIN:g} point by two one-sided tests at 5 %; better or worse: the 95 % interval leaves out 0",
    ]
    return Table("K = 5 against K = 1, by setting", ["setting", "n", "gain", *COLOURS], lines, notes)


def settings_table(universes: Sequence[Universe]) -> Table:
    """Every setting with its three means, the gain and the verdict."""
    heads = [*FACTOR_WORDS.values(), *(arm.short for arm in ARMS), "collapsed", "gain ± 95 %", "p (Holm)", "verdict", "distance"]
    lines: list[list[Cell]] = []
    for one in sorted(universes, key=lambda one: one.distance):
        levels = [level_words(name, getattr(one.result.settings, name)) for name in FACTORS]
        means = [f"{value:.2f}" for value in one.means]
        gain = f"{signed(one.gain.mean)} ± {one.gain.half:.2f}"
        failed = "/".join(map(str, one.collapsed))
        lines.append([*levels, *means, failed, gain, f"{one.p_holm:.3f}", one.verdict, f"{one.distance:.2f}"])
    notes = ["nearest to the paper's 90.67, 94.17 and 97.50 first", "collapsed: runs below 70 % of each training"]
    return Table("every setting", heads, lines, notes)


def numbers(universes: Sequence[Universe]) -> dict[str, Any]:
    """Right answers of every run, and what was concluded: enough to judge again."""
    return {
        "tested": universes[0].result.runs[K5.name][0].tested,
        "findings": multiverse_findings(universes),
        "settings": [
            {
                **{name: getattr(one.result.settings, name) for name in FACTORS},
                "epochs": one.result.settings.epochs,
                "right": {arm.name: [run.right for run in one.result.runs[arm.name]] for arm in ARMS},
                "gain": one.gain.mean,
                "half": one.gain.half,
                "p_holm": one.p_holm,
                "verdict": one.verdict,
                "distance": one.distance,
            }
            for one in universes
        ],
    }
