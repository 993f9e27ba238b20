"""`multimix evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..terminal import note
from .options import DataFolder, Trust, check_sizes, data_folder, option, parse_changes

if TYPE_CHECKING:
    from ..evaluation.runner import Evaluated

MAX_COLUMNS = 12


def evaluate(
    run: Annotated[
        tuple[str, ...],
        option("Folders of runs or of results (all their runs), or package.module:function of a network.", "RUN …"),
    ],
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        option(
            "Measures: error, calibration, localization, background, corruption, transfer, speech, gradient_norm, training_time.",
            "NAME …",
        ),
    ] = ("error", "calibration"),
    set_: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            name="set",
            metavar="NAME=VALUE …",
            help="Options of the measures, listed above.",
            help_behavior_hint="(default: as listed above)",
        ),
    ] = (),
    checkpoint: Annotated[
        Literal["last", "best"] | None, option("Weights of the last or the best epoch.", default="last; best for speech")
    ] = None,
    data: DataFolder = None,
    data_set: Annotated[str | None, option("Data set to evaluate on.", "NAME", default="that of the run")] = None,
    part: Annotated[str | None, option("Split: test or validation.", "PART", default="as in training")] = None,
    per_class: Annotated[int | None, option("Number of samples per class.", "N", default="as in training")] = None,
    whole: Annotated[bool, option("Evaluate on all samples of the split, even if the training used fewer.")] = False,
    batchnorm: Annotated[
        tuple[Literal["as_trained", "recomputed", "unaugmented"], ...],
        option(
            "Batch-norm statistics: as_trained, or recomputed on unmixed training samples with or without augmentation "
            "(recomputed, unaugmented).",
            "WAY …",
        ),
    ] = ("as_trained",),
    batch: Annotated[int, option("Batch size; results do not depend on it.", "B")] = 200,
    workers: Annotated[int, option("Number of processes that read images.", "N")] = 0,
    device: Annotated[str | None, option("Device: cpu, cuda, ….", "NAME", default="the accelerator if available")] = None,
    out: Annotated[Path, option("Output folder for networks that were not trained here.", "FOLDER")] = Path(
        "multimix-evaluations"
    ),
    again: Annotated[bool, option("Repeat stored evaluations.")] = False,
    trust: Trust = (),
) -> None:
    """Evaluate trained networks: error, calibration, localization, robustness, transfer, gradient norm, and time.

    Numbers are stored in the folder of the run (evaluations.jsonl) and are not measured twice. multimix report draws
    figures, and with --only it prints the numbers beside the paper's.

    Options of the measures with their defaults, for --set (lists without spaces; none for no value):
      calibration    bins=10
      background     seed=0
      corruption     severities=1,2,3,4,5 corruptions= seed=0  (empty: all corruptions)
      transfer       unit=epoch count=10 lr=0.0001 batch=32 per_class=none seed=0 layers=none
                     (smoke runs: count=2 batch=10 per_class=1; layers: the last stage)
      gradient_norm  ks=1,3,5,7,9 batches=20 seed=0
      training_time  ks=1,3,5,7,9 repeats=5 seed=0  (smoke runs: repeats=2)
      any measure    mean=none std=none crop=none foreign=false  (only for networks that were not trained here;
                     none: normalization and crop of the data set; foreign: trained on other classes)

    Try it:
      multimix evaluate multimix-runs
      multimix evaluate multimix-runs/cifar100_preact_resnet18/small/none-k1-seed0-* --on error calibration corruption
      multimix evaluate multimix-runs --on corruption --set corruptions=blur,jpeg severities=1,3,5
      multimix evaluate multimix-runs/tiny_imagenet/smoke/* --on localization background
      multimix evaluate multimix-runs --on transfer --set unit=step count=10 layers=stage4.2
      multimix evaluate my_models:resnet50 --data-set imagenet --on error localization --set crop=256
    """
    from ..evaluation.options import parse_options
    from ..evaluation.predictions import Reading
    from ..evaluation.runner import evaluate_sources
    from ..evaluation.subject import Samples

    options, view = parse_options(parse_changes(set_), on)
    check_sizes({**options, **view._asdict()})
    evaluated, failed = evaluate_sources(
        run,
        on,
        data=data_folder(data),
        out=out,
        checkpoint=checkpoint,
        samples=Samples(data_set, part, per_class, whole),
        batchnorm=batchnorm,
        view=view,
        options=options,
        reading=Reading(batch, workers),
        device=device,
        again=again,
        trust=trust,
    )
    _print_evaluations(run, on, evaluated, failed)


def _print_evaluations(run: Sequence[str], on: Sequence[str], evaluated: Sequence["Evaluated"], failed: Sequence[str]) -> None:
    """Print a table per measure; raise ValueError if an evaluation failed."""
    from ..evaluation.cache import is_run

    for name in on:
        evaluations = [evaluation for evaluation in evaluated if evaluation.on == name]
        if evaluations:
            _print_table(name, evaluations)
    stored = sum(not evaluation.new for evaluation in evaluated)
    if stored:
        note(f"{stored} of {len(evaluated)} evaluations were already stored (--again repeats them)")
    if any(is_run(evaluation.folder) for evaluation in evaluated):
        note(f"to draw figures: multimix report {run[0] if len(run) == 1 else 'RUNS'}")
    if len(failed) == 1 and not evaluated:
        raise ValueError(failed[0])
    if failed:
        for sentence in failed:
            note(sentence)
        raise ValueError("some evaluations failed, see above")


def _print_table(name: str, evaluations: Sequence["Evaluated"]) -> None:
    """Print a row per subject; for a single subject or many numbers, a row per number."""
    from rich.console import Console

    from ..evaluation.names import MEASURES
    from ..report.tables import Table

    labels = _labels(evaluations)
    about, columns = MEASURES[name].about, MEASURES[name].columns
    all_keys = tuple(dict.fromkeys(key for evaluation in evaluations for key in evaluation.numbers))
    keys = [key for key in columns or all_keys if any(evaluation.numbers.get(key) is not None for evaluation in evaluations)]
    by_subject = len(evaluations) > 1 and len(keys) <= MAX_COLUMNS
    keys_to_print = keys if by_subject else all_keys
    heads = [key.replace("_", " ") for key in keys_to_print]
    cells = [[_number(key, evaluation.numbers.get(key)) for key in keys_to_print] for evaluation in evaluations]
    if by_subject:
        rows = [[label, *row] for label, row in zip(labels, cells, strict=True)]
        heads = ["run", *heads]
    else:
        rows = [[head, *column] for head, *column in zip(heads, *cells, strict=True)]
        heads = ["number", *labels]
    Console().print(Table.of_rows(f"{name}: {about}", heads, rows))


def _labels(evaluations: Sequence["Evaluated"]) -> list[str]:
    """Return the shortest distinct labels: titles, titles with recipe and scale, or folders."""
    titles = [evaluation.subject for evaluation in evaluations]
    folders = [evaluation.folder.resolve().parts for evaluation in evaluations]
    longer = [f"{'/'.join(parts[-3:-1])} {title}" for parts, title in zip(folders, titles, strict=True)]
    paths = ["/".join(parts[-3:]) for parts in folders]
    return next((labels for labels in (titles, longer) if len(set(labels)) == len(evaluations)), paths)


def _number(name: str, value: float | None) -> str:
    """Format a count, or a number with two decimal places, or three digits if it is small."""
    from ..evaluation.names import COUNTS
    from ..report.tables import EMPTY

    if value is None:
        return EMPTY
    if name in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
