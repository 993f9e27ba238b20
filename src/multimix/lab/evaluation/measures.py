"""The evaluators by name, each as it is asked about a subject: its numbers for tables, its whole result, its pictures."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch

from ...checks import nearest
from ..data import Augment, Files, Resize, Split
from ..evaluators.box_pictures import box_examples, box_picture
from ..evaluators.boxes import Progress, with_boxes
from ..evaluators.calibration import BINS, calibration, temperature_scaling
from ..evaluators.confusion import confusion_figures
from ..evaluators.corruption import BACKGROUND, COMMON, SEVERITIES, corruption_errors
from ..evaluators.error import errors
from ..evaluators.gradient_norm import gradient_norms
from ..evaluators.k_figures import norm_figures, time_figures
from ..evaluators.localization import localization
from ..evaluators.predictions import Predictions, predictions
from ..evaluators.reliability import reliability_figures
from ..evaluators.speech import speech
from ..evaluators.training_time import training_times
from ..training.loaded import Which
from ..training.loop import as_stored
from ..training.settings import Settings
from .subject import Subject
from .to_birds import PAPER, TransferOptions, transferred

EXAMPLES = 10  # pictures with boxes


@dataclass(frozen=True)
class Options:
    """What evaluators can be told. ``seed`` decides noise and donors of backgrounds; ``ks`` is for norms and times."""

    bins: int = BINS
    severities: tuple[int, ...] = SEVERITIES
    corruptions: tuple[str, ...] = ()
    seed: int = 0
    ks: tuple[int, ...] = (1, 3, 5, 7, 9)
    batches: int = 20
    transfer: TransferOptions = PAPER
    batch: int = 200
    workers: int = 0


class Finding(NamedTuple):
    """``numbers`` for tables, the whole ``result`` as JSON values, and pictures by file name."""

    numbers: dict[str, float | None]
    result: dict[str, Any]
    files: dict[str, bytes]


class Evaluator(NamedTuple):
    """What it measures, which of its options matter, which of its numbers come first, and on which checkpoint."""

    about: str
    measure: Callable[[Subject, Options, Progress], Finding]
    shown: tuple[str, ...]
    uses: tuple[str, ...] = ()
    checkpoint: Which = "last"


def evaluator(name: str) -> Evaluator:
    """The evaluator called ``name``."""
    if name not in EVALUATORS:
        raise ValueError(f"no evaluator {name!r}{nearest(name, EVALUATORS)}; there are {', '.join(EVALUATORS)}")
    return EVALUATORS[name]


def decisive(name: str, subject: Subject, options: Options) -> dict[str, Any]:
    """All that the numbers of an evaluator depend on beside the weights, as JSON values."""
    given = asdict(options)
    return {**subject.samples, **{option: given[option] for option in evaluator(name).uses}}


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
        numbers |= {"temperature": scaling.temperature, "ece_scaled": scaling.ece}
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
    own = subject.samples["part"] == settings.data.report and subject.samples["per_class"] == settings.data.report_per_class
    found = speech(
        subject.network,
        subject.report,
        subject.evaluation,
        subject.history if own else (),  # on other samples the error is not that of the log
        selection=subject.parts().select,
        batch=options.batch,
        workers=options.workers,
        progress=progress,
    )
    return Finding(found.numbers(), asdict(found), {})


def _gradient_norm(subject: Subject, options: Options, progress: Progress) -> Finding:
    settings, train, augment = _trained(subject, "gradient_norm")
    found = gradient_norms(
        subject.network,
        settings.method,
        train,
        augment,
        ks=options.ks,
        batches=options.batches,
        batch=settings.batch,
        loss=settings.loss,
        smoothing=settings.smoothing,
        seed=options.seed,
        workers=options.workers,
        progress=progress,
    )
    return Finding(found.numbers(), asdict(found), norm_figures(found, subject.title))


def _training_time(subject: Subject, options: Options, progress: Progress) -> Finding:
    settings, train, augment = _trained(subject, "training_time")
    found = training_times(
        subject.network,
        settings.method,
        train,
        augment,
        ks=options.ks,
        batch=settings.batch,
        loss=settings.loss,
        smoothing=settings.smoothing,
        seed=options.seed,
        workers=options.workers,
        progress=progress,
    )
    return Finding(found.numbers(), asdict(found), time_figures(found, subject.title))


def _trained(subject: Subject, name: str) -> tuple[Settings, Split, Augment]:
    """How the network was trained and on what, as an update of the last epoch sees it."""
    train = subject.parts().train
    if subject.settings is None or train is None:
        raise ValueError(f"{name} needs a run with the data it was trained on, {subject.title} has none here")
    settings = subject.settings.in_epoch(subject.settings.epochs - 1)
    return settings, train, settings.augment.training(subject.entry)


def _predictions(subject: Subject, options: Options, progress: Progress) -> Predictions:
    """Made once, whoever asks first."""
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


_OF_K = ("k1", "k3", "k5", "k7", "k9")
EVALUATORS: Mapping[str, Evaluator] = {
    "error": Evaluator(
        "top-1 and top-5 error with Wilson's 95 % interval, class by class, confusions",
        _error,
        shown=("n", "error", "error_low", "error_high", "error_top5", "worst_class_error"),
    ),
    "calibration": Evaluator(
        "ECE with bins (a, b], adaptive ECE, Brier, NLL; temperature scaling for comparison",
        _calibration,
        shown=("n", "ece", "adaptive_ece", "brier", "nll", "temperature", "ece_scaled"),
        uses=("bins",),
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
    ),
    "speech": Evaluator(
        "test error of the epoch with the least validation error (runs with a part to select by)",
        _speech,
        shown=("n", "error", "selected_epoch"),
        checkpoint="best",
    ),
    "gradient_norm": Evaluator("‖g‖² of a batch at these weights, for every K", _gradient_norm, _OF_K, ("ks", "batches", "seed")),
    "training_time": Evaluator("time of an update for every K, as a multiple of K = 1", _training_time, _OF_K, ("ks",)),
}
