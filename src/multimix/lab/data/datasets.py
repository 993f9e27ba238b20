"""What is known of every data set, and its samples: in memory, or as files that are read when needed."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor

from ...core.checks import nearest
from ...core.sampling import seeded
from ..terminal import printable
from .augment import Normalise, Pixels

Layout = Literal["images", "points"]
PROBES = 64  # samples whose pixels are compared when a run goes on
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


Own = TypeVar("Own", bound="Split")


class Split(ABC):
    """Samples with classes. Pixels are uint8 in 0 … 255, or float32 (features, or pixels in 0 … 1).

    ``labels`` are int64 ``[N]``. Some of ``classes`` may have no sample in a partial set. ``skipped`` has one sentence for every
    file that was left out because it is bad.
    """

    labels: Tensor
    classes: tuple[str, ...]
    skipped: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batch(self, index: Tensor) -> tuple[Pixels, Tensor]:
        """Pixels and classes of the samples ``index``, in that order."""

    @abstractmethod
    def take(self, index: Tensor) -> "Split":
        """Only the samples ``index``."""

    def fingerprint(self) -> str:
        """SHA-256 of a few samples, spread evenly over all; other pixels give another one, as a rule."""
        pixels, _ = self.batch(self._spread())
        whole = hashlib.sha256()
        for sample in pixels:
            whole.update(f"{sample.dtype} {list(sample.shape)}".encode() + sample.contiguous().numpy().tobytes())
        return whole.hexdigest()

    def _spread(self) -> Tensor:
        probes = min(len(self), PROBES)
        return torch.arange(probes) * len(self) // max(1, probes)

    def subset(self: Own, per_class: int, seed: int) -> Own:
        """``per_class`` samples of every class that has samples, the same ones for the same seed, in their original order."""
        counts = torch.bincount(self.labels)
        fewest = int(counts[counts > 0].min()) if len(self) else 0
        if not 1 <= per_class <= fewest:
            raise ValueError(f"per_class must lie in 1 … {fewest}, the size of the smallest class, got {per_class}")
        shuffled = torch.randperm(len(self), generator=seeded(seed))
        # A stable sort by class keeps the shuffled order inside each class, so the first ones of each are a uniform draw.
        by_class = shuffled[torch.argsort(self.labels[shuffled], stable=True)]
        first = torch.cumsum(counts, 0) - counts
        rank = torch.arange(len(self)) - first[self.labels[by_class]]
        return cast(Own, self.take(by_class[rank < per_class].sort().values))

    def check_labels(self, count: int) -> None:
        """Raise ValueError unless there is one label of a class for each of ``count`` samples; names become printable."""
        object.__setattr__(self, "classes", tuple(map(printable, self.classes)))
        labels, last = self.labels, len(self.classes) - 1
        if labels.dtype != torch.int64 or list(labels.shape) != [count]:
            raise ValueError(f"labels must be int64 [{count}], one per sample, got {labels.dtype} {list(labels.shape)}")
        if count and not 0 <= int(labels.min()) <= int(labels.max()) <= last:
            raise ValueError(f"labels must lie in 0 … {last}, got {int(labels.min())} … {int(labels.max())}")


S_co = TypeVar("S_co", bound=Split, covariant=True)


@dataclass(frozen=True, eq=False)
class Images(Split):
    """Samples in memory (or mapped from a file): ``pixels [N, C, H, W]``, uint8 or float32."""

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check_pixels()
        self.check_labels(len(self.pixels))

    def check_pixels(self) -> None:
        """Raise ValueError unless these are images; samples of another kind may have other axes."""
        if self.pixels.ndim != 4 or self.pixels.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"pixels must be uint8 or float32 [N, C, H, W], got {self.pixels.dtype} {list(self.pixels.shape)}")

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.pixels.index_select(0, index), self.labels.index_select(0, index)

    def take(self, index: Tensor) -> "Images":
        pixels, labels = self.batch(index)
        return replace(self, pixels=pixels, labels=labels)


@dataclass(frozen=True, eq=False)
class Files(Split):
    """Samples on disk: ``reader(path)`` gives ``[C, H, W]``. It must be importable, for worker processes.

    ``boxes`` holds float32 ``[n, 4]`` for every sample: x, y, width, height of its n objects, in pixels of the stored file.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    reader: Callable[[str], Tensor]
    boxes: tuple[Tensor, ...] | None = None
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check_labels(len(self.paths))
        if self.boxes is not None and len(self.boxes) != len(self.paths):
            raise ValueError(f"boxes must be one tensor per path, got {len(self.boxes)} for {len(self.paths)}")

    def batch(self, index: Tensor) -> tuple[Pixels, Tensor]:
        """Pixels and classes of the samples ``index``, in that order; one tensor if all have the same size."""
        images = [self.reader(self.paths[i]) for i in index.tolist()]
        alike = bool(images) and all(image.shape == images[0].shape for image in images)
        return torch.stack(images) if alike else images, self.labels.index_select(0, index)

    def fingerprint(self) -> str:
        """SHA-256 of a few files, as they are stored."""
        paths = [Path(self.paths[i]) for i in self._spread().tolist()]
        # Whoever needs one that is missing says so.
        return hashlib.sha256(
            b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths if path.is_file())
        ).hexdigest()

    def take(self, index: Tensor) -> "Files":
        rows = index.tolist()
        boxes = None if self.boxes is None else tuple(self.boxes[i] for i in rows)
        return replace(self, paths=tuple(self.paths[i] for i in rows), labels=self.labels[index], boxes=boxes)


@dataclass(frozen=True, eq=False)
class Splits(Generic[S_co]):
    """The parts of a data set that are present, by name: train, validation, test."""

    name: str
    parts: Mapping[str, S_co]

    def __getitem__(self, part: str) -> S_co:
        if part not in self.parts:
            raise ValueError(f"{self.name} has no part {part!r} here; it has {', '.join(self.parts)}")
        return self.parts[part]

    def __contains__(self, part: str) -> bool:
        return part in self.parts


@dataclass(frozen=True)
class Source:
    """One archive of a data set at its official address; ``size`` in bytes."""

    url: str
    file: str
    size: int
    sha256: str
    unpack: Literal["tar.gz", "zip"]
    folder: str  # what appears in the data folder
    bare: bool = False  # the archive holds the contents of that folder; otherwise only that folder in it is unpacked


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set before it is read.

    ``mean`` and ``std`` are those of the protocols, of pixels in 0 … 1. ``size`` is [C, H, W] of what networks see. ``counts``
    are the official numbers of samples. ``listed`` gives the samples as files where ``read`` would decode them all.

    The ``layout`` "points" means clouds: batches are ``[B, N, 3]``, ``size`` is [3, N], and nothing is normalised.
    """

    name: str
    read: Callable[..., Splits[Split]]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: tuple[int, ...]
    counts: Mapping[str, int]
    folders: tuple[str, ...] = ()
    listed: Callable[..., Splits[Split]] | None = None
    layout: Layout = "images"
    sources: Sequence[Source] = ()
    not_fetched: str = ""  # why there are no sources
    md5: Mapping[str, str] = field(default_factory=dict)  # of unpacked files that have no checksum inside

    @property
    def last_steps(self) -> tuple[Normalise, ...]:
        """What every sample goes through last."""
        return () if self.layout == "points" else (Normalise(self.mean, self.std),)


DATASETS: dict[str, DataSet] = {}


def register(entry: DataSet) -> None:
    """Make a data set known by its name."""
    DATASETS[entry.name] = entry


def dataset(name: str) -> DataSet:
    """What is known of the data set ``name``."""
    if name not in DATASETS:
        raise ValueError(f"no data set {name!r}{nearest(name, DATASETS)}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def read(name: str, folder: str | Path, **options: Any) -> Splits[Split]:
    """The parts of the data set ``name``, whose official folder is ``folder`` or in it; options are the reader's own."""
    entry = dataset(name)
    known = [option for option in inspect.signature(entry.read).parameters if option != "folder"]
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}{nearest(option, known)}; it has {', '.join(known) or 'none'}")
    return entry.read(folder, **options)
