"""The spiral's page and figures, written from a finished result alone."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ...results import html as report
from ...storage import write_atomically
from .figures import accuracy_figure, boundary_figure, data_figure
from .findings import collapsed, comparisons, expectations, p_value, points, sentences, signed, summaries
from .nets import DEPTH, PARAMETERS, WIDTH
from .settings import ARMS, COLLAPSED, SpiralSettings
from .study import SpiralResult

PAPER_NOTE = "one run, generator and settings not published"
PAIRED_CAPTION = (
    "Points of accuracy, seed by seed; all three trainings of a seed share data, start and batches. Two-sided p-values, not "
    f"corrected for three comparisons. The paper's differences: {PAPER_NOTE}."
)
ACCURACY_CAPTION = "Every dot is one seed; grey lines join the three runs of a seed."
BOUNDARY_CAPTION = (
    "For every training the run with the median accuracy, so the panels may show different seeds. The shade is the net's "
    "probability of label 1, the line its decision boundary."
)
POINTS_CAPTION = "Blue points carry label 0, orange ones label 1; a ring marks a flipped label."
PANEL_DPI = 120


class Written(NamedTuple):
    """Where everything is."""

    page: Path
    pictures: tuple[Path, ...]
    numbers: Path


def write(result: SpiralResult, out: str | Path, stem: str = "spiral") -> Written:
    """``spiral.html``, three PNGs and ``spiral.json`` in the folder ``out``, or the same under another ``stem``."""
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        accuracy = report.png(accuracy_figure(result))
        pictures = {
            f"{stem}-data.png": report.png(data_figure(result.settings, result.seeds[0])),
            f"{stem}-boundaries.png": report.png(boundary_figure(result)),
            f"{stem}-accuracy.png": accuracy,
        }
        content = {f"{stem}.html": page(result, accuracy).encode(), f"{stem}.json": numbers(result), **pictures}
        for name, data in content.items():
            write_atomically(out / name, data)
    except OSError as error:
        raise OSError(f"cannot write into {str(out)!r}: {error.strerror}") from error
    return Written(out / f"{stem}.html", tuple(out / name for name in pictures), out / f"{stem}.json")


def page(result: SpiralResult, accuracy: bytes) -> str:
    """The whole page; ``accuracy`` is that figure's PNG. Panels come one by one, so that a phone can stack them."""
    settings, count = result.settings, len(result.seeds)
    lead = (
        f"Two spiral arms, {settings.train} training points of which {settings.flipped} carry the wrong label, and a small net "
        f"trained {count} times without mixup, with manifold mixup (K = 1) and with multi-mix (K = 5), on the same {count} seeds."
    )
    parts = [
        report.heading("What the data show, and what they do not"),
        *(report.paragraph(sentence, finding=True) for sentence in sentences(result)),
        report.heading("Accuracy on clean test labels"),
        report.table(*accuracy_rows(result), caption=_accuracy_caption(result)),
        report.picture(accuracy, _accuracy_words(result), ACCURACY_CAPTION),
        report.heading("Paired differences over the same seeds"),
        report.table(*paired_rows(result), caption=PAIRED_CAPTION),
        report.heading("Decision boundaries"),
        beside(_boundary_pictures(result)),
        report.paragraph(f"{BOUNDARY_CAPTION} {POINTS_CAPTION}"),
        report.heading("The data"),
        beside(_data_pictures(result)),
        report.paragraph(f"The data of seed {result.seeds[0]}; every seed draws its own. {POINTS_CAPTION}"),
        *_expected(result),
        report.heading("Settings"),
        report.preformatted(settings_text(settings, result.seeds)),
        report.heading("Obtained with"),
        report.preformatted(environment_text(result)),
    ]
    return report.document("The noisy spiral: no mixup, manifold mixup, multi-mix", lead, parts)


def beside(pictures: Sequence[str]) -> str:
    """Pictures side by side where there is room, below each other where there is not."""
    return (
        '<div style="display: grid; gap: 0 12px; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr))">'
        + "".join(pictures)
        + "</div>"
    )


def accuracy_rows(result: SpiralResult, *, short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows: n, mean with interval, median, collapsed runs and the paper's number; ``short`` fits a terminal."""
    head = ["training", "n", "mean ± 95 %", "median", "collapsed", "paper (one run)"]
    more = ["lowest", "highest", "CPU s per run"]
    rows = []
    for arm in ARMS:
        found, values = summaries(result)[arm.name], result.accuracies(arm)
        mean = str(found) if found.n > 1 else f"{found.mean:.2f}"
        row = [arm.short if short else arm.words, str(found.n), mean, f"{found.median:.2f}", str(collapsed(result, arm))]
        cost = sum(run.cpu_seconds for run in result.runs[arm.name]) / found.n
        spread = [] if short else [f"{min(values):.2f}", f"{max(values):.2f}", f"{cost:.2f}"]
        rows.append([*row, f"{arm.paper:.2f}", *spread])
    return head if short else head + more, rows


def paired_rows(result: SpiralResult, *, short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows: mean difference with interval, seeds higher, both p-values, and the paper's difference."""
    head = ["difference", "points ± 95 %", "higher in", "p (paired t)", "p (Wilcoxon)", "paper (one run)"]
    if short:
        head[3:] = "p (t)", "p (Wilcoxon)", "paper"
    rows = []
    for comparison in comparisons(result):
        found, pair = comparison.paired, (comparison.first, comparison.second)
        name = " − ".join(arm.short for arm in pair)
        tests = [p_value(found.p_t), p_value(found.p_wilcoxon)] if found.n > 1 else ["–", "–"]
        rows.append([name, points(found), f"{found.wins} of {found.n}", *tests, signed(comparison.paper)])
    return head, rows


def settings_text(settings: SpiralSettings, seeds: Sequence[int]) -> str:
    """All settings as lines of text."""
    shown = {name: f"{value:g}" for name, value in asdict(settings).items()}
    lines = [f"{name:<8} {value}" for name, value in shown.items()]
    net = f"{DEPTH} hidden layers of {WIDTH} units, LeakyReLU({settings.slope:g}), He normal start, {PARAMETERS} parameters"
    mixing = "layer 1 or 2, drawn for each batch; one permutation and one path of K shares per batch, Beta(alpha, alpha)"
    return "\n".join([*lines, f"seeds    {', '.join(map(str, seeds))}", f"net      {net}", f"mixing   {mixing}"])


def environment_text(result: SpiralResult) -> str:
    """What the runs were obtained with, one line per kind of environment."""
    counts: dict[str, int] = {}
    for run in (run for runs in result.runs.values() for run in runs):
        words = ", ".join(f"{name} {value}" for name, value in run.environment.items())
        counts[words] = counts.get(words, 0) + 1
    return "\n".join(f"{count} runs: {words}" for words, count in counts.items())


def numbers(result: SpiralResult) -> bytes:
    """Everything on the page as JSON: accuracies seed by seed, summaries, comparisons and sentences."""
    content: dict[str, Any] = {
        "settings": asdict(result.settings),
        "seeds": result.seeds,
        "accuracy": {arm.name: result.accuracies(arm) for arm in ARMS},
        "collapsed": {arm.name: collapsed(result, arm) for arm in ARMS},
        "median_seed": {arm.name: result.median_run(arm).seed for arm in ARMS},
        "cpu_seconds": {arm.name: [run.cpu_seconds for run in result.runs[arm.name]] for arm in ARMS},
        "paper": {arm.name: arm.paper for arm in ARMS} | {"note": PAPER_NOTE},
        "summary": {name: _known(found._asdict()) for name, found in summaries(result).items()},
        "paired": {f"{one.first.name} - {one.second.name}": _known(one.paired._asdict()) for one in comparisons(result)},
        "sentences": sentences(result),
        "expected": [{"expected": words, "measured": measured, "met": met} for words, measured, met in expectations(result)],
        "environment": environment_text(result).splitlines(),
    }
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """NaN, which JSON does not have, as null: there is no interval for one seed."""
    return {name: None if value != value else value for name, value in values.items()}


def _expected(result: SpiralResult) -> list[str]:
    rows = [[words, measured, "yes" if met else "no"] for words, measured, met in expectations(result)]
    if not rows:
        return []
    caption = "Written down before these runs, from an earlier study with another trainer. K = 5 above K = 1 was not expected."
    return [report.heading("Expected beforehand"), report.table(["expected", "measured", "met"], rows, caption=caption)]


def _accuracy_caption(result: SpiralResult) -> str:
    tests = result.settings.samples - result.settings.train
    return (
        f"Per cent of {tests} clean test labels after the last epoch; n counts seeds. Collapsed: below {COLLAPSED:.0f} %. "
        f"The paper's numbers: {PAPER_NOTE}."
    )


def _accuracy_words(result: SpiralResult) -> str:
    shown = "; ".join(f"{arm.words}: median {summaries(result)[arm.name].median:.2f} %" for arm in ARMS)
    return f"Accuracy of every seed under the three trainings. {shown}."


def _boundary_pictures(result: SpiralResult) -> list[str]:
    pictures = []
    for arm in ARMS:
        run = result.median_run(arm)
        words = f"Decision boundary over the training points, {arm.words}, seed {run.seed}: {run.accuracy:.2f} % right."
        pictures.append(report.picture(report.png(boundary_figure(result, [arm]), dpi=PANEL_DPI), words))
    return pictures


def _data_pictures(result: SpiralResult) -> list[str]:
    settings, seed = result.settings, result.seeds[0]
    words = (
        f"Two interleaved spiral arms; {settings.flipped} of {settings.train} training labels are flipped.",
        "The same two arms as the test split shows them, every label right.",
    )
    figures = data_figure(settings, seed, ["training"]), data_figure(settings, seed, ["test"])
    return [report.picture(report.png(one, dpi=PANEL_DPI), alt) for one, alt in zip(figures, words, strict=True)]
