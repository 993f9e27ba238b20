"""`multimix points`: SageMix at every K and no mixing, seed by seed, kept on disk one by one, compared and written up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ...storage import Store, write_atomically
from ..digits.comparison import TESTED, Results, compared, findings
from ..digits.figures import strip_figure
from ..digits.page import terminal_table
from ..digits.runs import Run, check_runs, obtained, results_json
from ..files import StudyFiles, one_thread
from .figures import cloud_figure
from .page import page
from .train import PointSettings, arms, outcome

SEEDS, QUICK_SEEDS, QUICK_STEPS = 10, 2, 40
MOST_DRAWN = 8  # steps of a path in the picture


def points(
    *,
    seeds: int | None = None,
    ks: tuple[int, ...] = (1, 5),
    quick: bool = False,
    out: str | Path = "multimix-points",
    rebuild: bool = False,
    settings: PointSettings | None = None,
    progress: Callable[[Sequence[Run]], Iterable[Run]] = iter,
    note: Callable[[str], None] = print,
) -> StudyFiles:
    """``points.html``, ``points.json`` and the figures, in ``out``: SageMix at every K and no mixing on clouds of points.

    A finished run is kept in ``out`` and not trained again, so a study that was stopped goes on and one with more seeds adds to
    it. ``quick`` takes two seeds and few steps, for a first look only, and writes ``points-quick.*``. ``rebuild`` trains nothing
    and writes up what is there.
    """
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    check_runs(seeds, ks)
    settings = settings or PointSettings()
    if quick:
        settings = replace(settings, steps=min(settings.steps, QUICK_STEPS))
    chosen = arms(sorted(set(ks)), settings)
    store = Store(out, "points", settings, note)
    with one_thread():
        train = None if rebuild else lambda arm, seed: outcome(arm, seed, settings)
        results = obtained(chosen, seeds, store, train, progress, note)
    return written(results, settings, Path(out), quick)


def written(results: Results, settings: PointSettings, out: Path, quick: bool = False) -> StudyFiles:
    """The page, the JSON file and the figures of ``results``; those of a quick look have other names and say what it is."""
    stem = "points-quick" if quick else "points"
    all_compared = [compared(results, metric) for metric in TESTED]
    warning = f"A quick look with {settings.steps} steps: it shows that everything runs, its numbers are no results."
    sentences = [*([warning] if quick else []), *findings(results, all_compared)]
    k = min(max((arm.k for arm in results if arm.k is not None), default=1), MOST_DRAWN)
    figures = {"clouds": cloud_figure(settings, k)} | {metric.field: strip_figure(results, metric) for metric in TESTED}
    html = page(results, settings, all_compared, sentences, figures)
    files = {out / f"{stem}.html": html.encode(), out / f"{stem}.json": results_json(results, settings, all_compared, sentences)}
    pictures = {out / f"{stem}-{name}.png": content for name, content in figures.items()}
    for path, content in (files | pictures).items():
        write_atomically(path, content)
    page_path, json_path = files
    table = terminal_table("Clouds of points", results, all_compared)
    return StudyFiles(page_path, json_path, tuple(pictures), table, tuple(sentences))
