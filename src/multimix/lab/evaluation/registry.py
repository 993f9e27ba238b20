"""The evaluators by name, each as it is asked about a subject: its numbers for tables, its whole result, its pictures."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from ...checks import nearest
from ..data import Augment, Files, Resize, Split
from ..recipes.settings import Settings
from ..results.box_pictures import box_examples, box_picture
from ..results.confusion import confusion_figures
from ..results.k_figures import norm_figures, time_figures
from ..results.reliability import reliability_figures
from ..training.loop import as_stored
from .base import Evaluator, Finding, Options
from .boxes import Progress, with_boxes
from .calibration import calibration, temperature_scaling
from .corruption import BACKGROUND, COMMON, corruption_errors
from .cub_transfer import birds, transferred
from .error import errors
from .gradient_norm import gradient_norms
from .localization import localization
from .predictions import Predictions, predictions
from .speech import speech
from .subject import Subject
from .training_time import training_times

EXAMPLES = 10  # pictures with boxes
COUNTS = ("n", "classes", "selected_epoch")  # numbers that are whole


def evaluator(name: str) -> Evaluator:
    """The evaluator called ``name``."""
    if name not in EVALUATORS:
        raise ValueError(f"no evaluator {name!r}{nearest(name, EVALUATORS)}; there are {', '.join(EVALUATORS)}")
    return EVALUATORS[name]


def _error(subject: Subject, options: Options, progress: Progress) -> Finding:
    found = errors(_predictions(subject, options, progress))
    result = asdict(found) | {"classes": list(subject.report.classes)}
    return Finding(found.summary(), result, confusion_figures(found, subject.report.classes, subject.title))


def _calibration(subject: Subject, options: Options, progress: Progress) -> Finding:
    seen = _predictions(subject, options, progress)
    found = calibration(seen, options.bins)
    fitted, select = None, subject.parts().select
    if select is not None:
        fitted = predictions(
            subject.network, select, subject.evaluation, batch=options.batch, workers=options.workers, progress=progress
        )
    scaling = temperature_scaling(seen, fitted, options.bins) if len(seen) > 1 else None
    numbers: dict[str, float | None] = dict(found.summary())
    if scaling is not None:
        # Before and after on the samples that the temperature was not fitted on: fewer than all, so ECE is higher by itself.
        numbers |= {"temperature": scaling.temperature, "ece_before": scaling.ece_before, "ece_scaled": scaling.ece}
    result = {"calibration": asdict(found), "scaling": None if scaling is None else asdict(scaling)}
    return Finding(numbers, result, reliability_figures(found, subject.title, scaling))


def _localization(subject: Subject, options: Options, progress: Progress) -> Finding:
    split = _files_with_boxes(subject, "localization")
    found = localization(
        subject.network,
        split,
        subject.evaluation,
        foreign=subject.foreign,
        batch=min(50, options.batch),
        workers=options.workers,
        progress=progress,
    )
    numbers: dict[str, float | None] = {"n": found.n, "error": None if found.error is None else found.error.percent}
    numbers |= {one.name: one.accuracy.percent for one in found.accuracies}
    boxed = with_boxes(split)
    index = torch.linspace(0, len(boxed) - 1, min(EXAMPLES, len(boxed))).round().long()
    examples = box_examples(subject.network, boxed, subject.evaluation, index, foreign=subject.foreign)
    return Finding(numbers, asdict(found), {"boxes.png": box_picture(examples, note=subject.title)})


def _corruption(subject: Subject, options: Options, progress: Progress) -> Finding:
    found = corruption_errors(
        subject.network,
        _stored_small(subject),
        subject.evaluation,
        names=options.corruptions or None,
        severities=options.severities,
        seed=options.seed,
        batch=options.batch,
        workers=options.workers,
        progress=progress,
    )
    names = dict.fromkeys(row.name for row in found.rows)
    return Finding({"n": found.n, **{name: found.mean(name) for name in names}}, asdict(found), {})


def _transfer(subject: Subject, options: Options, progress: Progress) -> Finding:
    found = transferred(subject, options.transfer, workers=options.workers, progress=progress)
    numbers: dict[str, float | None] = {}
    for row in found.rows:
        numbers[f"error_{row.number}"] = row.error.percent
        numbers |= {f"{one.name}_{row.number}": one.accuracy.percent for one in row.accuracies}
    return Finding(numbers, asdict(found), {})


def _speech(subject: Subject, options: Options, progress: Progress) -> Finding:
    settings = subject.settings
    if settings is None or settings.data.select is None:
        raise ValueError(f"{subject.title} has no part to select an epoch by, which speech needs (data.select)")
    found = speech(
        subject.network,
        subject.report,
        subject.evaluation,
        subject.history if subject.own else (),  # on other samples the error is not that of the log
        selection=subject.parts().select if subject.own else None,
        batch=options.batch,
        workers=options.workers,
        progress=progress,
    )
    return Finding(found.numbers(), asdict(found), {})


def _gradient_norm(subject: Subject, options: Options, progress: Progress) -> Finding:
    found = gradient_norms(**_update(subject, options, "gradient_norm"), batches=options.batches, progress=progress)
    return Finding(found.numbers(), asdict(found), norm_figures(found, subject.title))


def _training_time(subject: Subject, options: Options, progress: Progress) -> Finding:
    found = training_times(**_update(subject, options, "training_time"), progress=progress)
    return Finding(found.numbers(), asdict(found), time_figures(found, subject.title))


def _update(subject: Subject, options: Options, name: str) -> dict[str, Any]:
    """What an evaluator is told to repeat updates of the run's last epoch."""
    settings, train, augment = _trained(subject, name)
    same = {field: getattr(settings, field) for field in ("method", "batch", "loss", "smoothing")}
    asked = {field: getattr(options, field) for field in ("ks", "seed", "workers")}
    return {"network": subject.network, "split": train, "augment": augment, **same, **asked}


def _trained(subject: Subject, name: str) -> tuple[Settings, Split, Augment]:
    """How the network was trained and on what, as an update of the last epoch sees it."""
    train = subject.parts().train
    if subject.settings is None or train is None:
        raise ValueError(f"{name} needs a run with the data it was trained on, {subject.title} has none here")
    # With the networks that the method had learnt beside, if it has any.
    settings = replace(subject.settings, method=subject.method or subject.settings.method)
    settings = settings.in_epoch(settings.epochs - 1)
    plain = {"repeats": 1, "accumulate": 1, "k_chunk": None, "mixed_precision": "no"}
    for field, value in plain.items():
        if getattr(settings, field) != value:
            raise ValueError(
                f"{name} measures whole updates in full precision; {subject.title} has {field} = {getattr(settings, field)}"
            )
    return settings, as_stored(train, settings.augment.short_side), settings.augment.training(subject.entry)


def _training_labels(subject: Subject, options: Options) -> list[Tensor]:
    train = subject.parts().train
    return [] if train is None else [train.labels]


def _all_labels(subject: Subject, options: Options) -> list[Tensor]:
    parts = subject.parts()
    return [part.labels for part in (parts.report, parts.select) if part is not None]


def _birds_labels(subject: Subject, options: Options) -> list[Tensor]:
    return [] if subject.folder is None else [part.labels for part in birds(subject.folder, options.transfer)]


def _predictions(subject: Subject, options: Options, progress: Progress) -> Predictions:
    """Made once, whoever asks first."""
    if len(subject.report) == 0:
        raise ValueError(f"{subject.samples.get('data', 'the data set')} has no samples in this part")
    if subject.foreign:
        raise ValueError(f"the classes of {subject.title} are not those of {subject.samples['data']}, so none is right or wrong")
    if "report" not in subject.seen:
        subject.seen["report"] = predictions(
            subject.network, subject.report, subject.evaluation, batch=options.batch, workers=options.workers, progress=progress
        )
    return subject.seen["report"]


def _files_with_boxes(subject: Subject, name: str) -> Files:
    split = subject.report
    if not isinstance(split, Files) or split.boxes is None:
        raise ValueError(
            f"{subject.samples.get('data', 'the data set')} has no boxes, which {name} needs; "
            "imagenet, tiny_imagenet and cub200 have (--data-set NAME)"
        )
    return split


def _stored_small(subject: Subject) -> Split:
    """Photos as large as they are before their middle is taken: noise on a larger one would be averaged away."""
    sizes = [step.size for step in subject.evaluation.steps if isinstance(step, Resize)]
    return as_stored(subject.report, sizes[0] if sizes and isinstance(sizes[0], int) else None)


EVALUATORS: Mapping[str, Evaluator] = {
    "error": Evaluator(
        "top-1 and top-5 error with Wilson's 95 % interval, class by class, confusions",
        _error,
        shown=("n", "error", "error_low", "error_high", "error_top5", "worst_class_error"),
    ),
    "calibration": Evaluator(
        "ECE with bins (a, b], adaptive ECE, Brier, NLL; temperature scaling for comparison",
        _calibration,
        shown=("n", "ece", "adaptive_ece", "brier", "nll", "temperature", "ece_before", "ece_scaled"),
        uses=("bins",),
        labels=_all_labels,
    ),
    "localization": Evaluator(
        "boxes from class activation maps, per cent found (data with boxes)",
        _localization,
        shown=("n", "error", "paper_text", "reference", "max_box_gt_known_0.5", "max_box_top1_0.5", "max_box_predicted_0.5"),
    ),
    "corruption": Evaluator(
        "error with spoilt backgrounds (data with boxes) and under common corruptions, mean over severities",
        _corruption,
        shown=("n", "clean", *BACKGROUND, *COMMON),
        uses=("severities", "corruptions", "seed"),
    ),
    "transfer": Evaluator(
        "last block and a new head trained on CUB-200-2011: error and birds found after each epoch or step",
        _transfer,
        shown=(),
        uses=("transfer",),
        labels=_birds_labels,
    ),
    "speech": Evaluator(
        "test error of the epoch with the least validation error (runs with a part to select by)",
        _speech,
        shown=("n", "error", "selected_epoch"),
        checkpoint="best",
        labels=_all_labels,
    ),
    "gradient_norm": Evaluator(
        "‖g‖² of a batch at these weights, for every K",
        _gradient_norm,
        shown=(),
        uses=("ks", "batches", "seed"),
        labels=_training_labels,
    ),
    "training_time": Evaluator(
        "time of an update for every K, as a multiple of K = 1",
        _training_time,
        shown=(),
        uses=("ks", "seed"),
        labels=_training_labels,
        timed=True,
    ),
}
