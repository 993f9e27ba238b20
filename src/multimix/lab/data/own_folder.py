"""A user's own folder as a data set: read, checked, and divided into what is learnt from and what is tested on."""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...core.sampling import seeded
from .datasets import IMAGENET_MEAN, IMAGENET_STD, DataSet, Files, Images, Splits, register
from .own_files import read_sound, read_square
from .own_layout import WHOLE, Kind, Listed, list_folder, portions, readable
from .reading import BadFile, Format, read_all, read_array
from .speech import FORMAT as SPECTROGRAM

SIDE = 64  # of the squares that pictures become, unless another is asked for
FEW = 10  # samples of a class; with fewer little can be learnt
DIVIDING = 0xD1F1  # a random stream of its own
NAMED = 5


@dataclass(frozen=True, eq=False)
class OwnSplits(Splits[Images]):
    """The parts train and test, and ``notes``: sentences on everything odd about the folder."""

    notes: tuple[str, ...] = ()
    divided: bool = False  # by us, since the folder has no part for testing


def read_folder(
    folder: str | Path,
    *,
    kind: Kind = "pictures",
    side: int | None = None,
    most: int | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    skip_bad: bool = False,
    workers: int = 0,
) -> OwnSplits:
    """Pictures as squares of ``side`` pixels (sounds as spectrograms), in any layout of :func:`.own_layout.list_folder`.

    Without a part for testing a fifth of every class becomes one, drawn with ``seed``, after copies of a sample are left out. A
    sample of train/ that is in test/ as well is left out of train. At most ``most`` of a class are learnt from. ``cache`` is a
    folder where decoded samples are kept. ``skip_bad`` leaves out files that cannot be read; else the first is an error.
    """
    if side is not None and side < 8:
        raise ValueError(f"data.side must be at least 8 pixels, got {side}")
    if most is not None and most < 1:
        raise ValueError(f"data.most must be at least 1, got {most}")
    listed = list_folder(folder, kind)
    read = {part: _read(listed.at_most(most, seed), part, kind, side or SIDE, cache, skip_bad, workers) for part in listed.paths}
    if WHOLE in read:
        parts, said = _divided(read[WHOLE], listed, most, seed)
    else:
        parts, said = _without_tested(read["train"], read["test"])
    notes = [readable(sentence) for sentence in (*listed.notes, *said, *_few(parts, kind))]
    parts = {part: replace(split, skipped=tuple(map(readable, split.skipped))) for part, split in parts.items()}
    return OwnSplits(f"the folder {listed.root}", parts, tuple(notes), divided=WHOLE in read)


def _read(listed: Listed, part: str, kind: Kind, side: int, cache: str | Path | None, skip_bad: bool, workers: int) -> Images:
    form = SPECTROGRAM._replace(name="own-sound-1") if kind == "sounds" else Format(f"own-{side}-1", (3, side, side), torch.uint8)
    reader = read_sound if kind == "sounds" else partial(read_square, side=side)
    files = Files(listed.paths[part], torch.tensor(listed.labels[part], dtype=torch.int64), listed.classes, reader)
    load = partial(read_all, reader, workers=workers)
    return read_array(files, load, form, cache=None if cache is None else Path(cache), skip_bad=skip_bad)


def _divided(whole: Images, listed: Listed, most: int | None, seed: int) -> tuple[dict[str, Images], list[str]]:
    """One in five of every class for testing, at least one of two; and what was left out before."""
    first = _first_rows(_digests(whole.pixels))
    kept = torch.tensor(sorted(first.values()), dtype=torch.int64)
    notes = []
    if len(kept) < len(whole):
        digests, labels = _digests(whole.pixels), whole.labels.tolist()
        torn = sum(labels[row] != labels[first[digest]] for row, digest in enumerate(digests))
        among = f" ({torn:,} of them of another class than the one that is kept)" if torn else ""
        notes.append(f"{len(whole) - len(kept):,} samples, copies of others bit for bit after decoding, were left out{among}")
    rows = kept[torch.randperm(len(kept), generator=seeded(DIVIDING, seed))]
    counts = torch.bincount(whole.labels[kept], minlength=len(whole.classes))
    if int((counts > 0).sum()) < 2 or int(counts.max()) < 2:
        has = ", ".join(f"{name} {count}" for name, count in zip(whole.classes[:NAMED], counts.tolist(), strict=False))
        raise BadFile(
            f"{listed.root} must have at least two classes, and classes with at least two different samples, one to learn from "
            f"and one to be tested on; it has {has}{' …' if len(counts) > NAMED else ''}"
        )
    test: list[int] = []
    for label, count in enumerate(counts.tolist()):
        own = rows[whole.labels[rows] == label].tolist()
        learnt, tested = portions(WHOLE, count if most is None else listed.counts(WHOLE)[label], most)
        # Some of those that were chosen may be bad or copies: what is left is divided in the same way.
        test += own[: min(count - 1, max(1, round(count * tested / (learnt + tested))))] if count > 1 else []
    chosen = torch.tensor(sorted(test), dtype=torch.int64)
    rest = torch.tensor(sorted(set(kept.tolist()) - set(test)), dtype=torch.int64)
    return {"train": whole.take(rest), "test": whole.take(chosen)}, notes


def _without_tested(train: Images, test: Images) -> tuple[dict[str, Images], list[str]]:
    """Both parts, train without the samples that are in test as well."""
    known = set(_digests(test.pixels))
    rows = [row for row, digest in enumerate(_digests(train.pixels)) if digest not in known]
    copies = len(train) - len(rows)
    if copies == 0:
        return {"train": train, "test": test}, []
    if len({int(train.labels[row]) for row in rows}) < 2:
        raise BadFile(
            f"train/ must have samples of at least two classes that are not in test/ as well, {copies:,} of {len(train):,} are"
        )
    note = f"{copies:,} of the samples in train/ are in test/ as well, bit for bit after decoding, and were left out of train/"
    return {"train": train.take(torch.tensor(rows)), "test": test}, [note]


def _few(parts: dict[str, Images], kind: Kind) -> list[str]:
    """Classes that have little or nothing to learn from or to be tested on."""
    notes, classes = [], parts["train"].classes
    for part, least in (("train", FEW), ("test", 1)):
        counts = torch.bincount(parts[part].labels, minlength=len(classes)).tolist()
        few = [f"{name} {count}" for name, count in zip(classes, counts, strict=True) if count < least]
        more = " …" if len(few) > NAMED else ""
        if few:
            words = f"fewer than {least} {kind} to learn from" if part == "train" else f"no {kind} to be tested on"
            notes.append(f"{len(few)} of {len(classes)} classes have {words}: {', '.join(few[:NAMED])}{more}")
    return notes


def _digests(pixels: Tensor) -> list[bytes]:
    return [hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest() for row in pixels]


def _first_rows(digests: list[bytes]) -> dict[bytes, int]:
    """For every digest the first row that has it."""
    return {digest: row for row, digest in reversed(list(enumerate(digests)))}


# fmt: off
register(DataSet(
    "folder", read_folder, 0, IMAGENET_MEAN, IMAGENET_STD, (3, SIDE, SIDE), {},
    not_fetched="folder is any folder of your own pictures, one folder per class; there is nothing to fetch",
))
register(DataSet(
    "sound_folder", partial(read_folder, kind="sounds"), 0, (0.0,), (1.0,), SPECTROGRAM.shape, {},
    not_fetched="sound_folder is any folder of your own WAV files, one folder per class; there is nothing to fetch",
))
