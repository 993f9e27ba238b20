"""`multimix table`: a table of the paper beside ours on the terminal and in files, or a list of all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..evaluation.kept import collected
from ..recipes.base import Scale
from ..results import make_folder, write_atomically
from ..sheet import markdown, records_csv, terminal
from ..terminal import note
from ..training.loaded import SETTINGS
from ..training.run import RESULTS
from . import TABLES, paper_table
from .found import filled, largest_scale
from .shown import listing, page, records, sheets


def run(number: str | None, *, places: Sequence[Path], scale: Scale | None, out: Path | None, demo: Path) -> None:
    """What the command does. Without a number it lists all tables; without a scale it takes the largest that was run.

    ``places`` are folders of results or of single runs, ``demo`` is that of ``multimix demo``. With ``out`` the table is also
    written there as Markdown, CSV and HTML.
    """
    table = None if number is None else paper_table(number)
    rows = _rows(places)
    if table is None:
        Console().print(listing(list(TABLES.values()), rows, demo))
        return
    found = filled(table, scale or largest_scale(table, rows, demo) or "paper", rows, demo)
    shown = sheets(found)
    for sheet in shown:
        Console().print(terminal(sheet))
    if out is not None:
        texts = {
            "md": "\n".join(map(markdown, shown)),
            "csv": records_csv(records(found)),
            "html": page(found),
        }
        make_folder(out)
        for ending, text in texts.items():
            path = out / f"table-{table.number}.{ending}"
            write_atomically(path, text.encode())
            print(f"wrote {path}")


def _rows(places: Sequence[Path]) -> list[dict[str, Any]]:
    """All runs; a folder without results is no error, since the paper's numbers can be shown all the same."""
    there = [place for place in places if (place / RESULTS).exists() or (place / SETTINGS).exists()]
    for place in places:
        if place not in there:
            note(f"{place} has no results of multimix train")
    return collected(there, note)
