"""What is in a data folder: every set with its counts beside the official ones, and what is wrong with its files."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from . import DATASETS, DataSet
from .base import BadFile, Files, Split, Splits
from .bulk import sentences
from .picture import picture_size
from .speech import clip_length

Progress = Callable[[str, int, int], None]

SHOWN = 5  # bad files named one by one, of each part
# Of the files in the official archives; a change of one pixel shows only here.
MD5 = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar100": {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
}


@dataclass(frozen=True)
class Found:
    """One data set as it is in a folder: complete, partial (a sound part of it), wrong, or absent; and why, line by line."""

    name: str
    state: Literal["complete", "partial", "wrong", "absent"]
    lines: tuple[str, ...]


def checked(folder: str | Path, *, deep: bool = False, workers: int = 0, progress: Progress | None = None) -> list[Found]:
    """Every data set that lives in files, as it is in ``folder``, or in the folder of one set.

    The header of every file is read; ``deep`` decodes all of them, and compares checksums. ``progress`` gets the name, how many
    files are done, and how many there are.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(f"{folder} must be a folder, {'it is a file' if folder.exists() else 'it does not exist'}")
    return [_found(entry, folder, deep, workers, progress) for entry in DATASETS.values() if entry.folders]


def _found(entry: DataSet, folder: Path, deep: bool, workers: int, progress: Progress | None) -> Found:
    places = [folder / name for name in entry.folders if (folder / name).is_dir()]
    if folder.resolve().name in entry.folders:
        places.append(folder)
    if not places:
        return Found(entry.name, "absent", (f"no folder {' or '.join(entry.folders)}",))
    try:
        splits = (entry.listed or entry.read)(places[0])
        complete = all(part in splits and len(splits[part]) == count for part, count in entry.counts.items())
        wrong = _bad(entry.name, splits, deep, workers, progress)
        if deep and complete:
            wrong += _changed(entry, places[0])
    except BadFile as bad:
        return Found(entry.name, "wrong", (str(bad),))
    except OSError as error:
        return Found(entry.name, "wrong", (f"{places[0]} cannot be read: {error}",))
    lines = tuple(_counted(entry, splits))
    if wrong:
        return Found(entry.name, "wrong", (*lines, *wrong))
    return Found(entry.name, "complete" if complete else "partial", lines)


def _counted(entry: DataSet, splits: Splits[Split]) -> list[str]:
    """How much of the official numbers is there, and how evenly."""
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


def _bad(name: str, splits: Splits[Split], deep: bool, workers: int, progress: Progress | None) -> list[str]:
    """A sentence for each of the first bad files of every part, and how many more there are."""
    files = {part: split for part, split in splits.parts.items() if isinstance(split, Files)}
    total, done, lines = sum(map(len, files.values())), 0, []
    for split in files.values():
        bad = 0
        for sentence in sentences(split.reader if deep else _header, split.paths, workers):
            done += 1
            if progress is not None:
                progress(name, done, total)
            if sentence is not None:
                bad += 1
                lines += [str(sentence)] if bad <= SHOWN else []
        if bad > SHOWN:
            lines.append(f"{bad - SHOWN:,} more bad files like these")
    return lines


def _header(path: str) -> object:
    return clip_length(path) if path.endswith(".wav") else picture_size(path)


def _changed(entry: DataSet, folder: Path) -> list[str]:
    """A sentence for every file that is not the official one, byte by byte."""
    lines = []
    for name, official in MD5.get(entry.name, {}).items():
        found = hashlib.md5((folder / name).read_bytes(), usedforsecurity=False).hexdigest()
        if found != official:
            lines.append(f"{folder / name} differs from the official file: md5 {found}, not {official}")
    return lines
