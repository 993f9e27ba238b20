"""What a network's errors become under the common corruptions, which spoil images all over.

Pixels are changed as they were read, before normalisation. Noise on a large photo is averaged away when that is made smaller, so
photos are first brought to the size that the middle is cut from.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy
import torch
from PIL import Image
from scipy import ndimage
from torch import Generator, Tensor, nn

from ...core.checks import nearest
from ...core.sampling import seeded
from ..data import Augment, Files, Images, Resize, Split
from ..training.loop import as_stored
from .base import Finding, measure
from .error import Proportion, errors
from .predictions import READING, Reading, one_bar, predictions
from .subject import Subject

SEVERITIES = (1, 2, 3, 4, 5)
BOX = Image.Resampling.BOX
# A key of its own, so that noise is not that of any other draw with the same seed; the corruptions are numbered after the noise
# behind objects.
NOISE, BACKGROUND_NOISE = 0xC022, 1


class Common(NamedTuple):
    """A corruption by severity: ``change(pixels [C, H, W] in 0 … 1, level, generator)`` with one level per severity 1 … 5."""

    levels: tuple[float, float, float, float, float]
    change: Callable[[Tensor, float, Generator], Tensor]


def add_noise(x: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``x`` with N(0, ``sigma``²) added to every value."""
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
    "gaussian_noise": Common((0.08, 0.12, 0.18, 0.26, 0.38), add_noise),
    "shot_noise": Common((60, 25, 12, 5, 3), _shot_noise),
    "blur": Common((1, 2, 3, 4, 6), _blur),
    "contrast": Common((0.4, 0.3, 0.2, 0.1, 0.05), _contrast),
    "brightness": Common((0.1, 0.2, 0.3, 0.4, 0.5), _brightness),
    "jpeg": Common((25, 18, 15, 10, 7), _jpeg),
    "pixelate": Common((0.6, 0.5, 0.4, 0.3, 0.25), _pixelate),
}


@dataclass(frozen=True)
class CorruptionError:
    """Errors under a corruption; ``severity`` is None for ``clean``."""

    name: str
    severity: int | None
    top1: Proportion
    top5: Proportion | None


@dataclass(frozen=True)
class Corruptions:
    """The clean error and that of every corruption, over the same ``n`` images."""

    n: int
    rows: tuple[CorruptionError, ...]

    def means(self) -> dict[str, float]:
        """Top-1 error in per cent by name, the mean over the severities of each corruption."""
        names = dict.fromkeys(row.name for row in self.rows)
        return {name: fmean(row.top1.percent for row in self.rows if row.name == name) for name in names}


@measure("corruption")
def measure_corruption(
    subject: Subject,
    reading: Reading,
    *,
    severities: tuple[int, ...] = SEVERITIES,
    corruptions: tuple[str, ...] = (),
    seed: int = 0,
) -> Finding:
    """The errors of a subject on spoilt images; no ``corruptions`` are all of them."""
    found = corruption_errors(
        subject.network,
        read_as_seen(subject),
        subject.evaluation,
        reading,
        names=corruptions or None,
        severities=severities,
        seed=seed,
    )
    return Finding({"n": found.n, **found.means()}, found)


def read_as_seen(subject: Subject) -> Split:
    """The samples to measure errors on; photos as large as they are before their middle is taken."""
    subject.check_classes()
    sizes = [step.size for step in subject.evaluation.steps if isinstance(step, Resize)]
    return as_stored(subject.report, sizes[0] if sizes and isinstance(sizes[0], int) else None)


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
    """Errors on clean images, then under the corruptions ``names``, by default all.

    The same seed spoils an image in the same way, whatever the batch, the workers and the network.
    """
    wanted = [(name, severity) for name in (COMMON if names is None else names) for severity in severities]
    for one in wanted:
        _check_corruption(*one)
    rows = []
    with one_bar(reading.progress, (1 + len(wanted)) * reading.batches_of(split)) as progress:
        for name, severity in (("clean", None), *wanted):
            spoilt = split if severity is None else corrupted_split(split, name, severity, seed)
            found = errors(predictions(network, spoilt, augment, reading._replace(progress=progress)))
            rows.append(CorruptionError(name, severity, found.top1, found.top5))
    return Corruptions(len(split), tuple(rows))


def corrupted_split(split: Split, name: str, severity: int, seed: int = 0) -> Split:
    """``split`` with every image spoilt, files as they are read. The noise depends on the seed and the row of the image."""
    _check_corruption(name, severity)
    noise = partial(seeded, NOISE, BACKGROUND_NOISE + 1 + list(COMMON).index(name), severity, seed)
    if isinstance(split, Files):
        rows = {path: row for row, path in enumerate(split.paths)}
        return replace(split, reader=partial(_read_spoilt, split, name, severity, noise, rows))
    assert isinstance(split, Images)
    return replace(
        split,
        pixels=torch.stack([corrupted(image, name, severity, noise(row)) for row, image in enumerate(split.pixels)]),
    )


def _check_corruption(name: str, severity: int) -> None:
    if name not in COMMON:
        raise ValueError(f"no corruption {name!r}{nearest(name, COMMON)}; there are {', '.join(COMMON)}")
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be one of 1 … 5, got {severity}")


def _read_spoilt(
    split: Files, name: str, severity: int, noise: Callable[[int], Generator], rows: Mapping[str, int], path: str
) -> Tensor:
    return corrupted(split.reader(path), name, severity, noise(rows[path]))


def corrupted(image: Tensor, name: str, severity: int, generator: Generator) -> Tensor:
    """``image [C, H, W]``, uint8 or float in 0 … 1, under one of the common corruptions; clipped, in the dtype it had."""
    common = COMMON[name]
    return as_before(image, common.change(in_unit_range(image), common.levels[severity - 1], generator))


def in_unit_range(image: Tensor) -> Tensor:
    """Pixels in 0 … 1, float32."""
    if image.dtype == torch.uint8:
        return image.contiguous().float() / 255
    low, high = float(image.min()), float(image.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(f"pixels must lie in 0 … 1 to be spoilt, as uint8 in 0 … 255, got values from {low:g} to {high:g}")
    return image.contiguous().float()


def as_before(image: Tensor, changed: Tensor) -> Tensor:
    """``changed``, pixels in 0 … 1, clipped and in the dtype of ``image``."""
    return _bytes(changed) if image.dtype == torch.uint8 else changed.clamp(0, 1).to(image.dtype)


def _bytes(pixels: Tensor) -> Tensor:
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)
