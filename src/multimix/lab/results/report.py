"""One page per study of finished runs (a recipe at a scale), and its figures as files."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...methods import CoMixup, Cutout, NoMix
from ..evaluation import MEASURES
from ..evaluation.cache import PICTURES, collect_runs, unequal_evaluations
from ..evaluation.subject import run_subject
from ..recipes import RECIPES, Recipe
from ..recipes.settings import Settings
from ..storage import write_files
from ..sweep.plan import Entry
from ..terminal import note
from ..training.run import RESULTS
from . import report_tables as tables
from .comparison import at_equal_budgets, comparable_lines, studies
from .figures.recipe import budget_figures, recipe_figures
from .figures.reliability import Panel, pooled_bins, reliability_grid
from .figures.samples import FirstBatch, first_batch, plain_picture, samples_picture
from .findings import findings
from .page import document, heading, paragraph, picture, preformatted
from .paper import EXHIBITS
from .paper_table import fill
from .paper_table import tables as paper_tables
from .recipe_table import recipe_table
from .rows import ECE, SCALE_WORDS, Aggregate, Rows
from .sweep_tables import budget_tables, sweeps
from .table import Table, counted

ALTS: Mapping[str, str] = {
    "error": "Error after every epoch, a curve for every line",
    "loss": "Training loss of every epoch, a curve for every line",
    "gradient": "Squared gradient norm of an update over the epochs, a curve for every line",
    "k": "Error against K, with intervals",
    "time": "Seconds per epoch against K, as a multiple of K = 1",
}
RELIABILITY = (
    "All seeds of a line together: bars are accuracy in the bins (a, b] of confidence, hatched is what lies between it and the "
    "mean confidence. Where accuracy is low, most samples lie in the lowest bins."
)


class Report(NamedTuple):
    """A page and its figures."""

    page: Path
    figures: list[Path]


def write_reports(
    places: Sequence[str | Path],
    *,
    out: str | Path,
    data: str | Path | None,
    recipes: Mapping[str, Recipe] = RECIPES,
    progress: Callable[[Sequence[Aggregate]], Iterable[Aggregate]] = iter,
    trust: Collection[str] = (),
) -> list[Report]:
    """A page for every recipe and scale among the finished runs in ``places``; ``data`` None leaves mixed samples out.

    ``trust`` are import paths of networks that the folders of runs may name.
    """
    if not places:
        raise ValueError("report needs the folder of results or of a run, such as multimix-runs")
    rows = collect_runs(places, note)
    if not rows:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, places))}; multimix train makes some")
    command = " ".join(["multimix report", *(Path(place).name or str(place) for place in places)])
    written = []
    for whole in progress(studies(rows, recipes)):
        html, figures = _page(whole, rows, places, None if data is None else Path(data), command, trust)
        name = f"{whole.recipe.name}-{whole.scale}"
        (page,) = write_files(Path(out), {f"{name}.html": html.encode()})
        written.append(Report(page, write_files(Path(out) / name, figures)))
    return written


def _page(
    whole: Aggregate, rows: Rows, places: Sequence[str | Path], data: Path | None, command: str, trust: Collection[str]
) -> tuple[str, dict[str, bytes]]:
    """The whole report, and the figures in it as files by name."""
    cost_tables, cost_figures = _costs(whole, rows, places)
    curves = recipe_figures(whole)
    if any(name.endswith("-k.png") for name in cost_figures):  # the same, with all budgets
        curves = {name: content for name, content in curves.items() if not name.startswith("k.")}
    diagrams = reliability(whole)
    samples = [] if data is None else sample_pictures(whole, data, trust)
    parts = [
        heading("What shows and what does not"),
        *(paragraph(sentence, finding=True) for sentence in findings(whole)),
        *(paragraph(sentence) for sentence in _warnings(whole)),
        *(heading("Results"), *recipe_table(whole).html()),
        *(heading("Comparisons"), *tables.comparisons(whole).html()),
        *_beside_the_paper(whole, rows),
        heading("Curves"),
        *(picture(curves[f"{name}.png"], alt) for name, alt in ALTS.items() if f"{name}.png" in curves),
        *_cost_parts(cost_tables, cost_figures),
        *calibration_parts(whole, diagrams),
        *_classes(whole),
        *_evaluations(whole),
        *_boxes(whole),
        *([heading("Mixed samples of these runs")] if samples else []),
        *(picture(content, words, words, small=True) for words, content in samples),
        *(heading("Runs"), tables.runs(whole)),
        *(heading("Settings"), *tables.settings(whole)),
        *(heading("Environment"), tables.environments(whole)),
        *(paragraph("This page was made from the files of the runs alone, by"), preformatted(command)),
    ]
    lines = whole.trained
    seeds = ", ".join(map(str, sorted({seed for line in lines for seed in line.seeds})))
    runs, ways = sum(len(line.seeds) for line in lines), counted(len(lines), "way")
    lead = f"{runs} runs: {ways} of training, seeds {seeds}; {SCALE_WORDS[whole.scale]}. {whole.recipe.about}"
    pictures = {f"samples-{i}.png": content for i, (_, content) in enumerate(samples, start=1)}
    return document(whole.recipe.title, lead, parts, contents=True), {**curves, **cost_figures, **diagrams, **pictures}


def _costs(whole: Aggregate, rows: Rows, places: Sequence[str | Path]) -> tuple[Sequence[Table], Mapping[str, bytes]]:
    """What sweeps among the places compare; without one, the lines that differ by nothing but method and K."""
    recipe, scale = whole.recipe, whole.scale
    for place in map(Path, places):
        own = sweeps(place, recipe, scale, rows) if (place / RESULTS).exists() else []
        if own:
            figures = {name: content for sweep in own for name, content in sweep.figures().items()}
            return [table for sweep in own for table in sweep.sheets()], figures
    lines = comparable_lines(whole)
    if len(lines) < 2:
        return (), {}
    entries = [Entry("steps", line.arm, line.k, seed, line.digest) for line in lines for seed in line.seeds]
    found = at_equal_budgets(recipe, scale, rows, entries)
    others = ", ".join(whole.label(line) for line in whole.trained if line not in lines)
    if others:
        words = f"left out, since more than method and K differ: {others}"
        found["steps"] = found["steps"]._replace(notes=(*found["steps"].notes, words))
    return budget_tables(found), budget_figures(found, stem="cost")


def _cost_parts(costs: Sequence[Table], figures: Mapping[str, bytes]) -> list[str]:
    parts = []
    for table in costs:
        # What a title says beside the recipe, which the page says: "equal steps".
        parts += [heading(f"Cost: {table.title.rpartition(' (')[0].rpartition(', ')[2]}"), *table.html()]
    for name, content in figures.items():
        if name.endswith(".png"):
            words = name.rpartition("/")[2].removesuffix(".png").replace("-", " ")
            parts.append(picture(content, f"Error and what it cost: {words}"))
    return parts


def _warnings(whole: Aggregate) -> list[str]:
    """What stands against taking the numbers at face value."""
    sentences = unequal_evaluations([run.row for line in whole.lines for run in line.runs.values()])
    few = [whole.label(line) for line in whole.trained if len(line.seeds) < 3]
    if few:
        sentences.append(f"Fewer than three seeds: {', '.join(few)}. So few say little about a method.")
    return sentences


def _beside_the_paper(whole: Aggregate, rows: Rows) -> list[str]:
    """The paper's tables and figures that this recipe fills at least in part."""
    parts = []
    for entry in EXHIBITS:
        found = fill(entry.part(whole.recipe.name), whole.scale, rows, {})
        if any(cell.values for cell in found.cells.values()):
            parts += [heading(f"Beside the paper: {entry.label}")]
            parts += [part for sheet in paper_tables(found) for part in sheet.html()]
    return parts


def reliability(whole: Aggregate) -> dict[str, bytes]:
    panels = []
    for line in whole.trained:
        results, mean = [row["result"]["calibration"] for row in line.evaluated("calibration")], line.summary(ECE)
        if mean is not None and len({len(result["bins"]) for result in results}) == 1:
            panels.append(Panel(whole.label(line), mean, pooled_bins(results)))
    return reliability_grid(panels) if panels else {}


def calibration_parts(whole: Aggregate, diagrams: Mapping[str, bytes]) -> list[str]:
    if not diagrams:
        return []
    alt = "Reliability diagrams: accuracy against confidence in bins, a panel for every line"
    table = tables.evaluation(whole, "calibration")
    return [heading("Calibration"), *table.html(), picture(diagrams["reliability.png"], alt, RELIABILITY)]


def _classes(whole: Aggregate) -> list[str]:
    table = tables.confusions(whole)
    return [heading("Classes"), *table.html()] if table.lines else []


def _evaluations(whole: Aggregate) -> list[str]:
    parts = []
    runs = [run for line in whole.trained for run in line.runs.values()]
    for on in dict.fromkeys(on for run in runs for on in run.row.get("evaluations", {})):
        name = tables.evaluator_of(on)
        if name not in MEASURES or on in ("calibration", "error"):
            continue
        words = on.replace(name, "Transfer to birds" if name == "transfer" else name.replace("_", " ").capitalize())
        parts.append(heading(words.replace("@best", " (best epoch)")))
        parts += (tables.transfer(whole, on) if name == "transfer" else tables.evaluation(whole, on)).html()
    return parts


def _boxes(whole: Aggregate) -> list[str]:
    """Of every line the pictures of the first run that has some."""
    parts = []
    for line in whole.trained:
        files = [Path(run.row["place"]) / PICTURES / "localization" / "boxes.png" for run in line.runs.values()]
        there = next((path for path in files if path.exists()), None)
        if there is not None:
            parts.append(picture(there.read_bytes(), f"Pictures with true and predicted boxes, {whole.label(line)}"))
    return [heading("Boxes"), *parts] if parts else []


def sample_pictures(whole: Aggregate, data: Path, trust: Collection[str]) -> list[tuple[str, bytes]]:
    """Pictures of the first update that mixes, for the first seed of every line; where data are missing, that is said once."""
    found = []
    missing: dict[str, list[str]] = {}
    for line in whole.trained:
        (seed, run), words = next(iter(line.runs.items())), whole.label(line)
        try:
            subject = run_subject(run.row["place"], data, trust=trust)
            train = subject.parts().train
            if subject.settings is None or train is None:
                raise ValueError(f"training data are not in {data}")
        except (ValueError, OSError) as error:
            missing.setdefault(str(error), []).append(words)
            continue
        batch = first_batch(subject.settings, seed, train, processes=line.processes)
        shown, content = _sample(batch, subject.settings, train.classes)
        found.append((f"{words}, seed {seed}, {batch.update} update: {shown}", content))
    for why, lines in missing.items():
        note(f"no mixed samples of {', '.join(lines)}: {why}")
    return found


def _sample(batch: FirstBatch, settings: Settings, classes: tuple[str, ...]) -> tuple[str, bytes]:
    if isinstance(settings.method, NoMix | Cutout):
        return "samples as the network saw them", plain_picture(batch, settings, classes)
    if batch.layer is not None:
        words = f"pairs that were mixed at layer {batch.layer}"
    elif isinstance(settings.method, CoMixup):
        words = "a sample, its mixtures, λ the share of all others, and what they hold most of besides"
    else:
        partner = "its partner" if batch.update == "first" else "its partner, of the update before"
        words = f"a sample, its mixtures in ascending order of λ, {partner}"
    return words, samples_picture(batch, settings, classes)
