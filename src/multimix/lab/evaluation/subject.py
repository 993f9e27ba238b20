"""What is measured: a network and the samples it is measured on, from the folder of a run or from any code that makes one."""

import copy
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...batchnorm import recompute_batchnorm
from ...methods import Method
from ..data import Augment, CenterCrop, DataSet, Files, Flip, Loader, Normalise, RandomResizedCrop, Resize, Split, Splits, read
from ..data.augment import Step
from ..data.imagenet import has_boxes
from ..data.reading import without_bad
from ..data.tiny_imagenet import tiny_imagenet_files
from ..nets import network_from_path
from ..recipes.base import counts_k
from ..recipes.runs import Which
from ..recipes.settings import Data, Settings
from ..training.checkpoint import load_run, weights_digest
from ..training.log import Epoch, read_epochs
from ..training.loop import as_stored
from ..training.run import fetch_hint, splits_of
from .predictions import Predictions, Reading, predictions

RESIZED = 256 / 224  # of what is cut out, as usual on ImageNet

Batchnorm = Literal["as_trained", "recomputed", "unaugmented"]
"""Running statistics of batch norm: those of the training; or those of the unmixed training samples, augmented as in the training
(``recomputed``) or prepared as in the evaluation (``unaugmented``)."""


@dataclass(frozen=True)
class Samples:
    """Which samples to measure on: None is what the run itself was measured on; ``whole`` is all of the part."""

    data_set: str | None = None
    part: str | None = None
    per_class: int | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        if self.whole and self.per_class is not None:
            raise ValueError(f"whole takes all samples of a part and per_class {self.per_class} of every class: give one of them")
        if self.per_class is not None and self.per_class < 1:
            raise ValueError(f"per_class must be at least 1, got {self.per_class}")


class View(NamedTuple):
    """Preparation of pictures for a network that was not trained here.

    Args:
        mean: Mean of the pixels; None for that of the data set.
        std: Standard deviation of the pixels; None for that of the data set.
        crop: Side of the input, cropped from the center; None for 224 for photos, else the stored
            size.
        foreign: Whether the network's classes are not those of the data set.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: int | None = None
    foreign: bool = False


class Parts(NamedTuple):
    """The samples to measure on; those to fit a temperature on, and those the network was trained on, where they are known."""

    report: Split
    select: Split | None = None
    train: Split | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """``network`` and the ``parts`` it is measured on, seen as ``evaluation`` prepares them; the rest is known of runs only.

    ``parts`` are read when they are first needed. ``foreign``: the network's classes are not those of the samples.
    ``samples`` describes which they are, ``usual`` which they are by default. ``settings`` and ``history`` say how the network
    was trained, at which ``scale`` of its recipe, ``method`` with which networks of the method's own; ``file`` is the checksum of
    its checkpoint. ``folder`` is where data sets lie.
    """

    network: nn.Module
    parts: Callable[[], Parts]
    evaluation: Augment
    title: str = "network"
    foreign: bool = False
    samples: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] | None = None
    file: str | None = None
    scale: str | None = None
    settings: Settings | None = None
    method: Method | None = None
    history: tuple[Epoch, ...] = ()
    folder: Path | None = None
    batchnorm: Batchnorm = "as_trained"
    _predicted: list[Predictions] = field(default_factory=list)
    _recomputed: dict[Batchnorm, "Subject"] = field(default_factory=dict)

    @property
    def report(self) -> Split:
        """The samples to measure on."""
        return self.parts().report

    @property
    def weights(self) -> str:
        """Checksum of the network's weights."""
        return weights_digest(self.network)

    def with_batchnorm(self, way: Batchnorm) -> "Subject":
        """Return the subject with other batch-norm statistics, in a copy of its network."""
        if way == "as_trained":
            return self
        if way not in self._recomputed:
            self._recomputed[way] = self._with_statistics(way)
        return self._recomputed[way]

    def _with_statistics(self, way: Batchnorm) -> "Subject":
        train, settings = self.parts().train, self.settings
        if settings is None or train is None:
            raise ValueError(f"batchnorm {way} needs the training samples of a run, which {self.title} does not have")
        if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.network.modules()):
            raise ValueError(f"batchnorm {way} has no effect: the network of {self.title} has no batch-norm layers")
        last = settings.in_epoch(settings.epochs - 1)
        augment = self.evaluation if way == "unaugmented" else last.augment.training(last.data.entry())
        split = train if way == "unaugmented" else as_stored(train, last.augment.short_side)
        loader = Loader(split, augment, batch=last.batch, drop_last=False, workers=settings.running.workers)
        network = copy.deepcopy(self.network)
        recompute_batchnorm(network, loader.epoch(settings.epochs))
        return replace(self, network=network, batchnorm=way, _predicted=[], _recomputed={})

    def labels(self, *names: str) -> list[Tensor]:
        """The labels of the parts ``names`` that there are."""
        parts = [getattr(self.parts(), name) for name in names]
        return [part.labels for part in parts if part is not None]

    def check_classes(self) -> None:
        """Raise ValueError if the network's classes are not those of the samples."""
        if self.foreign:
            raise ValueError(f"the classes of {self.title} are not those of {self.samples['data']}, so none is right or wrong")

    def predictions(self, reading: Reading) -> Predictions:
        """What the network says about the samples to measure on, computed once for all measures."""
        if len(self.report) == 0:
            raise ValueError(f"{self.samples.get('data', 'the data set')} has no samples in this part")
        self.check_classes()
        if not self._predicted:
            self._predicted.append(predictions(self.network, self.report, self.evaluation, reading))
        return self._predicted[0]


def run_subject(
    run: str | Path,
    data: str | Path,
    *,
    checkpoint: Which = "last",
    samples: Samples | None = None,
    device: str | None = None,
    trust: Collection[str] = (),
) -> Subject:
    """The network of the run in the folder ``run``, on the samples it was measured on, or on others.

    ``data`` is the folder of the data sets. ``trust`` are import paths that the folder may name.
    """
    run, data, samples = Path(run), Path(data), samples or Samples()
    loaded = load_run(run, checkpoint, trust)
    settings, about = loaded.settings, loaded.about
    own = replace(settings.data, name=samples.data_set or settings.data.name)
    foreign = own.name != settings.data.name
    if own.entry().layout != settings.data.entry().layout:
        raise ValueError(f"{run.name} was trained on {settings.data.name}, and {own.name} has samples of another kind")
    part = samples.part or (settings.data.report if not foreign else _reported_part(own.entry()))
    per_class = None if samples.whole else samples.per_class or (None if foreign else settings.data.report_per_class)

    @cache
    def parts() -> Parts:
        splits = _splits_with_boxes(own, data, run.resolve().parents[min(2, len(run.resolve().parents) - 1)] / "cache")
        report = _some(splits, part, per_class, own)
        if foreign:
            return Parts(report)
        select = None if own.select is None else _some(splits, own.select, own.report_per_class, own)
        return Parts(report, select, _some(splits, "train", own.per_class, own) if "train" in splits else None)

    place = chosen_device(device)
    network = loaded.network.to(place)
    loaded.method.modules.to(place)
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as it was trained, for times to compare
    k = f" K = {about['k']}" if counts_k(about["arm"]) else ""
    return Subject(
        network=network,
        parts=parts,
        evaluation=resized_view(settings) if foreign else settings.augment.evaluation(settings.data.entry()),
        title=f"{about['arm']}{k}, seed {about['seed']}",
        foreign=foreign,
        samples=_description(own, part, per_class),
        usual=_description(settings.data, settings.data.report, settings.data.report_per_class),
        file=about["file"],
        scale=about["scale"],
        settings=settings,
        method=loaded.method,
        history=tuple(read_epochs(run)),
        folder=data,
    )


def network_subject(path: str, data: str | Path, samples: Samples, view: View, device: str | None = None) -> Subject:
    """The network that the function ``path`` (``package.module:name``) returns with its weights in it, on a data set by name.

    Images are resized and their middle is taken, 224 unless ``view`` says otherwise, where they have different sizes.
    """
    if samples.data_set is None:
        raise ValueError(f"data_set must be given for {path!r}, which was not trained here (--data-set NAME)")
    own, folder = Data(samples.data_set), Path(data)
    entry = own.entry()
    part = samples.part or _reported_part(entry)
    report = _some(_splits_with_boxes(own, folder, folder / "cache"), part, samples.per_class, own)
    mean, std = view.mean or entry.mean, view.std or entry.std
    # Files of one size, as Tiny-ImageNet's, are seen as they are, unless another size is asked for.
    sized, usual = not isinstance(report, Files) or entry.listed is not None, min(entry.size[1:])
    side = (None if view.crop == usual else view.crop) if sized else view.crop or usual
    steps: list[Step] = [] if side is None else [Resize(round(RESIZED * side)), CenterCrop(side)]
    if "" not in sys.path:
        sys.path.insert(0, "")  # code in the folder where the command was typed
    seen = {"crop": side, "mean": list(mean), "std": list(std), "foreign": view.foreign}
    return Subject(
        network=network_from_path(path).eval().to(chosen_device(device)),
        parts=lambda: Parts(report),
        evaluation=Augment((*steps, Normalise(mean, std))),
        title=path,
        foreign=view.foreign,
        samples=_description(own, part, samples.per_class) | seen,
        folder=folder,
    )


def resized_view(settings: Settings, *, training: bool = False) -> Augment:
    """Pictures of any size as the network of a run wants them: its size, normalised as in its training.

    They are cut from the middle, or for ``training`` a random part of the picture, mirrored or not.
    """
    entry, augment = settings.data.entry(), settings.augment
    side = augment.evaluate_crop or min(entry.size[1:])
    middle: tuple[Step, Step] = (Resize(augment.evaluate_resize or round(RESIZED * side)), CenterCrop(side))
    return Augment((*((RandomResizedCrop(side), Flip()) if training else middle), Normalise(entry.mean, entry.std)))


def chosen_device(name: str | None) -> torch.device:
    """The device called ``name``; without a name the accelerator of the machine, or the CPU."""
    if name is not None:
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    found = torch.accelerator.current_accelerator()
    return torch.device("cpu") if found is None or not torch.accelerator.is_available() else found


def _description(own: Data, part: str, per_class: int | None) -> dict[str, Any]:
    return {"data": own.name, "part": part, "per_class": per_class, "subset_seed": own.subset_seed}


def _splits_with_boxes(own: Data, folder: Path, cache: Path) -> Splits[Split]:
    """The parts of a data set, with boxes where it has any."""
    try:
        if own.name == "imagenet":
            return read("imagenet", folder, boxes=has_boxes(folder), skip_bad=own.skip_bad)
        if own.name == "tiny_imagenet":
            files = tiny_imagenet_files(folder)
            parts = {part: without_bad(split, 0) if own.skip_bad else split for part, split in files.parts.items()}
            return Splits(files.name, parts)
        return splits_of(own, folder, cache)
    except (ValueError, OSError) as error:
        if hint := fetch_hint(own.name, folder):
            raise ValueError(f"{error}{hint}") from error
        raise


def _some(splits: Splits[Split], part: str, per_class: int | None, own: Data) -> Split:
    split = splits[part]
    return split if per_class is None else split.subset(per_class, own.subset_seed)


def _reported_part(entry: DataSet) -> str:
    return "test" if "test" in entry.counts else "validation"
