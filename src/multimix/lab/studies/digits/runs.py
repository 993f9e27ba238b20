"""Arms trained with several seeds each, as the studies on digits and on clouds share it: kept on disk, checked, told as JSON."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from ...storage import Store, environment
from .arms import BASELINE, Arm
from .comparison import Compared, Results
from .train import Outcome

Note = Callable[[str], None]


class Run(NamedTuple):
    """One arm with one seed."""

    arm: Arm
    seed: int


def obtained(
    arms: Sequence[Arm],
    seeds: int,
    store: Store,
    train: Callable[[Arm, int], Outcome] | None,
    progress: Callable[[Sequence[Run]], Iterable[Run]],
    note: Note,
) -> Results:
    """What every run gave: from the store if it is finished, else by ``train``; without that nothing is trained."""
    # Seed by seed, so that a study that was stopped is still a fair comparison, and a busy machine slows all arms alike.
    runs = [Run(arm, seed) for seed in range(seeds) for arm in arms]
    done = {run: _obtained(store, run, train, note) for run in progress(runs)}
    found = {arm: {seed: result for (a, seed), result in done.items() if a == arm and result is not None} for arm in arms}
    results = _sound(found, store.folder)
    missing = [run for run, result in done.items() if result is None]
    if missing:
        note(f"{len(missing)} of {len(runs)} runs are missing, the first is {missing[0].arm.unit(missing[0].seed)}")
    return results


def check_runs(seeds: int, ks: Sequence[int]) -> None:
    """Raise one sentence unless something can be trained."""
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if len(ks) == 0 or min(ks) < 1:
        raise ValueError(f"ks must be one or more whole numbers, at least 1, got {ks}")


def results_json(results: Results, settings: Any, all_compared: Sequence[Compared], sentences: Sequence[str]) -> bytes:
    """Everything a page says, for a program to read; what does not exist (an interval of one value) is null."""
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


def _obtained(store: Store, run: Run, train: Callable[[Arm, int], Outcome] | None, note: Note) -> Outcome | None:
    unit = run.arm.unit(run.seed)
    kept = store.get(unit)
    if kept is not None and set(kept) == {field.name for field in fields(Outcome)} and kept["arm"] == run.arm.described():
        return Outcome(**kept)
    if kept is not None:
        note(f"{unit} was obtained with other options of the method and does not count")
    if train is None:
        return None
    result = train(run.arm, run.seed)
    store.put(unit, asdict(result))
    return result


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


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}
