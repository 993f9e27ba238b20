"""`multimix sweep`: planned, trained in processes of their own, compared; what failed is listed at the end."""

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
    methods: Annotated[
        tuple[str, ...],
        option("What is compared; multimix list methods names all. all: every one the recipe can train.", "NAME …"),
    ] = (
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
    cluster: Annotated[
        tuple[str, ...],
        option(
            "Of a run with ray or slurm: cpus=1 gpus=0; ray: address=HOST:PORT; slurm: partition=NAME hours=24 memory=GB.",
            "NAME=VALUE …",
        ),
    ] = (),
    data: DataFolder = None,
    out: OutFolder = RUNS,
    retry: Annotated[int, option("How often a run that failed is tried again at once.", "N")] = 0,
    set_: Changes = (),
) -> None:
    """Train methods × K × seeds of a recipe, and compare them at equal steps, equal samples or equal compute.

    Stopped, the same command resumes where it was. A run that fails or is killed is listed at the end and the others go on; the
    same command tries it again. Then multimix evaluate OUT measures the networks, and multimix report OUT makes a page.

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
        raise ValueError("multimix sweep starts its processes by itself; torchrun is for multimix train")
    chosen, folder, changes = named_recipe(recipe, follow), data_folder(data), changes_of(set_)
    settings = chosen.settings(scale)
    name = settings.data.name
    if dataset(name).folders and not (folder.is_dir() and any(folder.iterdir())):  # said once instead of by every run
        raise ValueError(f"{folder} must hold the data set {name} (--data; multimix data fetch {name}), it holds nothing")
    if "all" in methods:
        methods = trainable_arms(chosen, scale, ks, note)
    asked: dict[str, Any] = {"methods": methods, "ks": ks, "seeds": seeds}
    short = scale == "smoke" or (chosen.in_process and scale == "small")
    if engine == "local" and jobs is None and not cluster and short:
        runner: Engine = InProcess()
    else:
        runner = make_engine(engine, out, jobs=jobs, **_cluster_options(cluster))
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
    _print_tables(chosen, scale, out, changes)
    note(f"measure the networks: multimix evaluate {out}\na page of everything: multimix report {out}")
    for failure in failures:
        note(f"failed: {run_label(failure.run)}: {failure.reason}\n  {failure.log}")
    if failures:
        raise ValueError(f"{counted(len(failures), 'run')} failed, as listed above; the same command tries again")


def _cluster_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE; numbers become int or float."""
    parsed: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"cluster takes NAME=VALUE, got {text!r}")
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
    from ..report.comparison import at_equal_budgets
    from ..report.study_tables import budget_tables
    from ..storage import read_rows
    from ..sweep.plan import groups, read_plan
    from ..terminal import note

    rows = read_rows(out / RESULTS, note)
    for group in groups(read_plan(out, note)):
        if (group.recipe, group.scale, group.changes) == (recipe.name, scale, changes):
            changed = ", ".join(f"{field} = {value}" for field, value in changes.items())
            for table in budget_tables(at_equal_budgets(recipe, scale, rows, group.runs), changed):
                Console().print(table, "")


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
