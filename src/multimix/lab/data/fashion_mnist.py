"""Fashion-MNIST in its official IDX files, packed by gzip or not: 28 × 28 grey images of ten kinds of clothes."""

import gzip
import math
import zlib
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from .datasets import DataSet, Images, Source, Splits, register
from .reading import BadFile, find_folder

FOLDERS = ("fashion-mnist", "FashionMNIST/raw")
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
IMAGES, LABELS = 0x0803, 0x0801  # 08: unsigned bytes; then the number of axes


def read_fashion_mnist(folder: str | Path) -> Splits[Images]:
    """60,000 train and 10,000 test images in 10 classes."""
    marks = tuple(name + ending for names in FILES.values() for name in names for ending in (".gz", ""))
    base = find_folder(folder, FOLDERS, marks)
    return Splits("fashion_mnist", {part: _images(base, *names) for part, names in FILES.items()})


def _images(base: Path, image_name: str, label_name: str) -> Images:
    image_path, label_path = _present(base / image_name), _present(base / label_name)
    pixels, labels = _idx(image_path, IMAGES), _idx(label_path, LABELS).long()
    if len(pixels) != len(labels):
        raise BadFile(
            f"{label_path} must hold one label per image of {image_path.name}, it holds {len(labels)} for {len(pixels)}"
        )
    if len(labels) and int(labels.max()) >= len(CLASSES):
        raise BadFile(f"{label_path} must hold labels in 0 … {len(CLASSES) - 1}, it holds {int(labels.max())}")
    return Images(pixels.unsqueeze(1), labels, CLASSES)


def _present(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    for candidate in (packed, path):
        if candidate.exists():
            return candidate
    raise BadFile(f"{packed} is missing")


def _idx(path: Path, magic: int) -> Tensor:
    """The array of an IDX file of bytes: magic number, sides, then the bytes themselves."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return _array(path, file, magic)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"{path} is truncated or not packed by gzip ({error})") from None


def _array(path: Path, file: IO[bytes] | gzip.GzipFile, magic: int) -> Tensor:
    found = file.read(4)
    if found != magic.to_bytes(4, "big"):
        raise BadFile(f"{path} must begin with the magic number {magic:08x}, it begins with {found.hex() or 'nothing'}")
    header = file.read(4 * (magic & 0xFF))
    if len(header) != 4 * (magic & 0xFF):
        raise BadFile(f"{path} must have {4 + 4 * (magic & 0xFF)} bytes of header, it ends after {4 + len(header)}")
    sides = [int.from_bytes(header[i : i + 4], "big") for i in range(0, len(header), 4)]
    count = math.prod(sides)
    # One byte more than there should be, no more: a small file cannot unpack into all of memory.
    raw = file.read(count + 1)
    if len(raw) != count or count == 0:
        has = "more" if len(raw) > count else f"{len(raw):,}"
        raise BadFile(f"{path} must hold {' × '.join(map(str, sides))} bytes after its header, it holds {has}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(sides)


# fmt: off
_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
register(DataSet(
    "fashion_mnist", read_fashion_mnist, 10, (0.2860,), (0.3530,), (1, 28, 28), {"train": 60_000, "test": 10_000}, FOLDERS,
    sources=[Source(f"{_ADDRESS}/{file}", file, size, sha256, "none", "fashion-mnist") for file, size, sha256 in (
        ("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"))],
))
