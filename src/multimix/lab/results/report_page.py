"""The page of a study: what shows, tables, curves, calibration, boxes, mixed samples, settings; all figures inside the file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..evaluation import MEASURES
from ..evaluation.cache import PICTURES, unequal_evaluations
from . import report_tables as tables
from .figures.recipe import recipe_figures
from .figures.reliability import Panel, pooled_bins, reliability_grid
from .page import document, heading, paragraph, picture, preformatted
from .paper import TABLES
from .paper_table import fill
from .paper_table import tables as paper_tables
from .recipe_table import recipe_table
from .report_study import Study, findings
from .rows import ECE, SCALE_WORDS
from .table import Table

ALTS: Mapping[str, str] = {
    "error": "Error after every epoch, a curve for every line",
    "loss": "Training loss of every epoch, a curve for every line",
    "gradient": "Squared gradient norm of an update over the epochs, a curve for every line",
    "k": "Error against K, with intervals",
    "time": "Seconds per epoch against K, as a multiple of K = 1",
}


class Made(NamedTuple):
    """A page, and the figures in it as files by name."""

    html: str
    files: dict[str, bytes]


class Costs(NamedTuple):
    """What was spent for what: tables, and figures by file name."""

    sheets: Sequence[Table]
    figures: Mapping[str, bytes]


def page(study: Study, costs: Costs, samples: Sequence[tuple[str, bytes]], command: str) -> Made:
    """The whole report; ``samples`` are pictures of mixed samples with what they show, ``command`` made the page."""
    curves = recipe_figures(study.recipe, study.scale, study.rows)
    if any(name.endswith("-k.png") for name in costs.figures):  # the same, with all budgets
        curves = {name: content for name, content in curves.items() if not name.startswith("k.")}
    diagrams = _reliability(study)
    files = {**curves, **costs.figures, **diagrams}
    files |= {f"samples-{i}.png": content for i, (_, content) in enumerate(samples, start=1)}
    parts = [
        heading("What shows and what does not"),
        *(paragraph(sentence, finding=True) for sentence in findings(study)),
        *_warning(study),
        heading("Results"),
        *recipe_table(study.recipe, study.scale, study.rows).html(),
        heading("Comparisons"),
        *tables.comparisons(study).html(),
        *_papers(study),
        heading("Curves"),
        *(picture(curves[f"{name}.png"], alt) for name, alt in ALTS.items() if f"{name}.png" in curves),
        *_costs(costs),
        *_calibration(study, diagrams),
        *_classes(study),
        *_evaluations(study),
        *_boxes(study),
        *_samples(samples),
        heading("Runs"),
        *tables.runs_parts(study),
        heading("Settings"),
        *tables.settings_parts(study),
        heading("Environment"),
        *tables.environment_parts(study),
        paragraph("This page was made from the files of the runs alone, by"),
        preformatted(command),
    ]
    runs, seeds = sum(len(line.seeds) for line in study.lines), ", ".join(map(str, study.seeds))
    ways = "1 way" if len(study.lines) == 1 else f"{len(study.lines)} ways"
    lead = f"{runs} runs: {ways} of training, seeds {seeds}; {SCALE_WORDS[study.scale]}. {study.recipe.about}"
    return Made(document(study.recipe.title, lead, parts, contents=True), files)


def _warning(study: Study) -> list[str]:
    """What stands against taking the numbers at face value."""
    sentences = unequal_evaluations(study.rows)
    few = [study.label(line) for line in study.lines if len(line.seeds) < 3]
    if few:
        sentences.append(f"Fewer than three seeds: {', '.join(few)}. So few say little about a method.")
    return [paragraph(sentence) for sentence in sentences]


def _papers(study: Study) -> list[str]:
    """The paper's tables that this recipe fills at least in part."""
    parts = []
    for whole in TABLES.values():
        own = tuple(column for column in whole.columns if column.recipe == study.recipe.name)
        if not own:
            continue
        table = replace(whole, columns=own)
        found = fill(table, study.scale, study.rows, {})
        if any(cell.values for cell in found.cells.values()):
            parts += [heading(f"Beside the paper: {table.name.replace('_', ' ')}")]
            parts += [part for sheet in paper_tables(found) for part in sheet.html()]
    return parts


def _costs(costs: Costs) -> list[str]:
    parts = []
    for sheet in costs.sheets:
        parts += [heading(_own_words(sheet.title)), *sheet.html()]
    for name, content in costs.figures.items():
        if name.endswith(".png"):
            words = name.rpartition("/")[2].removesuffix(".png").replace("-", " ")
            parts.append(picture(content, f"Error and what it cost: {words}"))
    return parts


def _own_words(title: str) -> str:
    """What a sheet's title says beside the recipe, which the page says: "Equal steps"."""
    words = title.rpartition(" (")[0].rpartition(", ")[2]
    return f"Cost: {words}"


def _reliability(study: Study) -> dict[str, bytes]:
    panels = []
    for line in study.lines:
        results = [found["result"]["calibration"] for found in study.results(line, "calibration")]
        whole = line.summary(ECE)
        if results and whole is not None and len({len(result["bins"]) for result in results}) == 1:
            panels.append(Panel(study.label(line), whole, pooled_bins(results)))
    return reliability_grid(panels) if panels else {}


def _calibration(study: Study, diagrams: Mapping[str, bytes]) -> list[str]:
    if not diagrams:
        return []
    return [
        heading("Calibration"),
        *tables.evaluation(study, "calibration").html(),
        picture(
            diagrams["reliability.png"],
            "Reliability diagrams: accuracy against confidence in bins, a panel for every line",
            "All seeds of a line together: bars are accuracy in the bins (a, b] of confidence, hatched is what lies between it "
            "and the mean confidence. Where accuracy is low, most samples lie in the lowest bins.",
        ),
    ]


def _classes(study: Study) -> list[str]:
    found = tables.confusions(study)
    return [heading("Classes"), *found.html()] if found.lines else []


def _evaluations(study: Study) -> list[str]:
    parts = []
    for on in study.evaluated():
        name = tables.evaluator_of(on)
        if name not in MEASURES or on in ("calibration", "error"):
            continue
        words = on.replace(name, "Transfer to birds" if name == "transfer" else name.replace("_", " ").capitalize())
        parts.append(heading(words.replace("@best", " (best epoch)")))
        parts += (tables.transfer(study, on) if name == "transfer" else tables.evaluation(study, on)).html()
    return parts


def _boxes(study: Study) -> list[str]:
    """Of every line the pictures of the first run that has some."""
    parts = []
    for line in study.lines:
        places = [Path(study.row(line, seed)["place"]) for seed in line.seeds]
        files = [place / PICTURES / "localization" / "boxes.png" for place in places]
        there = [path for path in files if path.exists()]
        if there:
            parts.append(picture(there[0].read_bytes(), f"Pictures with true and predicted boxes, {study.label(line)}"))
    return [heading("Boxes"), *parts] if parts else []


def _samples(samples: Sequence[tuple[str, bytes]]) -> list[str]:
    if not samples:
        return []
    return [heading("Mixed samples of these runs"), *(picture(content, words, words, small=True) for words, content in samples)]
