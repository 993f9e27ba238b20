"""A data set of torch or of Hugging Face as a folder of PNG files, from which everything else goes on as with any folder."""

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
PICTURES, LABELS = ("image", "img", "picture", "pixel_values", "x"), ("label", "labels", "fine_label", "target", "class", "y")


def compare_data(
    train: Any, test: Any = None, *, out: str | Path, classes: Sequence[str] = (), **options: Any
) -> tuple[Path, ComparisonResult]:
    """The page of a comparison on data sets of torch or Hugging Face, and what is on it; ``options`` as of ``compare_folder``.

    ``train`` may also be a dictionary of parts, as ``datasets`` gives them, or a folder. Without ``test`` a fifth is tested on.

        page, found = compare_data(MyDataset("train"), MyDataset("test"), out="mine", methods=("cutmix",), budget="1h")
    """
    if isinstance(train, str | Path):
        return compare_folder(train, out=out, **options)
    return compare_folder(write_folder(train, test, Path(out) / "pictures", classes), out=out, **options)


def write_folder(train: Any, test: Any, folder: Path, classes: Sequence[str] = ()) -> Path:
    """``folder`` with a PNG file for every sample, in train/CLASS and test/CLASS; what was written before is not written again.

    A sample is a pair of picture and class, or a dictionary with them. A picture is one of Pillow, or uint8, or floating point in
    0 … 1; a class is a whole number or a name.
    """
    parts = _parts(train, test)
    if (folder / DONE).exists():
        known = json.loads((folder / DONE).read_text(encoding="utf-8"))
        if known != {part: _length(data) for part, data in parts.items()}:
            raise ValueError(f"{folder} has the samples of another data set ({known}); give another out")
        return folder
    names = tuple(classes) or next(filter(None, map(_class_names, parts.values())), ())
    counts = {part: _write_part(data, folder / part, names, part) for part, data in parts.items()}
    write_atomically(folder / DONE, json.dumps({part: _length(data) or counts[part] for part, data in parts.items()}).encode())
    return folder


def _parts(train: Any, test: Any) -> dict[str, Any]:
    if not isinstance(train, Mapping):
        return {"train": train} if test is None else {"train": train, "test": test}
    known = {part: data for part, names in PARTS.items() for key, data in train.items() if str(key).lower() in names}
    if "train" not in known:
        raise ValueError(f"the data must have a part train, they have {', '.join(map(str, train)) or 'none'}")
    tested = test if test is not None else known.get("test", known.get("validation"))
    return {"train": known["train"]} if tested is None else {"train": known["train"], "test": tested}


def _length(data: Any) -> int | None:
    return len(data) if hasattr(data, "__len__") else None


def _samples(data: Any) -> Iterator[Any]:
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return (data[i] for i in range(len(data)))
    if isinstance(data, Iterable):
        return iter(data)
    raise ValueError(f"data must be a data set with samples by number or one after the other, got {type(data).__name__}")


def _class_names(data: Any) -> tuple[str, ...]:
    """The names that torchvision and datasets keep with the data, if there are any."""
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        known = [features[key].names for key in (*LABELS, *features) if key in features and hasattr(features[key], "names")]
        return tuple(known[0]) if known else ()
    return tuple(map(str, getattr(data, "classes", ()) or ()))


def _write_part(data: Any, folder: Path, names: Sequence[str], part: str) -> int:
    count, made = 0, set[Path]()
    digits = len(str(max(0, len(names) - 1))) if names else 4
    for count, sample in enumerate(_samples(data), start=1):
        where = f"sample {count - 1} of {part}"
        picture, label = _pair(sample, where)
        place = folder / _folder_name(label, names, digits, where)
        if place not in made:
            make_folder(place)
            made.add(place)
        _image(picture, where).save(place / f"{count:07d}.png", compress_level=1)
    if count == 0:
        raise ValueError(f"{part} must have samples, it has none")
    return count


def _pair(sample: Any, where: str) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        picture = next((key for key in (*PICTURES, *sample) if key in sample and _is_picture(sample[key])), None)
        label = next((key for key in LABELS if key in sample), None)
        if picture is None or label is None:
            raise ValueError(
                f"{where} must have a picture and a label ({', '.join(LABELS)}), it has {', '.join(map(str, sample))}"
            )
        return sample[picture], sample[label]
    if not isinstance(sample, Sequence) or len(sample) < 2:
        raise ValueError(f"{where} must be a picture and its class, got {type(sample).__name__}")
    return sample[0], sample[1]


def _is_picture(value: Any) -> bool:
    return isinstance(value, Image.Image) or (isinstance(value, Tensor | numpy.ndarray) and value.ndim in (2, 3))


def _folder_name(label: Any, names: Sequence[str], digits: int, where: str) -> str:
    if isinstance(label, Tensor | numpy.ndarray | numpy.generic):
        if numpy.prod(label.shape) != 1:
            raise ValueError(f"the class of {where} must be one whole number or name, got an array of shape {list(label.shape)}")
        label = label.item()
    if isinstance(label, str):
        return _safe(label)
    if not isinstance(label, int) or label < 0 or (names and label >= len(names)):
        most = f" below {len(names)}" if names else ""
        raise ValueError(f"the class of {where} must be a whole number of at least 0{most}, or a name, got {label!r}")
    return _safe(names[label]) if names and len({_safe(name) for name in names}) == len(names) else f"{label:0{digits}d}"


def _safe(name: str) -> str:
    """A name that a folder may have."""
    plain = readable(name).replace("/", "_").replace("\\", "_").replace("\0", "_")
    return f"_{plain}" if plain.startswith(".") or not plain else plain


def _image(value: Any, where: str) -> Image.Image:
    if isinstance(value, Image.Image):
        return in_colour(value)
    if not _is_picture(value):
        raise ValueError(f"{where} must be a picture [C, H, W] or [H, W, C], got {type(value).__name__}")
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.ndim == 3 and (isinstance(value, Tensor) or array.shape[-1] not in (1, 3, 4)) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4):
        raise ValueError(f"{where} must have 1, 3 or 4 channels, its shape is {list(array.shape)}")
    if array.dtype.kind == "f":
        if not (numpy.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            span = f"{array.min():.3g} … {array.max():.3g}"
            raise ValueError(
                f"{where} must be uint8 or lie in 0 … 1, its values lie in {span}: give the data without normalisation"
            )
        array = (array * 255).round().astype(numpy.uint8)
    if array.dtype == numpy.bool_:
        array = array.astype(numpy.uint8) * 255
    if array.dtype != numpy.uint8:
        raise ValueError(f"{where} must be uint8 or floating point in 0 … 1, it is {array.dtype}")
    grey = array.ndim == 3 and array.shape[-1] == 1
    return in_colour(Image.fromarray(numpy.ascontiguousarray(array[..., 0] if grey else array)))
