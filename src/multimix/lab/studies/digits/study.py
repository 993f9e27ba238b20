"""`multimix digits`: every method × K × seed trained, kept on disk one by one, compared and written up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ....warmup import warmup
from ...storage import Store, write_atomically
from ..files import StudyFiles, one_thread
from .arms import arms
from .comparison import ERROR, TESTED, Results, compared, findings
from .data import CLASSES, image_count
from .figures import cost_figure, strip_figure
from .page import page, terminal_table
from .runs import Run, check_runs, obtained, results_json
from .train import Settings, outcome

SEEDS, QUICK_SEEDS, QUICK_STEPS = 5, 2, 40


def digits(
    *,
    seeds: int | None = None,
    ks: tuple[int, ...] = (1, 5),
    methods: tuple[str, ...] = (),
    quick: bool = False,
    out: str | Path = "multimix-digits",
    rebuild: bool = False,
    settings: Settings | None = None,
    progress: Callable[[Sequence[Run]], Iterable[Run]] = iter,
    note: Callable[[str], None] = print,
) -> StudyFiles:
    """``digits.html``, ``digits.json`` and the figures, in ``out``: every method at every K on scikit-learn's digits.

    No ``methods`` means all that can be trained; no mixing is always there, to compare with. A finished run is kept in ``out``
    and not trained again, so a study that was stopped goes on and one with more seeds adds to it. ``quick`` takes two seeds and
    few steps, for a first look only, and writes ``digits-quick.*``. ``rebuild`` trains nothing and writes up what is there.
    """
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    check_runs(seeds, ks)
    settings = settings or Settings()
    if quick:
        settings = replace(settings, steps=min(settings.steps, QUICK_STEPS))
    chosen = arms(methods, sorted(set(ks)), settings.smoothing, note)
    store = Store(out, "digits", settings, note)
    with one_thread():
        if not rebuild and any(arm.method.needs for arm in chosen):
            warmup()  # or the first run would be charged with compiling
        train = None if rebuild else lambda arm, seed: outcome(arm, seed, settings)
        results = obtained(chosen, seeds, store, train, progress, note)
    return written(results, settings, Path(out), quick)


def written(results: Results, settings: Settings, out: Path, quick: bool = False) -> StudyFiles:
    """The page, the JSON file and the figures of ``results``; those of a quick look have other names and say what it is."""
    stem = "digits-quick" if quick else "digits"
    all_compared = [compared(results, metric) for metric in TESTED]
    warning = (
        [f"A quick look with {settings.steps} steps: it shows that everything runs, its numbers are no results."] if quick else []
    )
    sentences = [*warning, *findings(results, all_compared)]
    figures = {metric.field: strip_figure(results, metric) for metric in TESTED} | {"cost": cost_figure(results, ERROR)}
    test_samples = image_count() - CLASSES * settings.per_class
    html = page(results, settings, all_compared, sentences, figures, test_samples)
    files = {out / f"{stem}.html": html.encode(), out / f"{stem}.json": results_json(results, settings, all_compared, sentences)}
    pictures = {out / f"{stem}-{name}.png": content for name, content in figures.items()}
    for path, content in (files | pictures).items():
        write_atomically(path, content)
    page_path, json_path = files
    return StudyFiles(page_path, json_path, tuple(pictures), terminal_table("Digits", results, all_compared), tuple(sentences))
