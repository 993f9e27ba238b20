"""Where the files of a user's own folder lie: one folder per class, perhaps inside train/ and test/, as people keep them."""

import os
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from ...core.sampling import seeded
from .own_files import PICTURES, SOUNDS
from .reading import BadFile

Kind = Literal["pictures", "sounds"]
ENDINGS: Mapping[Kind, tuple[str, ...]] = {"pictures": PICTURES, "sounds": SOUNDS}
PARTS = {"train": ("train", "training"), "test": ("test", "testing"), "validation": ("val", "valid", "validation")}
WHOLE = "whole"  # the only part of a folder that is not divided yet
PASSED = ("thumbs.db", "desktop.ini", "__macosx")  # what systems leave everywhere; hidden files are passed over as well
OURS = ("compare.json", "results.jsonl")  # in a folder of results, which is no class although it has pictures
CHOOSING = 0x0C5E  # a random stream of its own
SHARE = 5  # one in five samples of a class is for testing, if the folder has no such part
TESTED = 20  # samples of a class that are tested on, even if fewer are learnt from
NAMED = 5  # of a long list


class Listed(NamedTuple):
    """Files and their classes, for each part that is there: train and test, or all of a folder that is to be divided.

    ``notes`` are sentences on what was passed over.
    """

    root: Path
    classes: tuple[str, ...]
    paths: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]

    def counts(self, part: str) -> list[int]:
        """How many files every class has in a part."""
        found = Counter(self.labels[part])
        return [found[label] for label in range(len(self.classes))]

    def at_most(self, most: int | None, seed: int) -> "Listed":
        """At most so many files of a class to learn from, and those to be tested on; the same ones for the same seed."""
        if most is None:
            return self
        kept = {part: _chosen(labels, part, most, seed) for part, labels in self.labels.items()}
        paths = {part: tuple(self.paths[part][i] for i in rows) for part, rows in kept.items()}
        labels = {part: tuple(self.labels[part][i] for i in rows) for part, rows in kept.items()}
        return self._replace(paths=paths, labels=labels)


class Tree(NamedTuple):
    """A folder: its own wanted ``files``, its ``folders`` with such files below, the ``empty`` ones, names of ``other`` files."""

    path: Path
    files: tuple[str, ...]
    folders: tuple["Tree", ...]
    empty: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def name(self) -> str:
        """That of its class: the same for both ways of writing an accent, and readable if it is no UTF-8."""
        return unicodedata.normalize("NFC", readable(self.path.name))

    def below(self) -> list[str]:
        """All wanted files in it, however deep."""
        return [*self.files, *(path for folder in self.folders for path in folder.below())]

    def others(self) -> list[str]:
        """Names of all other files in it."""
        return [*self.other, *(name for folder in self.folders for name in folder.others())]


def readable(words: str) -> str:
    """Words that can be written: bytes of a file's name that are no UTF-8 become question marks."""
    return words.encode("utf-8", "replace").decode()


def portions(part: str, count: int, most: int | None) -> tuple[int, int]:
    """How many of the ``count`` samples that a class has in a part are learnt from, at most ``most``, and how many tested on.

    Of a folder that is to be divided one in five is tested on, at least one of two. Testing is cheap: with ``most`` up to 20 of a
    class, or as many as are learnt from, are tested on.

    >>> portions(WHOLE, 100, None), portions(WHOLE, 100, 5), portions("test", 100, 30)
    ((80, 20), (5, 20), (0, 30))
    """
    tested = count if part == "test" else 0 if part == "train" or count < 2 else max(1, round(count / SHARE))
    learnt = count - tested
    return (learnt, tested) if most is None else (min(learnt, most), min(tested, max(most, TESTED)))


def kind_of(folder: str | Path) -> Kind:
    """Whether a folder holds pictures or sounds: what it has more of."""
    counts = {kind: len(scan(_existing(folder), endings).below()) for kind, endings in ENDINGS.items()}
    return "sounds" if counts["sounds"] > counts["pictures"] else "pictures"


def list_folder(folder: str | Path, kind: Kind = "pictures") -> Listed:
    """The files of a user's own folder and their classes, which are the names of folders.

    ``folder`` holds train/ and test/ (or val/), each with one folder per class; or the folders of the classes themselves. A class
    has all files below its folder. Folders around the whole are passed through.
    """
    tree = scan(_existing(folder), ENDINGS[kind])
    if not tree.below():
        endings = Counter(Path(name).suffix.lower() or name for name in tree.others())
        what = f"only {_named(list(endings))}" if endings else "none"
        raise BadFile(f"{folder} must hold {kind} ({', '.join(ENDINGS[kind])}) in one folder per class, it has {what}")
    while len(tree.folders) == 1 and not tree.files and not tree.folders[0].files:
        tree = tree.folders[0]
    parts, notes = _parts(tree, kind)
    if not parts:
        parts = {WHOLE: tree}
    first = next(iter(parts.values()))
    classes = tuple(dict.fromkeys(sorted(sub.name for sub in first.folders)))
    _check_classes(first, classes, kind)
    number = {name: label for label, name in enumerate(classes)}
    found = {
        part: sorted((number[sub.name], path) for sub in own.folders if sub.name in number for path in sub.below())
        for part, own in parts.items()
    }
    notes += [note for part, own in parts.items() for note in _odd(own, part, number, kind)]
    return Listed(
        tree.path,
        classes,
        {part: tuple(path for _, path in rows) for part, rows in found.items()},
        {part: tuple(label for label, _ in rows) for part, rows in found.items()},
        tuple(notes),
    )


def scan(folder: Path, endings: tuple[str, ...], above: tuple[str, ...] = ()) -> Tree:
    """What is in a folder; links are followed, but not in a circle."""
    here = (*above, os.path.realpath(folder))
    files, folders, empty, other = [], [], [], []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise BadFile(f"{folder} cannot be read: {error.strerror}") from None
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in PASSED:
            continue
        if entry.is_dir():
            if os.path.realpath(entry.path) in here or any(os.path.exists(os.path.join(entry.path, name)) for name in OURS):
                continue
            inner = scan(Path(entry.path), endings, here)
            if inner.files or inner.folders:
                folders.append(inner)
            else:
                empty.append(entry.name)
                other += [*inner.other]
        elif entry.name.lower().endswith(endings):
            files.append(entry.path)
        else:
            other.append(entry.name)
    return Tree(folder, tuple(files), tuple(folders), tuple(empty), tuple(other))


def _existing(folder: str | Path) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(f"{folder} must be a folder, {'it is a file' if folder.exists() else 'it does not exist'}")
    return folder


def _parts(tree: Tree, kind: Kind) -> tuple[dict[str, Tree], list[str]]:
    """train, and test if its classes are known; nothing where the folders are classes."""
    known = {part: sub for part, names in PARTS.items() for sub in tree.folders if sub.name.lower() in names}
    unknown = [sub.name for sub in tree.folders if sub not in known.values()]
    train = known.pop("train", None)
    if train is None:
        if known and not unknown and len(known) > 1:
            raise BadFile(
                f"{tree.path} must have a folder train beside {' and '.join(sub.name for sub in known.values())}, it has none"
            )
        return {}, []
    if not train.folders or (unknown and not known):
        return {}, []  # a class that is called train
    notes = [f"{_named(unknown)} beside train/ is no part of the data and was passed over"] if unknown else []
    classes = {sub.name for sub in train.folders}
    tested: Tree | None = None
    for sub in known.values():
        common = [own.name for own in sub.folders if own.name in classes]
        if tested is not None:
            notes.append(f"{sub.name}/ was not used, since there is {tested.name}/")
        elif common:
            tested = sub
        elif len(sub.folders) > 1:
            raise BadFile(
                f"{sub.path} must have folders of the classes in train/, none of its {len(sub.folders)} "
                f"({_named([own.name for own in sub.folders])}) is one of {_named(sorted(classes))}"
            )
        else:
            notes.append(f"{sub.name}/ has no folders of the classes and was not used")
    return ({"train": train, "test": tested}, notes) if tested is not None else ({WHOLE: train}, notes)


def _check_classes(tree: Tree, classes: Sequence[str], kind: Kind) -> None:
    if not classes:
        raise BadFile(f"{tree.path} must have one folder per class, its {len(tree.files):,} {kind} are in none")
    if len(classes) == 1:
        raise BadFile(f"{tree.path} must have at least two classes, which are folders with {kind}; it has one, {classes[0]}")


def _odd(tree: Tree, part: str, number: Mapping[str, int], kind: Kind) -> list[str]:
    """What in a part belongs to no class, in sentences."""
    where, notes = "" if part == WHOLE else f" in {tree.name}/", []
    strange = [sub.name for sub in tree.folders if sub.name not in number]
    if tree.files:
        notes.append(f"{len(tree.files):,} of the {kind}{where} outside the folders of the classes: passed over")
    if tree.empty:
        notes.append(f"no {kind} in {len(tree.empty):,} of the folders{where}, which are no classes then: {_named(tree.empty)}")
    if strange:
        left = f"{len(strange)} of the classes{where} not in train/, so that nothing of them is learnt"
        notes.append(f"{left}: left out ({_named(strange)})")
    others = tree.others()
    if others:
        notes.append(f"{len(others):,} of the files{where} with other endings: passed over ({_named(others)})")
    return notes


def _chosen(labels: Sequence[int], part: str, most: int, seed: int) -> list[int]:
    rows: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    kept: list[int] = []
    for label, own in rows.items():
        order = torch.randperm(len(own), generator=seeded(CHOOSING, seed, label)).tolist()
        kept += [own[i] for i in order[: sum(portions(part, len(own), most))]]
    return sorted(kept)


def _named(names: Sequence[str], most: int = NAMED) -> str:
    """The first of a list of names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
