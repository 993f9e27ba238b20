"""`multimix sweep`: planned, trained in processes of their own, compared; what failed is listed at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from .options import (
    RUNS,
    Changes,
    DataFolder,
    FollowName,
    OutFolder,
    Rebuild,
    RecipeName,
    ScaleName,
    Seeds,
    changes_of,
    data_folder,
    option,
)

if TYPE_CHECKING:
    from ..recipes.base import Recipe, Scale
    from ..sweep.engines import Engine
    from ..sweep.plan import Costs
    from ..sweep.workers import Failure


def sweep(
    recipe: RecipeName,
    /,
    *,
    methods: Annotated[tuple[str, ...], option("What is compared; multimix list methods names all.", "NAME …")] = (
        "none",
        "mixup",
        "cutmix",
        "puzzlemix",
    ),
    ks: Annotated[tuple[int, ...], option("With how many interpolations each.", "K …")] = (1, 5),
    seeds: Seeds = (0, 1, 2),
    scale: ScaleName = "paper",
    follow: FollowName = "text",
    equal: Annotated[
        tuple[Literal["steps", "samples", "compute"], ...],
        option("What all get the same of: steps (the recipe's schedule), samples, compute; or several.", "BUDGET …"),
    ] = ("steps",),
    jobs: Annotated[
        int | None,
        option("Runs at a time, each in a process of its own.", "N", default="1 on this machine; what fits into a cluster"),
    ] = None,
    engine: Annotated[
        Literal["local", "ray", "slurm"],
        option("Where runs are trained: this machine, a Ray cluster, jobs of Slurm. All must see the folders."),
    ] = "local",
    address: Annotated[
        str | None, option("Ray: of a cluster.", "ADDRESS", default="$RAY_ADDRESS, or Ray on this machine")
    ] = None,
    cpus_per_run: Annotated[int | None, option("Ray, Slurm: cores of a run.", "N", default="1")] = None,
    gpus_per_run: Annotated[int | None, option("Ray, Slurm: GPUs of a run.", "N", default="0")] = None,
    partition: Annotated[str | None, option("Slurm: the partition.", "NAME", default="Slurm's own")] = None,
    hours: Annotated[float | None, option("Slurm: the time limit of a run.", "H", default="24")] = None,
    memory: Annotated[float | None, option("Slurm: the memory of a run.", "GB", default="Slurm's own")] = None,
    data: DataFolder = None,
    out: OutFolder = RUNS,
    retry: Annotated[int, option("How often a run that failed is tried again at once.", "N")] = 0,
    rebuild: Rebuild = False,
    set_: Changes = (),
) -> None:
    """Train methods × K × seeds of a recipe, and compare them at equal steps, equal samples or equal compute.

    Stopped, the same command resumes where it was. A run that fails or is killed is listed at the end and the others go on; the
    same command tries it again. multimix evaluate measures the networks, multimix report makes a page of everything.

    Try it:
      multimix sweep cifar100_preact_resnet18 --scale smoke --methods none cutmix --ks 1 3 --seeds 0 1
      multimix sweep cifar100_preact_resnet18 --scale small --jobs 2
      multimix sweep cifar100_preact_resnet18 --scale small --equal steps samples compute
      multimix sweep cifar100_preact_resnet18 --engine ray --address auto --gpus-per-run 1
    """
    from ..data import dataset
    from ..recipes import recipe as named_recipe
    from ..results.table import counted
    from ..sweep.engines import make_engine
    from ..sweep.plan import EQUALS, Stored, plan_sweep, store_plan
    from ..sweep.progress import run_label
    from ..sweep.workers import train_runs
    from ..terminal import note

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("multimix sweep starts its processes by itself; torchrun is for multimix train")
    chosen, folder, changes = named_recipe(recipe, follow), data_folder(data), changes_of(set_)
    if rebuild:
        return _report(chosen, scale, out)
    settings = chosen.settings(scale)
    name = settings.data.name
    if dataset(name).folders and not (folder.is_dir() and any(folder.iterdir())):  # said once instead of by every run
        raise ValueError(f"{folder} must hold the data set {name} (--data; multimix data fetch {name}), it holds nothing")
    asked: dict[str, Any] = {"methods": methods, "ks": ks, "seeds": seeds}
    cluster = {"address": address, "partition": partition, "hours": hours, "memory": memory}
    runner = make_engine(engine, out, jobs=jobs, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run, **cluster)
    # Threads of every process, where the recipe leaves them as they are.
    threads = {"running.threads": str(runner.threads)} if runner.threads and settings.running.threads is None else {}
    how: dict[str, Any] = {"scale": scale, "changes": {**threads, **changes}}
    try:
        costs, failures = _costs(chosen, asked, how, folder, out, runner) if "compute" in equal else (None, [])
        planned = plan_sweep(chosen, equal=equal, costs=costs, **how, **asked)
        entries = tuple(one.entry for one in planned)
        store_plan(out, Stored(chosen.name, scale, equal=equal, changes=changes, runs=entries, **asked))
        count = counted(len({one.run.folder for one in planned}), "run")
        note(f"{chosen.title}, {scale} scale: {count}, at equal {', '.join(name for name in EQUALS if name in equal)}")
        failures += train_runs([one.run for one in planned], data=folder, out=out, engine=runner, retry=retry, note=note)
    finally:
        runner.close()
    _report(chosen, scale, out, changes)
    for failure in failures:
        note(f"failed: {run_label(failure.run)}: {failure.reason}\n  {failure.log}")
    if failures:
        raise ValueError(f"{counted(len(failures), 'run')} failed, as listed above; the same command tries again")


def _report(recipe: Recipe, scale: Scale, out: Path, changes: Mapping[str, str] | None = None) -> None:
    """Files of all sweeps of the recipe at the scale; tables on the terminal of those with these changes, or of all."""
    from rich.console import Console

    from ..results.sweep_tables import sweeps
    from ..storage import read_rows
    from ..terminal import note
    from ..training.run import RESULTS

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


def _costs(
    recipe: Recipe, asked: Mapping[str, Any], how: Mapping[str, Any], data: Path, out: Path, engine: Engine
) -> tuple[Costs, list[Failure]]:
    """What the arms cost; those that cannot even be measured have failed."""
    from ..sweep import costs
    from ..sweep.plan import arm_runs
    from ..sweep.workers import Failure
    from ..terminal import note

    own = arm_runs(recipe, **how, **{**asked, "seeds": asked["seeds"][:1]})
    # Named beside the arms, so that changes of the method are not taken for its own.
    together = arm_runs(recipe, **how, **{**asked, "methods": (costs.BASE[0], *asked["methods"])})
    found = costs.measure_costs(together[0], own, data=data, out=out, engine=engine, note=note)
    reasons = {arm: f"what an update costs could not be measured: {reason}" for arm, reason in found.broken.items()}
    return found.numbers, [Failure(run, reasons[run.arm, run.k], out / costs.LOG) for run in own if (run.arm, run.k) in reasons]
