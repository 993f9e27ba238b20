"""What a training was like, epoch by epoch, and what came of it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LAST = 10  # epochs whose median error is reported, as in the reference code


@dataclass(frozen=True)
class Epoch:
    """One line of the log. Errors and accuracy in per cent; None where an epoch was not evaluated.

    ``number`` counts finished epochs. ``accuracy`` is the mean target mass on the predicted class (honest under mixing).
    ``squared_grad_norm`` is the mean over the updates of ‖g‖², without weight decay. ``images`` were loaded, ``rows`` of them and
    their mixtures went through the network; ``seconds`` and ``cpu_seconds`` are those of training without evaluation.
    """

    number: int
    updates: int
    rate: float
    loss: float
    accuracy: float
    squared_grad_norm: float
    images: int
    rows: int
    seconds: float
    cpu_seconds: float
    error: float | None = None
    error_top5: float | None = None
    nll: float | None = None
    selection_error: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Errors of a finished training in per cent: of the last epoch, the median of the last 10, the least of all.

    ``best`` was chosen by the very samples it is measured on, so it flatters. ``selected`` was not: it is the error at the epoch
    with the least ``selection_error``, where there is a part to select by.
    """

    last: float
    median: float
    best: float
    best_epoch: int
    selected: float | None
    selected_epoch: int | None
    squared_grad_norm: float
    seconds_per_epoch: float
    cpu_seconds_per_epoch: float


def is_best(history: Sequence[Epoch]) -> bool:
    """Whether the last epoch is the first with the least error so far: on the part to select by, if there is one."""
    *before, last = (epoch.error if epoch.selection_error is None else epoch.selection_error for epoch in history)
    return last is not None and all(error is None or last < error for error in before)


def outcome(history: Sequence[Epoch]) -> Outcome:
    """What a finished training reports; its last epoch must have been evaluated."""
    evaluated = [(epoch.error, epoch) for epoch in history if epoch.error is not None]
    if not evaluated or history[-1].error is None:
        raise ValueError(f"the last of {len(history)} epochs must have been evaluated to report an outcome")
    recent = [error for error, epoch in evaluated if epoch.number > history[-1].number - LAST]
    best, best_epoch = min(((error, epoch.number) for error, epoch in evaluated))
    choice = [(epoch.selection_error, epoch.number, error) for error, epoch in evaluated if epoch.selection_error is not None]
    _, selected_epoch, selected = min(choice) if choice else (None, None, None)
    return Outcome(
        last=history[-1].error,
        median=statistics.median(recent),
        best=best,
        best_epoch=best_epoch,
        selected=selected,
        selected_epoch=selected_epoch,
        squared_grad_norm=history[-1].squared_grad_norm,
        seconds_per_epoch=statistics.median(epoch.seconds for epoch in history),
        cpu_seconds_per_epoch=statistics.median(epoch.cpu_seconds for epoch in history),
    )
