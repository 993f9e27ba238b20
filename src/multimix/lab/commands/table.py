"""`multimix table`: a table of the paper beside ours on the terminal and in files, or a list of all tables and figures."""

from pathlib import Path
from typing import Annotated, Literal

from .options import FollowName, RunFolders, option, run_rows


def table(
    number: Annotated[
        str | None, option("Which, also 1 … 8 or its name; without one all are listed.", "[I … VIII]", default="list all")
    ] = None,
    /,
    *,
    runs: RunFolders = (),
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None, option("Which runs.", default="the largest scale that was run")
    ] = None,
    follow: FollowName = "text",
    out: Annotated[Path | None, option("Also write Markdown, CSV and HTML.", "FOLDER", default="print only")] = None,
) -> None:
    """A table of the paper under its own number beside ours: mean, n, SD, interval, and whether the paper's claims are seen.

    Nothing is trained or measured; multimix reproduce does that. Where the paper's text and its tables disagree, a note says so.

    Try it:
      multimix table
      multimix table I
      multimix table 8 --runs multimix-runs --scale small --out tables
    """
    from rich.console import Console

    from ..results.paper import exhibit
    from ..results.paper_table import fill, largest_scale, listing, tables, write_exhibit

    chosen = None if number is None else exhibit("table", number)
    rows = run_rows(runs)
    if chosen is None:
        Console().print(listing(rows, {}))
        return
    filled = fill(chosen, scale or largest_scale(chosen, rows, {}) or "paper", rows, {}, follow)
    # Before anything is printed: a reader that goes away early must not cost the files.
    written = [] if out is None else write_exhibit(filled, out)
    for part in tables(filled):
        Console().print(part)
    for path in written:
        print(f"wrote {path}")
