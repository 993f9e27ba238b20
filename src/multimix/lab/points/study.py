"""`multimix points`: SageMix at every K and no mixing, seed by seed, kept on disk one by one, compared and written up."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from ..digits.arms import BASELINE
from ..digits.comparison import TESTED, Compared, Results, compared, findings
from ..digits.figures import strip_figure
from ..digits.page import terminal_table
from ..digits.study import Run
from ..digits.train import Outcome
from ..results import Store, environment, write_atomically
from ..study import Written, one_thread
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
) -> Written:
    """``points.html``, ``points.json`` and the figures, in ``out``: SageMix at every K and no mixing on clouds of points.

    A finished run is kept in ``out`` and not trained again, so a study that was stopped goes on and one with more seeds adds to
    it. ``quick`` takes two seeds and few steps, for a first look only, and writes ``points-quick.*``. ``rebuild`` trains nothing
    and writes up what is there.
    """
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    _check(seeds, ks)
    settings = settings or PointSettings()
    if quick:
        settings = replace(settings, steps=min(settings.steps, QUICK_STEPS))
    chosen = arms(sorted(set(ks)), settings)
    store = Store(out, "points", settings, note)
    # Seed by seed, so that a study that was stopped is still a fair comparison, and a busy machine slows all arms alike.
    runs = [Run(arm, seed) for seed in range(seeds) for arm in chosen]
    with one_thread():
        done = {run: _obtained(store, run, None if rebuild else settings, note) for run in progress(runs)}
    found = {arm: {seed: result for (a, seed), result in done.items() if a == arm and result is not None} for arm in chosen}
    results = _sound(found, store.folder)
    missing = [run for run, result in done.items() if result is None]
    if missing:
        note(f"{len(missing)} of {len(runs)} runs are missing, the first is {missing[0].arm.unit(missing[0].seed)}")
    return written(results, settings, Path(out), quick)


def written(results: Results, settings: PointSettings, out: Path, quick: bool = False) -> Written:
    """The page, the JSON file and the figures of ``results``; those of a quick look have other names and say what it is."""
    stem = "points-quick" if quick else "points"
    all_compared = [compared(results, metric) for metric in TESTED]
    warning = f"A quick look with {settings.steps} steps: it shows that everything runs, its numbers are no results."
    sentences = [*([warning] if quick else []), *findings(results, all_compared)]
    k = min(max((arm.k for arm in results if arm.k is not None), default=1), MOST_DRAWN)
    figures = {"clouds": cloud_figure(settings, k)} | {metric.field: strip_figure(results, metric) for metric in TESTED}
    html = page(results, settings, all_compared, sentences, figures)
    files = {out / f"{stem}.html": html.encode(), out / f"{stem}.json": _json(results, settings, all_compared, sentences)}
    pictures = {out / f"{stem}-{name}.png": content for name, content in figures.items()}
    for path, content in (files | pictures).items():
        write_atomically(path, content)
    page_path, json_path = files
    table = terminal_table(results, all_compared)
    table.title = str(table.title).replace("Digits", "Clouds of points", 1)
    return Written(page_path, json_path, tuple(pictures), table, tuple(sentences))


def _obtained(store: Store, run: Run, settings: PointSettings | None, note: Callable[[str], None]) -> Outcome | None:
    """The run's outcome, from disk if it is finished, else by training; without ``settings`` nothing is trained."""
    unit = run.arm.unit(run.seed)
    kept = store.get(unit)
    if kept is not None and set(kept) == {field.name for field in fields(Outcome)} and kept["arm"] == run.arm.described():
        return Outcome(**kept)
    if kept is not None:
        note(f"{unit} was obtained with other options of the method and does not count")
    if settings is None:
        return None
    result = outcome(run.arm, run.seed, settings)
    store.put(unit, asdict(result))
    return result


def _sound(results: Results, folder: Path) -> Results:
    """The arms that have results; one sentence if there is nothing to compare with or the pairs are not pairs."""
    results = {arm: outcomes for arm, outcomes in results.items() if outcomes}
    baseline = next((outcomes for arm, outcomes in results.items() if arm.name == BASELINE), None)
    if baseline is None:
        raise ValueError(f"{str(folder)!r} holds no finished run without mixing to compare with; leave out rebuild to train")
    for arm, outcomes in results.items():
        for seed, result in outcomes.items():
            other = baseline.get(seed, result)
            if (result.split, result.start) != (other.split, other.start):
                raise ValueError(
                    f"{arm.unit(seed)} was trained on other bodies or from another start than no mixing, so they are no pair: "
                    f"remove {str(folder)!r} and train again"
                )
    return results


def _json(results: Results, settings: PointSettings, all_compared: Sequence[Compared], sentences: Sequence[str]) -> bytes:
    """Everything the page says, for a program to read; what does not exist (an interval of one value) is null."""
    runs = [
        {"name": arm.name, "k": arm.k, "seed": seed} | asdict(result)
        for arm, outcomes in results.items()
        for seed, result in outcomes.items()
    ]
    comparisons = [
        {"metric": one.metric.field, "first": found.first.label, "second": found.second.label, "p_holm": found.p_holm}
        | {name: value if math.isfinite(value) else None for name, value in found.paired._asdict().items()}
        for one in all_compared
        for found in (*one.with_none, *one.with_fewer)
    ]
    content = {
        "settings": asdict(settings),
        "written_with": environment(),
        "findings": list(sentences),
        "comparisons": comparisons,
        "runs": runs,
    }
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _check(seeds: int, ks: Sequence[int]) -> None:
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if len(ks) == 0 or min(ks) < 1:
        raise ValueError(f"ks must be one or more whole numbers, at least 1, got {ks}")
