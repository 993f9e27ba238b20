"""`multimix train`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from .options import DATA_VARIABLE, change, data_folder

with suppress(ModuleNotFoundError):  # cli.main() says in one sentence what is missing
    import tyro


def train(
    recipe: Annotated[str, tyro.conf.arg(metavar="RECIPE", help="Which table or figure; multimix list recipes names them.")],
    /,
    *,
    method: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="NAME", help="What to train; multimix list methods names all.", help_behavior_hint="(default: all rows)"
        ),
    ] = None,
    k: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="K",
            help="Interpolations, or the factor of a batch strategy.",
            help_behavior_hint="(default: 5 with --method)",
        ),
    ] = None,
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="SEED …", help="One training for each.")] = (0,),
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        tyro.conf.arg(help="The paper's setting, a reduced study for a CPU (minutes), or a few seconds to see that it runs."),
    ] = "paper",
    data: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FOLDER", help="Where the data sets are.", help_behavior_hint=f"(default: ${DATA_VARIABLE}, or data)"
        ),
    ] = None,
    out: Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where runs and results go; what is finished there is not done again.")
    ] = Path("multimix-runs"),
    skip_bad: Annotated[bool, tyro.conf.arg(help="Leave out files that cannot be read, and count them.")] = False,
    show: Annotated[bool, tyro.conf.arg(help="Print all fields of the settings, and train nothing.")] = False,
    rebuild: Annotated[bool, tyro.conf.arg(help="Make tables and figures again from the results, and train nothing.")] = False,
    set_: Annotated[
        tuple[str, ...],
        tyro.conf.arg(name="set", metavar="FIELD=VALUE …", help="Fields to change; --FIELD VALUE does the same."),
    ] = (),
) -> None:
    """Train the networks of a table or figure of the paper, or one method of it, with any field of its settings changed.

    Killed or stopped, the same command goes on where it was and ends with the same weights. Results are rows in
    FOLDER/results.jsonl; tables and figures are made of them. Several devices or machines: torchrun … -m multimix.lab.cli train …

    Try it:
      multimix list
      multimix train cifar100_preact_resnet18 --scale smoke --method cutmix --k 5
      multimix train cifar100_preact_resnet18 --scale small --method puzzlemix --k 5 --seeds 0 1 2
      multimix train cifar100_preact_resnet18 --method mixup --show
      multimix train cifar100_preact_resnet18 --method mixup --schedule.rate 0.1 --method.alpha 0.5 --epochs 200
    """
    from .train_runner import run

    changes = dict(change(words) for words in set_)
    if skip_bad:
        changes["data.skip_bad"] = "true"
    run(
        recipe,
        method=method,
        k=k,
        seeds=seeds,
        scale=scale,
        data=data_folder(data),
        out=out,
        changes=changes,
        only_show=show,
        rebuild=rebuild,
    )
