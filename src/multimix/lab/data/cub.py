"""CUB-200-2011 in its official layout: pictures of birds with boxes, described by numbered lists."""

from functools import partial
from pathlib import Path

import torch

from .datasets import IMAGENET_MEAN, IMAGENET_STD, DataSet, Files, Source, Splits, register
from .reading import BadFile, find_folder, read_picture, text_lines, without_bad

FOLDERS = ("CUB_200_2011",)


def read_cub200(folder: str | Path, *, short_side: int | None = None, skip_bad: bool = False, workers: int = 0) -> Splits[Files]:
    """5,994 train and 5,794 test images in 200 classes, each with one box ``[1, 4]`` in pixels of the file.

    ``short_side`` resizes while reading (the boxes stay as they are). ``skip_bad`` decodes every file once, by ``workers``
    processes.
    """
    base = find_folder(folder, FOLDERS, ("images.txt", "classes.txt"))
    names = _column(base / "images.txt", 1)
    numbers = list(names)
    class_names = _column(base / "classes.txt", 1)
    rank = {number: i for i, number in enumerate(class_names)}
    label_of = _column(base / "image_class_labels.txt", 1, numbers)
    is_train = _column(base / "train_test_split.txt", 1, numbers)
    boxes = _boxes(base / "bounding_boxes.txt", numbers)
    for number in numbers:
        if label_of[number] not in rank:
            raise BadFile(
                f"{base / 'image_class_labels.txt'} must name classes of classes.txt, image {number} has {label_of[number]}"
            )
    parts = {}
    for part, flag in (("train", "1"), ("test", "0")):
        mine = [number for number in numbers if is_train[number] == flag]
        parts[part] = Files(
            tuple(str(base / "images" / names[number]) for number in mine),
            torch.tensor([rank[label_of[number]] for number in mine], dtype=torch.int64),
            tuple(class_names.values()),
            partial(read_picture, short_side=short_side),
            tuple(boxes[number] for number in mine),
        )
    if skip_bad:
        parts = {part: without_bad(files, workers) for part, files in parts.items()}
    return Splits("cub200", parts)


def _column(path: Path, width: int, numbers: list[str] | None = None) -> dict[str, str]:
    """What a list says about every image (or class) number; it must say it about all of ``numbers``."""
    found = {}
    for line_number, line in enumerate(text_lines(path), start=1):
        number, *rest = line.split()
        if len(rest) != width:
            raise BadFile(f"{path} must have {width + 1} columns, line {line_number} has {len(rest) + 1}")
        found[number] = " ".join(rest)
    missing = [number for number in numbers or () if number not in found]
    if missing or not found:
        what = f"image {missing[0]} is missing" if missing else "it is empty"
        raise BadFile(f"{path} must have one line for every image of images.txt, {what}")
    return found


def _boxes(path: Path, numbers: list[str]) -> dict[str, torch.Tensor]:
    """x, y, width, height as they stand in the file, ``[1, 4]`` for every image."""
    lines = _column(path, 4, numbers)
    try:
        return {number: torch.tensor([[float(side) for side in text.split()]]) for number, text in lines.items()}
    except ValueError as error:
        raise BadFile(f"{path} must hold numbers, it does not ({error})") from None


# fmt: off
register(DataSet(
    "cub200", read_cub200, 200, IMAGENET_MEAN, IMAGENET_STD, (3, 224, 224), {"train": 5_994, "test": 5_794}, FOLDERS,
    sources=[Source(  # beside its folder the archive has only attributes.txt, a list of words
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1", "CUB_200_2011.tgz", 1_150_585_339,
        "0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081", "tar.gz", "CUB_200_2011")],
))
