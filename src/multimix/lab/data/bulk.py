"""Many files at once: which of them are bad, and all their samples as one array, in memory or mapped from a file."""

import hashlib
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ..storage import make_folder, write_atomically
from .base import BadFile, Files, Images

T = TypeVar("T")
CHUNK = 64


@dataclass(frozen=True)
class Form:
    """What the samples of an array are: made how (a name and version), of which shape and type."""

    name: str
    shape: tuple[int, int, int]
    dtype: torch.dtype


def outcomes(read: Callable[[str], T], paths: Sequence[str], workers: int = 0) -> Iterator[T | BadFile]:
    """What ``read`` gives for every path, in order; for a bad file the BadFile itself. ``workers`` processes share the work."""
    attempt = partial(_attempt, read)
    if workers == 0:
        yield from map(attempt, paths)
        return
    with multiprocessing.get_context().Pool(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.imap(attempt, paths, chunksize=CHUNK)


def sentences(read: Callable[[str], object], paths: Sequence[str], workers: int = 0) -> Iterator[BadFile | None]:
    """For every path what is wrong with it, or None if ``read`` can read it."""
    return outcomes(partial(_read_only, read), paths, workers)


def without_bad(files: Files, workers: int = 0) -> Files:
    """The samples that can be read, and one sentence for each of the others; every file is read once."""
    found = list(sentences(files.reader, files.paths, workers))
    good = torch.tensor([row for row, bad in enumerate(found) if bad is None], dtype=torch.int64)
    skipped = tuple(str(bad) for bad in found if bad is not None)
    _check_some(len(good), skipped)
    return replace(files.take(good), skipped=files.skipped + skipped)


def gathered(
    files: Files, load: Callable[[Sequence[str]], Iterable[Tensor | BadFile]], form: Form, *, cache: Path | None, skip_bad: bool
) -> Images:
    """All samples as one array ``[N, *form.shape]``, made by ``load``, which goes through the paths in order.

    With ``cache`` the array is a file in that folder, and it is mapped, not read: the work is done once, and all processes of a
    machine share the memory. Another form or changed files make another array.
    """
    if cache is None:
        pixels = torch.empty(len(files), *form.shape, dtype=form.dtype)
        skipped = _fill(pixels, load(files.paths), skip_bad)
    else:
        path = cache / f"{form.name}-{_digest(files, form)}.array"
        if _noted(path) is None:
            _write(path, load(files.paths), skip_bad)
        skipped = _noted(path) or {}
        count = (len(files) - len(skipped)) * math.prod(form.shape)
        # A private mapping: whoever writes into the tensor changes a copy, not the file.
        pixels = torch.from_file(str(path), shared=False, size=count, dtype=form.dtype).reshape(-1, *form.shape)
    if skipped and not skip_bad:
        raise BadFile(next(iter(skipped.values())))
    _check_some(len(files) - len(skipped), tuple(skipped.values()))
    good = torch.tensor([row for row in range(len(files)) if row not in skipped], dtype=torch.int64)
    return Images(pixels[: len(good)], files.labels[good], files.classes, files.skipped + tuple(skipped.values()))


def _attempt(read: Callable[[str], T], path: str) -> T | BadFile:
    try:
        return read(path)
    except BadFile as bad:
        return bad


def _read_only(read: Callable[[str], object], path: str) -> None:
    read(path)  # the sample is dropped here: it need not travel between processes


def _check_some(left: int, skipped: tuple[str, ...]) -> None:
    if left == 0:
        raise BadFile(f"none of the files can be read; {skipped[0]}" if skipped else "there are no files to read")


def _fill(pixels: Tensor, samples: Iterable[Tensor | BadFile], skip_bad: bool) -> dict[int, str]:
    """Write the good samples into the first rows of ``pixels``; the sentences of the bad ones by their place among all."""
    skipped: dict[int, str] = {}
    for row, sample in enumerate(samples):
        if isinstance(sample, BadFile):
            _note_bad(skipped, row, sample, skip_bad)
        else:
            pixels[row - len(skipped)] = sample
    return skipped


def _write(path: Path, samples: Iterable[Tensor | BadFile], skip_bad: bool) -> None:
    """The good samples as one file, and beside it a note that vouches for it."""
    make_folder(path.parent)
    # The process id keeps two processes that make the same array apart; the later one replaces the same bytes.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    skipped: dict[int, str] = {}
    try:
        # Written, not filled through a mapping: on a full disk that would end the process without a word.
        with temporary.open("wb") as file:
            for row, sample in enumerate(samples):
                if isinstance(sample, BadFile):
                    _note_bad(skipped, row, sample, skip_bad)
                else:
                    file.write(sample.contiguous().numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())
        note = {"bytes": temporary.stat().st_size, "skipped": skipped}
        os.replace(temporary, path)
        write_atomically(path.with_suffix(".json"), json.dumps(note).encode())
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _note_bad(skipped: dict[int, str], row: int, bad: BadFile, skip_bad: bool) -> None:
    if not skip_bad:
        raise bad
    skipped[row] = str(bad)


def _noted(path: Path) -> dict[int, str] | None:
    """The bad files left out of an array, or None if there is no array that its note vouches for."""
    try:
        note = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        whole = bool(note["bytes"] == path.stat().st_size)
        skipped = {int(row): str(sentence) for row, sentence in note["skipped"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent or damaged: the array is made again
    return skipped if whole else None


def _digest(files: Files, form: Form) -> str:
    """A name for exactly these files as they are now (path, size, time of change) and this form."""
    whole = hashlib.sha256(repr((form.name, form.shape, str(form.dtype), len(files))).encode())
    for path in files.paths:
        whole.update(f"{path}\0{_state(path)}\n".encode())
    return whole.hexdigest()[:16]


def _state(path: str) -> str:
    try:
        stat = os.stat(path)
    except OSError:
        return "missing"
    return f"{stat.st_size} {stat.st_mtime_ns}"
