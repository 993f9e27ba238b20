"""`multimix sweep`: planned, trained in processes of their own, compared; what failed is listed at the end."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..data import dataset
from ..recipes import recipe as named_recipe
from ..recipes.base import Recipe, Scale
from ..results.sweep_tables import sweeps
from ..results.table import counted
from ..storage import read_rows
from ..sweep.costs import BASE, LOG, measure_costs
from ..sweep.engines import Engine, EngineName, make_engine
from ..sweep.plan import EQUALS, Costs, Equal, arm_runs, plan_sweep
from ..sweep.progress import run_label
from ..sweep.stored import Stored, entries, store_plan
from ..sweep.workers import Failure, train_runs
from ..terminal import note
from ..training.run import RESULTS


def run(
    recipe: str | Recipe,
    *,
    methods: Sequence[str],
    ks: Sequence[int],
    seeds: Sequence[int],
    scale: Scale,
    equal: Sequence[Equal] = ("steps",),
    data: Path,
    out: Path,
    changes: Mapping[str, str] | None = None,
    rebuild: bool = False,
    retry: int = 0,
    engine: EngineName = "local",
    **engine_options: Any,
) -> None:
    """What the command does; tables go to the standard stream, everything else to the error stream.

    The same command resumes where it was, and tries again what failed. ``rebuild`` makes tables and figures of what is there,
    and trains nothing.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("multimix sweep starts its processes by itself; torchrun is for multimix train")
    chosen = named_recipe(recipe) if isinstance(recipe, str) else recipe
    if rebuild:
        _report(chosen, scale, out)
        return
    _check_data(chosen.settings(scale).data.name, data)
    asked: dict[str, Any] = {"methods": tuple(methods), "ks": tuple(ks), "seeds": tuple(seeds)}
    runner = make_engine(engine, out, **engine_options)
    changed = {**_shared(chosen, scale, runner.threads), **(changes or {})}
    try:
        costs, failures = _costs(chosen, scale, asked, changed, data, out, runner) if "compute" in equal else (None, [])
        planned = plan_sweep(chosen, scale=scale, equal=equal, changes=changed, costs=costs, **asked)
        plan = Stored(chosen.name, scale, equal=tuple(equal), changes=dict(changes or {}), runs=entries(planned), **asked)
        store_plan(out, plan)
        count = counted(len({one.run.folder for one in planned}), "run")
        note(f"{chosen.title}, {scale} scale: {count}, at equal {', '.join(name for name in EQUALS if name in equal)}")
        failures += train_runs([one.run for one in planned], data=data, out=out, engine=runner, retry=retry, note=note)
    finally:
        runner.close()
    _report(chosen, scale, out, dict(changes or {}))
    for failure in failures:
        note(f"failed: {run_label(failure.run)}: {failure.reason}\n  {failure.log}")
    if failures:
        raise ValueError(f"{counted(len(failures), 'run')} failed, as listed above; the same command tries again")


def _report(recipe: Recipe, scale: Scale, out: Path, changes: Mapping[str, str] | None = None) -> None:
    """Files of all sweeps of the recipe at the scale; tables on the terminal of those with these changes, or of all."""
    own = sweeps(out, recipe, scale, read_rows(out / RESULTS, note))
    if not own:
        raise ValueError(f"{out} has no sweep of {recipe.name} at {scale} scale")
    for sweep in own:
        if changes is None or sweep.group.changes == changes:
            for sheet in sweep.sheets():
                Console().print(sheet, "")
    for sweep in own:
        for path in sweep.write(out):
            print(f"wrote {path}")


def _check_data(name: str, folder: Path) -> None:
    """Raise ValueError, instead of once for every run, if there are no data at all."""
    if dataset(name).folders and not (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(f"{folder} must hold the data set {name} (--data; multimix data fetch {name}), it holds nothing")


def _costs(
    recipe: Recipe, scale: Scale, asked: Mapping[str, Any], changes: Mapping[str, str], data: Path, out: Path, engine: Engine
) -> tuple[Costs, list[Failure]]:
    """What the arms cost; those that cannot even be measured have failed."""
    own = arm_runs(recipe, scale=scale, changes=changes, **{**asked, "seeds": asked["seeds"][:1]})
    # Named beside the arms, so that changes of the method are not taken for its own.
    together = arm_runs(recipe, scale=scale, changes=changes, **{**asked, "methods": (BASE[0], *asked["methods"])})
    found = measure_costs(together[0], own, data=data, out=out, engine=engine, note=note)
    reasons = {arm: f"what an update costs could not be measured: {reason}" for arm, reason in found.broken.items()}
    return found.numbers, [Failure(run, reasons[run.arm, run.k], out / LOG) for run in own if (run.arm, run.k) in reasons]


def _shared(recipe: Recipe, scale: Scale, threads: int | None) -> dict[str, str]:
    """Threads of every process, where the recipe leaves them as they are."""
    set_here = threads is not None and recipe.settings(scale).running.threads is None
    return {"running.threads": str(threads)} if set_here else {}
