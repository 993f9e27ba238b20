"""One page per study of finished runs (a recipe at a scale), and its figures as files."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...methods import CoMixup, Cutout, NoMix
from ..evaluation.cache import PICTURES, collect_runs, unequal_evaluations
from ..evaluation.names import MEASURES
from ..evaluation.subject import run_subject
from ..recipes import RECIPES, Recipe
from ..recipes.settings import Settings
from ..storage import write_files
from ..sweep.plan import Entry
from ..terminal import note, paced
from ..training.run import RESULTS
from . import report_tables as tables
from .comparison import at_equal_budgets, comparable_lines, studies
from .figures.recipe import budget_figures, recipe_figures
from .figures.reliability import Panel, pooled_bins, reliability_grid
from .figures.samples import FirstBatch, first_batch, plain_picture, samples_picture
from .findings import findings, headline
from .page import beside, document, drawing, notes, paragraph, picture, preformatted, section
from .paper import EXHIBITS
from .paper_table import fill
from .paper_table import tables as paper_tables
from .recipe_table import recipe_table
from .rows import ECE, SCALE_WORDS, Aggregate, Rows
from .settled import headline as settled_headline
from .settled import settled_table
from .sweep_tables import budget_tables, sweeps
from .table import Table, counted

# What the figures show, in words; the first that is there stands beside the headline.
SHOWN: Mapping[str, str] = {
    "dots": "Every way of training, the lowest error on top: mean over seeds with its 95 % interval, or of two seeds both; "
    "intervals are cut off at 0 and 100 %.",
    "error": "Error after every epoch: mean over seeds, band from least to greatest.",
    "loss": "Training loss of every epoch, the same way.",
    "gradient": "Squared gradient norm of an update, mean of the epoch.",
    "k": "Error against K, with 95 % intervals that are cut off at 0 and 100 %.",
    "time": "Seconds per epoch against K, as a multiple of K = 1.",
}
MOST = 12  # lines of a table of results that need not be folded
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
    if any(name.endswith("-k.svg") for name in cost_figures):  # the same, with all budgets
        curves = {name: content for name, content in curves.items() if not name.startswith("k.")}
    diagrams = reliability(whole)
    samples = [] if data is None else sample_pictures(whole, data, trust)
    shown = {name: drawing(curves[f"{name}.svg"], words, words) for name, words in SHOWN.items() if f"{name}.svg" in curves}
    figure = shown.pop(next(iter(shown))) if shown else ""
    lines = whole.trained
    parts = [
        *(paragraph(sentence) for sentence in _warnings(whole)),
        section("Results", *_results(whole), unfolded=len(lines) <= MOST),
        section("What shows and what does not", *(paragraph(sentence, finding=True) for sentence in findings(whole))),
        section("Does K > 1 help?", *_settled(whole)),
        section("Comparisons", *tables.comparisons(whole).html()),
        *_beside_the_paper(whole, rows),
        section("Curves", beside(*shown.values())),
        *_cost_parts(cost_tables, cost_figures),
        *calibration_parts(whole, diagrams),
        section("Classes", *tables.confusions(whole).html()),
        *_evaluations(whole),
        _boxes(whole),
        section("Mixed samples of these runs", beside(*(drawing(content, words, words) for words, content in samples))),
        section("Runs", tables.runs(whole)),
        section("Settings", *tables.settings(whole)),
        section(
            "How it was made",
            tables.environments(whole),
            paragraph("From the files of the runs alone, by"),
            preformatted(command),
        ),
    ]
    seeds = ", ".join(map(str, sorted({seed for line in lines for seed in line.seeds})))
    runs, ways = counted(sum(len(line.seeds) for line in lines), "run"), counted(len(lines), "way")
    lead = f"{runs}: {ways} of training, seeds {seeds}; {SCALE_WORDS[whole.scale]}. {whole.recipe.about}"
    if (answer := settled_headline(whole, whole.error)) is not None:
        lead += f" {answer}"
    if signs := " ".join(whole.marks().values()):
        lead += f" What {signs} {'mean' if ' ' in signs else 'means'} stands below the table of results."
    pictures = {f"samples-{i}.svg": content for i, (_, content) in enumerate(samples, start=1)}
    page = document(whole.recipe.title, lead, parts, headline=headline(whole), figure=figure)
    return page, {**curves, **cost_figures, **diagrams, **pictures}


def _settled(whole: Aggregate) -> list[str]:
    sheet = settled_table(whole, whole.error)
    return [] if sheet is None else sheet.html()


def _results(whole: Aggregate) -> list[str]:
    """The table of what was trained; what was not is a sentence, not lines of dashes."""
    missing = ", ".join(whole.label(line) for line in whole.lines if not line.runs)
    table = recipe_table(whole._replace(lines=tuple(whole.trained)))
    return [*table.html(), notes([f"not trained here, though the recipe has it: {missing}"] if missing else [])]


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
    # What a title says beside the recipe, which the page says: "equal steps".
    parts = [section(f"Cost: {table.title.rpartition(' (')[0].rpartition(', ')[2]}", *table.html()) for table in costs]
    names = {name: name.rpartition("/")[2].removesuffix(".svg").replace("-", " ") for name in figures if name.endswith(".svg")}
    drawn = (drawing(figures[name], f"Error and what it cost: {words}", words) for name, words in names.items())
    return [*parts, section("Cost in figures", beside(*drawn))]


def _warnings(whole: Aggregate) -> list[str]:
    """What stands against taking the numbers at face value."""
    sentences = unequal_evaluations([run.row for line in whole.lines for run in line.runs.values()])
    few = [whole.label(line) for line in whole.trained if len(line.seeds) < 3]
    if few:
        which = "every way of training" if len(few) == len(whole.trained) else ", ".join(few)
        sentences.append(f"Fewer than three seeds: {which}. So few say little about a method.")
    return sentences


def _beside_the_paper(whole: Aggregate, rows: Rows) -> list[str]:
    """The paper's tables and figures that this recipe fills at least in part."""
    parts = []
    for entry in EXHIBITS:
        found = fill(entry.part(whole.recipe.name), whole.scale, rows, {})
        if any(cell.values for cell in found.cells.values()):
            sheets = (part for sheet in paper_tables(found) for part in sheet.html())
            parts.append(section(f"Beside the paper: {entry.label}", *sheets))
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
    return [section("Calibration", *table.html(), drawing(diagrams["reliability.svg"], alt, RELIABILITY))]


def _evaluations(whole: Aggregate) -> list[str]:
    parts = []
    runs = [run for line in whole.trained for run in line.runs.values()]
    for on in dict.fromkeys(on for run in runs for on in run.row.get("evaluations", {})):
        name = tables.evaluator_of(on)
        if name not in MEASURES or on in ("calibration", "error"):
            continue
        words = on.replace(name, "Transfer to birds" if name == "transfer" else name.replace("_", " ").capitalize())
        table = tables.transfer(whole, on) if name == "transfer" else tables.evaluation(whole, on)
        words = words.replace("@best", " (best epoch)").replace("[", " (").replace("]", ")")
        parts.append(section(words, *table.html()))
    return parts


def _boxes(whole: Aggregate) -> str:
    """Of every line the pictures of the first run that has some."""
    parts = []
    for line in whole.trained:
        files = [Path(run.row["place"]) / PICTURES / "localization" / "boxes.png" for run in line.runs.values()]
        there = next((path for path in files if path.exists()), None)
        if there is not None:
            parts.append(picture(there.read_bytes(), f"Pictures with true and predicted boxes, {whole.label(line)}"))
    return section("Boxes", *parts)


def sample_pictures(whole: Aggregate, data: Path, trust: Collection[str]) -> list[tuple[str, bytes]]:
    """SVG of the first update that mixes, for the first seed of every line; where data are missing, that is said once."""
    found = []
    missing: dict[str, list[str]] = {}
    for line in paced("Drawing mixed samples", whole.trained):
        (seed, run), words = next(iter(line.runs.items())), whole.label(line)
        try:
            subject = run_subject(run.row["place"], data, trust=trust)
            train = subject.parts().train
            if subject.settings is None or train is None:
                raise ValueError(f"training data are not in {data}")
        except (ValueError, OSError) as error:
            missing.setdefault(str(error).replace(str(run.row["place"]), "its folder"), []).append(words)
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
