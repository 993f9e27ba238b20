"""The study's page and its table for the terminal, made from results alone."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ....methods import entries
from ...results.page import document, heading, paragraph, picture, preformatted, table
from ...statistics import Summary
from .arms import options_here
from .comparison import Compared, Comparison, Results, signed, summarised, surplus
from .train import Settings

COMPARISON_HEAD = ("comparison", "difference ± 95 %", "lower in", "p (t)", "p (t, Holm)", "p (Wilcoxon)", "n")


def page(
    results: Results,
    settings: Settings,
    all_compared: Sequence[Compared],
    sentences: Sequence[str],
    figures: Mapping[str, bytes],
    test_samples: int,
) -> str:
    """The whole page as HTML."""
    seeds = sorted({seed for outcomes in results.values() for seed in outcomes})
    lead = (
        f"{len(results)} arms × {len(seeds)} seeds on scikit-learn's 8×8 digits: {10 * settings.per_class} training samples "
        f"({settings.per_class} per class), {test_samples:,} test samples, {settings.steps} optimiser steps for every arm."
    )
    error, ece = all_compared
    return document(
        "Every method on real digits",
        lead,
        [
            heading("What shows and what does not"),
            *(paragraph(sentence, finding=True) for sentence in sentences),
            heading("Test error"),
            picture(
                figures["error"],
                "Test error of every seed, one line per method and K, with means and intervals",
                "Each seed has its own training samples, initial weights and order of batches, shared by all arms. The intervals "
                "here contain the differences between seeds; the paired differences below do not.",
            ),
            means_table(results),
            comparison_table(error),
            heading("Calibration"),
            picture(
                figures["ece"],
                "Expected calibration error of every seed, one line per method and K, with means and intervals",
                f"Expected calibration error over {settings.bins} bins (a, b], in per cent.",
            ),
            comparison_table(ece),
            heading("Error against cost"),
            picture(
                figures["cost"],
                "Mean test error against mean CPU seconds per run, an arrow from the smallest to the largest K",
                "Means only; how far they can be told apart is in the tables above. An arrow leads from a method's smallest K to "
                "its largest. Training time on one thread; every arm makes the same number of steps.",
            ),
            heading("How it was done"),
            *(paragraph(words) for words in method_words(settings)),
            preformatted(json.dumps(asdict(settings), indent=1)),
        ],
    )


def means_table(results: Results) -> str:
    """HTML: what every arm gave and cost."""
    head = ("arm", "n", "error % ± 95 %", "ECE % ± 95 %", "sureness", "Brier", "NLL", "CPU s", "rows")
    rows = [
        (
            arm.label,
            len(outcomes),
            plus_minus(summarised(outcomes, "error")),
            plus_minus(summarised(outcomes, "ece")),
            signed(surplus(outcomes)),
            f"{summarised(outcomes, 'brier').mean:.4f}",
            f"{summarised(outcomes, 'nll').mean:.3f}",
            f"{summarised(outcomes, 'cpu_seconds').mean:.2f}",
            f"{summarised(outcomes, 'rows').mean:,.0f}",
        )
        for arm, outcomes in results.items()
        if outcomes
    ]
    caption = (
        "Means over n seeds; only error and ECE are tested. Sureness is mean confidence minus accuracy in points: below 0 the "
        "network is not sure enough. CPU seconds and rows (samples that came out of the network) are those of training one run."
    )
    return table(head, rows, caption)


def comparison_table(compared: Compared) -> str:
    """HTML: paired differences to no mixing, then of K to the smallest K."""
    count = len(compared.with_none) + len(compared.with_fewer)
    rows = [_cells(comparison) for comparison in (*compared.with_none, *compared.with_fewer)]
    caption = (
        f"Paired differences of {compared.metric.name} in percentage points over the same seeds; below 0 the first is better. "
        f"{count} comparisons: p (t) and p (Wilcoxon) are uncorrected, p (t, Holm) is corrected for all {count}."
    )
    return table(COMPARISON_HEAD, rows, caption)


def method_words(settings: Settings) -> list[str]:
    """How the study was made, for the reader who wants to judge it."""
    changed = [(known.name, options_here(known)) for known in sorted(entries(), key=lambda known: known.name)]
    options = "; ".join(f"{name}: {', '.join(f'{k} = {v}' for k, v in given.items())}" for name, given in changed if given)
    return [
        "A small network (two convolutions of 16 and 32 channels with pooling, one linear layer, 6,090 parameters) is trained "
        "through multimix.mixed_logits and cross-entropy, every batch mixed, SGD with Nesterov momentum and a cosine schedule. "
        "The test samples are all those not drawn for training; nothing was selected on them.",
        "The number of training samples, the steps and the learning rate were fixed before any test error was seen, the "
        "learning rate as the middle of three that all fit the training samples of another split. "
        "No method was tuned: options are the library's defaults "
        f"except where they cannot fit 8×8 images or have no default ({options}).",
        f"smoothing is no mixing with labels smoothed by {settings.smoothing:g}. The largest K takes more time for the same "
        "steps, so equal steps favour it: at equal time the smallest K could train longer, which this study does not try. "
        "Cutout has no partner: its K holes grow to the full size, so at a larger K they are smaller on average.",
        "Seeds differ in split, weights and order of batches at once. Test sets of different seeds overlap, so the seeds "
        "are not fully independent and the intervals are, if anything, too narrow for other data.",
    ]


def terminal_table(study: str, results: Results, all_compared: Sequence[Compared]) -> Table:
    """The means and the paired differences to no mixing, for the terminal."""
    counts = " to ".join(map(str, sorted({len(outcomes) for outcomes in results.values() if outcomes})))
    title = f"{study}, {counts} seed{'s' * (counts != '1')}: mean ± 95 %, and paired difference to no mixing"
    # No more than fits 80 columns; tests and corrected p-values are on the page.
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("arm", no_wrap=True)
    for head in ("error %", "Δ none", "ECE %", "Δ none", "CPU s"):
        shown.add_column(head, justify="right", no_wrap=True)
    against = [{comparison.first: comparison for comparison in one.with_none} for one in all_compared]
    for arm, outcomes in results.items():
        if not outcomes:
            continue
        cells = [arm.label]
        for one, of_arm in zip(all_compared, against, strict=True):
            comparison = of_arm.get(arm)
            cells.append(plus_minus(summarised(outcomes, one.metric.field)))
            cells.append("" if comparison is None else signed(comparison.paired.mean))
        shown.add_row(*cells, f"{summarised(outcomes, 'cpu_seconds').mean:.2f}")
    return shown


def plus_minus(whole: Summary) -> str:
    """Mean and half the interval; one value alone has none."""
    return f"{whole.mean:.2f} ± {whole.half:.2f}" if math.isfinite(whole.half) else f"{whole.mean:.2f}"


def p_words(p: float) -> str:
    """A p-value with as many places as mean something."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _cells(comparison: Comparison) -> tuple[str, ...]:
    whole, second = comparison.paired, comparison.second
    spread = f" ± {whole.half:.2f}" if math.isfinite(whole.half) else ""
    tests = [p_words(p) if whole.n > 1 else "–" for p in (whole.p_t, comparison.p_holm, whole.p_wilcoxon)]
    return (
        f"{comparison.first.label} − {second.k if second.name == comparison.first.name else second.label}",
        f"{signed(whole.mean)}{spread}",
        f"{comparison.lower} of {whole.n}",
        *tests,
        str(whole.n),
    )
