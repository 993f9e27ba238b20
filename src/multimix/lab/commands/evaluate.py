"""`multimix evaluate`."""

from pathlib import Path
from typing import Annotated, Literal

from .options import DataFolder, Trust, data_folder, option


def evaluate(
    run: Annotated[
        tuple[str, ...],
        option("Folders of runs, or of results (all runs there), or package.module:function of a network.", "RUN …"),
    ],
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        option(
            "error, calibration, localization, background, corruption, transfer, speech, gradient_norm, training_time.", "NAME …"
        ),
    ] = ("error", "calibration"),
    checkpoint: Annotated[
        Literal["last", "best"] | None, option("Which weights of a run.", default="last; best for speech")
    ] = None,
    data: DataFolder = None,
    data_set: Annotated[str | None, option("Another data set.", "NAME", default="the run's own")] = None,
    part: Annotated[str | None, option("test or validation.", "PART", default="as in training")] = None,
    per_class: Annotated[int | None, option("So many samples of every class.", "N", default="as in training")] = None,
    whole: Annotated[bool, option("All samples of the part, also if training looked at fewer.")] = False,
    batchnorm: Annotated[
        tuple[Literal["as_trained", "recomputed", "unaugmented"], ...],
        option("Batch-norm statistics: as_trained, recomputed (unmixed training samples, augmented) or unaugmented.", "WAY …"),
    ] = ("as_trained",),
    bins: Annotated[int, option("Calibration: bins of confidence.", "M")] = 10,
    corruptions: Annotated[tuple[str, ...], option("Corruption: which.", "NAME …", default="all")] = (),
    severities: Annotated[tuple[int, ...], option("Corruption: of 1 … 5.", "S …")] = (1, 2, 3, 4, 5),
    ks: Annotated[tuple[int, ...], option("Gradient norm, time: which K.", "K …")] = (1, 3, 5, 7, 9),
    batches: Annotated[int, option("Gradient norm: mean over so many batches.", "N")] = 20,
    mean: Annotated[tuple[float, ...], option("A network that is no run: pixels' mean.", "M …", default="the data's")] = (),
    std: Annotated[tuple[float, ...], option("A network that is no run: their deviation.", "S …", default="the data's")] = (),
    crop: Annotated[
        int | None,
        option(
            "A network that is no run: side of its input, cut from the middle.",
            "SIDE",
            default="224 for photos, else as they are",
        ),
    ] = None,
    foreign: Annotated[bool, option("A network that is no run: its classes are not those of the data.")] = False,
    seed: Annotated[int, option("Decides noise, and which other image replaces a background.", "SEED")] = 0,
    batch: Annotated[int, option("Samples at a time.", "B")] = 200,
    workers: Annotated[int, option("Processes that read pictures.", "N")] = 0,
    device: Annotated[str | None, option("cpu, cuda, ….", "NAME", default="what is there")] = None,
    out: Annotated[Path, option("Where findings on networks that are no runs go.", "FOLDER")] = Path("multimix-evaluations"),
    again: Annotated[bool, option("Measure anew what was measured before.")] = False,
    trust: Trust = (),
) -> None:
    """What trained networks are worth: errors, calibration, localisation, robustness, transfer, gradients and time.

    Numbers are kept in the run's folder (evaluations.jsonl), pictures beside them; what is known is not measured again. Tables
    and reports read them from there.

    Try it:
      multimix evaluate multimix-runs
      multimix evaluate multimix-runs/cifar100_preact_resnet18/small/none-k1-seed0-* --on error calibration corruption
      multimix evaluate multimix-runs/tiny_imagenet/smoke/* --on localization background
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
        batchnorm=batchnorm,
        view=View(mean or None, std or None, crop, foreign),
        options=options,
        reading=Reading(batch, workers),
        device=device,
        again=again,
        trust=trust,
    )
    show_evaluations(on, done, failed)
