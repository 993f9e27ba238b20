"""Transfer of a run's network to CUB-200-2011: its options, and the two parts of the birds as the network wants them."""

from dataclasses import dataclass
from pathlib import Path

from ..data import Files
from ..data.cub import read_cub200
from .boxes import Progress
from .subject import Subject, resized_view, training_view
from .transfer import Transfer, Unit, transfer


@dataclass(frozen=True)
class TransferOptions:
    """The paper's are Adam at ``lr`` and ``count`` epochs (or steps); the batch is a choice. ``per_class`` is of both parts."""

    unit: Unit = "epoch"
    count: int = 10
    lr: float = 1e-4
    batch: int = 32
    per_class: int | None = None
    seed: int = 0
    layers: tuple[str, ...] | None = None


PAPER = TransferOptions()


def transferred(subject: Subject, options: TransferOptions, *, workers: int, progress: Progress) -> Transfer:
    """What was measured after every epoch (or step)."""
    if subject.folder is None or subject.settings is None:
        raise ValueError("transfer of a network that is no run is multimix.lab.evaluation.transfer.transfer in Python")
    if subject.entry.layout != "images":
        raise ValueError(f"transfer needs a network of images, {subject.title} was trained on {subject.settings.data.name}")
    train, test = birds(subject.folder, options)
    return transfer(
        subject.network,
        train,
        test,
        training_view(subject.settings),
        resized_view(subject.settings),
        layers=options.layers,
        unit=options.unit,
        count=options.count,
        lr=options.lr,
        batch=options.batch,
        seed=options.seed,
        workers=workers,
        progress=progress,
    ).result


def birds(folder: Path, options: TransferOptions) -> tuple[Files, Files]:
    """The two parts, or ``per_class`` pictures of every class of each."""
    splits = read_cub200(folder)
    parts = (splits["train"], splits["test"])
    train, test = (part if options.per_class is None else part.subset(options.per_class, options.seed) for part in parts)
    return train, test
