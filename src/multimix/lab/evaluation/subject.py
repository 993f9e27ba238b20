"""What is evaluated: a network with the samples it is asked about, from the folder of a run or from any code that makes one."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ...methods import Method
from ..data import Augment, CenterCrop, DataSet, Files, Flip, Normalise, RandomResizedCrop, Resize, Split, Splits, dataset, read
from ..data.augment import Step
from ..data.imagenet import has_boxes
from ..data.reading import without_bad
from ..data.tiny_imagenet import tiny_imagenet_files
from ..recipes.arms import counts_k
from ..recipes.settings import Data, Settings
from ..training.checkpoint import Which, load_run, weights_digest
from ..training.log import Epoch, read_epochs
from ..training.run import splits_of
from .predictions import Predictions

RESIZED = 256 / 224  # of what is cut out, as usual on ImageNet


@dataclass(frozen=True)
class Samples:
    """Which samples to ask about: None is what the run itself was measured on; ``whole`` is all of the part."""

    data_set: str | None = None
    part: str | None = None
    per_class: int | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        if self.whole and self.per_class is not None:
            raise ValueError(f"whole takes all samples of a part and per_class {self.per_class} of every class: give one of them")
        if self.per_class is not None and self.per_class < 1:
            raise ValueError(f"per_class must be at least 1, got {self.per_class}")


class Parts(NamedTuple):
    """The samples to ask about; those to fit a temperature on, and those the network was trained on, where they are known."""

    report: Split
    select: Split | None = None
    train: Split | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """``network`` and the ``parts`` it is asked about, seen as ``evaluation`` prepares them; all else is there if a run tells it.

    ``parts`` are read when they are first asked for. ``foreign``: the network's classes are not those of the samples.
    ``samples`` says in words which they are, ``usual`` which they are if nothing else is asked for. ``settings`` and ``history``
    say how the network was trained, ``method`` with which networks of the method's own; ``file`` is the checksum of its
    checkpoint. ``folder`` is where data sets lie.
    """

    network: nn.Module
    parts: Callable[[], Parts]
    evaluation: Augment
    title: str = "network"
    foreign: bool = False
    samples: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] | None = None
    file: str | None = None
    settings: Settings | None = None
    method: Method | None = None
    history: tuple[Epoch, ...] = ()
    folder: Path | None = None
    seen: dict[str, Predictions] = field(default_factory=dict)
    """Predictions that were made already, for the evaluators to share."""

    @property
    def report(self) -> Split:
        """The samples to ask about."""
        return self.parts().report

    @property
    def weights(self) -> str:
        """Checksum of the network's weights."""
        return weights_digest(self.network)

    @property
    def own(self) -> bool:
        """Whether it is asked about the samples that its training reported on."""
        return self.usual is not None and dict(self.samples) == dict(self.usual)

    @property
    def entry(self) -> DataSet:
        """What is known of the data set that the network was trained on."""
        if self.settings is None:
            raise ValueError(f"{self.title} is no run, so it is not known what it was trained on")
        return self.settings.data.entry()


def run_subject(
    run: str | Path, data: str | Path, *, checkpoint: Which = "last", samples: Samples | None = None, device: str | None = None
) -> Subject:
    """The network of the run in the folder ``run``, on the samples it was measured on, or on others.

    ``data`` is the folder of the data sets.
    """
    run, data, samples = Path(run), Path(data), samples or Samples()
    found = load_run(run, checkpoint)
    settings = found.settings
    about = found.about
    k = f" K = {about['k']}" if counts_k(about["arm"]) else ""
    own = replace(settings.data, name=samples.data_set or settings.data.name)
    foreign = own.name != settings.data.name
    if own.entry().layout != settings.data.entry().layout:
        raise ValueError(f"{run.name} was trained on {settings.data.name}, and {own.name} has samples of another kind")
    part = samples.part or (settings.data.report if not foreign else _only_part(own.name))
    per_class = None if samples.whole else samples.per_class or (None if foreign else settings.data.report_per_class)

    @cache
    def parts() -> Parts:
        splits = _boxed(own, data, run)
        report = _some(splits, part, per_class, own)
        if foreign:
            return Parts(report)
        select = None if own.select is None else _some(splits, own.select, own.report_per_class, own)
        return Parts(report, select, _some(splits, "train", own.per_class, own) if "train" in splits else None)

    plain = settings.augment.evaluation(settings.data.entry())
    place = chosen_device(device)
    network = found.network.to(place)
    found.method.modules.to(place)
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as it was trained, for times to compare
    return Subject(
        network=network,
        parts=parts,
        evaluation=resized_view(settings) if foreign else plain,
        title=f"{about['arm']}{k}, seed {about['seed']}",
        foreign=foreign,
        samples=_said(own, part, per_class),
        usual=_said(settings.data, settings.data.report, settings.data.report_per_class),
        file=about["file"],
        settings=settings,
        method=found.method,
        history=tuple(read_epochs(run)),
        folder=data,
    )


def network_subject(
    path: str,
    data: str | Path,
    samples: Samples,
    *,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    crop: int | None = None,
    foreign: bool = False,
    device: str | None = None,
) -> Subject:
    """The network that the function ``path`` (``package.module:name``) returns with its weights in it, on a data set by name.

    Images are resized and their middle ``crop`` is taken, 224 unless said, where they have different sizes; ``mean`` and ``std``
    are those of pixels in 0 … 1 that the network wants, by default the data set's.
    """
    if samples.data_set is None:
        raise ValueError(f"a data set must be named for {path!r}, which is no run that would tell it")
    own = Data(samples.data_set)
    splits = _boxed(own, Path(data), None)
    part = samples.part or _only_part(own.name)
    entry = own.entry()
    report = _some(splits, part, samples.per_class, own)
    # Files of one size, as Tiny-ImageNet's, are seen as they are, unless another size is asked for.
    sized = not isinstance(report, Files) or entry.listed is not None
    side = (None if crop in (None, min(entry.size[1:])) else crop) if sized else crop or min(entry.size[1:])
    steps: list[Step] = [] if side is None else [Resize(round(RESIZED * side)), CenterCrop(side)]
    network = _made(path).eval().to(chosen_device(device))
    return Subject(
        network=network,
        parts=lambda: Parts(report),
        evaluation=Augment((*steps, Normalise(mean or entry.mean, std or entry.std))),
        title=path,
        foreign=foreign,
        samples=_said(own, part, samples.per_class)
        | {"crop": side, "mean": list(mean or entry.mean), "std": list(std or entry.std), "foreign": foreign},
        folder=Path(data),
    )


def resized_view(settings: Settings) -> Augment:
    """Pictures of any size as the network of a run wants them: its size, cut from the middle, normalised as in its training."""
    entry, side = settings.data.entry(), _side(settings)
    return Augment((Resize(settings.augment.evaluate_resize or round(RESIZED * side)), CenterCrop(side), _norm(entry)))


def training_view(settings: Settings) -> Augment:
    """The same for training: a random part of the picture, mirrored or not."""
    return Augment((RandomResizedCrop(_side(settings)), Flip(), _norm(settings.data.entry())))


def chosen_device(name: str | None) -> torch.device:
    """The accelerator that is there, or the CPU; or the one that is named."""
    if name is not None:
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    found = torch.accelerator.current_accelerator()
    return torch.device("cpu") if found is None or not torch.accelerator.is_available() else found


def _side(settings: Settings) -> int:
    return settings.augment.evaluate_crop or min(settings.data.entry().size[1:])


def _norm(entry: DataSet) -> Normalise:
    return Normalise(entry.mean, entry.std)


def _said(own: Data, part: str, per_class: int | None) -> dict[str, Any]:
    return {"data": own.name, "part": part, "per_class": per_class, "subset_seed": own.subset_seed}


def _boxed(own: Data, folder: Path, run: Path | None) -> Splits[Split]:
    """The parts of a data set, with boxes where they are there."""
    if own.name == "imagenet":
        return read("imagenet", folder, boxes=has_boxes(folder), skip_bad=own.skip_bad)
    if own.name == "tiny_imagenet":
        files = tiny_imagenet_files(folder)
        return Splits(files.name, {part: without_bad(split, 0) if own.skip_bad else split for part, split in files.parts.items()})
    cache = folder / "cache" if run is None else run.resolve().parents[min(2, len(run.resolve().parents) - 1)] / "cache"
    return splits_of(own, folder, cache)


def _some(splits: Splits[Split], part: str, per_class: int | None, own: Data) -> Split:
    found = splits[part]
    return found if per_class is None else found.subset(per_class, own.subset_seed)


def _only_part(name: str) -> str:
    """The part that errors are measured on."""
    counts = dataset(name).counts
    return "test" if "test" in counts else "validation"


def _made(path: str) -> nn.Module:
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{path!r} is neither a folder nor package.module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # code in the folder where the command was typed
    try:
        made = getattr(importlib.import_module(module), name)()
    except TypeError as error:
        raise ValueError(f"{path!r} must be a function without arguments that returns the network: {error}") from None
    except ModuleNotFoundError as error:
        raise ValueError(f"no module {error.name!r} for {path!r}; is its folder on PYTHONPATH?") from None
    except AttributeError as error:
        raise ValueError(f"{path!r} cannot be made: {error}") from None
    if not isinstance(made, nn.Module):
        raise ValueError(f"{path} must return an nn.Module, it returned {type(made).__name__}")
    return made
