"""`multimix sweep`."""

from typing import Annotated, Literal

import tyro

from .options import RUNS, Changes, DataFolder, OutFolder, Rebuild, RecipeName, ScaleName, Seeds, changes_of, data_folder


def sweep(
    recipe: RecipeName,
    /,
    *,
    methods: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME …", help="What is compared; multimix list methods names all.")
    ] = ("none", "mixup", "cutmix", "puzzlemix"),
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="With how many interpolations each.")] = (1, 5),
    seeds: Seeds = (0, 1, 2),
    scale: ScaleName = "paper",
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
    data: DataFolder = None,
    out: OutFolder = RUNS,
    retry: Annotated[int, tyro.conf.arg(metavar="N", help="How often a run that failed is tried again at once.")] = 0,
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
