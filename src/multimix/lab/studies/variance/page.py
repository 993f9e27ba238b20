"""The report of the variance study: figures and tables; what the two propositions say is in `propositions.html`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from ...results.figures.style import GREY, INK, LINE, panels, png
from ...results.page import document, heading, paragraph, picture, table
from ...results.table import NOTHING, Table
from ...storage import environment
from ..files import StudyFiles, write_study
from .cases import FULL, QUICK, Data, VarianceSettings
from .findings import findings, interval, number
from .measure import Pairing
from .parts import ratio
from .study import SAMPLERS, Setup, Unit, VarianceResult, run_study
from .theory import crossover, large_batch_variance, multimix_variance

TITLE = "The variance of multi-mix's gradient"
LEAD = (
    "One step of multi-mix averages the loss over B pairs and K interpolations of each. How much does its gradient vary from "
    "step to step, at fixed weights, and is the effort better spent on K interpolations or on K times as many pairs?"
)
NAMES = {"spiral": "The noisy spiral", "digits": "Handwritten digits"}


def variance(
    *,
    on: tuple[Data, ...] = ("spiral", "digits"),
    quick: bool = False,
    out: str | Path = "multimix-variance",
    rebuild: bool = False,
    settings: dict[Data, VarianceSettings] | None = None,
    progress: Callable[[Sequence[Unit]], Iterable[Unit]] = iter,
    note: Callable[[str], None] = print,
) -> StudyFiles:
    """``variance.html``, ``variance.json`` and a figure for each data set, in ``out``.

    Finished pieces are stored in ``out`` and not computed again, so a study that was stopped resumes. ``quick`` takes few samples
    and replicates, for a first look, and writes ``variance-quick.*``. ``rebuild`` computes nothing and reports what is there.
    """
    chosen = settings or (QUICK if quick else FULL)
    results = run_study(on=on, settings=chosen, out=out, rebuild=rebuild, progress=progress, note=note)
    sentences = {result.settings.data: findings(result) for result in results}
    figures: dict[str, bytes] = {result.settings.data: variance_figure(result) for result in results}
    numbers = {result.settings.data: result.plain() for result in results}
    return write_study(
        out,
        "variance-quick" if quick else "variance",
        page=report_page(results, sentences, figures),
        results={"written_with": environment(), "findings": sentences, "data": numbers},
        figures=figures,
        table=terminal_table(results),
        findings=[f"{data}: {sentence}" for data, each in sentences.items() for sentence in each],
    )


def report_page(results: Sequence[VarianceResult], sentences: Mapping[Data, Sequence[str]], figures: Mapping[str, bytes]) -> str:
    """The whole page as HTML."""
    parts = [files(__package__).joinpath("propositions.html").read_text(encoding="utf-8")]
    for result in results:
        data = result.settings.data
        parts += [heading(NAMES[data]), paragraph(_description(result))]
        parts += [paragraph(sentence, finding=True) for sentence in sentences[data]]
        alt = f"{NAMES[data]}: variance against K for independent pairs and for permutations, and against B around B_0"
        # Three panels side by side would be too small to read on a phone, where the figure scrolls instead.
        wide = f'<div style="overflow-x: auto"><div style="min-width: 820px">{picture(figures[data], alt)}</div></div>'
        parts += [wide, paragraph(_caption(result)), _parts_table(result), _k_table(result)]
        parts += [_sides_table(result)] if result.sides else []
    return document(TITLE, LEAD, [*parts, *_methods(results)])


def terminal_table(results: Sequence[VarianceResult]) -> Table:
    """Variance against K with one λ per batch, measured and by formula, for both pairings."""
    lines = []
    for result in results:
        for k in result.settings.ks:
            exact = result.exact(k)
            independent, permuted = (interval(result.at(pairing, k).variance) for pairing in ("independent", "permutation"))
            formula = number(result.formula(k).value)
            lines.append(
                [result.settings.data, str(k), independent, formula, permuted, NOTHING if exact is None else number(exact)]
            )
    heads = ["data", "K", "independent pairs", "closed form", "permutation", "exact"]
    return Table("trace variance of the gradient, one λ per batch, iid; ± is a 95 % interval", heads, lines, keys=2)


def _description(result: VarianceResult) -> str:
    settings = result.settings
    words = {
        "spiral": f"{settings.samples} training points, a fifth of their labels wrong; eight hidden layers of six units "
        f"({result.parameters} parameters), mixed after the first",
        "digits": f"{settings.samples:,} training images of scikit-learn's digits (8×8, real); two convolutions and a linear "
        f"layer ({result.parameters:,} parameters, no batch norm), mixed at the input",
    }
    return (
        f"{words[settings.data]}. Trained for {settings.epochs} epochs with mixup, K = 1; {result.accuracy:.1f} % right on "
        f"held-out samples. λ from Beta({settings.alpha:g}, {settings.alpha:g}). Everything below is at these weights, seed "
        f"{settings.seed}."
    )


def _caption(result: VarianceResult) -> str:
    exact = "lines in the middle are exact" if result.enumeration is not None else "there is no exact line in the middle"
    return (
        f"Dots: measured, {result.settings.replicates:,} batches, bars are 95 % intervals; open dots: stratified λ. Lines on "
        f"the left and on the right are the closed form; {exact}, and the dashed one is the closed form again, which does not "
        "apply there."
    )


def _parts_table(result: VarianceResult) -> str:
    b_0 = crossover(result.sampled.components)
    bounds = f"{number(b_0.value)} ({number(b_0.low)} to {number(b_0.high)})"
    rows = [["sampled pairs, unbiased", *map(interval, result.sampled.components.estimates), bounds]]
    if result.enumeration is not None:
        exact = result.enumeration.components
        rows.append(["every pair", number(exact.total), number(exact.pairs), number(exact.lam), number(exact.pairs / exact.lam)])
    sampled = result.sampled
    for count, value in ((sampled.pairs, sampled.plug_in), (sampled.group, sampled.plug_in_group)):
        rows.append([f"naive V_λ from {count:,} pairs (biased)", "", "", number(value), number(result.components.pairs / value)])
    return table(["", "V", "V_pairs", "V_λ", "B_0"], rows, "The parts of the variance; ± and brackets are 95 % intervals.")


def _k_table(result: VarianceResult) -> str:
    rows = []
    for per_pair in (False, True):
        for k in result.settings.ks:
            free, bound = (result.at(pairing, k, per_pair=per_pair) for pairing in ("independent", "permutation"))
            formula, exact = result.formula(k, per_pair=per_pair), result.exact(k, per_pair=per_pair)
            assert bound.ratio is not None  # with iid λ all K share their draws
            relative = interval(bound.ratio) if bound.ratio.half > 0 else "1"
            rows.append(
                [
                    f"λ per {'pair' if per_pair else 'batch'}, K = {k}",
                    *(interval(free.variance), interval(formula), f"{ratio(free.variance, formula).value:.3f}"),
                    *(interval(bound.variance), NOTHING if exact is None else number(exact), relative),
                    interval(bound.squared_norm),
                ]
            )
    head = ["", "independent", "closed form", "ratio", "permutation", "exact", "to K = 1", "E‖g̃‖²"]
    return table(
        head, rows, f"Trace variance at B = {result.settings.batch}, iid λ. The last three columns belong to permutations."
    )


def _sides_table(result: VarianceResult) -> str:
    rows = [
        [
            f"B = {side.batch:,} ({'B_0 / 4' if name == 'low' else '4 B_0'})",
            *(interval(side.multi.variance), interval(side.multi_formula)),
            *(interval(side.large.variance), interval(side.large_formula), f"{side.replicates:,}"),
        ]
        for name, side in result.sides.items()
    ]
    k = result.settings.compared_k
    head = ["", f"multi-mix (B, {k})", "closed form", f"mixup ({k}·B, one λ)", "closed form", "batches each"]
    return table(head, rows, "Proposition 2 on both sides of B_0, independent pairs.")


def _methods(results: Sequence[VarianceResult]) -> list[str]:
    nodes = results[0].settings.nodes
    return [
        heading("How it was obtained"),
        paragraph(
            "Intervals are 95 %, by the delta method over independent batches or pairs, by the jackknife over groups of pairs "
            "for V_λ, and Fieller's for B_0. They cover the sampling, not the choice of weights and data: other weights have "
            "other variances."
        ),
        paragraph(
            f"V_λ multiplies only gradients of different groups of pairs: a group's own noise, squared, would add "
            f"(V − V_pairs − V_λ) / M for M pairs, and B_0 would come out too low. λ is averaged by Gauss's quadrature with "
            f"{nodes} nodes in V_λ and wherever every pair is taken, and drawn at random elsewhere."
        ),
        paragraph(
            "Independent pairs are drawn from the training samples with replacement; for permutations the batch is drawn "
            "without. With iid λ every K uses the same batches and the first K of their λ, so the column “to K = 1” compares "
            "like with like."
        ),
    ]


BLUE, ORANGE = "#1f5fbf", "#c8641b"
COLOURS = {False: BLUE, True: ORANGE}
LAM_NAMES = {False: "one λ per batch", True: "a λ per pair"}


def variance_figure(result: VarianceResult) -> bytes:
    """PNG with three panels."""
    sheet, [[independent, permuted, sizes]] = panels((12.5, 4.6), 1, 3)
    _against_k(independent, result, "independent")
    _against_k(permuted, result, "permutation")
    top = max(axes.get_ylim()[1] for axes in (independent, permuted))
    for axes, title in ((independent, "independent pairs"), (permuted, "a permutation of the batch, as in training")):
        axes.set_ylim(0, top)
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel("K, interpolations per pair")
    independent.set_ylabel(f"trace variance of the gradient, B = {result.settings.batch}")
    _around_crossover(sizes, result)
    # What colours, dots and lines of the first two panels mean.
    line = "closed form" if result.enumeration is None else "closed form (left), exact (middle)"
    handles = [
        *(Line2D([], [], color=colour, lw=5, label=LAM_NAMES[per_pair]) for per_pair, colour in COLOURS.items()),
        Line2D([], [], color=INK, lw=1.4, label=line),
        Line2D([], [], color=GREY, lw=1.2, ls="--", label="closed form, one λ per batch"),
        Line2D([], [], color=INK, marker="o", ms=5, ls="", label="measured, iid λ"),
        Line2D([], [], color=INK, marker="o", ms=5, ls="", mfc="white", label="measured, stratified λ"),
    ]
    sheet.legend(handles=handles, loc="outside lower left", ncols=6, fontsize=8.5, frameon=False)
    return png(sheet)


def _against_k(axes: Any, result: VarianceResult, pairing: Pairing) -> None:
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


def _around_crossover(axes: Any, result: VarianceResult) -> None:
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
    above = {"transform": axes.get_xaxis_transform(), "fontsize": 8, "va": "top", "color": GREY}
    axes.text(result.settings.batch, 0.98, f" B = {result.settings.batch}", **above)
    if math.isfinite(b_0.value):
        axes.axvline(b_0.value, color=GREY, lw=1, ls=":")
        axes.text(b_0.value, 0.98, f" B_0 = {b_0.value:,.0f}", **above)
    axes.set(xscale="log", yscale="log", xlabel="B, pairs per step of multi-mix", ylabel="trace variance")
    axes.set_title("multi-mix against a large batch", fontsize=10.5)
    axes.legend(fontsize=7.5, frameon=False, loc="lower left")
