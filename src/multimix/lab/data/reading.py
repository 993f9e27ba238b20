"""Files of data sets: where they are, pictures as tensors, many files at once, and which of them are bad."""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from ..locks import held
from ..storage import make_folder, named, no_follow, parse_json, write_atomically
from .datasets import Files, Images

T = TypeVar("T")
CHUNK = 64
ENDINGS = (".jpeg", ".jpg", ".png", ".webp", ".bmp")


# What data sets and cameras have. Pillow would try many others, and start Ghostscript for one of them.
PICTURE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")


class BadFile(ValueError):  # noqa: N818  what it is about, not that it is an error
    """One sentence: which file, and what is wrong with it."""


class Format(NamedTuple):
    """The samples of an array: how they are made (a name with a version), their shape and type."""

    name: str
    shape: tuple[int, int, int]
    dtype: torch.dtype


def find_folder(folder: str | Path, names: tuple[str, ...], marks: tuple[str, ...]) -> Path:
    """The folder of a data set: one of ``names`` inside ``folder``, or ``folder`` itself; it has one of ``marks`` in it."""
    folder = Path(folder)
    for base in (*(folder / name for name in names), folder):
        if any((base / mark).exists() for mark in marks):
            return base
    what = "has none" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    raise BadFile(f"{folder} must be or hold a folder {names[0]} with {marks[0]} in it, it {what}")


def text_lines(path: Path) -> list[str]:
    """The lines of a list file that are not empty."""
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path} must be a text file, it cannot be read as one ({error})") from None


def read_picture(path: str, short_side: int | None = None) -> Tensor:
    """RGB as uint8 ``[3, H, W]``; with ``short_side`` resized to it first (bicubic, aspect kept), as stored ImageNet copies are.

    Memory stays in the decoder's order, channels last, which resizing reads three times faster.
    """
    with open_picture(path) as picture:
        return torch.from_numpy(numpy.array(_resize(picture, short_side).convert("RGB"))).permute(2, 0, 1)


def picture_size(path: str) -> tuple[int, int]:
    """Height and width from the header alone."""
    with open_picture(path) as picture:
        return picture.height, picture.width


def to_tensor(image: Image.Image) -> Tensor:
    """``[3, H, W]`` in 0 … 1 of an RGB image."""
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float() / 255


def read_all(read: Callable[[str], T], paths: Sequence[str], workers: int = 0) -> Iterator[T | BadFile]:
    """What ``read`` gives for every path, in order; for a bad file the BadFile itself. ``workers`` processes share the work."""
    attempt = partial(_attempt, read)
    if workers == 0:
        yield from map(attempt, paths)
        return
    # Not multiprocessing's own pool, which waits for ever for a worker that was killed.
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield from pool.map(attempt, paths, chunksize=CHUNK)
        except BrokenProcessPool as error:
            raise OSError("a process that reads the data was killed, as the system does when memory runs out") from error


def find_bad(read: Callable[[str], object], paths: Sequence[str], workers: int = 0) -> Iterator[BadFile | None]:
    """For every path what is wrong with it, or None if ``read`` can read it."""
    return read_all(partial(_read_only, read), paths, workers)


def without_bad(files: Files, workers: int = 0) -> Files:
    """The samples that can be read, and one sentence for each of the others; every file is read once."""
    bad = {row: str(error) for row, error in enumerate(find_bad(files.reader, files.paths, workers)) if error is not None}
    return replace(files.take(_good_rows(files, bad)), skipped=files.skipped + tuple(bad.values()))


def read_array(
    files: Files, load: Callable[[Sequence[str]], Iterable[Tensor | BadFile]], form: Format, *, cache: Path | None, skip_bad: bool
) -> Images:
    """All samples as one array ``[N, *form.shape]``, made by ``load``, which goes through the paths in order.

    With ``cache`` the array is a file in that folder, and it is mapped, not read: the work is done once, and all processes of a
    machine share the memory. Another format or changed files make another array.
    """
    bad: dict[int, str] = {}
    if cache is None:
        pixels = torch.empty(len(files), *form.shape, dtype=form.dtype)
        for row, sample in enumerate(_good_samples(load(files.paths), bad, skip_bad)):
            pixels[row] = sample
    else:
        path = cache / f"{form.name}-{_digest(files, form)}.array"
        make_folder(cache)
        # One process makes it and the others wait for it.
        with held(path.with_suffix(".lock"), wait=-1, passing=True):
            for half in cache.glob(f".{path.stem}.*.[0-9]*"):  # left by one that was killed while it wrote
                half.unlink(missing_ok=True)
            saved = _read_note(path)
            bad = _write_array(path, load(files.paths), skip_bad) if saved is None else saved
        count = (len(files) - len(bad)) * math.prod(form.shape)
        # A private mapping: writing into the tensor changes a copy, not the file.
        pixels = torch.from_file(str(path), shared=False, size=count, dtype=form.dtype).reshape(-1, *form.shape)
    if bad and not skip_bad:
        raise BadFile(next(iter(bad.values())))
    good = _good_rows(files, bad)
    return Images(pixels[: len(good)], files.labels[good], files.classes, files.skipped + tuple(bad.values()))


def _attempt(read: Callable[[str], T], path: str) -> T | BadFile:
    try:
        return read(path)
    except BadFile as bad:
        return bad


def _read_only(read: Callable[[str], object], path: str) -> None:
    read(path)  # the sample is dropped here: it need not travel between processes


def _good_samples(samples: Iterable[Tensor | BadFile], bad: dict[int, str], skip_bad: bool) -> Iterator[Tensor]:
    """The samples that could be read; ``bad`` collects the sentences of the others by their place among all."""
    for row, sample in enumerate(samples):
        if not isinstance(sample, BadFile):
            yield sample
        elif skip_bad:
            bad[row] = str(sample)
        else:
            raise sample


def _good_rows(files: Files, bad: dict[int, str]) -> Tensor:
    """Indices of the samples that are not bad."""
    if len(bad) == len(files):
        raise BadFile(f"none of the files can be read; {next(iter(bad.values()))}" if bad else "there are no files to read")
    return torch.tensor([row for row in range(len(files)) if row not in bad], dtype=torch.int64)


def _write_array(path: Path, samples: Iterable[Tensor | BadFile], skip_bad: bool) -> dict[int, str]:
    """Write the good samples as one file, and a note beside it; the sentences of the bad ones are returned."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    bad: dict[int, str] = {}
    with named(path):
        try:
            # Not filled through a mapping: on a full disk that would kill the process without a message.
            with open(temporary, "wb", opener=no_follow) as file:
                for sample in _good_samples(samples, bad, skip_bad):
                    file.write(sample.contiguous().numpy().tobytes())
                file.flush()
                os.fsync(file.fileno())
            note = {"bytes": temporary.stat().st_size, "skipped": bad}
            os.replace(temporary, path)
            write_atomically(path.with_suffix(".json"), json.dumps(note).encode())
        finally:
            temporary.unlink(missing_ok=True)
    return bad


def _read_note(path: Path) -> dict[int, str] | None:
    """The sentences of the bad files left out of an array, or None if there is no complete array."""
    try:
        note = parse_json(path.with_suffix(".json").read_bytes())
        complete = bool(note["bytes"] == path.stat().st_size)
        bad = {int(row): str(sentence) for row, sentence in note["skipped"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent or damaged: the array is made again
    return bad if complete else None


def _digest(files: Files, form: Format) -> str:
    """A name for exactly these files as they are now (path, size, time of change) and this format."""
    digest = hashlib.sha256(repr((form.name, form.shape, str(form.dtype), len(files))).encode())
    for path in files.paths:
        try:
            stat = os.stat(path)
            state = f"{stat.st_size} {stat.st_mtime_ns}"
        except OSError:
            state = "missing"
        digest.update(os.fsencode(path) + f"\0{state}\n".encode())
    return digest.hexdigest()[:16]


def picture_file(path: str | Path) -> Image.Image:
    """A picture of one of the formats, not decoded yet; one above 89 million pixels, of which Pillow only warns, is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path, formats=PICTURE_FORMATS)


@contextmanager
def open_picture(path: str) -> Iterator[Image.Image]:
    """The picture of a file; whatever the decoder raises becomes one sentence."""
    try:
        with picture_file(path) as picture:
            yield picture
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except UnidentifiedImageError:
        raise BadFile(f"{path} is not an image in {', '.join(PICTURE_FORMATS)}") from None
    except (BadFile, MemoryError):
        raise
    except Exception as error:  # on damaged files Pillow's decoders raise almost anything
        raise BadFile(f"{path} is an image that cannot be decoded: {error}".replace("\n", " ")) from None


def _resize(picture: Image.Image, short_side: int | None) -> Image.Image:
    if short_side is None:
        return picture
    scale = short_side / min(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    # Large JPEGs are decoded at a half or a quarter, never below twice the size needed: no visible difference, half the time.
    picture.draft("RGB", (2 * width, 2 * height))
    # Palettes and greys first become colours, since indices cannot be interpolated.
    return picture.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
