"""What a run is: everything that decides its result, typed and frozen; apart from it, how this machine does it."""

import ast
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from torch import nn

from ... import losses
from ...core.checks import check_share
from ...methods import Method
from ...methods.path import CleanLossMethod
from ..data import Augment, CenterCrop, DataSet, Flip, PaddedCrop, RandomResizedCrop, Resize, Rotation, dataset
from ..data.augment import Step
from ..nets import network
from ..storage import digest
from .serialise import describe_changes

Part = Literal["validation", "test"]
LossName = Literal["softmax_bce", "cross_entropy"]
Precision = Literal["no", "bf16", "fp16"]
LOSSES: dict[str, losses.Criterion] = {"softmax_bce": losses.softmax_bce, "cross_entropy": losses.soft_cross_entropy}

# How this machine does it, which does not change the result.
MACHINE_FIELDS = ("running.", "method.threads")
OWN_FOLDERS = ("folder", "sound_folder")


MOST_SIDE, MOST_ROWS, MOST_EPOCHS = 4096, 1_000_000, 1_000_000


def _check_most(prefix: str, settings: Any, most: Mapping[str, int]) -> None:
    """Raise ValueError for a number that no machine has room or time for, before anything is made of it."""
    for name, limit in most.items():
        value = getattr(settings, name)
        if value is not None and value > limit:
            raise ValueError(f"{prefix}{name} must be at most {limit:,}, got {value:,}")


@dataclass(frozen=True)
class Data:
    """A data set by name, and which of its samples: ``per_class`` of every class for training (None: all of them).

    The error is measured on ``report``. Where ``select`` names a part, the epoch with the least error there counts as best.
    Of a folder of one's own, pictures become squares of ``side`` pixels, and at most ``most`` of a class are learnt from.
    """

    name: str
    report: Part = "test"
    select: Part | None = None
    per_class: int | None = None
    report_per_class: int | None = None
    subset_seed: int = 0
    skip_bad: bool = False
    side: int | None = None
    most: int | None = None

    def entry(self) -> DataSet:
        """What is known of the set before it is read."""
        known = dataset(self.name)
        if self.name not in OWN_FOLDERS and (self.side, self.most) != (None, None):
            raise ValueError(f"data.side and data.most are for {' and '.join(OWN_FOLDERS)}, not for {self.name}")
        if self.side is None or self.name == "sound_folder":
            return known
        return replace(known, size=(known.size[0], self.side, self.side))


@dataclass(frozen=True)
class Augmentation:
    """What is drawn for every sample: mirrored, turned by up to ±``rotation`` degrees, cropped after ``padding``.

    With ``smallest_crop`` it is a random part of at least this share of the area instead, resized to ``size``; files are first
    resized to ``short_side`` (as the protocol's stored copies are). For evaluation the short side is resized to
    ``evaluate_resize``, then the middle ``evaluate_crop`` is taken.
    """

    flip: bool = False
    padding: int = 0
    rotation: float = 0.0
    smallest_crop: float | None = None
    size: int | None = None
    short_side: int | None = None
    evaluate_resize: int | None = None
    evaluate_crop: int | None = None

    def __post_init__(self) -> None:
        _check_most(
            "augment.", self, dict.fromkeys(("padding", "size", "short_side", "evaluate_resize", "evaluate_crop"), MOST_SIDE)
        )
        if self.smallest_crop is not None and self.size is None:
            raise ValueError("augment.smallest_crop needs augment.size, the side of what the network sees")

    def training(self, data: DataSet) -> Augment:
        """The steps of a training sample, ending with its normalisation."""
        steps: list[Step] = [Rotation(self.rotation)] if self.rotation else []
        if self.smallest_crop is not None and self.size is not None:
            steps.append(RandomResizedCrop(self.size, (self.smallest_crop, 1.0)))
        elif self.padding:
            _, height, width = data.size
            steps.append(PaddedCrop((height, width), self.padding))
        return Augment((*steps, *([Flip()] if self.flip else []), *data.last_steps))

    def evaluation(self, data: DataSet) -> Augment:
        """The steps of a sample that is only looked at: nothing is drawn."""
        steps: list[Step] = [Resize(self.evaluate_resize)] if self.evaluate_resize else []
        if self.evaluate_crop:
            steps.append(CenterCrop(self.evaluate_crop))
        return Augment((*steps, *data.last_steps))


@dataclass(frozen=True)
class Network:
    """A registered network or an import path, and options for it as words ``name=value``."""

    name: str
    options: tuple[str, ...] = ()

    def built(self, num_classes: int, in_channels: int) -> nn.Module:
        """The network; one from an import path is not told the number of channels, which it may not take."""
        known = {} if ":" in self.name else {"in_channels": in_channels}
        for name in ("name", "num_classes", *known):
            if name in self.given():
                raise ValueError(f"network.options must not have {name}, which is known already")
        return network(self.name, num_classes, **known, **self.given())

    def given(self) -> dict[str, Any]:
        """The options by name; values are read as Python writes them, words without quotes too."""
        given = {}
        for words in self.options:
            name, equals, value = words.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"network.options must be words name=value, such as stem_stride=2, got {words!r}")
            try:
                given[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two of brackets deep inside each other
                given[name] = value
        return given


@dataclass(frozen=True)
class Optimizer:
    """SGD; without ``norm_decay`` the weights of batch norm do not decay."""

    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4
    norm_decay: bool = True


@dataclass(frozen=True)
class Milestones:
    """A schedule, as the others below: the learning rate as a function of the epoch, which grows by 1/steps with every step.

    It is ``rate``, multiplied by ``factor`` from each of the epochs ``at`` on; before that a linear ``warmup`` of so many epochs.
    """

    rate: float
    at: tuple[float, ...] = ()
    factor: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(map(float, self.at)))  # 100 and 100.0 are one setting with one digest
        _check_ascending("at", self.at)
        if not self.rate > 0 or not self.factor > 0 or not self.warmup >= 0:
            raise ValueError(
                f"rate and factor must be positive and warmup at least 0, got {self.rate:g}, {self.factor:g} and {self.warmup:g}"
            )

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training."""
        rate = self.rate * self.factor ** bisect_right(self.at, epoch)
        return rate * epoch / self.warmup if epoch < self.warmup else rate

    def squeezed(self, factor: float) -> "Milestones":
        """The same course in ``factor`` times the epochs."""
        return Milestones(self.rate, tuple(epoch * factor for epoch in self.at), self.factor, self.warmup * factor)


@dataclass(frozen=True)
class Knots:
    """Straight lines between ``points`` (epoch, rate); two points at one epoch are a jump, before and after them it is level."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("points must hold at least one (epoch, rate), got none")
        object.__setattr__(self, "points", tuple((float(epoch), float(rate)) for epoch, rate in self.points))
        _check_ascending("epochs of points", [epoch for epoch, _ in self.points], ties=True)
        if any(rate < 0 for _, rate in self.points):
            raise ValueError(f"rates must be at least 0, got {min(rate for _, rate in self.points):g}")

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training; at a jump, the one after it."""
        after = bisect_right([at for at, _ in self.points], epoch)
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[after - 1 : after + 1]
        return low + (high - low) * (epoch - left) / (right - left)

    def squeezed(self, factor: float) -> "Knots":
        """The same course in ``factor`` times the epochs."""
        return Knots(tuple((epoch * factor, rate) for epoch, rate in self.points))


@dataclass(frozen=True)
class Cosine:
    """From ``rate`` down to 0 after ``epochs``, along half a wave of a cosine."""

    rate: float
    epochs: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", float(self.epochs))
        if not self.rate > 0 or not self.epochs > 0:
            raise ValueError(f"rate and epochs must be positive, got {self.rate:g} and {self.epochs:g}")

    def at_epoch(self, epoch: float) -> float:
        """The learning rate at a moment of training."""
        return self.rate * (1 + math.cos(math.pi * min(epoch / self.epochs, 1.0))) / 2

    def squeezed(self, factor: float) -> "Cosine":
        """The same course in ``factor`` times the epochs."""
        return Cosine(self.rate, self.epochs * factor)


Schedule = Milestones | Knots | Cosine


@dataclass(frozen=True)
class Phase:
    """From ``epoch`` on, other sizes; and a ``clean_weight`` in place of that of the method, if that has one."""

    epoch: int
    batch: int
    size: int
    smallest_crop: float
    short_side: int | None = None
    clean_weight: float | None = None

    def __post_init__(self) -> None:
        _check_most("phases: ", self, {"batch": MOST_ROWS, "size": MOST_SIDE, "short_side": MOST_SIDE})


@dataclass(frozen=True)
class Running:
    """How this machine does it. Nothing here belongs to the digest, since the weights that come out do not depend on it.

    ``device`` is auto (an accelerator if there is one) or cpu. None for ``threads`` leaves them as they are; another number may
    change last bits. A checkpoint is written when ``checkpoint_minutes`` have passed, and after every ``checkpoint_updates`` if
    given.
    """

    workers: int = 0
    device: Literal["auto", "cpu"] = "auto"
    threads: int | None = None
    checkpoint_minutes: float = 5.0
    checkpoint_updates: int | None = None
    log_every: int = 1

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("threads", 1), ("checkpoint_updates", 1), ("log_every", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"running.{name} must be at least {least}, got {value}")
        _check_most("running.", self, {"workers": 1000, "threads": 10_000})


@dataclass(frozen=True)
class Settings:
    """One training, but for its seed.

    ``batch`` samples are one update, in all processes together, each shown ``repeats`` times (batch augmentation).
    ``accumulate`` cuts the share of a process into so many parts that run one after the other; pairs and batch statistics are
    those of a part. ``k_chunk`` interpolations run at a time, all K if None. ``evaluate_every`` counts epochs; the last is always
    evaluated.
    """

    data: Data
    network: Network
    method: Method
    schedule: Schedule
    epochs: int
    batch: int
    augment: Augmentation = Augmentation()
    optimizer: Optimizer = Optimizer()
    loss: LossName = "cross_entropy"
    smoothing: float = 0.0
    repeats: int = 1
    phases: tuple[Phase, ...] = ()
    accumulate: int = 1
    k_chunk: int | None = None
    mixed_precision: Precision = "no"
    channels_last: bool = True
    compile: bool = False
    evaluate_every: int = 1
    evaluate_batch: int = 200
    running: Running = Running()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "repeats", "accumulate", "k_chunk", "evaluate_every", "evaluate_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        most = {"epochs": MOST_EPOCHS, "repeats": 1000} | dict.fromkeys(("batch", "evaluate_batch"), MOST_ROWS)
        _check_most("", self, most)
        check_share("smoothing", self.smoothing)
        if self.phases and [phase.epoch for phase in self.phases] != sorted({0, *(phase.epoch for phase in self.phases)}):
            raise ValueError(f"phases must start at epoch 0 and ascend, got {', '.join(str(p.epoch) for p in self.phases)}")

    def in_epoch(self, epoch: int) -> "Settings":
        """What holds in an epoch: the sizes of its phase in place of the general ones."""
        if not self.phases:
            return self
        now = [phase for phase in self.phases if phase.epoch <= epoch][-1]
        augment = replace(self.augment, size=now.size, smallest_crop=now.smallest_crop, short_side=now.short_side)
        method: Any = self.method
        if now.clean_weight is not None and isinstance(method, CleanLossMethod) and method.clean_weight > 0:
            method = replace(method, clean_weight=now.clean_weight)
        return replace(self, batch=now.batch, augment=augment, method=method, phases=())

    def digest(self) -> str:
        """Return ten hex digits of a hash of all fields that decide the result and differ from their defaults."""
        changes = describe_changes(self)
        return digest({name: value for name, value in changes.items() if not name.startswith(MACHINE_FIELDS)})[:10]


def _check_ascending(name: str, values: Sequence[float], ties: bool = False) -> None:
    if any(a > b or (a == b and not ties) for a, b in pairwise(values)):
        raise ValueError(f"{name} must ascend, got {', '.join(f'{value:g}' for value in values)}")
