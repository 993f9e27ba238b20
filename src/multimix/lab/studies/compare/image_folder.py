"""Write a data set of torch or Hugging Face as a folder of PNG files, and compare methods on it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from PIL import Image
from torch import Tensor

from ...data.own_files import in_colour
from ...data.own_layout import PARTS, readable
from ...storage import make_folder, write_atomically
from .run import ComparisonResult, compare_folder

DONE = "complete.json"
IMAGE_KEYS = ("image", "img", "picture", "pixel_values", "x")
LABEL_KEYS = ("label", "labels", "fine_label", "target", "class", "y")


def compare_data(
    train: Any, test: Any = None, *, out: str | Path, classes: Sequence[str] = (), **options: Any
) -> tuple[Path, ComparisonResult]:
    """Compare mixing methods on data sets of torch or Hugging Face.

    Args:
        train: A data set, a dictionary of splits as ``datasets`` loads it, or a folder.
        test: The test set; None takes the split ``test`` or ``validation``, or a fifth of ``train``.
        out: Folder of results. The images are written to its folder ``pictures``.
        classes: Names of the classes; empty for the names in the data set.
        **options: Options of :func:`compare_folder`.

    Returns:
        The page and its content.

    Example::

        page, result = compare_data(train_set, test_set, out="comparison", methods=("cutmix",), budget="1h")
    """
    folder = train if isinstance(train, str | Path) else write_folder(train, test, Path(out) / "pictures", classes)
    return compare_folder(folder, out=out, **options)


def write_folder(train: Any, test: Any, folder: Path, classes: Sequence[str] = ()) -> Path:
    """Write every sample as a PNG file in train/CLASS or test/CLASS, unless ``folder`` is complete.

    A sample is a pair of image and class, or a dictionary with both. An image is a Pillow image, a
    uint8 array, or a floating-point array in [0, 1]; a class is an integer or a name.

    Args:
        train: A data set, or a dictionary of splits.
        test: The test set, or None.
        folder: The folder to write.
        classes: Names of the classes; empty for the names in the data set.

    Returns:
        The folder.

    Raises:
        ValueError: If a sample is not an image with a class, or ``folder`` holds another data set.
    """
    splits = _splits(train, test)
    if (folder / DONE).exists():
        counts = json.loads((folder / DONE).read_text(encoding="utf-8"))
        if counts != {name: _length(data) for name, data in splits.items()}:
            raise ValueError(f"{folder} has the samples of another data set ({counts}); choose another out")
        return folder
    names = tuple(classes) or next(filter(None, map(_class_names, splits.values())), ())
    counts = {name: _write_split(data, folder / name, names, name) for name, data in splits.items()}
    counts = {name: _length(data) or counts[name] for name, data in splits.items()}
    write_atomically(folder / DONE, json.dumps(counts).encode())
    return folder


def _splits(train: Any, test: Any) -> dict[str, Any]:
    if not isinstance(train, Mapping):
        return {"train": train} if test is None else {"train": train, "test": test}
    splits = {split: data for split, names in PARTS.items() for key, data in train.items() if str(key).lower() in names}
    if "train" not in splits:
        raise ValueError(f"train must have a split 'train', got {', '.join(map(str, train)) or 'no splits'}")
    return _splits(splits["train"], test if test is not None else splits.get("test", splits.get("validation")))


def _length(data: Any) -> int | None:
    return len(data) if hasattr(data, "__len__") else None


def _samples(data: Any) -> Iterator[Any]:
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return (data[i] for i in range(len(data)))
    if isinstance(data, Iterable):
        return iter(data)
    raise ValueError(f"train and test must be map-style or iterable data sets, got {type(data).__name__}")


def _class_names(data: Any) -> tuple[str, ...]:
    """Return the class names that torchvision or datasets store with the data."""
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        return tuple(next((features[key].names for key in (*LABEL_KEYS, *features) if hasattr(features.get(key), "names")), ()))
    return tuple(map(str, getattr(data, "classes", ()) or ()))


def _write_split(data: Any, folder: Path, names: Sequence[str], split: str) -> int:
    count, created = 0, set[Path]()
    digits = len(str(max(0, len(names) - 1))) if names else 4
    for count, sample in enumerate(_samples(data), start=1):
        title = f"sample {count - 1} of {split}"
        image, label = _pair(sample, title)
        class_folder = folder / _folder_name(label, names, digits, title)
        if class_folder not in created:
            make_folder(class_folder)
            created.add(class_folder)
        _image(image, title).save(class_folder / f"{count:07d}.png", compress_level=1)
    if count == 0:
        raise ValueError(f"{split} must have samples, got an empty data set")
    return count


def _pair(sample: Any, title: str) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        image = next((key for key in (*IMAGE_KEYS, *sample) if _is_image(sample.get(key))), None)
        label = next((key for key in LABEL_KEYS if key in sample), None)
        if image is None or label is None:
            keys = ", ".join(map(str, sample))
            raise ValueError(f"{title} must have an image and a label ({', '.join(LABEL_KEYS)}), got the keys {keys}")
        return sample[image], sample[label]
    if not isinstance(sample, Sequence) or len(sample) < 2:
        raise ValueError(f"{title} must be an image and its class, got {type(sample).__name__}")
    return sample[0], sample[1]


def _is_image(value: Any) -> bool:
    return isinstance(value, Image.Image) or (isinstance(value, Tensor | numpy.ndarray) and value.ndim in (2, 3))


def _folder_name(label: Any, names: Sequence[str], digits: int, title: str) -> str:
    if isinstance(label, Tensor | numpy.ndarray | numpy.generic):
        if numpy.prod(label.shape) != 1:
            raise ValueError(f"the class of {title} must be one integer or name, got an array of shape {list(label.shape)}")
        label = label.item()
    if isinstance(label, str):
        return _safe(label)
    if not isinstance(label, int) or label < 0 or (names and label >= len(names)):
        limit = f" below {len(names)}" if names else ""
        raise ValueError(f"the class of {title} must be a nonnegative integer{limit} or a name, got {label!r}")
    return _safe(names[label]) if names and len({_safe(name) for name in names}) == len(names) else f"{label:0{digits}d}"


def _safe(name: str) -> str:
    """Return a valid name of a folder."""
    safe = readable(name).replace("/", "_").replace("\\", "_").replace("\0", "_")
    return f"_{safe}" if safe.startswith(".") or not safe else safe


def _image(value: Any, title: str) -> Image.Image:
    if isinstance(value, Image.Image):
        return in_colour(value)
    if not _is_image(value):
        raise ValueError(f"{title} must be an image [C, H, W] or [H, W, C], got {type(value).__name__}")
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.ndim == 3 and (isinstance(value, Tensor) or array.shape[-1] not in (1, 3, 4)) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4):
        raise ValueError(f"{title} must have 1, 3, or 4 channels, got shape {list(array.shape)}")
    if array.dtype.kind == "f":
        if not (numpy.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            extent = f"[{array.min():.3g}, {array.max():.3g}]"
            raise ValueError(f"{title} must be uint8 or in [0, 1], got values in {extent}; pass the data without normalization")
        array = (array * 255).round().astype(numpy.uint8)
    if array.dtype == numpy.bool_:
        array = array.astype(numpy.uint8) * 255
    if array.dtype != numpy.uint8:
        raise ValueError(f"{title} must be uint8 or floating point in [0, 1], got {array.dtype}")
    single_channel = array.ndim == 3 and array.shape[-1] == 1
    return in_colour(Image.fromarray(numpy.ascontiguousarray(array[..., 0] if single_channel else array)))
