"""CIFAR-10 and CIFAR-100 in the official "python version": pickled rows of 3,072 bytes, red, green, blue, each 32 × 32."""

import io
import pickle
import pickletools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .datasets import DataSet, Images, Source, Splits, register
from .reading import BadFile, find_folder, read_all

CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
# What NumPy calls the things an array consists of in a pickle, in its versions 1 and 2.
ARRAY_NAMES = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype")
MOST_TUPLES = 100  # the official files have five


def read_cifar10(folder: str | Path, *, skip_bad: bool = False) -> Splits[Images]:
    """50,000 train and 10,000 test images in 10 classes; ``skip_bad`` leaves out a bad batch of 10,000 as a whole."""
    base = find_folder(folder, ("cifar-10-batches-py",), ("batches.meta", "test_batch", *CIFAR10_TRAIN))
    classes = _class_names(base / "batches.meta", "label_names")
    train = _read_images([base / name for name in CIFAR10_TRAIN], "labels", classes, skip_bad)
    return Splits("cifar10", {"train": train, "test": _read_images([base / "test_batch"], "labels", classes, skip_bad)})


def read_cifar100(folder: str | Path, *, labels: Literal["fine", "coarse"] = "fine", skip_bad: bool = False) -> Splits[Images]:
    """50,000 train and 10,000 test images in 100 fine or 20 coarse classes."""
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels must be 'fine' or 'coarse', got {labels!r}")
    base = find_folder(folder, ("cifar-100-python",), ("meta", "train", "test"))
    classes = _class_names(base / "meta", f"{labels}_label_names")
    parts = {part: _read_images([base / part], f"{labels}_labels", classes, skip_bad) for part in ("train", "test")}
    return Splits("cifar100", parts)


def read_superclasses(folder: str | Path, *, skip_bad: bool = False) -> Splits[Images]:
    """CIFAR-100 in its 20 coarse classes at 16 × 16: every pixel is the mean of four, so that small studies fit a CPU core."""
    full = read_cifar100(folder, labels="coarse", skip_bad=skip_bad)
    return Splits("cifar100_superclasses", {part: replace(full[part], pixels=_halved(full[part].pixels)) for part in full.parts})


def _halved(pixels: Tensor) -> Tensor:
    return torch.cat([avg_pool2d(some.float(), 2).round().byte() for some in torch.split(pixels, 1000)])


def _read_images(paths: Sequence[Path], key: str, classes: tuple[str, ...], skip_bad: bool) -> Images:
    outcomes = list(read_all(lambda path: _read_batch(Path(path), key, len(classes)), [str(path) for path in paths]))
    batches = [batch for batch in outcomes if not isinstance(batch, BadFile)]
    bad = [batch for batch in outcomes if isinstance(batch, BadFile)]
    if bad and not (skip_bad and batches):
        raise bad[0]
    pixels, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    return Images(pixels, labels, classes, tuple(map(str, bad)))


def _read_batch(path: Path, key: str, classes: int) -> tuple[Tensor, Tensor]:
    content = _unpickle(path)
    data, labels = content.get("data"), content.get(key)
    if not isinstance(data, _StandIn) or not isinstance(labels, list):
        raise BadFile(f"{path} must hold an array 'data' and a list {key!r}, it holds {', '.join(content) or 'nothing'}")
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise BadFile(f"{path} must hold {key} in 0 … {classes - 1}, it holds others")
    shape, raw = _array_state(path, data)
    if shape != (len(labels), 3072) or len(raw) != 3072 * len(labels) or not labels:
        raise BadFile(
            f"{path} must hold 3,072 bytes for each of its {len(labels):,} labels, "
            f"it holds {len(raw):,} bytes as an array of shape {list(shape)}"
        )
    pixels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3, 32, 32)
    return pixels, torch.tensor(labels, dtype=torch.int64)


def _class_names(path: Path, key: str) -> tuple[str, ...]:
    names = _unpickle(path).get(key)
    if not isinstance(names, list) or not names or not all(isinstance(name, bytes | str) for name in names):
        raise BadFile(f"{path} must hold a list of names {key!r}, it does not")
    return tuple(_text(name) for name in names)


def _unpickle(path: Path) -> dict[str, object]:
    """What a CIFAR pickle holds, by name. Only data can come out of it: the file cannot call or create anything else."""
    try:
        raw = path.read_bytes()
        _check_opcodes(raw)
        # Strings of Python 2 stay bytes: among them are the pixels.
        content = _DataUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except _RefusedError as refused:
        raise BadFile(f"{path} is no CIFAR file: its pickle asks for {refused}, which was not run") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise BadFile(f"{path} is truncated or no pickle ({type(error).__name__}: {error})".replace("\n", " ")) from None
    if not isinstance(content, dict):
        raise BadFile(f"{path} must hold a dictionary, it holds {type(content).__name__}")
    return {_text(key): value for key, value in content.items() if isinstance(key, bytes | str)}


class _RefusedError(Exception): ...


def _check_opcodes(raw: bytes) -> None:
    """Raise an error for a pickle that would crash the interpreter, and for one that is cut short."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(raw):
        tuples += opcode.name.startswith("TUPLE")
        # The hash of tuples inside tuples recurses in C without a limit.
        if tuples > MOST_TUPLES:
            raise _RefusedError("many tuples")
        # The unpickler in C makes a list as long as the largest place of a remembered value.
        if opcode.name.endswith("PUT") and int(argument or 0) > len(raw):
            raise _RefusedError("more memory than the file can fill")


class _StandIn:
    """In the place of everything NumPy: its own types would take a crafted state for pointers. Holds what the file says."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_StandIn]:
        if f"{module}.{name}" not in ARRAY_NAMES:
            raise _RefusedError(f"{module}.{name}")
        return _StandIn


def _array_state(path: Path, array: _StandIn) -> tuple[tuple[int, ...], bytes]:
    """Shape and raw bytes of an array as NumPy saves it: version, shape, type, whether column by column, bytes."""
    match array.state:
        case (_, tuple() as shape, _StandIn(arguments=(b"u1" | "u1", *_)), False, bytes() as raw):
            return shape, raw
    raise BadFile(f"{path} must hold an array of bytes, row by row, it holds another")


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _bytes(*values: float) -> tuple[float, ...]:
    return tuple(value / 255 for value in values)


def _source(file: str, size: int, sha256: str, folder: str) -> list[Source]:
    return [Source(f"https://www.cs.toronto.edu/~kriz/{file}", file, size, sha256, "tar.gz", folder)]


# fmt: off
register(DataSet(
    "cifar10", read_cifar10, 10, _bytes(125.3, 123.0, 113.9), _bytes(63.0, 62.1, 66.7), (3, 32, 32),
    {"train": 50_000, "test": 10_000}, ("cifar-10-batches-py",),
    sources=_source("cifar-10-python.tar.gz", 170_498_071, "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                    "cifar-10-batches-py"),
    md5={"data_batch_1": "c99cafc152244af753f735de768cd75f", "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
         "data_batch_3": "54ebc095f3ab1f0389bbae665268c751", "data_batch_4": "634d18415352ddfa80567beed471001a",
         "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb", "test_batch": "40351d587109b95175f43aff81a1287e"},
))
register(DataSet(
    "cifar100", read_cifar100, 100, _bytes(129.3, 124.1, 112.4), _bytes(68.2, 65.4, 70.4), (3, 32, 32),
    {"train": 50_000, "test": 10_000}, ("cifar-100-python",),
    sources=_source("cifar-100-python.tar.gz", 169_001_437, "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                    "cifar-100-python"),
    md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
))
register(DataSet(
    "cifar100_superclasses", read_superclasses, 20, _bytes(129.3, 124.1, 112.4), _bytes(68.2, 65.4, 70.4), (3, 16, 16),
    {"train": 50_000, "test": 10_000}, ("cifar-100-python",), not_fetched="multimix data fetch cifar100 brings them",
))
