"""What a network's errors become when what lies behind the objects is spoilt, the paper's Table V: samples need boxes.

The background is what no true box touches. It is replaced by another image of the same samples, or N(0, 0.1²) is added to its
pixels, of 0 … 1. Pixels are changed before normalisation and at the size that the middle is cut from: see :mod:`.corruption`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from ...core.sampling import seeded
from ..data import Augment, Files
from ..data.augment import resize
from ..data.reading import picture_size
from .base import Finding, measure
from .boxes import annotated, covered, rescaled, with_boxes
from .corruption import BACKGROUND_NOISE, NOISE, add_noise, as_before, in_unit_range, read_as_seen
from .error import Proportion, errors
from .predictions import READING, Reading, one_bar, predictions
from .subject import Subject

SIGMA = 0.1  # of pixels in 0 … 1
Background = Literal["replaced", "noise"]
BACKGROUNDS: tuple[Background, ...] = ("replaced", "noise")
DONORS = 0xD080  # a key of its own for the draw of the other images


@dataclass(frozen=True)
class BackgroundError:
    """Errors with one background, or ``clean``.

    Of the images whose class is right when they are clean ``newly_wrong`` are wrong now, of the others ``newly_right`` are right.
    """

    name: str
    top1: Proportion
    top5: Proportion | None
    newly_wrong: int = 0
    newly_right: int = 0


@dataclass(frozen=True)
class Backgrounds:
    """The errors over the same ``n`` images; those ``without_box`` are not among them."""

    n: int
    without_box: int
    rows: tuple[BackgroundError, ...]


@measure("background")
def measure_background(subject: Subject, reading: Reading, *, seed: int = 0) -> Finding:
    """The errors of a subject with spoilt backgrounds."""
    split = read_as_seen(subject)
    if not isinstance(split, Files) or split.boxes is None:
        raise ValueError(
            f"{subject.samples.get('data', 'the data set')} has no boxes, which background needs; "
            "imagenet, tiny_imagenet and cub200 have (--data-set NAME)"
        )
    found = background_errors(subject.network, split, subject.evaluation, reading, seed=seed)
    return Finding({"n": found.n, **{row.name: row.top1.percent for row in found.rows}}, found)


def background_errors(
    network: nn.Module, split: Files, augment: Augment, reading: Reading = READING, *, seed: int = 0
) -> Backgrounds:
    """Errors on the clean images, with their backgrounds replaced, and with noise on them: three passes.

    The same seed spoils an image in the same way, whatever the batch, the workers and the network.
    """
    part, rows, clean = with_boxes(split), [], torch.zeros(0)
    with one_bar(reading.progress, (1 + len(BACKGROUNDS)) * reading.batches_of(part)) as progress:
        for name in (None, *BACKGROUNDS):
            seen = part if name is None else with_spoilt_backgrounds(part, name, seed)
            predicted = predictions(network, seen, augment, reading._replace(progress=progress))
            right, found = predicted.correct, errors(predicted)
            clean = right if name is None else clean
            changes = int((clean & ~right).sum()), int((~clean & right).sum())
            rows.append(BackgroundError(name or "clean", found.top1, found.top5, *changes))
    return Backgrounds(len(part), len(split) - len(part), tuple(rows))


def with_spoilt_backgrounds(split: Files, name: Background, seed: int = 0) -> Files:
    """``split`` with every background spoilt as it is read. The draws depend on the seed and the row of the image."""
    annotated(split)
    donors = derangement(len(split), seed).tolist() if name == "replaced" else None
    noise = partial(seeded, NOISE, BACKGROUND_NOISE, 0, seed)
    rows = {path: row for row, path in enumerate(split.paths)}
    return replace(split, reader=partial(_read_spoilt, split, noise, donors, rows))


def _read_spoilt(
    split: Files, noise: Callable[[int], Generator], donors: Sequence[int] | None, rows: dict[str, int], path: str
) -> Tensor:
    row, image = rows[path], split.reader(path)
    size = (image.shape[1], image.shape[2])
    foreground = covered(rescaled(annotated(split)[row], picture_size(path), size), *size)
    if donors is None:
        return with_background_noise(image, foreground, noise(row))
    return with_background(image, foreground, split.reader(split.paths[donors[row]]))


def with_background(image: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
    """``image [C, H, W]`` where ``foreground [H, W]``, elsewhere the other image ``background [C, h, w]``, resized to fit."""
    behind = resize(background.unsqueeze(0), (image.shape[1], image.shape[2]))[0]
    return torch.where(foreground, image, behind.to(image.dtype))


def with_background_noise(image: Tensor, foreground: Tensor, generator: Generator, sigma: float = SIGMA) -> Tensor:
    """``image [C, H, W]`` with N(0, ``sigma``²) added (of pixels in 0 … 1, clipped) except where ``foreground [H, W]``."""
    noisy = as_before(image, add_noise(in_unit_range(image), sigma, generator))
    return torch.where(foreground, image, noisy)


def derangement(count: int, seed: int) -> Tensor:
    """A permutation of 0 … ``count`` − 1 that leaves nothing in its place; all such are equally likely."""
    if count < 2:
        raise ValueError(f"backgrounds come from other images, so there must be at least 2, got {count}")
    generator, identity = seeded(DONORS, seed), torch.arange(count)
    while True:  # one in e permutations will do
        drawn = torch.randperm(count, generator=generator)
        if bool((drawn != identity).all()):
            return drawn
