"""`multimix digits`: every method × K × seed trained, kept on disk one by one, compared and written up."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...warmup import warmup
from ..results import Store, environment, write_atomically
from ..study import Written, one_thread
from .arms import BASELINE, Arm, arms
from .comparison import ERROR, TESTED, Compared, Results, compared, findings
from .data import CLASSES, image_count
from .figures import cost_figure, strip_figure
from .page import page, terminal_table
from .train import Outcome, Settings, outcome

SEEDS, QUICK_SEEDS, QUICK_STEPS = 5, 2, 40


class Run(NamedTuple):
    """One arm with one seed."""

    arm: Arm
    seed: int


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
) -> Written:
    """``digits.html``, ``digits.json`` and the figures, in ``out``: every method at every K on scikit-learn's digits.

    No ``methods`` means all that can be trained; no mixing is always there, to compare with. A finished run is kept in ``out``
    and not trained again, so a study that was stopped goes on and one with more seeds adds to it. ``quick`` takes two seeds and
    few steps, for a first look only, and writes ``digits-quick.*``. ``rebuild`` trains nothing and writes up what is there.
    """
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    _check(seeds, ks)
    settings = settings or Settings()
    if quick:
        settings = replace(settings, steps=min(settings.steps, QUICK_STEPS))
    chosen = arms(methods, sorted(set(ks)), settings.smoothing, note)
    store = Store(out, "digits", settings, note)
    # Seed by seed, so that a study that was stopped is still a fair comparison, and a busy machine slows all arms alike.
    runs = [Run(arm, seed) for seed in range(seeds) for arm in chosen]
    with one_thread():
        if not rebuild and any(arm.method.needs for arm in chosen):
            warmup()  # or the first run would be charged with compiling
        done = {run: _finished(store, run, note) if rebuild else _obtained(store, run, settings, note) for run in progress(runs)}
    missing = [run for run, result in done.items() if result is None]
    if missing:
        note(f"{len(missing)} of {len(runs)} runs are missing, the first is {missing[0].arm.unit(missing[0].seed)}")
    results = {arm: {seed: result for (a, seed), result in done.items() if a == arm and result is not None} for arm in chosen}
    return written(_sound(results, store.folder), settings, Path(out), quick)


def written(results: Results, settings: Settings, out: Path, quick: bool = False) -> Written:
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
    files = {out / f"{stem}.html": html.encode(), out / f"{stem}.json": _json(results, settings, all_compared, sentences)}
    pictures = {out / f"{stem}-{name}.png": content for name, content in figures.items()}
    for path, content in (files | pictures).items():
        write_atomically(path, content)
    page_path, json_path = files
    return Written(page_path, json_path, tuple(pictures), terminal_table(results, all_compared), tuple(sentences))


def _obtained(store: Store, run: Run, settings: Settings, note: Callable[[str], None]) -> Outcome:
    """The run's outcome, from disk if it is finished, else by training."""
    kept = _finished(store, run, note)
    if kept is not None:
        return kept
    result = outcome(run.arm, run.seed, settings)
    store.put(run.arm.unit(run.seed), asdict(result))
    return result


def _finished(store: Store, run: Run, note: Callable[[str], None]) -> Outcome | None:
    unit = run.arm.unit(run.seed)
    kept = store.get(unit)
    if kept is None:
        return None
    if set(kept) != {field.name for field in fields(Outcome)} or kept["arm"] != run.arm.described():
        note(f"{unit} was obtained with other options of the method and does not count")
        return None
    return Outcome(**kept)


def _sound(results: Results, folder: Path) -> Results:
    """The arms that have results; one sentence if there is nothing to compare with or the pairs are not pairs."""
    results = {arm: outcomes for arm, outcomes in results.items() if outcomes}
    baseline = next(iter(results.items()), None)
    if baseline is None or baseline[0].name != BASELINE:
        raise ValueError(f"{str(folder)!r} holds no finished run without mixing to compare with; leave out rebuild to train")
    for arm, outcomes in results.items():
        for seed, result in outcomes.items():
            paired_with = baseline[1].get(seed, result)
            if (result.split, result.start) != (paired_with.split, paired_with.start):
                raise ValueError(
                    f"{arm.unit(seed)} was trained on another split or start than {baseline[0].unit(seed)}, so they are no pair: "
                    f"remove {str(folder)!r} and train again"
                )
    return results


def _json(results: Results, settings: Settings, all_compared: Sequence[Compared], sentences: Sequence[str]) -> bytes:
    """Everything the page says, for a program to read; what does not exist (an interval of one value) is null."""
    runs = [
        {"name": arm.name, "k": arm.k, "seed": seed} | asdict(result)
        for arm, outcomes in results.items()
        for seed, result in outcomes.items()
    ]
    comparisons = [
        {
            "metric": one.metric.field,
            "first": comparison.first.label,
            "second": comparison.second.label,
            "lower": comparison.lower,
            "p_holm": comparison.p_holm,
        }
        | _without_nan(comparison.paired._asdict())
        for one in all_compared
        for comparison in (*one.with_none, *one.with_fewer)
    ]
    content = {
        "settings": asdict(settings),
        "written_with": environment(),
        "findings": list(sentences),
        "comparisons": comparisons,
        "runs": runs,
    }
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


def _check(seeds: int, ks: Sequence[int]) -> None:
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if len(ks) == 0 or min(ks) < 1:
        raise ValueError(f"ks must be one or more whole numbers, at least 1, got {ks}")
