"""How well features serve other classes: the last block and a new head are trained on birds, the rest stays as it is.

The paper trains the last ResNet block and the last layer with Adam, learning rate 1e-4, for up to ten epochs, and calls what it
gives after each, from 28 … 45 % to 94 … 96 %, localisation accuracy at a binarisation threshold of 0.75. Batch size and
augmentation are not given, nor is the overlap at which a bird counts as found, nor whether a block is a stage or a bottleneck:
here it is the last stage, and ``layers`` can name the last bottleneck. Both rules of :mod:`.localization` are reported at 0.75,
and beside them how many birds get the right class: from its course that is what the paper's numbers look like.
"""

import copy
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...core.hooks import named_layer, unwrapped
from ...core.logits import logits_of
from ...core.sampling import seeded
from ..data import Augment, Files, Loader, Split
from ..data.cub import read_cub200
from ..images import ImageGrid
from .base import Finding, measure
from .box_pictures import box_grid, pictures_seen
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


SMOKE: Mapping[str, Any] = {"count": 2, "batch": 10, "per_class": 1}  # options of a run at smoke scale


def birds(folder: Path, per_class: int | None = None, seed: int = 0) -> tuple[Files, Files]:
    """Return the training and the test part of CUB-200-2011.

    Args:
        folder: Folder of the data sets.
        per_class: Pictures of every class in each part; None for all.
        seed: Seed of their choice.
    """
    parts = read_cub200(folder).parts
    if per_class is not None:
        parts = {name: part.subset(per_class, seed) for name, part in parts.items()}
    return parts["train"], parts["test"]


def _resolve(subject: Subject, given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete options by those of the scale, and by the names of the layers of a run."""
    options = {**(SMOKE if subject.scale == "smoke" else {}), **given}
    if options.get("layers") is None and subject.settings is not None and subject.settings.data.entry().layout == "images":
        options["layers"] = last_stage(subject.network)
    return options


def _labels(subject: Subject, options: Mapping[str, Any]) -> list[Tensor]:
    if subject.folder is None:
        return []
    return [part.labels for part in birds(subject.folder, options["per_class"], options["seed"])]


@measure("transfer", labels=_labels, resolve=_resolve)
def measure_transfer(
    subject: Subject,
    reading: Reading,
    *,
    unit: Unit = "epoch",
    count: int = 10,
    lr: float = 1e-4,
    batch: int = 32,
    per_class: int | None = None,
    seed: int = 0,
    layers: tuple[str, ...] | None = None,
) -> Finding:
    """Train the last layers of a run's network on birds, and measure after every epoch or step.

    Args:
        subject: A run on images.
        reading: How samples are read; the batch size is ``batch``.
        unit: Whether to count epochs or steps.
        count: Number of epochs or steps.
        lr: Adam's learning rate.
        batch: Batch size.
        per_class: Pictures of every class in both parts; None for all.
        seed: Seed of the new head, of the order of the pictures, and of their choice.
        layers: Layers to train together with the new head; None for the last stage of a network of
            :mod:`multimix.lab.nets`. The last bottleneck is ``stage4.2`` in resnet50 and
            ``stage4.0`` in resnet50_small.
    """
    settings = subject.settings
    if subject.folder is None or settings is None:
        raise ValueError(
            f"transfer measures runs, and {subject.title} was not trained here: call multimix.lab.evaluation.transfer.train_on"
        )
    if settings.data.entry().layout != "images":
        raise ValueError(f"transfer needs a network of images, {subject.title} was trained on {settings.data.name}")
    train, test = birds(subject.folder, per_class, seed)
    view = resized_view(settings)
    # The same birds for every choice of ``per_class``.
    shown = read_cub200(subject.folder).parts["test"]
    _, found = train_on(
        subject.network,
        train,
        test,
        resized_view(settings, training=True),
        view,
        unit=unit,
        count=count,
        lr=lr,
        batch=batch,
        seed=seed,
        layers=layers,
        shown=shown,
        workers=reading.workers,
        progress=reading.progress,
    )
    numbers: dict[str, float | None] = {}
    for row in found.rows:
        right = row.error.n - row.error.count
        numbers |= {f"error_{row.number}": row.error.percent, f"accuracy_{row.number}": 100 * right / row.error.n}
        numbers |= {f"{one.name}_{row.number}": one.accuracy.percent for one in row.accuracies}
    return Finding(numbers, found, {"birds": bird_pictures(shown, view, found)})


def bird_pictures(split: Files, view: Augment, transfer: Transfer) -> ImageGrid:
    """Return the birds of ``transfer.examples`` with their predicted and true boxes.

    Args:
        split: The samples that the examples refer to.
        view: Preparation of the samples.
        transfer: The result.
    """
    examples = transfer.examples
    return box_grid(
        pictures_seen(split.take(torch.tensor([example.row for example in examples])), view),
        [torch.tensor(example.predicted, dtype=torch.float64) for example in examples],
        [torch.tensor(example.true, dtype=torch.float64).reshape(-1, 4) for example in examples],
        [""] * len(examples),
        columns=len(examples),
        caption=f"birds with predicted and true boxes after the first {transfer.unit}",
    )


def train_on(
    network: nn.Module,
    train: Split,
    test: Files,
    augment: Augment,
    evaluation: Augment,
    *,
    unit: Unit = "epoch",
    count: int = 10,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    layers: Sequence[str] | None = None,
    shown: Files | None = None,
    workers: int = 0,
    progress: Progress = iter,
) -> tuple[nn.Module, Transfer]:
    """Train a copy of ``network`` with a new linear head for the classes of ``train``.

    The head is the layer that class activation maps are computed from. Trained layers run in
    training mode. All others run in evaluation mode, so that their batch-norm statistics stay.

    Args:
        network: The network. It is not changed, and its device is used.
        train: Samples to train on.
        test: Samples with boxes to measure on.
        augment: Preparation of the training samples.
        evaluation: Preparation of the test samples.
        unit: Whether to count epochs or steps.
        count: Number of epochs or steps.
        lr: Adam's learning rate.
        batch: Batch size.
        seed: Seed of the new head and of the order of the samples.
        layers: Layers to train together with the head; None for :func:`last_stage`.
        shown: Samples that the examples are chosen from; None for ``test``.
        workers: Processes that read pictures.
        progress: Wraps the numbers of the batches.

    Returns:
        The trained copy in evaluation mode, and the result.

    Raises:
        ValueError: If an option is out of range, a layer does not exist, or the loss is not finite.
    """
    if isinstance(layers, str):
        raise ValueError(f"layers must be a tuple of layer names, such as ('stage4',), got {layers!r}")
    if unit not in get_args(Unit):
        raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}, got {unit!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if not lr > 0:
        raise ValueError(f"lr must be positive, got {lr}")
    if train.classes != test.classes:
        raise ValueError(f"train and test must have the same classes, got {len(train.classes)} and {len(test.classes)}")
    copied = copy.deepcopy(unwrapped(network)[0])
    weight = next(copied.parameters())
    images, _ = test.batch(torch.arange(min(2, len(test))))
    head = find_layers(copied, evaluation.apply(images, torch.zeros(len(images), 0)).to(weight.device, weight.dtype)).head
    layers = (*(last_stage(copied) if layers is None else layers), head)
    put_new_head(copied, head, len(train.classes), seed)
    trained = _parameters_of(copied, layers)
    copied.eval()
    needed_gradient = {value: value.requires_grad for value in copied.parameters()}
    for name, value in copied.named_parameters():
        value.requires_grad_(name in trained)
    optimizer = torch.optim.Adam([copied.get_parameter(name) for name in trained], lr=lr)
    loader = Loader(train, augment, batch=batch, seed=seed, workers=workers)
    batches = (pair for epoch in itertools.count() for pair in loader.epoch(epoch))
    size, reading = (len(loader) if unit == "epoch" else 1), Reading(batch, workers)
    rows: list[TransferRow] = []
    examples: tuple[BirdBoxes, ...] = ()
    with one_bar(progress, count * (size + reading.batches_of(with_boxes(test)))) as ticking:
        for number in range(1, count + 1):
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
    return copied, Transfer(unit, len(train.classes), trained, tuple(rows), examples)


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
