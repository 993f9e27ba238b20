"""`multimix table`: a table of the paper beside ours on the terminal and in files, or a list of all."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from .options import RUNS, option


def table(
    number: Annotated[
        str | None,
        tyro.conf.arg(metavar="[N|NAME]", help="Which table; without one all are listed.", help_behavior_hint=""),
    ] = None,
    /,
    *,
    runs: Annotated[
        tuple[Path, ...],
        option("Folders of results or of runs that fill our columns.", "FOLDER …", default=f"{RUNS}, if it is there"),
    ] = (),
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None, option("Which runs.", default="the largest scale that was run")
    ] = None,
    demo: Annotated[Path, option("Where multimix demo wrote, for the spiral.", "FOLDER")] = Path("multimix-demo"),
    out: Annotated[Path | None, option("Also write Markdown, CSV and HTML.", "FOLDER", default="print only")] = None,
) -> None:
    """A table or figure of the paper beside ours: means with n and interval, the paper's paired t-test, what was not run.

    Nothing is trained or measured. Where the paper's text and its tables disagree, a note says so.

    Try it:
      multimix table
      multimix table 2
      multimix table calibration --runs multimix-runs --scale small --out tables
    """
    from rich.console import Console

    from ..evaluation.cache import collect_runs
    from ..results.paper import DEMO, paper_table
    from ..results.paper_table import fill, largest_scale, listing, page, records, tables
    from ..results.table import csv_text
    from ..storage import write_files
    from ..studies.spiral.finished import read_demo
    from ..terminal import note

    chosen = None if number is None else paper_table(number)
    # What was named must be there; the usual folder need not, since the paper's numbers can be shown without ours.
    rows = collect_runs(runs or ([RUNS] if (RUNS / "results.jsonl").exists() else []), note)
    spiral = read_demo(demo) if chosen is None or DEMO in chosen.recipes else {}
    if chosen is None:
        Console().print(listing(rows, spiral))
        return
    filled = fill(chosen, scale or largest_scale(chosen, rows, spiral) or "paper", rows, spiral)
    shown = tables(filled)
    written: list[Path] = []
    if out is not None:
        # Before anything is printed: a reader that goes away early must not cost the files.
        texts = {"md": "\n".join(part.markdown() for part in shown), "csv": csv_text(records(filled)), "html": page(filled)}
        written = write_files(out, {f"table-{chosen.number}.{ending}": text.encode() for ending, text in texts.items()})
    for part in shown:
        Console().print(part)
    for path in written:
        print(f"wrote {path}")
