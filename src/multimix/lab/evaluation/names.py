"""Names and descriptions of all measures, and the numbers that tables show."""

from collections.abc import Mapping
from typing import NamedTuple

from ..recipes.runs import Which

COUNTS = ("n", "classes", "selected_epoch")  # numbers that are integers


class MeasureInfo(NamedTuple):
    """Description of a measure.

    Args:
        about: What it measures, in words.
        columns: Numbers that tables show; empty for all.
        checkpoint: Weights that it measures by default.
    """

    about: str
    columns: tuple[str, ...] = ()
    checkpoint: Which = "last"


MEASURES: Mapping[str, MeasureInfo] = {
    "error": MeasureInfo(
        "top-1 and top-5 error with Wilson's 95 % interval, class by class, confusions",
        ("n", "error", "error_low", "error_high", "error_top5", "worst_class_error"),
    ),
    "calibration": MeasureInfo(
        "ECE with bins (a, b], adaptive ECE, Brier, NLL; temperature scaling for comparison",
        ("n", "ece", "adaptive_ece", "brier", "nll", "temperature", "ece_before", "ece_scaled"),
    ),
    "localization": MeasureInfo(
        "boxes from class activation maps, per cent found (data with boxes)",
        ("n", "error", "paper_text", "reference", "max_box_gt_known_0.5", "max_box_top1_0.5", "max_box_predicted_0.5"),
    ),
    "background": MeasureInfo(
        "error with the background replaced by another image, or with Gaussian noise (data with boxes)",
        ("n", "clean", "replaced", "noise"),
    ),
    "corruption": MeasureInfo(
        "error under common corruptions, mean over severities",
        ("n", "clean", "gaussian_noise", "shot_noise", "blur", "contrast", "brightness", "jpeg", "pixelate"),
    ),
    "transfer": MeasureInfo(
        "last stage and a new head trained on CUB-200-2011: accuracy and localization after each epoch or step"
    ),
    "speech": MeasureInfo(
        "test error of the epoch with the least validation error (runs with a validation set)",
        ("n", "error", "selected_epoch"),
        "best",
    ),
    "gradient_norm": MeasureInfo("‖g‖² of a batch at these weights, for every K"),
    "training_time": MeasureInfo("time of an update for every K: as a multiple of K = 1, and its increase in per cent"),
}


def measure_of(key: str) -> str:
    """Return the measure of an evaluation's key.

    Args:
        key: The key (:func:`multimix.lab.evaluation.cache.evaluation_key`).

    >>> measure_of("calibration[bins = 15]@best")
    'calibration'
    """
    return key.partition("@")[0].partition("[")[0]
