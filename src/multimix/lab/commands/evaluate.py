"""`multimix evaluate`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from .options import DataFolder, data_folder


def evaluate(
    run: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            metavar="RUN …", help="Folders of runs, or of results (all runs there), or package.module:function of a network."
        ),
    ],
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            metavar="NAME …",
            help="error, calibration, localization, corruption, transfer, speech, gradient_norm, training_time.",
        ),
    ] = ("error", "calibration"),
    checkpoint: Annotated[
        Literal["last", "best"] | None,
        tyro.conf.arg(help="Which weights of a run.", help_behavior_hint="(default: last; best for speech)"),
    ] = None,
    data: DataFolder = None,
    data_set: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help="Another data set.", help_behavior_hint="(default: the run's own)")
    ] = None,
    part: Annotated[
        str | None, tyro.conf.arg(metavar="PART", help="test or validation.", help_behavior_hint="(default: as in training)")
    ] = None,
    per_class: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="So many samples of every class.", help_behavior_hint="(default: as in training)"),
    ] = None,
    whole: Annotated[bool, tyro.conf.arg(help="All samples of the part, also if training looked at fewer.")] = False,
    bins: Annotated[int, tyro.conf.arg(metavar="M", help="Calibration: bins of confidence.")] = 10,
    corruptions: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME …", help="Corruption: which.", help_behavior_hint="(default: all)"),
    ] = (),
    severities: Annotated[tuple[int, ...], tyro.conf.arg(metavar="S …", help="Corruption: of 1 … 5.")] = (1, 2, 3, 4, 5),
    ks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K …", help="Gradient norm, time: which K.")] = (1, 3, 5, 7, 9),
    batches: Annotated[int, tyro.conf.arg(metavar="N", help="Gradient norm: mean over so many batches.")] = 20,
    mean: Annotated[
        tuple[float, ...],
        tyro.conf.arg(metavar="M …", help="A network that is no run: pixels' mean.", help_behavior_hint="(default: the data's)"),
    ] = (),
    std: Annotated[
        tuple[float, ...],
        tyro.conf.arg(
            metavar="S …", help="A network that is no run: their deviation.", help_behavior_hint="(default: the data's)"
        ),
    ] = (),
    crop: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="SIDE",
            help="A network that is no run: side of its input, cut from the middle.",
            help_behavior_hint="(default: 224 for photos, else as they are)",
        ),
    ] = None,
    foreign: Annotated[bool, tyro.conf.arg(help="A network that is no run: its classes are not those of the data.")] = False,
    seed: Annotated[int, tyro.conf.arg(metavar="SEED", help="Decides noise and the donors of backgrounds.")] = 0,
    batch: Annotated[int, tyro.conf.arg(metavar="B", help="Samples at a time.")] = 200,
    workers: Annotated[int, tyro.conf.arg(metavar="N", help="Processes that read pictures.")] = 0,
    device: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help="cpu, cuda, ….", help_behavior_hint="(default: what is there)")
    ] = None,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="Where findings on networks that are no runs go.")] = Path(
        "multimix-evaluations"
    ),
    again: Annotated[bool, tyro.conf.arg(help="Measure anew what was measured before.")] = False,
) -> None:
    """What trained networks are worth: errors, calibration, localisation, robustness, transfer, gradients and time.

    Numbers are kept in the run's folder (evaluations.jsonl), pictures beside them; what is known is not measured again. Tables
    and reports read them from there.

    Try it:
      multimix evaluate multimix-runs
      multimix evaluate multimix-runs/cifar100_preact_resnet18/small/none-k1-seed0-* --on error calibration corruption
      multimix evaluate multimix-runs/tiny_imagenet/smoke/* --on localization
      multimix evaluate my_models:resnet50 --data-set imagenet --on error localization
    """
    from ..evaluation.predictions import Reading
    from ..evaluation.runner import evaluate_places
    from ..evaluation.subject import Samples, View
    from ..results.evaluations import draw, show_evaluations

    options = {"bins": bins, "severities": severities, "corruptions": corruptions, "seed": seed, "ks": ks, "batches": batches}
    done, failed = evaluate_places(
        run,
        on,
        data=data_folder(data),
        out=out,
        draw=draw,
        checkpoint=checkpoint,
        samples=Samples(data_set, part, per_class, whole),
        view=View(mean or None, std or None, crop, foreign),
        options=options,
        reading=Reading(batch, workers),
        device=device,
        again=again,
    )
    show_evaluations(on, done, failed)
