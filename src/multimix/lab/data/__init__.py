"""Data sets: readers of the official layouts, augmentations on batches, and the loader that puts them together."""

from . import (  # noqa: F401  each registers its sets
    cifar,
    cub,
    digits,
    imagenet,
    own_folder,
    shapes,
    speech,
    tiny_imagenet,
)
from .augment import Augment, CenterCrop, Flip, Normalise, PaddedCrop, RandomResizedCrop, Resize, Rotation
from .datasets import DATASETS, DataSet, Files, Images, Layout, Split, Splits, dataset, read
from .loader import Loader
from .reading import BadFile

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
