"""Tiny-ImageNet-200 in its official layout: ``train/<wnid>/images/*.JPEG``, ``val/images`` and ``val/val_annotations.txt``."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .base import BadFile, Files, Images, Splits, located, text_lines
from .bulk import Form, gathered, outcomes
from .imagenet import class_folders, listed
from .picture import read_picture

FOLDERS = ("tiny-imagenet-200",)
FORM = Form("tiny-imagenet-1", (3, 64, 64), torch.uint8)


def read_tiny_imagenet(
    folder: str | Path, *, cache: str | Path | None = None, skip_bad: bool = False, workers: int = 0
) -> Splits[Images]:
    """100,000 train and 10,000 validation images of 64 × 64 in 200 classes, decoded (1.3 GB) by ``workers`` processes.

    With ``cache`` they are decoded once into files of that folder, and mapped from there.
    """
    parts = {
        part: gathered(
            files,
            partial(outcomes, files.reader, workers=workers),
            FORM,
            cache=None if cache is None else Path(cache),
            skip_bad=skip_bad,
        )
        for part, files in tiny_imagenet_files(folder).parts.items()
    }
    return Splits("tiny_imagenet", parts)


def tiny_imagenet_files(folder: str | Path) -> Splits[Files]:
    """The same images as files. A class is the rank of its WordNet number in sorted order."""
    base = located(folder, FOLDERS, ("wnids.txt", "val/val_annotations.txt"))
    if (base / "wnids.txt").exists():
        classes = tuple(sorted(line.strip() for line in text_lines(base / "wnids.txt")))
    else:
        classes = tuple(class_folders(base / "train"))
    train = Files(*listed(base / "train", classes), classes, read_tiny_picture)
    return Splits("tiny_imagenet", {"train": train, "validation": _validation(base / "val", classes)})


def read_tiny_picture(path: str) -> Tensor:
    """RGB as uint8 ``[3, 64, 64]``; grey images get three equal channels."""
    picture = read_picture(path)
    if picture.shape != FORM.shape:
        raise BadFile(f"{path} must be 64 × 64 pixels, it is {picture.shape[2]} × {picture.shape[1]}")
    return picture


def _validation(folder: Path, classes: tuple[str, ...]) -> Files:
    """Images by the annotations: file name, class and box, separated by tabs."""
    path, number = folder / "val_annotations.txt", {name: i for i, name in enumerate(classes)}
    paths, labels = [], []
    for line_number, line in enumerate(text_lines(path), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0].strip()
        if wnid not in number:
            raise BadFile(f"{path} must give one of the {len(classes)} classes in every line, line {line_number} gives {wnid!r}")
        paths.append(str(folder / "images" / name))
        labels.append(number[wnid])
    if not paths:
        raise BadFile(f"{path} must list the validation images, it lists none")
    return Files(tuple(paths), torch.tensor(labels, dtype=torch.int64), classes, read_tiny_picture)
