"""Choose the settings of a comparison for a folder: image size, network, batch size, schedule."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from ...data.own_layout import Kind, Listed, kind_of, list_folder, portions
from ...data.reading import BadFile, picture_size
from ...nets import TIMM, network
from ...recipes.base import Recipe, Scale
from ...recipes.folder import RECIPE
from ...recipes.serialise import apply_changes
from ...recipes.settings import Augmentation, Knots, Network, Settings
from ...recipes.superclasses import NORM
from ...storage import digest

SMALL_NETWORK, LARGE_NETWORK = "preact_resnet18_small", "preact_resnet18"
NETWORK_ALIASES = {"resnet18": LARGE_NETWORK, "resnet18_small": SMALL_NETWORK}
MIN_SIDE, MAX_SIDE_ON_CPU, MAX_SIDE, SIDE_STEP = 32, 64, 224, 16  # pixels
SAMPLED_FILES = 100  # number of images whose size is read
RATE_PER_SAMPLE = 0.1 / 50  # maximum of the learning rate, per sample of a batch
SCALE: Scale = "small"
RESERVED_FIELDS = ("epochs", "evaluate_every", "data.most", "data.name")


class FolderSetup:
    """A folder of samples and the settings for it.

    Args:
        folder: The user's folder.
        model: Name or import path of a network; None for the default of the machine.
        changes: Settings to change, by dotted name.

    Raises:
        ValueError: If the folder cannot be read as classes, or ``changes`` has a field that follows
            from the folder and the budget.
    """

    def __init__(self, folder: Path, model: str | None, changes: Mapping[str, str]) -> None:
        if model is not None and ":" in model and "" not in sys.path:
            sys.path.insert(0, "")  # find code in the working directory
        for field in changes:
            if field in RESERVED_FIELDS or field.startswith("schedule"):
                raise ValueError(f"{field} follows from the folder and the budget; set it with multimix sweep folder")
        self.folder = folder
        self.changes = dict(changes)
        self.kind: Kind = kind_of(folder)
        self.listed = list_folder(folder, self.kind)
        accelerated = torch.accelerator.is_available()
        self.network = NETWORK_ALIASES.get(model or "", model) or (LARGE_NETWORK if accelerated else SMALL_NETWORK)
        general = {field: value for field, value in changes.items() if field.partition(".")[0] != "method"}
        settings = apply_changes(RECIPE.settings(SCALE), general)
        self.given_side = settings.data.side if "data.side" in changes else None
        self.side = self.given_side or self._usual_side(MAX_SIDE if accelerated else MAX_SIDE_ON_CPU)
        self.batch = settings.batch if "batch" in changes else fitting_batch(self.sizes(None)[0])

    @property
    def fingerprint(self) -> str:
        """Digest of the names and sizes of all files."""
        files = [path for paths in self.listed.paths.values() for path in paths]
        sizes = [
            (os.path.relpath(path, self.listed.root), os.path.getsize(path) if os.path.exists(path) else -1) for path in files
        ]
        return digest([self.kind, sizes])[:10]

    @property
    def largest_class(self) -> int:
        """Samples of the largest class."""
        return max(count for part in self.listed.paths for count in self.listed.counts(part))

    def sizes(self, per_class: int | None) -> tuple[int, int]:
        """Return the numbers of training and test samples if all files are readable and distinct.

        Args:
            per_class: Maximum of training samples per class; None for all.
        """
        counts = [portions(part, count, per_class) for part in self.listed.paths for count in self.listed.counts(part)]
        return sum(train for train, _ in counts), sum(test for _, test in counts)

    def recipe(self, epochs: int, per_class: int | None) -> Recipe:
        """Return a recipe with the settings for the folder.

        Args:
            epochs: Epochs of every run.
            per_class: Maximum of training samples per class; None for all.
        """
        fixed: Callable[[Scale], Settings] = partial(_fixed, self._settings(epochs, per_class))
        return replace(RECIPE, rows=(), settings=fixed)

    def _settings(self, epochs: int, per_class: int | None) -> Settings:
        base, images = RECIPE.settings(SCALE), self.kind == "pictures"
        rate = RATE_PER_SAMPLE * self.batch
        points = ((0.0, round(rate / 10, 9)), (epochs / 4, round(rate, 9)), (float(epochs), 0.0))
        built_in = self.network in (SMALL_NETWORK, LARGE_NETWORK)
        options = (*NORM, f"stem_stride={max(1, self.side // 32)}") if built_in else ()
        # A single thread is faster for the small network only.
        running = base.running if self.network == SMALL_NETWORK else replace(base.running, threads=None)
        data = replace(
            base.data,
            name="folder" if images else "sound_folder",
            side=self.side if images else None,
            skip_bad=True,
            most=per_class,
        )
        return replace(
            base,
            data=data,
            network=Network(self.network, options),
            batch=self.batch,
            augment=Augmentation(flip=images, padding=self.side // 8 if images else 0),
            epochs=epochs,
            schedule=Knots(points),
            evaluate_every=epochs,
            running=running,
        )

    def _usual_side(self, largest: int) -> int:
        """Return the median short side in steps of 16 pixels, or the fixed input size of the network."""
        if self.kind == "sounds":
            return 128  # a square image with about as many values as a spectrogram
        if self.network.startswith(TIMM):
            with torch.random.fork_rng(devices=[]):
                config = getattr(network(self.network, 2), "default_cfg", None) or {}
            if config.get("fixed_input_size"):
                return int(config["input_size"][-1])
        short = short_sides(self.listed)
        side = int(median(short)) // SIDE_STEP * SIDE_STEP if short else largest
        return max(MIN_SIDE, min(largest, side))


def _fixed(settings: Settings, scale: Scale) -> Settings:
    return settings


def fitting_batch(train: int) -> int:
    """Return a batch size with at least eight updates per epoch, between 4 and 32 samples.

    Args:
        train: Number of training samples.
    """
    return min(train, max(4, min(32, train // 8)))


def short_sides(listed: Listed) -> list[int]:
    """Return the shorter sides in pixels of up to a hundred images, evenly spaced in the folder.

    Args:
        listed: The listed folder.
    """
    paths = [path for paths in listed.paths.values() for path in paths]
    sides = []
    for path in paths[:: max(1, len(paths) // SAMPLED_FILES)]:
        try:
            sides.append(min(picture_size(path)))
        except BadFile:  # noqa: PERF203  reported when the folder is read
            continue
    return sides
