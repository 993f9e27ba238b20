"""CIFAR-10 and CIFAR-100 in the official "python version": pickled rows of 3,072 bytes, red, green, blue, each 32 × 32."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from .base import BadFile, Images, Splits, located
from .bulk import outcomes

CIFAR10_FOLDERS, CIFAR100_FOLDERS = ("cifar-10-batches-py",), ("cifar-100-python",)
CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
SHAPE = (3, 32, 32)
# What NumPy calls the things an array consists of in a pickle, in its versions 1 and 2.
ARRAY_NAMES = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype")


def read_cifar10(folder: str | Path, *, skip_bad: bool = False) -> Splits[Images]:
    """50,000 train and 10,000 test images in 10 classes; ``skip_bad`` leaves out a bad batch of 10,000 as a whole."""
    base = located(folder, CIFAR10_FOLDERS, ("batches.meta", "test_batch", *CIFAR10_TRAIN))
    classes = _names(base / "batches.meta", "label_names")
    train = _images([base / name for name in CIFAR10_TRAIN], "labels", classes, skip_bad)
    return Splits("cifar10", {"train": train, "test": _images([base / "test_batch"], "labels", classes, skip_bad)})


def read_cifar100(folder: str | Path, *, labels: Literal["fine", "coarse"] = "fine", skip_bad: bool = False) -> Splits[Images]:
    """50,000 train and 10,000 test images in 100 fine or 20 coarse classes."""
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels must be 'fine' or 'coarse', got {labels!r}")
    base = located(folder, CIFAR100_FOLDERS, ("meta", "train", "test"))
    classes = _names(base / "meta", f"{labels}_label_names")
    parts = {part: _images([base / part], f"{labels}_labels", classes, skip_bad) for part in ("train", "test")}
    return Splits("cifar100", parts)


def _images(paths: Sequence[Path], key: str, classes: tuple[str, ...], skip_bad: bool) -> Images:
    found = list(outcomes(lambda path: _batch(Path(path), key, len(classes)), [str(path) for path in paths]))
    batches = [batch for batch in found if not isinstance(batch, BadFile)]
    bad = [batch for batch in found if isinstance(batch, BadFile)]
    if bad and not (skip_bad and batches):
        raise bad[0]
    pixels, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    return Images(pixels, labels, classes, tuple(map(str, bad)))


def _batch(path: Path, key: str, classes: int) -> tuple[Tensor, Tensor]:
    content = unpickled(path)
    data, labels = content.get("data"), content.get(key)
    if not isinstance(data, _Array) or not isinstance(labels, list):
        raise BadFile(f"{path} must hold an array 'data' and a list {key!r}, it holds {', '.join(content) or 'nothing'}")
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise BadFile(f"{path} must hold {key} in 0 … {classes - 1}, it holds others")
    if data.shape != (len(labels), 3072) or len(data.raw) != 3072 * len(labels) or not labels:
        raise BadFile(
            f"{path} must hold 3,072 bytes for each of its {len(labels):,} labels, "
            f"it holds {len(data.raw):,} bytes as an array of shape {list(data.shape)}"
        )
    pixels = torch.frombuffer(bytearray(data.raw), dtype=torch.uint8).reshape(-1, *SHAPE)
    return pixels, torch.tensor(labels, dtype=torch.int64)


def _names(path: Path, key: str) -> tuple[str, ...]:
    names = unpickled(path).get(key)
    if not isinstance(names, list) or not names or not all(isinstance(name, bytes | str) for name in names):
        raise BadFile(f"{path} must hold a list of names {key!r}, it does not")
    return tuple(_text(name) for name in names)


def unpickled(path: Path) -> dict[str, object]:
    """What a CIFAR pickle holds, by name. Only data can come out of it: the file cannot call or create anything else."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    if not raw.endswith(pickle.STOP):
        raise BadFile(f"{path} is truncated or no pickle: it does not end like one")
    try:
        # Strings of Python 2 stay bytes: among them are the pixels.
        content = _DataUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except _Refused as refused:
        raise BadFile(f"{path} is no CIFAR file: its pickle asks for {refused}, which was not run") from None
    except Exception as error:  # a damaged pickle can stumble over anything, and in any way
        raise BadFile(f"{path} is truncated or no pickle ({type(error).__name__}: {error})".replace("\n", " ")) from None
    if not isinstance(content, dict):
        raise BadFile(f"{path} must hold a dictionary, it holds {type(content).__name__}")
    return {_text(key): value for key, value in content.items() if isinstance(key, bytes | str)}


class _Refused(Exception):  # noqa: N818  never leaves this file
    pass


class _DataUnpickler(pickle._Unpickler):
    """Plain values, and byte arrays by stand-ins: NumPy's own types would take a crafted state as pointers.

    It is Python's own unpickler in Python, as fast on files like these: the one in C lets one damaged byte ask for all of memory.
    """

    def find_class(self, module: str, name: str) -> object:
        full = f"{module}.{name}"
        if full not in ARRAY_NAMES:
            raise _Refused(full)
        return _Named(full)


class _Named:
    """A name out of the file. Called, it gives the stand-in for an array or a type; it keeps nothing else."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *values: object) -> object:
        if self.name == "numpy.dtype":
            return _Type(values[0])
        if self.name.endswith("_reconstruct"):
            return _Array()
        raise _Refused(f"a call of {self.name}")

    def __setstate__(self, state: object) -> None:
        raise _Refused(f"a change of {self.name}")


class _Type:
    __slots__ = ("name",)

    def __init__(self, name: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which single bytes do not have


class _Array:
    """What NumPy saves of an array of bytes: shape and raw bytes, row by row."""

    __slots__ = ("raw", "shape")

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.raw = b""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("an array that NumPy does not save so")
        _, shape, dtype, by_column, raw = state
        if not isinstance(dtype, _Type) or dtype.name not in (b"u1", "u1") or by_column or not isinstance(raw, bytes):
            raise _Refused("an array of something else than bytes, row by row")
        if not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
            raise _Refused("an array without a shape")
        self.shape, self.raw = shape, raw


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
