"""`multimix transfer`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from .options import DATA_VARIABLE, data_folder


def transfer(
    run: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN …", help="Folders of runs, or of results (all runs there).")],
    /,
    *,
    count: Annotated[int, tyro.conf.arg(metavar="N", help="Epochs, or steps.")] = 10,
    unit: Annotated[Literal["epoch", "step"], tyro.conf.arg(help="What is counted, and measured after.")] = "epoch",
    lr: Annotated[float, tyro.conf.arg(metavar="RATE", help="Adam's learning rate.")] = 1e-4,
    batch: Annotated[int, tyro.conf.arg(metavar="B", help="Pictures of an update.")] = 32,
    per_class: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="So many pictures of every bird, in both parts.", help_behavior_hint="(default: all)"),
    ] = None,
    layers: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="LAYER …", help="What is trained with the head.", help_behavior_hint="(default: the last block)"),
    ] = (),
    seed: Annotated[int, tyro.conf.arg(metavar="SEED", help="Decides the new head and the order of pictures.")] = 0,
    checkpoint: Annotated[Literal["last", "best"], tyro.conf.arg(help="Which weights of a run.")] = "last",
    data: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FOLDER", help="Where CUB_200_2011 is.", help_behavior_hint=f"(default: ${DATA_VARIABLE}, or data)"
        ),
    ] = None,
    workers: Annotated[int, tyro.conf.arg(metavar="N", help="Processes that read pictures.")] = 0,
    device: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help="cpu, cuda, ….", help_behavior_hint="(default: what is there)")
    ] = None,
    again: Annotated[bool, tyro.conf.arg(help="Do anew what was done before.")] = False,
) -> None:
    """Train the last block and a new head on CUB-200-2011, and measure error and boxes after every epoch or step.

    The same as evaluate --on transfer, with more to choose. Numbers are kept in the run's folder for tables and reports.

    Try it:
      multimix transfer multimix-runs/tiny_imagenet/smoke/none-k1-seed0-*
      multimix transfer multimix-runs --unit step --count 10 --per-class 5
    """
    from ..evaluation.predictions import Reading
    from ..evaluation.runner import evaluate_places
    from ..evaluation.transfer import TransferOptions
    from ..results.evaluations import draw, show_evaluations

    done, failed = evaluate_places(
        run,
        ("transfer",),
        data=data_folder(data),
        draw=draw,
        checkpoint=checkpoint,
        options={"transfer": TransferOptions(unit, count, lr, batch, per_class, seed, layers or None)},
        reading=Reading(batch, workers),
        device=device,
        again=again,
    )
    show_evaluations(("transfer",), done, failed)
