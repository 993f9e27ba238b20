"""The paper's protocol for speech: the test error at the epoch with the least validation error, for any run that selects so."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...logits import Output
from ..data import Augment, Split
from ..training.log import Epoch
from .boxes import Progress, one_bar
from .error import Proportion, proportion
from .predictions import predictions


@dataclass(frozen=True)
class Selected:
    """The ``error`` on the part that is reported. What the log says about the epoch of the network is None without a log.

    ``validation_error`` is the error on the part to select by, in per cent: measured where that part was given, else of the log.
    """

    selected_epoch: int | None
    validation_error: float | None
    error: Proportion
    recorded_error: float | None

    def numbers(self) -> dict[str, float | None]:
        """How many samples were asked about, the error in per cent, and the epoch, by name."""
        return {"n": self.error.n, "error": self.error.percent, "selected_epoch": self.selected_epoch}


def speech(
    network: nn.Module,
    split: Split,
    augment: Augment,
    epochs: Sequence[Epoch] = (),
    *,
    selection: Split | None = None,
    slack: int = 0,
    batch: int = 200,
    workers: int = 0,
    device: torch.device | str | None = None,
    output: Output | None = None,
    progress: Progress = iter,
) -> Selected:
    """The error of ``network`` on ``split``; with the log of its training (``epochs``), checked to be that of the best epoch.

    The best epoch is the first with the least selection error, and a network with its weights must get as many samples of
    ``split`` wrong as the log says, and of ``selection``, the part to select by, if that is given. Up to ``slack`` samples may
    differ: another device, precision or batch size changes last bits. Without ``epochs`` any network is measured, and nothing
    checked.
    """
    best = selected_epoch(epochs) if epochs else None
    if slack < 0:
        raise ValueError(f"slack must be at least 0, got {slack}")
    parts = [split] if selection is None else [split, selection]
    with one_bar(progress, sum(-(-len(part) // max(batch, 1)) for part in parts)) as ticking:
        error, *chosen = (
            _error(network, part, augment, batch=batch, workers=workers, device=device, output=output, progress=ticking)
            for part in parts
        )
    validation = chosen[0].percent if chosen else None
    if best is None:
        return Selected(None, validation, error, None)
    _check("error", best, best.error, error, slack)
    if chosen:
        _check("selection_error", best, best.selection_error, chosen[0], slack)
    return Selected(best.number, best.selection_error if validation is None else validation, error, best.error)


def selected_epoch(epochs: Sequence[Epoch]) -> Epoch:
    """The first epoch with the least selection error."""
    known = [epoch for epoch in epochs if epoch.selection_error is not None]
    if not known:
        raise ValueError(f"epochs must have a selection_error to select by, none of the {len(epochs)} has one: set data.select")
    return min(known, key=lambda epoch: (epoch.selection_error, epoch.number))


def _error(
    network: nn.Module,
    split: Split,
    augment: Augment,
    *,
    batch: int,
    workers: int,
    device: torch.device | str | None,
    output: Output | None,
    progress: Progress,
) -> Proportion:
    said = predictions(network, split, augment, batch=batch, workers=workers, device=device, output=output, progress=progress)
    return proportion(int((~said.correct).sum()), len(said))


def _check(name: str, best: Epoch, recorded: float | None, found: Proportion, slack: int) -> None:
    """Raise one sentence unless as many samples are wrong as the log says."""
    # Half a sample is rounding: both are counts, in per cent.
    if recorded is None or abs(found.percent - recorded) * found.n / 100 > slack + 0.5:
        said = "none" if recorded is None else f"{recorded:.2f} %"
        raise ValueError(
            f"network must be that of epoch {best.number}, the first with the least selection_error: the log has {said} as its "
            f"{name}, measured is {found.percent:.2f} % of {found.n} samples"
        )
