"""`multimix sweep`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from .options import DATA_VARIABLE, RUNS, changes_of, data_folder

with suppress(ModuleNotFoundError):  # cli.main() says in one sentence what is missing
    import tyro


def sweep(
    recipe: Annotated[str, tyro.conf.arg(metavar="RECIPE", help="Which table or figure; multimix list recipes names them.")],
    /,
    *,
    methods: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME …", help="What is compared; multimix list methods names all.")
    ] = ("none", "mixup", "cutmix", "puzzlemix"),
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="With how many interpolations each.")] = (1, 5),
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="SEED …", help="One training for each.")] = (0, 1, 2),
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        tyro.conf.arg(help="The paper's setting, a reduced study for a CPU (minutes), or a few seconds to see that it runs."),
    ] = "paper",
    equal: Annotated[
        tuple[Literal["steps", "samples", "compute"], ...],
        tyro.conf.arg(
            metavar="BUDGET …", help="What all get the same of: steps (the recipe's schedule), samples, compute; or several."
        ),
    ] = ("steps",),
    jobs: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="Runs at a time, each in a process of its own.",
            help_behavior_hint="(default: 1 on this machine; what fits into a cluster)",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray", "slurm"],
        tyro.conf.arg(help="Where runs are trained: this machine, a Ray cluster, jobs of Slurm. All must see the folders."),
    ] = "local",
    address: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="ADDRESS", help="Ray: of a cluster.", help_behavior_hint="(default: $RAY_ADDRESS, or Ray on this machine)"
        ),
    ] = None,
    cpus_per_run: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="Ray, Slurm: cores of a run.", help_behavior_hint="(default: 1)")
    ] = None,
    gpus_per_run: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="Ray, Slurm: GPUs of a run.", help_behavior_hint="(default: 0)")
    ] = None,
    partition: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help="Slurm: the partition.", help_behavior_hint="(default: Slurm's own)")
    ] = None,
    hours: Annotated[
        float | None, tyro.conf.arg(metavar="H", help="Slurm: the time limit of a run.", help_behavior_hint="(default: 24)")
    ] = None,
    memory: Annotated[
        float | None, tyro.conf.arg(metavar="GB", help="Slurm: the memory of a run.", help_behavior_hint="(default: Slurm's own)")
    ] = None,
    data: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FOLDER", help="Where the data sets are.", help_behavior_hint=f"(default: ${DATA_VARIABLE}, or data)"
        ),
    ] = None,
    out: Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where runs and results go; what is finished there is not done again.")
    ] = RUNS,
    retry: Annotated[int, tyro.conf.arg(metavar="N", help="How often a run that failed is tried again at once.")] = 0,
    rebuild: Annotated[bool, tyro.conf.arg(help="Make tables and figures again from the results, and train nothing.")] = False,
    set_: Annotated[
        tuple[str, ...],
        tyro.conf.arg(name="set", metavar="FIELD=VALUE …", help="Fields to change; --FIELD VALUE does the same."),
    ] = (),
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
    from .sweep_runner import run

    run(
        recipe,
        methods=methods,
        ks=ks,
        seeds=seeds,
        scale=scale,
        equal=equal,
        data=data_folder(data),
        out=out,
        jobs=jobs,
        changes=changes_of(set_),
        rebuild=rebuild,
        retry=retry,
        engine=engine,
        address=address,
        cpus_per_run=cpus_per_run,
        gpus_per_run=gpus_per_run,
        partition=partition,
        hours=hours,
        memory=memory,
    )
