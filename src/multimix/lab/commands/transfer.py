"""`multimix transfer`."""

from pathlib import Path
from typing import Annotated, Literal

from .options import DATA_VARIABLE, Trust, data_folder, option


def transfer(
    run: Annotated[tuple[str, ...], option("Folders of runs, or of results (all runs there).", "RUN …")],
    /,
    *,
    count: Annotated[int, option("Epochs, or steps.", "N")] = 10,
    unit: Annotated[Literal["epoch", "step"], option("What is counted, and measured after.")] = "epoch",
    lr: Annotated[float, option("Adam's learning rate.", "RATE")] = 1e-4,
    batch: Annotated[int, option("Pictures of an update.", "B")] = 32,
    per_class: Annotated[int | None, option("So many pictures of every bird, in both parts.", "N", default="all")] = None,
    layers: Annotated[tuple[str, ...], option("What is trained with the head.", "LAYER …", default="the last stage")] = (),
    seed: Annotated[int, option("Decides the new head and the order of pictures.", "SEED")] = 0,
    checkpoint: Annotated[Literal["last", "best"], option("Which weights of a run.")] = "last",
    data: Annotated[Path | None, option("Where CUB_200_2011 is.", "FOLDER", default=f"${DATA_VARIABLE}, or data")] = None,
    workers: Annotated[int, option("Processes that read pictures.", "N")] = 0,
    device: Annotated[str | None, option("cpu, cuda, ….", "NAME", default="what is there")] = None,
    again: Annotated[bool, option("Do anew what was done before.")] = False,
    trust: Trust = (),
) -> None:
    """Train the last block and a new head on CUB-200-2011, and measure classes and boxes after every epoch or step.

    The same as evaluate --on transfer, with more to choose, and with all pictures and epochs for runs at smoke scale, too. The
    last block is the last stage; --layers stage4.2 trains only the last bottleneck of resnet50 (stage4.0 of resnet50_small).
    Numbers are kept in the run's folder for tables and reports.

    Try it:
      multimix transfer multimix-runs/tiny_imagenet/smoke/none-k1-seed0-*
      multimix transfer multimix-runs/imagenet/paper/* --layers stage4.2
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
        trust=trust,
    )
    show_evaluations(("transfer",), done, failed)
