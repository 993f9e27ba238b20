"""The figures of the variance study: variance against K for both pairings, and against the batch size around B_0."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ...results.figures.style import BLUE, GREY, INK, LINE, ORANGE, SIZE, TEXT, legend_below, panels, png
from .measure import Pairing
from .study import SAMPLERS, Setup, VarianceResult
from .theory import large_batch_variance, multimix_variance

COLOURS = {False: BLUE, True: ORANGE}
LAM_NAMES = {False: "one λ per batch", True: "a λ per pair"}


def variance_figures(result: VarianceResult) -> dict[str, bytes]:
    """PNG by name."""
    drawn = {name: against_k(result, name) for name in PAIRINGS} | {"batch": around_crossover(result)}
    return {name: png(figure) for name, figure in drawn.items()}


PAIRINGS: tuple[Pairing, ...] = ("independent", "permutation")


def against_k(result: VarianceResult, pairing: Pairing) -> Figure:
    """Variance against K for one way of pairing; all ways share their vertical axis."""
    sheet, [[axes]] = panels((SIZE[0] * 0.75, SIZE[1]))
    _draw(axes, result, pairing)
    tops = [row.variance.value + row.variance.half for rows in result.measured.values() for row in rows.values()]
    axes.set_ylim(0, 1.08 * max(tops))
    axes.set_xlabel("K, interpolations per pair")
    axes.set_ylabel(f"variance, B = {result.settings.batch}")
    handles = [Line2D([], [], color=colour, lw=5, label=LAM_NAMES[per_pair]) for per_pair, colour in COLOURS.items()]
    handles += [
        Line2D([], [], color=INK, marker="o", ms=5, ls="", label="iid λ"),
        Line2D([], [], color=INK, marker="o", ms=5, ls="", mfc="white", label="stratified λ"),
    ]
    legend_below(sheet, handles, [str(handle.get_label()) for handle in handles])
    return sheet


def _draw(axes: Any, result: VarianceResult, pairing: Pairing) -> None:
    ks = result.settings.ks
    for per_pair, colour in COLOURS.items():
        if pairing == "independent":
            axes.plot(ks, [result.formula(k, per_pair=per_pair).value for k in ks], color=colour, lw=1.4)
        elif result.enumeration is not None:
            axes.plot(ks, [result.exact(k, per_pair=per_pair) for k in ks], color=colour, lw=1.4)
        for sampler, face, apart in zip(SAMPLERS, (colour, "white"), (0.09, 0.24), strict=True):
            rows = [*result.measured[Setup(pairing, per_pair, sampler)].values()]
            axes.errorbar(
                [row.k + (apart if per_pair else -apart) for row in rows],
                [row.variance.value for row in rows],
                [row.variance.half for row in rows],
                **{"fmt": "o", "ms": 5, "color": colour, "mfc": face, "elinewidth": 1.2, "capsize": 2},
            )
    if pairing == "permutation":
        axes.plot(ks, [result.formula(k).value for k in ks], color=GREY, lw=1.2, ls="--")
    axes.set_xticks(ks)


def around_crossover(result: VarianceResult) -> Figure:
    """Variance against B for multi-mix and for mixup with as many rows through the network, around B_0."""
    sheet, [[axes]] = panels((SIZE[0] * 0.75, SIZE[1]))
    b_0, k, parts = result.crossover, result.settings.compared_k, result.components
    middle = b_0.value if math.isfinite(b_0.value) else 1000.0
    batches = np.unique(np.geomspace(max(1.0, middle / 40), middle * 12, 80).round().astype(int)).tolist()
    curves = [
        ("multi", f"multi-mix, B pairs, K = {k}", BLUE, [multimix_variance(parts, k=k, batch=b) for b in batches]),
        ("large", f"mixup, {k}·B pairs, one λ", ORANGE, [large_batch_variance(parts, rows=k * b) for b in batches]),
        ("", f"mixup, {k}·B pairs, a λ each", GREY, [large_batch_variance(parts, rows=k * b, per_pair=True) for b in batches]),
    ]
    for kind, words, colour, values in curves:
        axes.plot(batches, [each.value for each in values], color=colour, lw=1.4, ls="-" if kind else "--", label=words)
        for side in result.sides.values() if kind else ():
            found = getattr(side, kind).variance
            axes.errorbar([side.batch], [found.value], [found.half], fmt="o", ms=5, color=colour, elinewidth=1.2, capsize=2)
    axes.axvline(result.settings.batch, color=LINE, lw=6, zorder=0)
    above = {"transform": axes.get_xaxis_transform(), "fontsize": TEXT, "va": "top", "color": INK}
    axes.text(result.settings.batch, 0.98, f" B = {result.settings.batch}", **above)
    if math.isfinite(b_0.value):
        axes.axvline(b_0.value, color=GREY, lw=1, ls=":")
        axes.text(b_0.value, 0.98, f" B_0 = {b_0.value:,.0f}", **above)
    axes.set(xscale="log", yscale="log", xlabel="B, pairs of multi-mix", ylabel="variance")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,g}"))  # 0.01, not 10⁻²
    legend_below(sheet, *axes.get_legend_handles_labels())
    return sheet
