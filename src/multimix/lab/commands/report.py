"""`multimix report`."""

from pathlib import Path
from typing import Annotated

from .options import FollowName, ScaleName, option


def report(
    runs: Annotated[tuple[Path, ...], option("Folders of results or of single runs.", "RUNS …")],
    /,
    *,
    only: Annotated[
        tuple[str, ...],
        option("Tables and figures of the paper: I … VIII, fig4 … fig8.", "NAME …", default="a page per recipe"),
    ] = (),
    scale: Annotated[ScaleName | None, option("With --only: scale of the runs.", default="the largest with runs")] = None,
    follow: FollowName = "text",
    out: Annotated[Path, option("Output folder of pages, tables, and figures.", "FOLDER")] = Path("multimix-report"),
) -> None:
    """Write a self-contained page per recipe and scale: findings, tables, curves, calibration, mixed samples, and settings.

    A page is one file that works offline; its figures (PNG, SVG) and tables (Markdown, CSV) are in a folder beside it. multimix
    evaluate adds evaluations. With --only, write tables and figures of the paper with our numbers beside the paper's and a
    verdict on every claim. This command trains and evaluates nothing.

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
    for paper_exhibit in chosen:
        if paper_exhibit.kind == "figure" and paper_exhibit.number in (2, 3):
            command = f"multimix look A B --figure {paper_exhibit.number}"
            raise ValueError(f"only must name exhibits of runs, got {paper_exhibit.short}; {command} draws it from two images")
        filled = fill(paper_exhibit, scale or largest_scale(paper_exhibit, rows, demo) or "paper", rows, demo, follow)
        picture = exhibit_picture(filled, rows, spiral)
        for path in write_files(out, exhibit_files(filled, picture)):
            say(f"wrote {path}")
        for table in exhibit_tables(filled) if paper_exhibit.columns else ():
            Console().print(table)
        if picture is None and paper_exhibit.kind == "figure":
            for sentence in filled.notes:
                note(sentence)
            note(f"no data for {paper_exhibit.label}; make them with multimix reproduce --only {paper_exhibit.short}")
