"""What an evaluator is to the commands: what can be told to it, and what comes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from ..training.checkpoint import Which
from .boxes import Progress
from .calibration import BINS
from .corruption import SEVERITIES
from .cub_transfer import PAPER, TransferOptions
from .subject import Subject


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
    """What it measures, and which of its numbers tables show (none: all); of what they depend: options, ``labels``, weights.

    ``timed``: they depend on the machine as well.
    """

    about: str
    measure: Callable[[Subject, Options, Progress], Finding]
    shown: tuple[str, ...]
    uses: tuple[str, ...] = ()
    checkpoint: Which = "last"
    labels: Callable[[Subject, Options], Sequence[Tensor]] = lambda subject, options: [subject.report.labels]
    timed: bool = False
