"""The paper's protocol for speech: the test error at the epoch with the least validation error, for any run that selects so."""

from dataclasses import dataclass

from .base import Finding, measure
from .error import Proportion, proportion
from .predictions import Reading, predictions
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


@measure("speech", labels=lambda subject, options: subject.labels("report", "select"))
def measure_selected(subject: Subject, reading: Reading) -> Finding:
    """The error of a run's network; with the log of its training, checked to be that of the best epoch.

    The best epoch is the first with the least selection error, and a network with its weights must get as many samples wrong as
    the log says, of the part that is reported and of the part to select by.
    """
    if subject.settings is None or subject.settings.data.select is None:
        raise ValueError(f"{subject.title} has no part to select an epoch by, which speech needs (data.select)")
    # On other samples the error is not that of the log.
    epochs, select = (subject.history, subject.parts().select) if subject.samples == subject.usual else ((), None)
    predicted = [subject.predictions(reading)]
    if select is not None:
        predicted.append(predictions(subject.network, select, subject.evaluation, reading))
    errors = [proportion(int((~one.correct).sum()), len(one)) for one in predicted]
    numbers: dict[str, float | None] = {"n": errors[0].n, "error": errors[0].percent, "selected_epoch": None}
    validation = errors[1].percent if select is not None else None
    if not epochs:
        return Finding(numbers, Selected(None, validation, errors[0], None))
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
    found = Selected(best.number, best.selection_error if validation is None else validation, errors[0], best.error)
    return Finding(numbers | {"selected_epoch": best.number}, found)
