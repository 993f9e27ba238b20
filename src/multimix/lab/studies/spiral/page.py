"""The report of the spiral, made from a finished result alone: page, figures, numbers and the tables for the terminal."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group

from ...recipes.spiral import ARMS, COLLAPSED
from ...results.figures.style import png, svg
from ...results.page import beside, document, drawing, pairs, paragraph, preformatted, section, table
from ...results.table import NOTHING, Cell, Table, counted, mean_cell, signed
from ..files import StudyFiles, one_thread, write_study
from .figures import accuracy_figure, boundary_figure, data_figure
from .findings import collapsed, comparisons, expectations, findings, headline, p_value, summaries
from .runs import SpiralResult
from .training import DEPTH, PARAMETERS, WIDTH

PAPER_NOTE = "one run, generator and settings not published"
PAIRED_NOTE = (
    "Points of accuracy, seed by seed; all three trainings of a seed share data, initial weights and batches. Two-sided "
    f"p-values, not corrected for three comparisons. The paper's differences: {PAPER_NOTE}."
)
ACCURACY_CAPTION = "Every dot is one seed; grey lines join the three runs of a seed. Intervals are cut off at 100 %."
BOUNDARY_CAPTION = (
    "For every training the run with the median accuracy, so the panels may show different seeds. The shade is the network's "
    "probability of label 1, the line its decision boundary."
)
POINTS_CAPTION = "Blue points carry label 0, orange ones label 1; a ring marks a flipped label."
EXPECTED_CAPTION = (
    "Written down before these runs, from an earlier study with another trainer. K = 5 above K = 1 was not expected."
)


def write_report(result: SpiralResult, out: str | Path, stem: str = "spiral") -> StudyFiles:
    """``spiral.html``, three PNGs and ``spiral.json`` in the folder ``out``, or the same under another ``stem``."""
    with one_thread():
        figures = {
            "data": png(data_figure(result.settings, result.seeds[0])),
            "boundaries": png(boundary_figure(result)),
            "accuracy": png(accuracy_figure(result)),
        }
        page = report_page(result)
    tables = Group(accuracy_table(result), "", paired_table(result), "")
    return write_study(out, stem, page=page, results=numbers(result), figures=figures, table=tables, findings=findings(result))


def report_page(result: SpiralResult) -> str:
    """The whole page. Panels come one by one, so that a phone can stack them."""
    settings, count = result.settings, len(result.seeds)
    lead = (
        f"Two spiral arms, {settings.train} training points of which {settings.flipped} carry the wrong label, and a small "
        f"network trained {count} times without mixup, with manifold mixup (K = 1) and with multi-mix (K = 5), on the same "
        f"{counted(count, 'seed')}."
    )
    medians = "; ".join(f"{arm.words}: median {summaries(result)[arm.name].median:.2f} %" for arm in ARMS)
    expected = [[words, measured, "yes" if met else "no"] for words, measured, met in expectations(result)]
    alt = f"Accuracy of every seed under the three trainings. {medians}."
    parts = [
        section(
            "Decision boundaries",
            beside(*_boundary_pictures(result)),
            paragraph(f"{BOUNDARY_CAPTION} {POINTS_CAPTION}"),
            unfolded=True,
        ),
        section(
            "What the data show, and what they do not", *(paragraph(sentence, finding=True) for sentence in findings(result))
        ),
        section("Accuracy on clean test labels", *accuracy_table(result).html()),
        section("Paired differences over the same seeds", *paired_table(result).html()),
        section(
            "The data",
            beside(*_data_pictures(result)),
            paragraph(f"The data of seed {result.seeds[0]}; every seed draws its own. {POINTS_CAPTION}"),
        ),
        section("Expected beforehand", table(["expected", "measured", "met"], expected, caption=EXPECTED_CAPTION)),
        section("Settings", pairs(settings_of(result))),
        section("Obtained with", preformatted("\n".join(environments(result)))),
    ]
    figure = drawing(svg(accuracy_figure(result)), alt, ACCURACY_CAPTION)
    title = "The noisy spiral: no mixup, manifold mixup, multi-mix"
    return document(title, lead, parts, headline=headline(result), figure=figure)


def accuracy_table(result: SpiralResult) -> Table:
    """Of every training n, mean with interval, median, collapsed runs, the paper's number, extremes and cost."""
    heads = ["training", "n", "mean ± 95 %", "median", "collapsed", "paper (one run)", "lowest", "highest", "CPU s (per run)"]
    lines: list[list[Cell]] = []
    for arm in ARMS:
        mean, values = summaries(result)[arm.name], result.accuracies(arm)
        cost = sum(run.cpu_seconds for run in result.runs[arm.name]) / mean.n
        numbers = [f"{arm.paper:.2f}", f"{min(values):.2f}", f"{max(values):.2f}", f"{cost:.2f}"]
        lines.append([arm.words, str(mean.n), mean_cell(mean), f"{mean.median:.2f}", str(collapsed(result, arm)), *numbers])
    settings = result.settings
    note = (
        f"Per cent of {settings.samples - settings.train} clean test labels after the last epoch; n counts seeds. Collapsed: "
        f"below {COLLAPSED:.0f} %. The paper's numbers: {PAPER_NOTE}."
    )
    return Table("Accuracy on clean test labels, %", heads, lines, [note])


def paired_table(result: SpiralResult) -> Table:
    """Mean difference with interval, seeds higher, both p-values, and the paper's difference."""
    heads = ["difference", "points ± 95 %", "higher in", "p (paired t)", "p (Wilcoxon)", "paper (one run)"]
    lines: list[list[Cell]] = []
    for comparison in comparisons(result):
        found = comparison.paired
        several = found.n > 1
        mean = signed(found.mean), f"± {found.half:.2f}" if several else ""
        tests = [p_value(found.p_t), p_value(found.p_wilcoxon)] if several else [NOTHING, NOTHING]
        name = f"{comparison.first.short} − {comparison.second.short}"
        lines.append([name, mean, f"{found.wins} of {found.n}", *tests, signed(comparison.paper)])
    return Table("Paired differences over the same seeds, in points", heads, lines, [PAIRED_NOTE])


def settings_of(result: SpiralResult) -> dict[str, str]:
    """All settings by name."""
    return {name: str(value) for name, value in asdict(result.settings).items()} | {
        "seeds": ", ".join(map(str, result.seeds)),
        "net": f"{DEPTH} hidden layers of {WIDTH} units, LeakyReLU({result.settings.slope:g}), He normal start, "
        f"{PARAMETERS} parameters",
        "mixing": "layer 1 or 2, drawn for each batch; one permutation and one path of K shares per batch, Beta(alpha, alpha)",
    }


def environments(result: SpiralResult) -> list[str]:
    """What the runs were obtained with, one line per kind of environment."""
    every = (run.environment for runs in result.runs.values() for run in runs)
    counts = Counter(", ".join(f"{name} {value}" for name, value in environment.items()) for environment in every)
    return [f"{count} runs: {words}" for words, count in counts.items()]


def numbers(result: SpiralResult) -> dict[str, Any]:
    """Everything on the page for JSON: accuracies seed by seed, summaries, comparisons and sentences."""
    return {
        "settings": asdict(result.settings),
        "seeds": result.seeds,
        "accuracy": {arm.name: result.accuracies(arm) for arm in ARMS},
        "collapsed": {arm.name: collapsed(result, arm) for arm in ARMS},
        "median_seed": {arm.name: result.median_run(arm).seed for arm in ARMS},
        "cpu_seconds": {arm.name: [run.cpu_seconds for run in result.runs[arm.name]] for arm in ARMS},
        "paper": {arm.name: arm.paper for arm in ARMS} | {"note": PAPER_NOTE},
        "summary": {name: _nan_as_none(summary._asdict()) for name, summary in summaries(result).items()},
        "paired": {f"{one.first.name} - {one.second.name}": _nan_as_none(one.paired._asdict()) for one in comparisons(result)},
        "sentences": findings(result),
        "expected": [{"expected": words, "measured": measured, "met": met} for words, measured, met in expectations(result)],
        "environment": environments(result),
    }


def _nan_as_none(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: there is no interval for one seed."""
    return {name: None if value != value else value for name, value in values.items()}


def _boundary_pictures(result: SpiralResult) -> Iterator[str]:
    for arm in ARMS:
        run = result.median_run(arm)
        words = f"Decision boundary over the training points, {arm.words}, seed {run.seed}: {run.accuracy:.2f} % right."
        yield drawing(svg(boundary_figure(result, [arm])), words)


def _data_pictures(result: SpiralResult) -> Iterator[str]:
    settings, seed = result.settings, result.seeds[0]
    wrong = f"Two interleaved spiral arms; {settings.flipped} of {settings.train} training labels are flipped."
    yield drawing(svg(data_figure(settings, seed, ["training"])), wrong)
    clean = "The same two arms as the test split shows them, every label right."
    yield drawing(svg(data_figure(settings, seed, ["test"])), clean)
