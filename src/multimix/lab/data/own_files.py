"""Any picture as a square, any WAV file as a spectrogram: whatever people have in their own folders."""

import warnings

import numpy
import torch
from PIL import Image, ImageOps
from scipy.io import wavfile
from scipy.signal import resample_poly
from torch import Tensor

from .reading import BadFile, open_picture
from .speech import LONGEST, RATE, spectrograms

PICTURES = (".jpeg", ".jpg", ".jpe", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SOUNDS = (".wav", ".wave")


def read_square(path: str, side: int) -> Tensor:
    """RGB as uint8 ``[3, side, side]``: turned as its EXIF says, the middle square of the picture, resized (bicubic).

    Of an animation it is the first frame. What is transparent becomes white; 16 bits become 8.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of strange EXIF, say
        with open_picture(path) as picture:
            picture.draft("RGB", (2 * side, 2 * side))  # large JPEGs at a half or a quarter
            return torch.from_numpy(numpy.array(as_square(picture, side))).permute(2, 0, 1).contiguous()


def as_square(picture: Image.Image, side: int) -> Image.Image:
    """The middle square of a picture of any kind, upright, RGB, ``side`` pixels wide."""
    upright = in_colour(ImageOps.exif_transpose(picture))
    return ImageOps.fit(upright, (side, side), Image.Resampling.BICUBIC)


def in_colour(picture: Image.Image) -> Image.Image:
    """RGB of any mode: white behind what is transparent, the full range of 16 bits or of floating point as 0 … 255."""
    if picture.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        values = numpy.nan_to_num(numpy.asarray(picture, dtype=numpy.float64))
        top = 255.0 if values.max(initial=0) <= 255 else max(65535.0, float(values.max()))
        top = 1.0 if picture.mode == "F" and values.max(initial=0) <= 1 else top
        picture = Image.fromarray((values.clip(0, top) * (255 / top)).round().astype(numpy.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")


def read_sound(path: str) -> Tensor:
    """The spectrogram of one second, float32 ``[1, 161, 101]``, as of Speech Commands: of a longer clip its middle.

    All channels are averaged, and another rate than 16 kHz is resampled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of chunks that hold no sound
            rate, samples = wavfile.read(path)
        if samples.size == 0 or rate <= 0:
            raise ValueError("it holds no samples")
        return spectrograms([_one_second(samples, rate)])[0]
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except MemoryError:
        raise
    except Exception as error:  # on damaged files SciPy raises almost anything
        raise BadFile(
            f"{path} is no WAV file that can be read ({str(error) or 'it ends too early'})".replace("\n", " ")
        ) from None


def _one_second(samples: numpy.ndarray, rate: int) -> numpy.ndarray:
    """int16 ``[n]`` at 16 kHz of ``samples [n]`` or ``[n, channels]`` of any type and rate."""
    sound = samples.astype(numpy.float64)
    if samples.dtype == numpy.uint8:
        sound = (sound - 128) / 128
    elif samples.dtype.kind == "i":
        sound /= float(2 ** (8 * samples.dtype.itemsize - 1))
    sound = numpy.nan_to_num(sound.reshape(len(sound), -1).mean(axis=1))
    longest = LONGEST * rate // RATE + 1
    start = max(0, (len(sound) - longest) // 2)
    sound = sound[start : start + longest]
    if rate != RATE:
        shared = numpy.gcd(rate, RATE)
        sound = resample_poly(sound, RATE // shared, rate // shared)
    return numpy.asarray((sound.clip(-1, 1) * 32767).round(), dtype=numpy.int16)
