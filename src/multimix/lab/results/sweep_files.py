"""The tables and figures of the sweeps in a folder of results, from their stored plans and the rows."""

from pathlib import Path

from ..recipes.base import Recipe, Scale
from ..storage import make_folder, write_atomically
from ..sweep.stored import Group, groups, read_plan
from ..terminal import note
from .rows import Rows
from .sweep_comparison import Comparison, comparison
from .sweep_sheets import records, sheets
from .table import Table, csv_text


def sweep_tables(out: str | Path, rows: Rows, recipe: Recipe, scale: Scale) -> list[Table]:
    """The tables of all sweeps of a recipe at a scale in a folder of results."""
    return [sheet for group in sweep_groups(out, recipe, scale) for sheet in group_tables(group, recipe, rows)]


def sweep_figures(out: str | Path, rows: Rows, recipe: Recipe, scale: Scale) -> dict[str, bytes]:
    """Their figures, PNG and SVG, by file name."""
    files: dict[str, bytes] = {}
    for group in sweep_groups(out, recipe, scale):
        files |= _figures(group, _compared(group, recipe, rows))
    return files


def sweep_groups(out: str | Path, recipe: Recipe, scale: Scale) -> list[Group]:
    """What was swept of a recipe at a scale: a group for each choice of changed fields."""
    return [group for group in groups(read_plan(out, note)) if (group.recipe, group.scale) == (recipe.name, scale)]


def group_tables(group: Group, recipe: Recipe, rows: Rows) -> list[Table]:
    """The tables of one group."""
    return sheets(_compared(group, recipe, rows), _words(group))


def write_group(out: str | Path, rows: Rows, group: Group, recipe: Recipe) -> list[Path]:
    """``sweep.md``, ``sweep.csv`` and the figures, in a folder of ``out`` for the recipe and the scale."""
    found = _compared(group, recipe, rows)
    texts = "\n".join(sheet.markdown() for sheet in sheets(found, _words(group)))
    files = {f"{group.stem}.md": texts.encode(), f"{group.stem}.csv": csv_text(records(found)).encode()}
    files |= _figures(group, found)
    folder = Path(out) / group.recipe / group.scale
    make_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def _compared(group: Group, recipe: Recipe, rows: Rows) -> Comparison:
    return comparison(recipe, group.scale, rows, group.runs)


def _figures(group: Group, found: Comparison) -> dict[str, bytes]:
    from .sweep_figures import figures

    return figures(found, _words(group), group.stem)


def _words(group: Group) -> str:
    return ", ".join(f"{field} = {value}" for field, value in group.changes.items())
