"""What is in a data folder: every set with its counts beside the official ones, and what is wrong with its files."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from .datasets import DATASETS, DataSet, Files, Split, Splits
from .reading import BadFile, find_bad, picture_size
from .speech import clip_length

Progress = Callable[[int, int], None]
MOST_NAMED = 5  # bad files of each part that are named one by one


class State(NamedTuple):
    """One data set as it is in a folder: complete, partial (a sound part of it), wrong, or absent; and why, line by line."""

    name: str
    state: Literal["complete", "partial", "wrong", "absent"]
    lines: tuple[str, ...]


def check(
    folder: str | Path, *, deep: bool = False, workers: int = 0, progress: Progress = lambda done, total: None
) -> list[State]:
    """The state of every data set that consists of files in ``folder``, which may also be the folder of one set.

    The header of every file is read; ``deep`` decodes all of them, and compares checksums. ``progress`` gets how many files of
    a set are done, and how many there are.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(f"{folder} must be a folder, {'it is a file' if folder.exists() else 'it does not exist'}")
    return [_check_set(entry, folder, deep, workers, progress) for entry in DATASETS.values() if entry.folders]


def _check_set(entry: DataSet, folder: Path, deep: bool, workers: int, progress: Progress) -> State:
    places = [folder / name for name in entry.folders if (folder / name).is_dir()]
    if folder.resolve().name in entry.folders:
        places.append(folder)
    if not places:
        return State(entry.name, "absent", (f"no folder {' or '.join(entry.folders)}",))
    try:
        splits = (entry.listed or entry.read)(places[0])
        complete = all(part in splits and len(splits[part]) == count for part, count in entry.counts.items())
        wrong = _bad_files(splits, deep, workers, progress)
        if deep and complete:
            wrong += _changed_files(entry, places[0])
    except BadFile as bad:
        return State(entry.name, "wrong", (str(bad),))
    except OSError as error:
        return State(entry.name, "wrong", (f"{places[0]} cannot be read: {error}",))
    return State(entry.name, "wrong" if wrong else "complete" if complete else "partial", (*_counts(entry, splits), *wrong))


def _counts(entry: DataSet, splits: Splits[Split]) -> list[str]:
    """How many of the official numbers of samples are there, and how evenly."""
    counts = {part: torch.bincount(split.labels, minlength=1) for part, split in splits.parts.items()}
    classes = len({label for split in splits.parts.values() for label in split.labels.tolist()})
    there = [f"{int(counts[part].sum()) if part in counts else 0:,} of {count:,} {part}" for part, count in entry.counts.items()]
    lines = [f"{classes} of {entry.classes} classes; {', '.join(there)}"]
    for part, count in counts.items():
        filled = count[count > 0]
        if len(filled):
            low, high = int(filled.min()), int(filled.max())
            lines.append(f"{part}: {low:,} {'' if low == high else f'… {high:,} '}in a class")
    return lines


def _bad_files(splits: Splits[Split], deep: bool, workers: int, progress: Progress) -> list[str]:
    """A sentence for each of the first bad files of every part, and how many more there are."""
    files = [split for split in splits.parts.values() if isinstance(split, Files)]
    total, done, lines = sum(map(len, files)), 0, []
    for split in files:
        bad = 0
        for error in find_bad(split.reader if deep else _read_header, split.paths, workers):
            done += 1
            progress(done, total)
            if error is not None:
                bad += 1
                lines += [str(error)] if bad <= MOST_NAMED else []
        if bad > MOST_NAMED:
            lines.append(f"{bad - MOST_NAMED:,} more bad files like these")
    return lines


def _read_header(path: str) -> object:
    return clip_length(path) if path.endswith(".wav") else picture_size(path)


def _changed_files(entry: DataSet, folder: Path) -> list[str]:
    """A sentence for every file that differs from the official one; a change of one pixel shows only here."""
    lines = []
    for name, official in entry.md5.items():
        md5 = hashlib.md5((folder / name).read_bytes(), usedforsecurity=False).hexdigest()
        if md5 != official:
            lines.append(f"{folder / name} differs from the official file: md5 {md5}, not {official}")
    return lines
