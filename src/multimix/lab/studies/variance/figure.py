"""The study's figure: variance against K for both pairings, and multi-mix against large-batch mixup around B_0."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...results.html import png
from .closed_form import Components, large_batch_variance, multimix_variance
from .measure import Pairing
from .outcome import Outcome

BLUE, ORANGE, GREY, LINE, INK = "#1f5fbf", "#c8641b", "#6b6b75", "#e4e2dc", "#1d1d22"
COLOURS = {False: BLUE, True: ORANGE}
NAMES = {False: "one λ per batch", True: "a λ per pair"}


def figure(outcome: Outcome) -> bytes:
    """PNG with three panels."""
    sheet = Figure(figsize=(12.5, 4.6), layout="constrained")
    independent, permuted, sizes = sheet.subplots(1, 3)
    _against_k(independent, outcome, "independent")
    _against_k(permuted, outcome, "permutation")
    top = max(axes.get_ylim()[1] for axes in (independent, permuted))
    for axes, title in ((independent, "independent pairs"), (permuted, "a permutation of the batch, as in training")):
        axes.set_ylim(0, top)
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel("K, interpolations per pair")
    independent.set_ylabel(f"trace variance of the gradient, B = {outcome.settings.batch}")
    _around_crossover(sizes, outcome)
    sheet.legend(handles=_signs(outcome.enumeration is not None), loc="outside lower left", ncols=6, fontsize=8.5, frameon=False)
    return png(sheet)


def _against_k(axes: Any, outcome: Outcome, pairing: Pairing) -> None:
    ks = outcome.settings.ks
    for per_pair, colour in COLOURS.items():
        if pairing == "independent":
            axes.plot(ks, [outcome.formula(k, per_pair=per_pair).value for k in ks], color=colour, lw=1.4)
        elif outcome.enumeration is not None:
            axes.plot(ks, [outcome.exact(k, per_pair=per_pair) for k in ks], color=colour, lw=1.4)
        for sampler, face, apart in (("iid", colour, 0.09), ("stratified", "white", 0.24)):
            rows = [
                row for setup, rows in outcome.measured.items() if setup == (pairing, per_pair, sampler) for row in rows.values()
            ]
            axes.errorbar(
                [row.k + (apart if per_pair else -apart) for row in rows],
                [row.variance.value for row in rows],
                [row.variance.half for row in rows],
                **{"fmt": "o", "ms": 5, "color": colour, "mfc": face, "elinewidth": 1.2, "capsize": 2},
            )
    if pairing == "permutation":
        axes.plot(ks, [outcome.formula(k).value for k in ks], color=GREY, lw=1.2, ls="--")
    axes.set_xticks(ks)
    _plain(axes)


def _signs(exact: bool) -> list[Line2D]:
    """What colours, dots and lines of the first two panels mean."""
    return [
        *(Line2D([], [], color=colour, lw=5, label=NAMES[per_pair]) for per_pair, colour in COLOURS.items()),
        Line2D([], [], color=INK, lw=1.4, label="closed form (left), exact (middle)" if exact else "closed form"),
        Line2D([], [], color=GREY, lw=1.2, ls="--", label="closed form, one λ per batch"),
        Line2D([], [], color=INK, marker="o", ms=5, ls="", label="measured, iid λ"),
        Line2D([], [], color=INK, marker="o", ms=5, ls="", mfc="white", label="measured, stratified λ"),
    ]


def _around_crossover(axes: Any, outcome: Outcome) -> None:
    b_0, k, parts = outcome.crossover, outcome.settings.compared_k, outcome.components
    middle = b_0.value if math.isfinite(b_0.value) else 1000.0
    batches = np.unique(np.geomspace(max(1.0, middle / 40), middle * 12, 80).round().astype(int)).tolist()
    for kind, words, colour, values in _curves(parts, k, batches):
        axes.plot(batches, values, color=colour, lw=1.4, ls="-" if kind else "--", label=words)
        for side in outcome.sides.values() if kind else ():
            found = getattr(side, kind).variance
            axes.errorbar([side.batch], [found.value], [found.half], fmt="o", ms=5, color=colour, elinewidth=1.2, capsize=2)
    axes.axvline(outcome.settings.batch, color=LINE, lw=6, zorder=0)
    axes.text(
        outcome.settings.batch,
        0.98,
        f" B = {outcome.settings.batch}",
        transform=axes.get_xaxis_transform(),
        fontsize=8,
        va="top",
        color=GREY,
    )
    if math.isfinite(b_0.value):
        axes.axvline(b_0.value, color=GREY, lw=1, ls=":")
        axes.text(
            b_0.value, 0.98, f" B_0 = {b_0.value:,.0f}", transform=axes.get_xaxis_transform(), fontsize=8, va="top", color=GREY
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("B, pairs per step of multi-mix")
    axes.set_ylabel("trace variance")
    axes.set_title("multi-mix against a large batch", fontsize=10.5)
    axes.legend(fontsize=7.5, frameon=False, loc="lower left")
    _plain(axes)


def _curves(parts: Components, k: int, batches: list[int]) -> Iterator[tuple[str, str, str, list[float]]]:
    """What is measured of it, name, colour and values by formula."""
    yield "multi", f"multi-mix, B pairs, K = {k}", BLUE, [multimix_variance(parts, k=k, batch=b).value for b in batches]
    for kind, words, colour in (("large", "one λ", ORANGE), ("", "a λ each", GREY)):
        values = [large_batch_variance(parts, rows=k * b, per_pair=not kind).value for b in batches]
        yield kind, f"mixup, {k}·B pairs, {words}", colour, values


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
