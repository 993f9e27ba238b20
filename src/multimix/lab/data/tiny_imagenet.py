"""Tiny-ImageNet-200 in its official layout: ``train/<wnid>/images/*.JPEG``, ``val/images`` and ``val/val_annotations.txt``."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .datasets import DataSet, Files, Images, Source, Splits, register
from .imagenet import class_folders, list_images
from .reading import BadFile, Format, find_folder, read_all, read_array, read_picture, text_lines

FOLDERS = ("tiny-imagenet-200",)
FORMAT = Format("tiny-imagenet-1", (3, 64, 64), torch.uint8)


def read_tiny_imagenet(
    folder: str | Path, *, cache: str | Path | None = None, skip_bad: bool = False, workers: int = 0
) -> Splits[Images]:
    """100,000 train and 10,000 validation images of 64 × 64 in 200 classes, decoded (1.3 GB) by ``workers`` processes.

    With ``cache`` they are decoded once into files of that folder, and mapped from there.
    """
    where = None if cache is None else Path(cache)
    parts = {
        part: read_array(files, partial(read_all, files.reader, workers=workers), FORMAT, cache=where, skip_bad=skip_bad)
        for part, files in tiny_imagenet_files(folder).parts.items()
    }
    return Splits("tiny_imagenet", parts)


def tiny_imagenet_files(folder: str | Path) -> Splits[Files]:
    """The same images as files. A class is the rank of its WordNet number in sorted order.

    Validation images have one box each, where the annotations give them. There it is two corners, x0, y0, x1, y1, and both are
    taken as pixels that belong to the box, which therefore is x1 − x0 + 1 wide: of 2,000 real lines 876 end at column 63 and none
    at 64, so that 63 can only be the last pixel, and 8 have x0 = x1 or y0 = y1, which would be no box at all otherwise.
    """
    base = find_folder(folder, FOLDERS, ("wnids.txt", "val/val_annotations.txt"))
    if (base / "wnids.txt").exists():
        classes = tuple(sorted(line.strip() for line in text_lines(base / "wnids.txt")))
    else:
        classes = tuple(class_folders(base / "train"))
    train = Files(*list_images(base / "train", classes), classes, read_tiny_picture)
    return Splits("tiny_imagenet", {"train": train, "validation": _validation(base / "val", classes)})


def read_tiny_picture(path: str) -> Tensor:
    """RGB as uint8 ``[3, 64, 64]``; grey images get three equal channels."""
    picture = read_picture(path)
    if picture.shape != FORMAT.shape:
        raise BadFile(f"{path} must be 64 × 64 pixels, it is {picture.shape[2]} × {picture.shape[1]}")
    return picture


def _validation(folder: Path, classes: tuple[str, ...]) -> Files:
    """Images by the annotations: file name, class and box, separated by tabs."""
    path, number = folder / "val_annotations.txt", {name: i for i, name in enumerate(classes)}
    rows = [[cell.strip() for cell in line.split("\t")] for line in text_lines(path)]
    if not rows:
        raise BadFile(f"{path} must list the validation images, it lists none")
    for line_number, (_, *rest) in enumerate(rows, start=1):
        wnid = rest[0] if rest else ""
        if wnid not in number:
            raise BadFile(f"{path} must give one of the {len(classes)} classes in every line, line {line_number} gives {wnid!r}")
    paths = tuple(str(folder / "images" / name) for name, *_ in rows)
    labels = torch.tensor([number[wnid] for _, wnid, *_ in rows], dtype=torch.int64)
    return Files(paths, labels, classes, read_tiny_picture, _boxes(path, [corners for _, _, *corners in rows]))


def _boxes(path: Path, rows: list[list[str]]) -> tuple[Tensor, ...] | None:
    """x, y, width, height of every image, ``[1, 4]``, or ``[0, 4]`` where it has no box; None if none has one."""
    if not any(rows):
        return None
    boxes = []
    for line_number, row in enumerate(rows, start=1):
        try:
            corners = torch.tensor([float(cell) for cell in row]).reshape(len(row) // 4, 4)
            if len(row) > 4 or not bool(corners.isfinite().all()):
                raise ValueError
        except (ValueError, RuntimeError):
            raise BadFile(
                f"{path} must give a class, or a class and the four corners of a box, in every line, line {line_number} gives "
                f"{' '.join(row)!r}"
            ) from None
        size = corners[:, 2:] - corners[:, :2] + 1
        # Corners the wrong way round are no box; they do not keep the image from being read.
        boxes.append(torch.cat([corners[:, :2], size], 1)[(size > 0).all(1)])
    return tuple(boxes)


# fmt: off
register(DataSet(
    "tiny_imagenet", read_tiny_imagenet, 200, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), FORMAT.shape,
    {"train": 100_000, "validation": 10_000}, FOLDERS, tiny_imagenet_files,
    sources=[Source("https://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip", 248_100_043,
                    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821", "zip", "tiny-imagenet-200")],
))
