"""`multimix sweep`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from .options import (
    RUNS,
    Changes,
    DataFolder,
    FollowName,
    OutFolder,
    RecipeName,
    ScaleName,
    Seeds,
    data_folder,
    option,
    parse_changes,
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
    methods: Annotated[
        tuple[str, ...],
        option("Methods, or all for every method that the recipe can train; multimix list methods shows all.", "NAME …"),
    ] = ("none", "mixup", "cutmix", "puzzlemix"),
    ks: Annotated[tuple[int, ...], option("Numbers of interpolations.", "K …")] = (1, 5),
    seeds: Seeds = (0, 1, 2),
    scale: ScaleName = "paper",
    follow: FollowName = "text",
    equal: Annotated[
        tuple[Literal["steps", "samples", "compute"], ...],
        option("Budgets that are equal for all runs: steps (the recipe's schedule), samples, compute.", "BUDGET …"),
    ] = ("steps",),
    jobs: Annotated[
        int | None,
        option("Number of runs at a time, each in a separate process.", "N", default="1; on a cluster, as many as fit"),
    ] = None,
    engine: Annotated[
        Literal["local", "ray", "slurm"],
        option("Train on this machine, on a Ray cluster, or in Slurm jobs; all nodes must share the folders."),
    ] = "local",
    cluster: Annotated[
        tuple[str, ...],
        option(
            "Resources per run (ray, slurm): cpus=1 gpus=0; ray: address=HOST:PORT; slurm: partition=NAME hours=24 memory=GB.",
            "NAME=VALUE …",
        ),
    ] = (),
    data: DataFolder = None,
    out: OutFolder = RUNS,
    retry: Annotated[int, option("Number of immediate retries of a failed run.", "N")] = 0,
    set_: Changes = (),
) -> None:
    """Train methods × K × seeds of a recipe, and compare them at equal steps, equal samples, or equal compute.

    After Ctrl-C, the same command resumes. Failed runs do not stop the others; they are listed at the end, and the same command
    repeats them. Then multimix evaluate OUT evaluates the networks, and multimix report OUT writes a page.

    Try it:
      multimix sweep cifar100_preact_resnet18 --scale smoke --methods none cutmix --ks 1 3 --seeds 0 1
      multimix sweep cifar100_preact_resnet18 --scale small --jobs 2
      multimix sweep cifar100_preact_resnet18 --scale small --equal steps samples compute
      multimix sweep digits --scale small --methods all --seeds 0 1 2 3 4
      multimix sweep cifar100_preact_resnet18 --engine slurm --cluster gpus=1 partition=gpu hours=12
    """
    from ..data import dataset
    from ..recipes import recipe as named_recipe
    from ..sweep.engines import InProcess, make_engine
    from ..sweep.plan import EQUALS, Stored, plan_sweep, store_plan, trainable_arms
    from ..sweep.progress import run_label
    from ..sweep.workers import train_runs
    from ..terminal import counted, note

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "WORLD_SIZE must be 1 for multimix sweep, which starts its own processes; use torchrun with multimix train"
        )
    chosen, folder, changes = named_recipe(recipe, follow), data_folder(data), parse_changes(set_)
    settings = chosen.settings(scale)
    name = settings.data.name
    if dataset(name).folders and not (folder.is_dir() and any(folder.iterdir())):  # one error instead of one per run
        raise ValueError(
            f"data must be a folder with the data set {name}, got {folder}, which is missing or empty; multimix data fetch {name}"
        )
    if "all" in methods:
        methods = trainable_arms(chosen, scale, ks, note)
    arms: dict[str, Any] = {"methods": methods, "ks": ks, "seeds": seeds}
    short = scale == "smoke" or (chosen.in_process and scale == "small")
    if engine == "local" and jobs is None and not cluster and short:
        runner: Engine = InProcess()
    else:
        runner = make_engine(engine, out, jobs=jobs, **_cluster_options(cluster))
    # Divide the threads among the processes, unless the recipe sets them.
    threads = {"running.threads": str(runner.threads)} if runner.threads and settings.running.threads is None else {}
    plan_options: dict[str, Any] = {"scale": scale, "changes": {**threads, **changes}}
    try:
        costs, failures = _costs(chosen, arms, plan_options, folder, out, runner) if "compute" in equal else (None, [])
        planned = plan_sweep(chosen, equal=equal, costs=costs, **plan_options, **arms)
        entries = tuple(item.entry for item in planned)
        store_plan(out, Stored(chosen.name, scale, equal=equal, changes=changes, runs=entries, **arms))
        count = counted(len({item.run.folder for item in planned}), "run")
        note(f"{chosen.title}, {scale} scale: {count}, at equal {', '.join(name for name in EQUALS if name in equal)}")
        failures += train_runs([item.run for item in planned], data=folder, out=out, engine=runner, retry=retry, note=note)
    finally:
        runner.close()
    _print_tables(chosen, scale, out, changes)
    note(f"to evaluate the networks: multimix evaluate {out}\nto write a page: multimix report {out}")
    for failure in failures:
        note(f"failed: {run_label(failure.run)}: {failure.reason}\n  {failure.log}")
    if failures:
        raise ValueError(f"{counted(len(failures), 'run')} failed, as listed above; the same command repeats them")


def _cluster_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE texts with the type of each option."""
    parsed: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"cluster must be NAME=VALUE, got {text!r}")
        convert = {"cpus": int, "gpus": int, "hours": float, "memory": float}.get(name, str)
        try:
            parsed[name] = convert(value)
        except ValueError:
            raise ValueError(f"cluster {name} must be a number, got {value!r}") from None
    return parsed


def _print_tables(recipe: Recipe, scale: Scale, out: Path, changes: Mapping[str, str]) -> None:
    """Print the tables of the sweeps of the recipe at the scale with these changes."""
    from rich.console import Console

    from ..recipes.runs import RESULTS
    from ..report.budget_tables import budget_tables
    from ..report.comparison import sweep_results
    from ..storage import read_rows
    from ..terminal import note

    rows = read_rows(out / RESULTS, note)
    for sweep_result in sweep_results(out, recipe, scale, rows):
        if sweep_result.changes == changes:
            for table in budget_tables(sweep_result.budgets, sweep_result.changed):
                Console().print(table, "")


def _costs(
    recipe: Recipe, arms: Mapping[str, Any], plan_options: Mapping[str, Any], data: Path, out: Path, engine: Engine
) -> tuple[Costs, list[Failure]]:
    """Return the measured costs of the arms, and a failure for every arm that cannot be measured."""
    from ..sweep import costs
    from ..sweep.plan import arm_runs
    from ..sweep.workers import Failure
    from ..terminal import note

    measured_runs = arm_runs(recipe, **plan_options, **{**arms, "seeds": arms["seeds"][:1]})
    # Plan no mixing together with the arms, so that changes of method options do not apply to it.
    together = arm_runs(recipe, **plan_options, **{**arms, "methods": (costs.BASE[0], *arms["methods"])})
    measured = costs.measure_costs(together[0], measured_runs, data=data, out=out, engine=engine, note=note)
    reasons = {arm: f"the cost of an update could not be measured: {reason}" for arm, reason in measured.broken.items()}
    return measured.numbers, [
        Failure(run, reasons[run.arm, run.k], out / costs.LOG) for run in measured_runs if (run.arm, run.k) in reasons
    ]
