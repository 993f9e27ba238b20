"""`multimix report`."""

from pathlib import Path
from typing import Annotated

from .options import FollowName, ScaleName, option


def report(
    runs: Annotated[tuple[Path, ...], option("Folders of results, or of single runs.", "RUNS …")],
    /,
    *,
    only: Annotated[
        tuple[str, ...],
        option("Tables and figures of the paper from these runs: I … VIII, fig4 … fig8.", "WHAT …", default="a page per recipe"),
    ] = (),
    scale: Annotated[ScaleName | None, option("With --only: which runs.", default="the largest scale there is")] = None,
    follow: FollowName = "text",
    out: Annotated[Path, option("Where pages, tables, and figures go.", "FOLDER")] = Path("multimix-report"),
) -> None:
    """One self-contained page per recipe and scale: findings, tables, curves, calibration, mixed samples, settings.

    A page is one file that works offline, on a phone and in the dark; its figures (PNG, SVG) and tables (Markdown, CSV) are
    written beside it. multimix evaluate adds measurements. With --only, tables and figures of the paper under their own numbers,
    filled from these runs: our numbers beside the paper's, and whether its claims are seen. Nothing is trained or measured.

    Try it:
      multimix report multimix-runs
      multimix report multimix-runs --only I fig6 --scale small
      multimix report multimix-paper --only VIII --out tables
    """
    from ..report.pages.recipe import write_recipe_pages
    from ..terminal import tell

    if only:
        return _exhibits(runs, only, scale, follow, out)
    for written in write_recipe_pages(runs, out=out):
        tell(written.page, f"Its tables and figures are in {written.page.with_suffix('')}.")


def _exhibits(runs: tuple[Path, ...], only: tuple[str, ...], scale: ScaleName | None, follow: FollowName, out: Path) -> None:
    """Print and write exhibits of the paper."""
    from rich.console import Console

    from ..evaluation.cache import collect_runs
    from ..recipes.runs import RESULTS
    from ..report.exhibits import fill, largest_scale
    from ..report.pages.paper import exhibit_files, exhibit_tables
    from ..report.pages.spiral import read_demo
    from ..report.paper import exhibit
    from ..storage import write_files
    from ..studies.reproduce.run import DEMO_FOLDER, exhibit_picture
    from ..terminal import note, say

    chosen = [exhibit(name) for name in only]
    demos = [folder for run in runs for folder in (run, run / DEMO_FOLDER) if any(folder.glob("spiral*.json"))]
    spiral = demos[0] if demos else Path(DEMO_FOLDER)
    with_results = [run for run in runs if run not in demos or (run / RESULTS).exists()]
    rows = collect_runs(with_results, note) if with_results else []
    demo = read_demo(spiral)
    for one in chosen:
        if one.kind == "figure" and one.number in (2, 3):
            raise ValueError(f"only {one.short} is made of two pictures, not of runs: multimix look A B --figure {one.number}")
        filled = fill(one, scale or largest_scale(one, rows, demo) or "paper", rows, demo, follow)
        picture = exhibit_picture(filled, rows, spiral)
        for path in write_files(out, exhibit_files(filled, picture)):
            say(f"wrote {path}")
        for table in exhibit_tables(filled) if one.columns else ():
            Console().print(table)
        if picture is None and one.kind == "figure":
            for sentence in filled.notes:
                note(sentence)
            note(f"{one.label} has nothing to draw yet: multimix reproduce --only {one.short} trains and measures what it needs")
