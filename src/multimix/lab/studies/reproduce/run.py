"""Train, evaluate, and report the runs of the paper's tables and figures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...evaluation.cache import collect_runs
from ...evaluation.runner import evaluate_sources
from ...recipes.runs import RESULTS
from ...report.exhibit_figures import exhibit_figure
from ...report.exhibits import FilledExhibit, fill
from ...report.figures import image_grid
from ...report.frame import Rows
from ...report.page import Picture
from ...report.pages.paper import paper_page
from ...report.pages.spiral import read_demo, spiral_picture, write_spiral_page
from ...report.style import svg
from ...storage import write_files
from ...sweep.engines import Engine
from ...sweep.workers import train_runs, unfinished
from ...terminal import counted, note
from ..look import cat, dog, paper_interpolations, paper_samples
from ..spiral.demo import run_demo
from .plan import EXHIBIT_ORDER, Plan

DEMO_FOLDER = "spiral"


def carry_out(plan: Plan, *, data: Path, out: Path, engine: Engine, note: Callable[[str], None]) -> tuple[str, ...]:
    """Train and evaluate the runs of a plan; a second call resumes.

    Args:
        plan: The plan.
        data: Folder of the data sets.
        out: Folder of the results.
        engine: The engine that trains the runs.
        note: Receives messages.

    Returns:
        Sentences on runs and evaluations that failed.
    """
    failed: list[str] = []
    if plan.demo:
        note("Fig. 4: the spiral")
        with _isolated("the spiral", failed):
            write_spiral_page(run_demo(quick=plan.scale == "smoke", out=out / DEMO_FOLDER, note=note))
    failures = train_runs(plan.runs, data=data, out=out, engine=engine, note=note) if plan.runs else []
    failed += [f"{failure.run.title}: {failure.reason} ({failure.log})" for failure in failures]
    broken = {run.folder for run in unfinished(plan.runs, out, note)}
    for name, runs in plan.measures().items():
        folders = [out / run.folder for run in runs if run.folder not in broken]
        note(f"measuring {name} of {counted(len(folders), 'run')}")
        for folder in folders:
            with _isolated(f"{folder.name}, {name}", failed):
                failed += evaluate_sources([str(folder)], [name], data=data, out=out)[1]
    return tuple(failed)


@contextmanager
def _isolated(label: str, failed: list[str]) -> Iterator[None]:
    """Append the message of any exception to ``failed``."""
    try:
        yield
    except Exception as error:  # for example, one evaluation runs out of memory
        failed.append(f"{label}: {' '.join(str(error).split()) or type(error).__name__}")


def write_paper_page(plan: Plan, *, out: Path, failed: Sequence[str] = ()) -> Path:
    """Write the page of all finished runs in ``out``.

    Args:
        plan: The plan.
        out: Folder of the results.
        failed: Sentences on runs and evaluations that failed.

    Returns:
        The path of the page. Its name has scale, ``--follow``, and the chosen exhibits.
    """
    rows = collect_runs([out], note) if (out / RESULTS).exists() else []
    spiral = out / DEMO_FOLDER
    demo = read_demo(spiral)
    filled = [fill(shown, plan.scale, rows, demo, plan.follow) for shown in plan.exhibits]
    pictures = {shown.paper.label: picture for shown in filled if (picture := exhibit_picture(shown, rows, spiral)) is not None}
    missing = [f"{name}: {reason}" for name, reason in plan.missing.items()]
    html = paper_page(filled, pictures, scale=plan.scale, follow=plan.follow, missing=[*missing, *failed])
    parts = [] if len(plan.exhibits) == len(EXHIBIT_ORDER) else [shown.short for shown in plan.exhibits]
    name = "-".join(["paper", plan.scale, *(["code"] if plan.follow == "code" else []), *parts])
    (path,) = write_files(out, {f"{name}.html": html.encode()})
    return path


def exhibit_picture(filled: FilledExhibit, rows: Rows, spiral: Path) -> Picture | None:
    """Return the figure of an exhibit, or None if there is nothing to show yet.

    Args:
        filled: The exhibit.
        rows: Stored rows of finished runs.
        spiral: Folder of the demo.
    """
    paper = filled.paper
    title = f"{paper.label}: {paper.title}"
    if paper.kind == "figure" and paper.number in (2, 3):
        grid = (paper_samples if paper.number == 2 else paper_interpolations)(cat(), dog())
        return Picture(svg(image_grid(grid)), title)
    if paper.kind == "figure" and paper.number == 4:
        content = spiral_picture(spiral, filled.scale)
        return Picture(content, title) if content else None
    figure = exhibit_figure(filled, rows, filled.follow)
    return Picture(svg(figure), title) if figure else None
