"""The page of a recipe at a scale: results, findings, curves, cost, evaluations, settings."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ...evaluation.cache import (
    EVALUATIONS,
    collect_runs,
    is_run,
    network_evaluations,
    picture_folder,
    unequal_evaluations,
)
from ...evaluation.names import MEASURES, measure_of
from ...images import SAMPLES, read_image_grid
from ...recipes import RECIPES
from ...recipes.base import Recipe
from ...storage import write_files
from ...sweep.plan import Entry, Equal
from ...terminal import counted, note
from ..budget_tables import budget_tables
from ..comparison import at_equal_budgets, comparable_groups, sweep_results
from ..exhibits import exhibit_table, fill
from ..figures import image_grid
from ..frame import SCALE_LABELS, Rows, RunGroup, Study, studies
from ..page import Beside, Block, Code, Facts, Finding, Heading, Notes, Picture, Section, render_page
from ..paper import EXHIBITS
from ..sentences import findings, headline, k_headline, warnings
from ..study_figures import Drawn, budget_figures, evaluation_figures, study_figures
from ..study_tables import (
    comparison_table,
    confusion_table,
    evaluation_table,
    k_table,
    results_table,
    run_table,
    statistics_table,
)
from ..style import svg
from ..tables import EMPTY, Table

MAX_UNFOLDED_ROWS = 12
CURVE_FIGURES = ("dots", "error", "loss", "gradient", "k", "time")


class Report(NamedTuple):
    """A page and the files beside it.

    Args:
        page: Path of the page.
        files: Paths of figures and tables.
    """

    page: Path
    files: list[Path]


class Costs(NamedTuple):
    """Tables and figures of budgets.

    Args:
        tables: A table per budget.
        figures: Figures by name.
    """

    tables: Sequence[Table] = ()
    figures: Mapping[str, Drawn] = {}


def write_recipe_pages(
    folders: Sequence[str | Path], *, out: str | Path, recipes: Mapping[str, Recipe] = RECIPES
) -> list[Report]:
    """Write a page, figures, and tables for every recipe and scale with finished runs.

    Args:
        folders: Folders of results or of single runs.
        out: Folder of the pages.
        recipes: Known recipes by name.
    """
    networks = [Path(folder) for folder in folders if (Path(folder) / EVALUATIONS).exists() and not is_run(Path(folder))]
    reports = [_write_network_page(folder, Path(out)) for folder in networks]
    folders = [folder for folder in folders if Path(folder) not in networks]
    rows = collect_runs(folders, note)
    if not rows and not reports:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, folders))}; train some with multimix train")
    command = " ".join(["multimix report", *(Path(folder).name or str(folder) for folder in folders)])
    for study in studies(rows, recipes):
        html, files = recipe_page(study, rows, folders, command)
        name = f"{study.recipe.name}-{study.scale}"
        (page,) = write_files(Path(out), {f"{name}.html": html.encode()})
        reports.append(Report(page, write_files(Path(out) / name, files)))
    return reports


def _write_network_page(folder: Path, out: Path) -> Report:
    """Write the page of a network that was not trained here: its evaluations."""
    evaluations = network_evaluations(folder, note)
    row = {"arm": folder.name, "place": str(folder), "evaluations": evaluations}
    numbers = {f"{key}.{name}": value for key, evaluation in evaluations.items() for name, value in evaluation["numbers"].items()}
    group = RunGroup(folder.name, 0, runs=pd.DataFrame([{"row": row, **numbers}], index=[0]))
    study = Study(Recipe(folder.name, folder.name, "", RECIPES["imagenet"].settings, ()), "paper", (group,), ())
    figures = evaluation_figures(study)
    details = [
        Section(
            f"How {key} was measured", [Facts({name: value for name, value in evaluation["options"].items() if name != "labels"})]
        )
        for key, evaluation in evaluations.items()
    ]
    lead = "Evaluations of a network that was not trained here."
    page = render_page(folder.name, lead, [*evaluation_sections(study, figures), *details])
    (path,) = write_files(out, {f"{folder.name}.html": page.encode()})
    files = {name: content for drawn in figures.values() for name, content in drawn.files.items()}
    return Report(path, write_files(out / folder.name, files))


def recipe_page(study: Study, rows: Rows, folders: Sequence[str | Path], command: str) -> tuple[str, dict[str, bytes]]:
    """Return the page of a study, and its figures and tables as files.

    Args:
        study: The study.
        rows: Stored rows of all studies, for sweeps and the paper's exhibits.
        folders: Folders that hold the rows.
        command: The command that creates the page.
    """
    costs, figures = sweep_costs(study, rows, folders), study_figures(study)
    if any(name.endswith("-k") for name in costs.figures):
        figures.pop("k", None)  # shown with all budgets
    results = results_table(study)
    pictures = [_picture(figures[name]) for name in CURVE_FIGURES if name in figures]
    samples = list(sample_grids(study))
    blocks: list[Block | None] = [
        *warnings(study, unequal_evaluations(study.rows)),
        Section("Results", _results(study), unfolded=len(study.trained) <= MAX_UNFOLDED_ROWS),
        Section("Findings", map(Finding, findings(study))),
        Section("Does K > 1 help?", [k_table(study)]),
        Section("Comparisons", [comparison_table(study)]),
        *_beside_the_paper(study, rows),
        Section("Curves", [Beside(pictures[1:])]),
        *(Section(f"Cost: {_short_title(table)}", [table]) for table in costs.tables),
        Section("Cost in figures", [Beside(list(map(_picture, costs.figures.values())))]),
        Section("Batch-norm statistics", [statistics_table(study)]),
        *evaluation_sections(study, figures),
        Section("Mixed samples", [Beside(samples)]),
        Section("Runs", [run_table(study)]),
        Section("Settings", setting_blocks(study)),
        Section("How it was made", [environment_facts(study), "From the files of the runs, by", Code(command)]),
    ]
    page = render_page(study.recipe.title, _lead(study), blocks, headline=headline(study), figure=next(iter(pictures), None))
    files = {name: content for drawn in (*figures.values(), *costs.figures.values()) for name, content in drawn.files.items()}
    files |= {"table.md": results.markdown().encode(), "table.csv": results.csv().encode()}
    for i, table in enumerate(costs.tables, start=1):
        files |= {f"cost-{i}.md": table.markdown().encode(), f"cost-{i}.csv": table.csv().encode()}
    return page, files | {f"samples-{i}.svg": picture.content for i, picture in enumerate(samples, start=1)}


def _lead(study: Study) -> str:
    seeds = sorted({seed for group in study.trained for seed in group.seeds})
    listed = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    runs, ways = counted(len(study.rows), "run"), counted(len(study.trained), "way")
    lead = f"{runs}: {ways} of training, {listed}; {SCALE_LABELS[study.scale]}. {study.recipe.about}"
    if (answer := k_headline(study)) is not None:
        lead += f" {answer}"
    if marks := " ".join(study.marks().values()):
        lead += f" {marks}: see the notes below the table of results."
    return lead


def _results(study: Study) -> Iterator[Block]:
    yield results_table(study._replace(groups=tuple(study.trained)))
    missing = ", ".join(study.label(group) for group in study.groups if not len(group.runs))
    yield Notes([f"not trained here, though the recipe has it: {missing}"] if missing else [])


def sweep_costs(study: Study, rows: Rows, folders: Sequence[str | Path]) -> Costs:
    """Return the budgets of sweeps in the folders, or else of groups that differ by method and K.

    Args:
        study: The study.
        rows: Stored rows.
        folders: Folders that may hold the plans of sweeps.
    """
    recipe, scale = study.recipe, study.scale
    for folder in folders:
        tables: list[Table] = []
        figures: dict[str, Drawn] = {}
        for sweep in sweep_results(folder, recipe, scale, rows):
            tables += budget_tables(sweep.budgets, sweep.changed)
            figures |= budget_figures(sweep.budgets, sweep.changed, sweep.stem)
        if tables:
            return Costs(tables, figures)
    compared = comparable_groups(study)
    if len(compared) < 2:
        return Costs()
    entries = [Entry("steps", group.arm, group.k, seed, group.digest) for group in compared for seed in group.seeds]
    budgets = at_equal_budgets(recipe, scale, rows, entries)
    keys = {group.key for group in compared}
    excluded = ", ".join(study.label(group) for group in study.trained if group.key not in keys)
    if excluded:
        text = f"omitted, since more than method and K differ: {excluded}"
        equal: Equal = "steps"
        budgets[equal] = budgets[equal]._replace(notes=(*budgets[equal].notes, text))
    return Costs(budget_tables(budgets), budget_figures(budgets, stem="cost"))


def _short_title(table: Table) -> str:
    """Return the budget in a table's title, such as "equal steps"."""
    return table.title.rpartition(" (")[0].rpartition(", ")[2]


def _picture(drawn: Drawn) -> Picture:
    return Picture(drawn.svg, drawn.caption, drawn.caption)


def _beside_the_paper(study: Study, rows: Rows) -> Iterator[Section]:
    for exhibit in EXHIBITS:
        filled = fill(exhibit.part(study.recipe.name), study.scale, rows)
        if filled.any_values:
            yield Section(f"Beside the paper: {exhibit.label}", [exhibit_table(filled)])


def evaluation_sections(study: Study, figures: Mapping[str, Drawn]) -> Iterator[Section]:
    """Yield a section per evaluation: its table, its figure, its pictures.

    Args:
        study: The study.
        figures: Figures by name.
    """
    keys = dict.fromkeys(key for row in study.rows for key in row.get("evaluations", {}))
    for key in sorted(keys, key=lambda key: key not in ("calibration", "error")):
        measure = measure_of(key)
        if measure not in MEASURES:
            continue
        figure_name = {"calibration": "reliability", "error": "confusion"}.get(key, key)
        blocks: list[Block | None] = [_picture(figures[figure_name])] if figure_name in figures else []
        if key == "error":
            blocks += [confusion_table(study)]
        title = "Transfer to birds" if measure == "transfer" else measure.replace("_", " ").capitalize()
        title = "Classes" if key == "error" else key.replace(measure, title)
        title = title.replace("@best", " (best epoch)").replace("[", " (").replace("]", ")")
        yield Section(title, [evaluation_table(study, key), *blocks, *_evaluation_pictures(study, key)])


def _evaluation_pictures(study: Study, key: str) -> Iterator[Block]:
    """Yield the pictures that the first run of every group stored beside an evaluation."""
    for group in study.trained:
        stored = [(row["place"], row["evaluations"][key]) for row in group.rows if key in row.get("evaluations", {})]
        files = (file for folder, row in stored for file in sorted((Path(folder) / picture_folder(row)).glob("*.npz")))
        grid = next((grid for file in files if (grid := read_image_grid(file)) is not None), None)
        if grid is not None:
            yield Heading(study.label(group))
            yield Picture(svg(image_grid(grid)), f"{study.label(group)}: {grid.caption}", grid.caption)


def sample_grids(study: Study) -> Iterator[Picture]:
    """Yield the mixed samples that the first run of every group stored.

    Args:
        study: The study.
    """
    for group in study.trained:
        stored_grids = ((seed, read_image_grid(Path(group.runs.loc[seed]["row"]["place"]) / SAMPLES)) for seed in group.seeds)
        seed, grid = next(((seed, grid) for seed, grid in stored_grids if grid is not None), (0, None))
        if grid is not None:
            caption = f"{study.label(group)}, seed {seed}: {grid.caption}"
            yield Picture(svg(image_grid(grid)), caption, caption)


def setting_blocks(study: Study) -> Iterator[Block]:
    """Yield the settings that all groups share, and those of each group.

    Args:
        study: The study.
    """
    settings_by_label = {study.label(group): group.rows[0]["settings"] for group in study.trained}
    first = next(iter(settings_by_label.values()))
    shared = {
        key: value
        for key, value in first.items()
        if all(settings.get(key, EMPTY) == value for settings in settings_by_label.values())
    }
    differing = list(dict.fromkeys(key for settings in settings_by_label.values() for key in settings if key not in shared))
    yield Facts({key: _text(value) for key, value in shared.items()})
    if differing:
        yield Heading("Differences")
        yield Facts(
            {
                label: "; ".join(f"{key} = {_text(settings[key])}" for key in differing if settings.get(key) is not None)
                for label, settings in settings_by_label.items()
            }
        )


def environment_facts(study: Study) -> Facts:
    """Return device, processes, and versions of the runs, with all distinct values.

    Args:
        study: The study.
    """
    values: dict[str, dict[str, None]] = {}
    for row in study.rows:
        facts = {**row["environment"], "device": row["device"], "processes": row["processes"]}
        for key, value in facts.items():
            values.setdefault(key, {})[str(value)] = None
    return Facts({key: ", ".join(distinct) for key, distinct in values.items()})


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
