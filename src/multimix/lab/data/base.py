"""A part of a data set, in memory or as files, and what is wrong with a file in one sentence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ...sampling import seeded

# Images of one size are one tensor [B, C, H, W], images of several sizes a list of [C, H, W].
Pixels = Tensor | list[Tensor]


class BadFile(ValueError):  # noqa: N818  what it is about, not that it is an error
    """One sentence: which file, and what is wrong with it."""


class Split(Protocol):
    """Samples with classes. Pixels are uint8 in 0 … 255, or float32 (features, or pixels in 0 … 1)."""

    @property
    def labels(self) -> Tensor:
        """Class of every sample, int64 ``[N]``."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; some may have no sample in a partial set."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """One sentence for every file that was left out because it is bad."""

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> tuple[Pixels, Tensor]:
        """Pixels and classes of the samples ``index``, in that order."""

    def subset(self, per_class: int, seed: int) -> "Split":
        """``per_class`` samples of every class, the same ones for the same seed, in the order they had."""


S_co = TypeVar("S_co", bound=Split, covariant=True)


@dataclass(frozen=True, eq=False)
class Images:
    """Samples in memory (or mapped from a file): ``pixels [N, C, H, W]``, uint8 or float32."""

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check_pixels()
        _check_labels(self.labels, len(self.pixels), self.classes)

    def check_pixels(self) -> None:
        """Raise one sentence unless they are images; other samples may have other axes."""
        if self.pixels.ndim != 4 or self.pixels.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"pixels must be uint8 or float32 [N, C, H, W], got {self.pixels.dtype} {list(self.pixels.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels and classes of the samples ``index``, in that order."""
        return self.pixels.index_select(0, index), self.labels.index_select(0, index)

    def subset(self, per_class: int, seed: int) -> "Images":
        """``per_class`` samples of every class, the same ones for the same seed, in the order they had."""
        pixels, labels = self.batch(_drawn(self.labels, per_class, seed))
        return replace(self, pixels=pixels, labels=labels)


@dataclass(frozen=True, eq=False)
class Files:
    """Samples on disk, read when asked for: ``reader(path)`` gives ``[C, H, W]``. It must be importable, for other processes.

    ``boxes`` holds float32 ``[n, 4]`` for every sample: x, y, width, height of its n objects, in pixels of the stored file.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    reader: Callable[[str], Tensor]
    boxes: tuple[Tensor, ...] | None = None
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_labels(self.labels, len(self.paths), self.classes)
        if self.boxes is not None and len(self.boxes) != len(self.paths):
            raise ValueError(f"boxes must be one tensor per path, got {len(self.boxes)} for {len(self.paths)}")

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, index: Tensor) -> tuple[Pixels, Tensor]:
        """Pixels and classes of the samples ``index``, in that order; one tensor if all have the same size."""
        images = [self.reader(self.paths[i]) for i in index.tolist()]
        alike = bool(images) and all(image.shape == images[0].shape for image in images)
        return torch.stack(images) if alike else images, self.labels.index_select(0, index)

    def subset(self, per_class: int, seed: int) -> "Files":
        """``per_class`` samples of every class, the same ones for the same seed, in the order they had."""
        return self.take(_drawn(self.labels, per_class, seed))

    def take(self, index: Tensor) -> "Files":
        """Only the samples ``index``, with their boxes."""
        rows = index.tolist()
        boxes = None if self.boxes is None else tuple(self.boxes[i] for i in rows)
        return replace(self, paths=tuple(self.paths[i] for i in rows), labels=self.labels[index], boxes=boxes)


@dataclass(frozen=True, eq=False)
class Splits(Generic[S_co]):
    """The parts of a data set that are there, by name: train, validation, test."""

    name: str
    parts: Mapping[str, S_co]

    def __getitem__(self, part: str) -> S_co:
        if part not in self.parts:
            raise ValueError(f"{self.name} has no part {part!r} here; it has {', '.join(self.parts)}")
        return self.parts[part]

    def __contains__(self, part: str) -> bool:
        return part in self.parts

    @property
    def train(self) -> S_co:
        """What networks learn from."""
        return self["train"]

    @property
    def validation(self) -> S_co:
        """What the best epoch is chosen by; in ImageNet and Tiny-ImageNet also what is reported."""
        return self["validation"]

    @property
    def test(self) -> S_co:
        """What is reported."""
        return self["test"]


def located(folder: str | Path, names: tuple[str, ...], marks: tuple[str, ...]) -> Path:
    """The folder of a data set: one of ``names`` inside ``folder``, or ``folder`` itself; any of ``marks`` shows it is there."""
    folder = Path(folder)
    for base in (*(folder / name for name in names), folder):
        if any((base / mark).exists() for mark in marks):
            return base
    what = "has none" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    raise BadFile(f"{folder} must be or hold a folder {names[0]} with {marks[0]} in it, it {what}")


def text_lines(path: Path) -> list[str]:
    """The lines of a list file that are not empty."""
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path} must be a text file, it cannot be read as one ({error})") from None


def _drawn(labels: Tensor, per_class: int, seed: int) -> Tensor:
    """Indices of ``per_class`` samples of every class that has samples, ascending."""
    counts = torch.bincount(labels)
    fewest = int(counts[counts > 0].min()) if len(labels) else 0
    if not 1 <= per_class <= fewest:
        raise ValueError(f"per_class must lie in 1 … {fewest}, the size of the smallest class, got {per_class}")
    shuffled = torch.randperm(len(labels), generator=seeded(seed))
    # A stable sort by class keeps the shuffled order inside each class, so the first ones of each are a uniform draw.
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    first = torch.cumsum(counts, 0) - counts
    rank = torch.arange(len(labels)) - first[labels[by_class]]
    return by_class[rank < per_class].sort().values


def _check_labels(labels: Tensor, count: int, classes: tuple[str, ...]) -> None:
    if labels.dtype != torch.int64 or list(labels.shape) != [count]:
        raise ValueError(f"labels must be int64 [{count}], one per sample, got {labels.dtype} {list(labels.shape)}")
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise ValueError(f"labels must lie in 0 … {len(classes) - 1}, got {int(labels.min())} … {int(labels.max())}")
