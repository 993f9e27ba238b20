"""Data sets: readers of the official layouts, augmentations on batches, and the loader that puts them together."""

from . import cifar, cub, digits, fashion_mnist, imagenet, shapes, speech, tiny_imagenet  # noqa: F401  each registers its sets
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
