"""The paper's protocol for speech: the test error at the epoch with the least validation error, for any run that selects so."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ..data import Augment, Split
from ..training.log import Epoch
from .base import Finding, measure
from .error import Proportion, proportion
from .predictions import READING, Reading, one_bar, predictions
from .subject import Subject


@dataclass(frozen=True)
class Selected:
    """The ``error`` on the part that is reported. What the log says about the epoch of the network is None without a log.

    ``validation_error`` is the error on the part to select by, in per cent: measured where that part was given, else of the log.
    """

    selected_epoch: int | None
    validation_error: float | None
    error: Proportion
    recorded_error: float | None


@measure(
    "speech",
    "test error of the epoch with the least validation error (runs with a part to select by)",
    columns=("n", "error", "selected_epoch"),
    checkpoint="best",
    labels=lambda subject, options: subject.labels("report", "select"),
)
def measure_selected(subject: Subject, reading: Reading) -> Finding:
    """The error of the best epoch of a run, compared with its log."""
    if subject.settings is None or subject.settings.data.select is None:
        raise ValueError(f"{subject.title} has no part to select an epoch by, which speech needs (data.select)")
    # On other samples the error is not that of the log.
    history, select = (subject.history, subject.parts().select) if subject.samples == subject.usual else ((), None)
    found = speech(subject.network, subject.report, subject.evaluation, history, reading, selection=select)
    return Finding({"n": found.error.n, "error": found.error.percent, "selected_epoch": found.selected_epoch}, found)


def speech(
    network: nn.Module,
    split: Split,
    augment: Augment,
    epochs: Sequence[Epoch] = (),
    reading: Reading = READING,
    *,
    selection: Split | None = None,
) -> Selected:
    """The error of ``network`` on ``split``; with the log of its training (``epochs``), checked to be that of the best epoch.

    The best epoch is the first with the least selection error, and a network with its weights must get as many samples of
    ``split`` wrong as the log says, and of ``selection``, the part to select by, if that is given. Without ``epochs`` any network
    is measured, and nothing checked.
    """
    parts = [split] if selection is None else [split, selection]
    errors = []
    with one_bar(reading.progress, sum(map(reading.batches_of, parts))) as progress:
        for part in parts:
            predicted = predictions(network, part, augment, reading._replace(progress=progress))
            errors.append(proportion(int((~predicted.correct).sum()), len(predicted)))
    validation = errors[1].percent if selection is not None else None
    if not epochs:
        return Selected(None, validation, errors[0], None)
    known = [epoch for epoch in epochs if epoch.selection_error is not None]
    if not known:
        raise ValueError(f"epochs must have a selection_error to select by, none of the {len(epochs)} has one: set data.select")
    best = min(known, key=lambda epoch: (epoch.selection_error, epoch.number))
    logged = {"error": best.error, "selection_error": best.selection_error}
    for measured, (name, recorded) in zip(errors, logged.items(), strict=False):
        # Half a sample is rounding: both are counts, in per cent.
        if recorded is None or abs(measured.percent - recorded) * measured.n / 100 > 0.5:
            raise ValueError(
                f"network must be that of epoch {best.number}, the first with the least selection_error: the log has "
                f"{'none' if recorded is None else f'{recorded:.2f} %'} as its {name}, measured is {measured.percent:.2f} % of "
                f"{measured.n} samples"
            )
    return Selected(best.number, best.selection_error if validation is None else validation, errors[0], best.error)
