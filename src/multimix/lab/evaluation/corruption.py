"""What a network's errors become when images are spoilt: behind the objects (which needs boxes), or all over.

Pixels are changed as they were read, before resizing and normalisation. Noise on a large photo is averaged away when that is made
smaller; for the paper's experiment read ImageNet with ``short_side=256``, the size the centre is cut from.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple, cast

import numpy
import torch
from PIL import Image
from scipy import ndimage
from torch import Generator, Tensor, nn

from ...checks import nearest
from ...sampling import seeded
from ..data import Augment, Files, Images, Resize, Split
from ..data.augment import resize
from ..data.reading import picture_size
from ..training.loop import as_stored
from .base import Finding, measure
from .boxes import annotated, covered, rescaled, with_boxes
from .error import Proportion, errors
from .predictions import READING, Reading, one_bar, predictions
from .subject import Subject

NOISE_SIGMA = 0.1  # of pixels in 0 … 1
SEVERITIES = (1, 2, 3, 4, 5)
BOX = Image.Resampling.BOX
# Keys of their own, so that noise is not that of any other draw with the same seed.
NOISE, DONORS = 0xC022, 0xD080


class Common(NamedTuple):
    """A corruption by severity: ``change(pixels [C, H, W] in 0 … 1, level, generator)`` with one level per severity 1 … 5."""

    levels: tuple[float, float, float, float, float]
    change: Callable[[Tensor, float, Generator], Tensor]


def _gaussian_noise(x: Tensor, sigma: float, generator: Generator) -> Tensor:
    return x + sigma * torch.randn(x.shape, generator=generator)


def _shot_noise(x: Tensor, photons: float, generator: Generator) -> Tensor:
    return torch.poisson(x * photons, generator=generator) / photons


def _blur(x: Tensor, sigma: float, _: Generator) -> Tensor:
    return torch.from_numpy(ndimage.gaussian_filter(x.numpy(), (0, sigma, sigma), mode="nearest"))


def _contrast(x: Tensor, share: float, _: Generator) -> Tensor:
    grey = x.mean((1, 2), keepdim=True)
    return grey + share * (x - grey)


def _brightness(x: Tensor, more: float, _: Generator) -> Tensor:
    # The value of HSV is the largest channel; hue and saturation stay when all channels grow alike.
    value = x.amax(0)
    brighter = (value + more).clamp(max=1)
    return torch.where(value > 0, x * (brighter / value.clamp(min=1e-6)), brighter)


def _jpeg(x: Tensor, quality: float, _: Generator) -> Tensor:
    if len(x) not in (1, 3):
        raise ValueError(f"jpeg needs images of 1 or 3 channels, got {len(x)}")
    picture, file = Image.fromarray(_bytes(x).permute(1, 2, 0).squeeze(2).numpy()), io.BytesIO()
    picture.save(file, "jpeg", quality=int(quality))
    decoded = torch.from_numpy(numpy.array(Image.open(file))).float() / 255
    return decoded.reshape(*x.shape[1:], len(x)).permute(2, 0, 1)


def _pixelate(x: Tensor, share: float, _: Generator) -> Tensor:
    height, width = x.shape[1:]
    small, whole = (max(1, int(width * share)), max(1, int(height * share))), (width, height)
    planes = [Image.fromarray(plane).resize(small, BOX).resize(whole, BOX) for plane in x.numpy()]
    return torch.from_numpy(numpy.stack([numpy.array(plane) for plane in planes]))


# Levels as in ImageNet-C (Hendrycks and Dietterich, 2019), made for photos of about 224 pixels.
COMMON: Mapping[str, Common] = {
    "gaussian_noise": Common((0.08, 0.12, 0.18, 0.26, 0.38), _gaussian_noise),
    "shot_noise": Common((60, 25, 12, 5, 3), _shot_noise),
    "blur": Common((1, 2, 3, 4, 6), _blur),
    "contrast": Common((0.4, 0.3, 0.2, 0.1, 0.05), _contrast),
    "brightness": Common((0.1, 0.2, 0.3, 0.4, 0.5), _brightness),
    "jpeg": Common((25, 18, 15, 10, 7), _jpeg),
    "pixelate": Common((0.6, 0.5, 0.4, 0.3, 0.25), _pixelate),
}
BACKGROUND = ("background_replaced", "background_noise")


@dataclass(frozen=True)
class CorruptionError:
    """Errors under a corruption; ``severity`` is None for ``clean`` and for those of the background."""

    name: str
    severity: int | None
    top1: Proportion
    top5: Proportion | None


@dataclass(frozen=True)
class Corruptions:
    """The clean error and that of every corruption, over the same ``n`` images.

    With a corruption of the background, images ``without_box`` are not among them.
    """

    n: int
    without_box: int
    rows: tuple[CorruptionError, ...]

    def means(self) -> dict[str, float]:
        """Top-1 error in per cent by name, the mean over the severities of each corruption."""
        names = dict.fromkeys(row.name for row in self.rows)
        return {name: fmean(row.top1.percent for row in self.rows if row.name == name) for name in names}


@measure(
    "corruption",
    "error with spoilt backgrounds (data with boxes) and under common corruptions, mean over severities",
    columns=("n", "clean", *BACKGROUND, *COMMON),
)
def measure_corruption(
    subject: Subject,
    reading: Reading,
    *,
    severities: tuple[int, ...] = SEVERITIES,
    corruptions: tuple[str, ...] = (),
    seed: int = 0,
) -> Finding:
    """The errors of a subject on spoilt images; no ``corruptions`` are all of them."""
    # Photos as large as they are before their middle is taken: noise on a larger one would be averaged away.
    sizes = [step.size for step in subject.evaluation.steps if isinstance(step, Resize)]
    split = as_stored(subject.report, sizes[0] if sizes and isinstance(sizes[0], int) else None)
    found = corruption_errors(
        subject.network, split, subject.evaluation, reading, names=corruptions or None, severities=severities, seed=seed
    )
    return Finding({"n": found.n, **found.means()}, found)


def corruption_errors(
    network: nn.Module,
    split: Split,
    augment: Augment,
    reading: Reading = READING,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
) -> Corruptions:
    """Errors on clean images, then under the corruptions ``names``, by default all: those of the background if there are boxes.

    The same seed spoils an image in the same way, whatever the batch, the workers and the network.
    """
    has_boxes = isinstance(split, Files) and split.boxes is not None
    names = ((*BACKGROUND, *COMMON) if has_boxes else tuple(COMMON)) if names is None else names
    part = with_boxes(cast(Files, split)) if any(name in BACKGROUND for name in names) else split
    wanted = [(name, severity) for name in names for severity in ((None,) if name in BACKGROUND else severities)]
    for name, severity in wanted:
        check_corruption(part, name, severity)
    rows = []
    with one_bar(reading.progress, (1 + len(wanted)) * reading.batches_of(part)) as progress:
        for name, severity in (("clean", None), *wanted):
            spoilt = part if name == "clean" else corrupted_split(part, name, severity, seed)
            found = errors(predictions(network, spoilt, augment, reading._replace(progress=progress)))
            rows.append(CorruptionError(name, severity, found.top1, found.top5))
    return Corruptions(len(part), len(split) - len(part), tuple(rows))


def check_corruption(split: Split, name: str, severity: int | None) -> None:
    """Raise ValueError unless the samples of ``split`` can be spoilt so."""
    if name in BACKGROUND:
        if severity is not None:
            raise ValueError(f"severity must be None for {name}, got {severity}")
        annotated(split)
    elif name not in COMMON:
        raise ValueError(
            f"no corruption {name!r}{nearest(name, (*BACKGROUND, *COMMON))}; there are {', '.join(BACKGROUND)} and "
            f"{', '.join(COMMON)}"
        )
    elif severity not in SEVERITIES:
        raise ValueError(f"severity must be one of 1 … 5, got {severity}")


def corrupted_split(split: Split, name: str, severity: int | None = None, seed: int = 0) -> Split:
    """``split`` with every image spoilt, files as they are read. The noise depends on the seed and the row of the image."""
    check_corruption(split, name, severity)
    noise = partial(seeded, NOISE, (*BACKGROUND, *COMMON).index(name), severity or 0, seed)
    if isinstance(split, Files):
        donors = derangement(len(split), seed).tolist() if name == "background_replaced" else None
        rows = {path: row for row, path in enumerate(split.paths)}
        return replace(split, reader=partial(_read_spoilt, split, name, severity, noise, donors, rows))
    assert isinstance(split, Images)
    assert severity is not None
    return replace(
        split,
        pixels=torch.stack([corrupted(image, name, severity, noise(row)) for row, image in enumerate(split.pixels)]),
    )


def _read_spoilt(
    split: Files,
    name: str,
    severity: int | None,
    noise: Callable[[int], Generator],
    donors: Sequence[int] | None,
    rows: Mapping[str, int],
    path: str,
) -> Tensor:
    """A file of ``split``, spoilt."""
    row, image = rows[path], split.reader(path)
    if severity is not None:
        return corrupted(image, name, severity, noise(row))
    size = (image.shape[1], image.shape[2])
    foreground = covered(rescaled(annotated(split)[row], picture_size(path), size), *size)
    if donors is None:
        return with_background_noise(image, foreground, noise(row))
    return with_background(image, foreground, split.reader(split.paths[donors[row]]))


def corrupted(image: Tensor, name: str, severity: int, generator: Generator) -> Tensor:
    """``image [C, H, W]``, uint8 or float in 0 … 1, under one of the common corruptions; clipped, in the dtype it had."""
    common = COMMON[name]
    return _as_before(image, common.change(_unit(image), common.levels[severity - 1], generator))


def with_background(image: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
    """``image [C, H, W]`` where ``foreground [H, W]``, elsewhere ``background [C, h, w]``, resized to fit."""
    behind = resize(background.unsqueeze(0), (image.shape[1], image.shape[2]))[0]
    return torch.where(foreground, image, behind.to(image.dtype))


def with_background_noise(image: Tensor, foreground: Tensor, generator: Generator, sigma: float = NOISE_SIGMA) -> Tensor:
    """``image [C, H, W]`` with N(0, ``sigma``²) added (of pixels in 0 … 1, clipped) except where ``foreground [H, W]``."""
    noisy = _as_before(image, _gaussian_noise(_unit(image), sigma, generator))
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


def _unit(image: Tensor) -> Tensor:
    """Pixels in 0 … 1, float32."""
    if image.dtype == torch.uint8:
        return image.contiguous().float() / 255
    low, high = float(image.min()), float(image.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(f"pixels must lie in 0 … 1 to be spoilt, as uint8 in 0 … 255, got values from {low:g} to {high:g}")
    return image.contiguous().float()


def _as_before(image: Tensor, changed: Tensor) -> Tensor:
    return _bytes(changed) if image.dtype == torch.uint8 else changed.clamp(0, 1).to(image.dtype)


def _bytes(pixels: Tensor) -> Tensor:
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)
