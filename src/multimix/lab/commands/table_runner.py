"""`multimix table`: a table of the paper beside ours on the terminal and in files, or a list of all."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..evaluation.cache import collect_runs
from ..recipes.base import Scale
from ..results.paper import TABLES, paper_table
from ..results.paper.fill import Filled, filled, largest_scale
from ..results.paper.render import listing, page, records, sheets
from ..results.sheet import markdown, records_csv, terminal
from ..storage import make_folder, write_atomically
from ..terminal import note


def run(number: str | None, *, places: Sequence[Path], scale: Scale | None, out: Path | None, demo: Path) -> None:
    """What the command does. Without a number it lists all tables; without a scale it takes the largest that was run.

    ``places`` are folders of results or of single runs, ``demo`` is that of ``multimix demo``. With ``out`` the table is also
    written there as Markdown, CSV and HTML.
    """
    table = None if number is None else paper_table(number)
    rows = collect_runs(places, note)
    if table is None:
        Console().print(listing(list(TABLES.values()), rows, demo))
        return
    found = filled(table, scale or largest_scale(table, rows, demo) or "paper", rows, demo)
    shown = sheets(found)
    written = [] if out is None else _written(found, out, "\n".join(map(markdown, shown)))
    for sheet in shown:
        Console().print(terminal(sheet))
    for path in written:
        print(f"wrote {path}")


def _written(found: Filled, out: Path, text: str) -> list[Path]:
    """The files of a table, before anything is printed: a reader that goes away early must not cost them."""
    texts = {"md": text, "csv": records_csv(records(found)), "html": page(found)}
    make_folder(out)
    paths = [out / f"table-{found.table.number}.{ending}" for ending in texts]
    for path, content in zip(paths, texts.values(), strict=True):
        write_atomically(path, content.encode())
    return paths
