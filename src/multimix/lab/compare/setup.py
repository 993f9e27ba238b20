"""What a comparison trains with: the kind of data, the size of the pictures, network, batch and schedule, fitted to a folder."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import torch

from ..data.own_layout import Kind, Listed, kind_of, list_folder, portions
from ..data.reading import BadFile, picture_size
from ..nets import TIMM, network
from ..recipes.superclasses import NORM
from ..storage import digest
from .budget import Sizes, fitting_batch

SMALL, LARGE = "preact_resnet18_small", "preact_resnet18"
NAMES = {"resnet18": LARGE, "resnet18_small": SMALL}
LEAST_SIDE, SIDE_ON_CPU, MOST_SIDE, STEP = 32, 64, 224, 16
LOOKED_AT = 100  # pictures whose size is read
RATE = 0.1 / 50  # the highest learning rate for every sample of a batch
SPECTROGRAM_SIDE = 128  # of a square with about as many numbers


class Setup:
    """A folder, listed, and the settings that fit it."""

    def __init__(self, folder: Path, model: str | None, changes: Mapping[str, str]) -> None:
        if model is not None and ":" in model and "" not in sys.path:
            sys.path.insert(0, "")  # code in the folder where the command was typed
        self.folder = folder
        self.kind: Kind = kind_of(folder)
        self.listed = list_folder(folder, self.kind)
        strong = torch.accelerator.is_available()
        self.network = NAMES.get(model or "", model) or (LARGE if strong else SMALL)
        self.given_side = int(changes["data.side"]) if changes.get("data.side", "").isdecimal() else None
        self.side = self.given_side or self._usual_side(SIDE_ON_CPU if not strong else MOST_SIDE)
        self.batch = int(changes["batch"]) if changes.get("batch", "").isdecimal() else fitting_batch(self.sizes(None)[0])
        self.changes = {**self._fields(), **changes}

    @property
    def fingerprint(self) -> str:
        """A word for exactly these files: their names and sizes."""
        rows = [
            (os.path.relpath(path, self.listed.root), os.path.getsize(path) if os.path.exists(path) else -1)
            for paths in self.listed.paths.values()
            for path in paths
        ]
        return digest([self.kind, rows])[:10]

    @property
    def largest(self) -> int:
        """Samples of the largest class."""
        return max(count for part in self.listed.paths for count in self.listed.counts(part))

    @property
    def sizes(self) -> Sizes:
        """How many samples there are to learn from and to be tested on, with at most so many of a class."""
        return lambda most: sizes(self.listed, most)

    def _usual_side(self, most: int) -> int:
        """The median of the pictures' short sides, in steps of 16 pixels; a network that takes only one size decides itself."""
        if self.kind == "sounds":
            return SPECTROGRAM_SIDE
        if self.network.startswith(TIMM):
            with torch.random.fork_rng(devices=[]):
                made = network(self.network, 2)
            known = getattr(made, "default_cfg", None) or {}
            if known.get("fixed_input_size"):
                return int(known["input_size"][-1])
        short = short_sides(self.listed)
        wanted = int(median(short)) // STEP * STEP if short else most
        return max(LEAST_SIDE, min(most, wanted))

    def _fields(self) -> dict[str, str]:
        """Fields of the recipe's settings that the folder decides."""
        own = self.network in (SMALL, LARGE)
        fields = {
            "data.name": "folder" if self.kind == "pictures" else "sound_folder",
            "data.side": str(self.side) if self.kind == "pictures" else "none",
            "data.skip_bad": "true",
            "network.name": self.network,
            "network.options": ",".join((*NORM, f"stem_stride={max(1, self.side // 32)}")) if own else "",
            "batch": str(self.batch),
            "augment.flip": "true" if self.kind == "pictures" else "false",
            "augment.padding": str(self.side // 8) if self.kind == "pictures" else "0",
        }
        # One thread is faster for the small network; others take what there is.
        return fields if self.network == SMALL else fields | {"running.threads": "none"}

    def lasting(self, epochs: int, most: int | None) -> dict[str, str]:
        """All changes of a training of so many epochs: the rate goes up for a quarter of them, then down to 0."""
        rate = RATE * self.batch
        points = f"(0, {rate / 10:.6g}), ({epochs / 4:g}, {rate:.6g}), ({epochs}, 0)"
        course = {"epochs": str(epochs), "schedule.points": points, "evaluate_every": str(epochs)}
        return {**course, "data.most": "none" if most is None else str(most), **self.changes}


def sizes(listed: Listed, most: int | None) -> tuple[int, int]:
    """Samples to learn from and to be tested on, if all files are sound and no two alike."""
    every = [portions(part, count, most) for part in listed.paths for count in listed.counts(part)]
    return sum(learnt for learnt, _ in every), sum(tested for _, tested in every)


def short_sides(listed: Listed) -> list[int]:
    """The shorter sides of up to a hundred pictures from all over the folder, in pixels."""
    paths = [path for paths in listed.paths.values() for path in paths]
    found = []
    for path in paths[:: max(1, len(paths) // LOOKED_AT)]:
        try:
            found.append(min(picture_size(path)))
        except BadFile:  # noqa: PERF203  the check of the folder names it
            continue
    return found
