"""Data sets: readers of the official layouts, augmentations on batches, and the loader that puts them together."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...checks import nearest
from . import cifar, cub, fashion_mnist, imagenet, shapes, speech, tiny_imagenet
from .augment import Augment, CenterCrop, Flip, Normalise, PaddedCrop, RandomResizedCrop, Resize, Rotation
from .base import BadFile, Files, Images, Split, Splits
from .digits import read_digits
from .loader import Loader

__all__ = [
    "DATASETS",
    "Augment",
    "BadFile",
    "CenterCrop",
    "DataSet",
    "Files",
    "Flip",
    "Images",
    "Layout",
    "Loader",
    "Normalise",
    "PaddedCrop",
    "RandomResizedCrop",
    "Resize",
    "Rotation",
    "Split",
    "Splits",
    "dataset",
    "read",
]

Layout = Literal["images", "points"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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

    @property
    def last_steps(self) -> tuple[Normalise, ...]:
        """What every sample goes through last."""
        return () if self.layout == "points" else (Normalise(self.mean, self.std),)


def _bytes(*values: float) -> tuple[float, ...]:
    return tuple(value / 255 for value in values)


_CIFAR10 = DataSet(
    "cifar10", cifar.read_cifar10, 10, _bytes(125.3, 123.0, 113.9), _bytes(63.0, 62.1, 66.7), (3, 32, 32),
    {"train": 50_000, "test": 10_000}, cifar.CIFAR10_FOLDERS,
)  # fmt: skip
_CIFAR100 = DataSet(
    "cifar100", cifar.read_cifar100, 100, _bytes(129.3, 124.1, 112.4), _bytes(68.2, 65.4, 70.4), (3, 32, 32),
    {"train": 50_000, "test": 10_000}, cifar.CIFAR100_FOLDERS,
)  # fmt: skip
_TINY = DataSet(
    "tiny_imagenet", tiny_imagenet.read_tiny_imagenet, 200, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (3, 64, 64),
    {"train": 100_000, "validation": 10_000}, tiny_imagenet.FOLDERS, tiny_imagenet.tiny_imagenet_files,
)  # fmt: skip
_IMAGENET = DataSet(
    "imagenet", imagenet.read_imagenet, 1000, IMAGENET_MEAN, IMAGENET_STD, (3, 224, 224),
    {"train": 1_281_167, "validation": 50_000}, imagenet.FOLDERS,
)  # fmt: skip
_CUB200 = DataSet(
    "cub200", cub.read_cub200, 200, IMAGENET_MEAN, IMAGENET_STD, (3, 224, 224),
    {"train": 5_994, "test": 5_794}, cub.FOLDERS,
)  # fmt: skip
# Spectrograms are normalised one by one when they are made.
_SPEECH1 = DataSet(
    "speech_commands_v1", speech.read_speech_commands_v1, 30, (0.0,), (1.0,), speech.FORM.shape,
    {"train": 51_088, "validation": 6_798, "test": 6_835}, speech.FOLDERS[1], partial(speech.speech_files, version=1),
)  # fmt: skip
_SPEECH2 = DataSet(
    "speech_commands_v2", speech.read_speech_commands_v2, 35, (0.0,), (1.0,), speech.FORM.shape,
    {"train": 84_843, "validation": 9_981, "test": 11_005}, speech.FOLDERS[2], partial(speech.speech_files, version=2),
)  # fmt: skip
_FASHION = DataSet(
    "fashion_mnist", fashion_mnist.read_fashion_mnist, 10, (0.2860,), (0.3530,), (1, 28, 28),
    {"train": 60_000, "test": 10_000}, fashion_mnist.FOLDERS,
)  # fmt: skip
_DIGITS = DataSet("digits", read_digits, 10, (0.3054,), (0.3753,), (1, 8, 8), {"train": 1_433, "test": 364})
_SHAPES = DataSet(
    "shapes", shapes.read_shapes, len(shapes.CLASSES), (), (), (3, shapes.POINTS),
    {"train": len(shapes.CLASSES) * shapes.PER_KIND, "test": len(shapes.CLASSES) * shapes.TEST_PER_KIND}, layout="points",
)  # fmt: skip

DATASETS: Mapping[str, DataSet] = {
    entry.name: entry
    for entry in (_CIFAR10, _CIFAR100, _TINY, _IMAGENET, _CUB200, _SPEECH1, _SPEECH2, _FASHION, _DIGITS, _SHAPES)
}


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
