"""How well features serve other classes: the last block and a new head are trained on birds, the rest stays as it is.

The paper trains the last ResNet block and the last layer with Adam, learning rate 1e-4, for up to ten epochs, and calls what it
gives after each, from 28 … 45 % to 94 … 96 %, localisation accuracy at a binarisation threshold of 0.75. Batch size and
augmentation are not given, nor is the overlap at which a bird counts as found, nor whether a block is a stage or a bottleneck:
here it is the last stage, and ``layers`` can name the last bottleneck. Both rules of :mod:`.localization` are reported at 0.75,
and beside them how many birds get the right class: from its course that is what the paper's numbers look like.
"""

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...core.hooks import named_layer, unwrapped
from ...core.logits import logits_of
from ...core.sampling import seeded
from ..data import Augment, Files, Loader, Split
from ..data.cub import read_cub200
from .base import Finding, measure
from .boxes import annotated, with_boxes
from .cam import find_layers, heat_maps
from .error import Proportion
from .localization import PAPER_TEXT, REFERENCE, BoxAccuracy, cam_passes, localization
from .predictions import Progress, Reading, one_bar
from .subject import Subject, resized_view

CAM_THRESHOLD = 0.75
TRANSFER_TEXT = replace(PAPER_TEXT, name="transfer_text", cam_threshold=CAM_THRESHOLD)
TRANSFER_REFERENCE = replace(REFERENCE, name="transfer_reference", cam_threshold=CAM_THRESHOLD)
TRANSFER_RULES = (TRANSFER_TEXT, TRANSFER_REFERENCE)
EXAMPLES = 8  # birds whose boxes are stored

Unit = Literal["epoch", "step"]
HEAD = 0x4EAD  # a key of its own for the start values


@dataclass(frozen=True)
class TransferOptions:
    """The paper's are Adam at ``lr`` and ``count`` epochs (or steps); the batch is a choice. ``per_class`` is of both parts.

    ``layers`` are trained together with the new head; None is the last stage of a network of :mod:`multimix.lab.nets`. Its last
    bottleneck is ``("stage4.2",)`` in resnet50 and ``("stage4.0",)`` in resnet50_small.
    """

    unit: Unit = "epoch"
    count: int = 10
    lr: float = 1e-4
    batch: int = 32
    per_class: int | None = None
    seed: int = 0
    layers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.layers, str):
            raise ValueError(f"layers must be a tuple of layer names, such as ('stage4',), got {self.layers!r}")
        if self.unit not in ("epoch", "step"):
            raise ValueError(f"no unit {self.unit!r}; there are epoch, step")
        if self.count < 1:
            raise ValueError(f"count must be at least 1, got {self.count}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")


PAPER = TransferOptions()
SMOKE = TransferOptions(count=2, batch=10, per_class=1)


@dataclass(frozen=True)
class TransferRow:
    """After ``number`` epochs (or steps): mean training ``loss`` of the last one, test ``error``, and what was found."""

    number: int
    loss: float
    error: Proportion
    accuracies: tuple[BoxAccuracy, ...]


@dataclass(frozen=True)
class BirdBoxes:
    """The ``predicted`` box of a bird by the rule transfer_text, and its ``true`` ones, in pixels of what the network sees.

    A box is x, y, width, height. ``row`` is the bird's place in the part for testing.
    """

    row: int
    predicted: tuple[float, ...]
    true: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Transfer:
    """One row per epoch or step (``unit``), and the names of the ``trained`` parameters; no other one changed.

    ``examples`` are the boxes of some birds after the first epoch or step.
    """

    unit: str
    classes: int
    trained: tuple[str, ...]
    rows: tuple[TransferRow, ...]
    examples: tuple[BirdBoxes, ...] = ()


def birds(folder: Path, options: TransferOptions) -> tuple[Files, Files]:
    """The two parts of CUB-200-2011, or ``per_class`` pictures of every class of each."""
    parts = read_cub200(folder).parts
    some = parts if options.per_class is None else {k: v.subset(options.per_class, options.seed) for k, v in parts.items()}
    return some["train"], some["test"]


def usual_transfer(subject: Subject, options: Mapping[str, Any]) -> dict[str, Any]:
    """No options are the paper's, and a small part of it for a run at smoke scale; the layers of a run are named."""
    chosen: TransferOptions = options["transfer"] or (SMOKE if subject.scale == "smoke" else PAPER)
    if chosen.layers is None and subject.settings is not None and subject.settings.data.entry().layout == "images":
        chosen = replace(chosen, layers=last_stage(subject.network))
    return {"transfer": chosen}


def _birds_labels(subject: Subject, options: Mapping[str, Any]) -> list[Tensor]:
    return [] if subject.folder is None else [part.labels for part in birds(subject.folder, options["transfer"])]


@measure(
    "transfer",
    "last block and a new head trained on CUB-200-2011: classes right and birds found after each epoch or step",
    labels=_birds_labels,
    resolve=usual_transfer,
)
def measure_transfer(subject: Subject, reading: Reading, *, transfer: TransferOptions | None = None) -> Finding:
    """What was measured on birds after every epoch (or step)."""
    settings = subject.settings
    if subject.folder is None or settings is None:
        raise ValueError("transfer of a network that is no run is multimix.lab.evaluation.transfer.train_on in Python")
    if settings.data.entry().layout != "images":
        raise ValueError(f"transfer needs a network of images, {subject.title} was trained on {settings.data.name}")
    options: TransferOptions = usual_transfer(subject, {"transfer": transfer})["transfer"]
    train, test = birds(subject.folder, options)
    views = resized_view(settings, training=True), resized_view(settings)
    # The same birds whatever part of them is measured.
    shown = read_cub200(subject.folder).parts["test"]
    _, found = train_on(
        subject.network, train, test, *views, options, shown=shown, workers=reading.workers, progress=reading.progress
    )
    numbers: dict[str, float | None] = {}
    for row in found.rows:
        right = row.error.n - row.error.count
        numbers |= {f"error_{row.number}": row.error.percent, f"accuracy_{row.number}": 100 * right / row.error.n}
        numbers |= {f"{one.name}_{row.number}": one.accuracy.percent for one in row.accuracies}
    return Finding(numbers, found)


def train_on(
    network: nn.Module,
    train: Split,
    test: Files,
    augment: Augment,
    evaluation: Augment,
    options: TransferOptions = PAPER,
    *,
    shown: Files | None = None,
    workers: int = 0,
    progress: Progress = iter,
) -> tuple[nn.Module, Transfer]:
    """A copy of ``network`` with a new linear head for the classes of ``train``, trained together with some layers.

    The head is the layer class activation maps are made with. What is trained runs in training mode, all else in evaluation mode,
    so that its batch-norm statistics stay. ``augment`` is that of training, ``evaluation`` that of the test. The examples are
    samples of ``shown``, by default of ``test``. Images go where the network is. The copy is returned in evaluation mode.
    """
    if train.classes != test.classes:
        raise ValueError(f"train and test must have the same classes, got {len(train.classes)} and {len(test.classes)}")
    copied = copy.deepcopy(unwrapped(network)[0])
    weight = next(copied.parameters())
    images, _ = test.batch(torch.arange(min(2, len(test))))
    head = find_layers(copied, evaluation.apply(images, torch.zeros(len(images), 0)).to(weight.device, weight.dtype)).head
    layers = (*(last_stage(copied) if options.layers is None else options.layers), head)
    put_new_head(copied, head, len(train.classes), options.seed)
    trained = _parameters_of(copied, layers)
    copied.eval()
    needed_gradient = {value: value.requires_grad for value in copied.parameters()}
    for name, value in copied.named_parameters():
        value.requires_grad_(name in trained)
    optimizer = torch.optim.Adam([copied.get_parameter(name) for name in trained], lr=options.lr)
    loader = Loader(train, augment, batch=options.batch, seed=options.seed, workers=workers)
    batches = (batch for number in count() for batch in loader.epoch(number))
    size, reading = (len(loader) if options.unit == "epoch" else 1), Reading(options.batch, workers)
    rows: list[TransferRow] = []
    examples: tuple[BirdBoxes, ...] = ()
    with one_bar(progress, options.count * (size + reading.batches_of(with_boxes(test)))) as ticking:
        for number in range(1, options.count + 1):
            for layer in layers:
                named_layer(copied, layer).train()
            losses = [_update(copied, optimizer, x, y) for _, (x, y) in zip(ticking(range(size)), batches, strict=False)]
            copied.eval()
            found = localization(copied, test, evaluation, reading._replace(progress=ticking), rules=TRANSFER_RULES, thresholds=0)
            assert found.error is not None
            rows.append(TransferRow(number, math.fsum(losses) / len(losses), found.error, found.accuracies))
            examples = examples or bird_boxes(copied, test if shown is None else shown, evaluation)
    for value, needed in needed_gradient.items():
        value.requires_grad_(needed).grad = None
    return copied, Transfer(options.unit, len(train.classes), trained, tuple(rows), examples)


def bird_boxes(network: nn.Module, split: Files, view: Augment) -> tuple[BirdBoxes, ...]:
    """The boxes of some samples of ``split``, evenly spread, so that they are the same for every network."""
    boxed = [row for row, boxes in enumerate(annotated(split)) if len(boxes)]
    rows = [boxed[i] for i in torch.linspace(0, len(boxed) - 1, min(EXAMPLES, len(boxed))).round().long().tolist()]
    ((batch, seen),) = cam_passes(network, split.take(torch.tensor(rows)), view, Reading(len(rows)))
    size = (batch.x.shape[2], batch.x.shape[3])
    maps = heat_maps(seen.raw(seen.logits.argmax(1)), size, as_script=TRANSFER_TEXT.as_script)
    return tuple(
        BirdBoxes(row, tuple(TRANSFER_TEXT.box(heat).tolist()), tuple(map(tuple, true.tolist())))
        for row, heat, true in zip(rows, maps, batch.boxes, strict=True)
    )


def last_stage(network: nn.Module) -> tuple[str, ...]:
    """Names of the last stage, and of what has parameters behind it (but the head, the last of all).

    For networks whose parts run in the order ``stem``, ``stage1``, ``stage2``, …, as those of :mod:`multimix.lab.nets`.
    """
    children = [name for name, child in network.named_children() if any(True for _ in child.parameters())]
    stages = [name for name in children if re.fullmatch(r"stage\d+", name)]
    if not stages:
        known = ", ".join(children[-8:]) or "none with parameters"
        raise ValueError(f"layers must be named, since the network has no stage1, stage2, …; its last parts are {known}")
    return tuple(children[children.index(stages[-1]) : -1])


def put_new_head(network: nn.Module, head: str, classes: int, seed: int) -> None:
    """Put a linear layer for ``classes`` classes in the place of ``head``, with torch's usual start values drawn by ``seed``."""
    old = named_layer(network, head)
    if not isinstance(old, nn.Linear):
        raise ValueError(f"head must be an nn.Linear, {head!r} is a {type(old).__name__}")
    generator, bound = seeded(HEAD, seed), 1 / math.sqrt(old.in_features)
    # By way of no device, where start values cannot be drawn from torch's global stream.
    new = nn.Linear(old.in_features, classes, dtype=old.weight.dtype, device="meta").to_empty(device=old.weight.device)
    with torch.no_grad():
        for values in new.parameters():
            values.copy_((2 * torch.rand(values.shape, generator=generator) - 1) * bound)
    network.set_submodule(head, new)


def _parameters_of(network: nn.Module, layers: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters of ``layers``, each once, in the order of the network."""
    wanted: set[int] = set()
    for layer in layers:
        own = {id(value) for value in named_layer(network, layer).parameters()}
        if not own:
            raise ValueError(f"layers must have parameters to train, {layer!r} has none")
        wanted |= own
    return tuple(name for name, value in network.named_parameters() if id(value) in wanted)


def _update(network: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    weight = next(network.parameters())
    logits = logits_of(network(x.to(weight.device, weight.dtype)))
    loss = functional.cross_entropy(logits, y.to(logits.device))
    if not math.isfinite(loss.item()):
        raise ValueError(f"the training loss must be finite, got {loss.item()}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()
