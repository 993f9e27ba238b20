"""ImageNet, or any tree of images with one folder per class: ``train/<class>/…`` and ``val/<class>/…``."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import torch
from torch import Tensor

from .datasets import IMAGENET_MEAN, IMAGENET_STD, DataSet, Files, Splits, register
from .reading import ENDINGS, BadFile, find_folder, read_picture, text_lines, without_bad

FOLDERS = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
PARTS = {"train": "train", "validation": "val"}
CLASS_LIST = "LOC_synset_mapping.txt"
BOXES = "Annotations/CLS-LOC/val"


def read_imagenet(
    folder: str | Path, *, short_side: int | None = None, boxes: bool = False, skip_bad: bool = False, workers: int = 0
) -> Splits[Files]:
    """The parts that are there, of 1,281,167 train and 50,000 validation images in 1,000 classes.

    ``short_side`` makes images the size of the stored copies of the protocol (160, 352) while they are read. ``boxes`` adds those
    of the validation images, in pixels of the files. ``skip_bad`` decodes every file once, by ``workers`` processes.
    """
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    base = find_folder(folder, FOLDERS, tuple(PARTS.values()))
    there = {part: base / name for part, name in PARTS.items() if (base / name).is_dir()}
    classes = _classes(base, list(there.values()))
    reader = partial(read_picture, short_side=short_side)
    parts = {part: Files(*list_images(root, classes), classes, reader) for part, root in there.items()}
    if boxes and "validation" in parts:
        parts["validation"] = _with_boxes(parts["validation"], base / BOXES)
    if skip_bad:
        parts = {part: without_bad(files, workers) for part, files in parts.items()}
    return Splits("imagenet", parts)


def has_boxes(folder: str | Path) -> bool:
    """Whether the annotations of the validation images are there."""
    return (find_folder(folder, FOLDERS, tuple(PARTS.values())) / BOXES).is_dir()


def class_folders(root: Path) -> list[str]:
    """Names of the folders in ``root``, sorted; hidden ones are none."""
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    except FileNotFoundError:
        raise BadFile(f"{root} is missing") from None
    if not names:
        raise BadFile(f"{root} must hold one folder per class, it has none")
    return names


def list_images(root: Path, classes: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Paths of all images under the class folders of ``root`` and their classes, sorted by class, then by name."""
    number = {name: i for i, name in enumerate(classes)}
    paths: list[str] = []
    labels: list[int] = []
    for name in class_folders(root):
        if name not in number:
            raise BadFile(f"{root / name} must be the folder of a class, there is no class {name!r} in the other lists")
        found = _images_below(root / name)
        paths += found
        labels += [number[name]] * len(found)
    if not paths:
        raise BadFile(f"{root} must hold images ({', '.join(ENDINGS)}) in folders, one per class, it has none")
    return tuple(paths), torch.tensor(labels, dtype=torch.int64)


def _images_below(folder: Path) -> list[str]:
    return sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(ENDINGS) and not name.startswith(".")
    )


def _classes(base: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    """The official list if it is there, so that a part of the classes keeps its labels; or else all folders, sorted."""
    if (base / CLASS_LIST).exists():
        return tuple(line.split()[0] for line in text_lines(base / CLASS_LIST))
    return tuple(sorted({name for root in roots for name in class_folders(root)}))


def _with_boxes(files: Files, folder: Path) -> Files:
    boxes = tuple(_boxes(folder / (Path(path).stem + ".xml")) for path in files.paths)
    return Files(files.paths, files.labels, files.classes, files.reader, boxes)


def _boxes(path: Path) -> Tensor:
    """The boxes of one annotation, ``[n, 4]``: x, y, width, height."""
    text = "\n".join(text_lines(path))
    try:
        # Entities could make a small file enormous, and annotations have none.
        if "<!" in text:
            raise ValueError("it declares entities")
        corners = [
            [float(box.findtext(name, "")) for name in ("xmin", "ymin", "xmax", "ymax")]
            for box in ElementTree.fromstring(text).iter("bndbox")
        ]
    except (ElementTree.ParseError, ValueError) as error:
        raise BadFile(f"{path} must be an annotation with boxes, it is not ({error})") from None
    found = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)
    return torch.cat([found[:, :2], found[:, 2:] - found[:, :2]], 1)


# fmt: off
register(DataSet(
    "imagenet", read_imagenet, 1000, IMAGENET_MEAN, IMAGENET_STD, (3, 224, 224),
    {"train": 1_281_167, "validation": 50_000}, FOLDERS,
    not_fetched="imagenet cannot be fetched, it needs a registration at https://image-net.org/download-images; unpack it so that "
    "the images lie in imagenet/train/<wnid>/*.JPEG and imagenet/val/<wnid>/*.JPEG of the data folder",
))
