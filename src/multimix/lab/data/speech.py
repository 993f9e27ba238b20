"""Google Speech Commands: one second of one word as a spectrogram ``[1, 161, 101]`` that networks take for an image.

S = STFT of the samples in −1 … 1, Hamming window of 20 ms, a step of 10 ms, ends reflected; log(1 + |S|); 101 frames, zeros after
the end of short clips; then mean 0 and deviation 1 over the clip.
"""

import os
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy
import torch
from torch import Tensor

from .datasets import DataSet, Files, Images, Source, Splits, register
from .imagenet import class_folders
from .reading import BadFile, Format, find_folder, read_all, read_array, text_lines

RATE, WINDOW, HOP, FRAMES = 16000, 320, 160, 101
BINS = WINDOW // 2 + 1
LONGEST = (FRAMES - 1) * HOP
FORMAT = Format("speech-161x101-1", (1, BINS, FRAMES), torch.float32)
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
FOLDERS = {1: ("speech_commands_v0.01", "speech_commands_v1"), 2: ("speech_commands_v0.02", "speech_commands_v2")}
CLIPS = 128  # at a time: 16 MB of spectrograms


def read_speech_commands(
    version: int, folder: str | Path, *, cache: str | Path | None = None, skip_bad: bool = False, workers: int = 0
) -> Splits[Images]:
    """Spectrograms of all clips, divided by the official lists; they take 65 kB each.

    With ``cache`` they are computed once into files of that folder (the data folder will do), and mapped. ``workers`` processes
    read the files.
    """

    def load(paths: Sequence[str]) -> Iterator[Tensor | BadFile]:
        clips = read_all(read_samples, paths, workers)
        for start in range(0, len(paths), CLIPS):
            some = [next(clips) for _ in paths[start : start + CLIPS]]
            made = iter(spectrograms([clip for clip in some if not isinstance(clip, BadFile)]))
            yield from (clip if isinstance(clip, BadFile) else next(made) for clip in some)

    files = speech_files(version, folder)
    where = None if cache is None else Path(cache)
    parts = {
        part: read_array(split, load, FORMAT, cache=where, skip_bad=skip_bad) for part, split in files.parts.items() if len(split)
    }
    return Splits(files.name, parts)


def speech_files(version: int, folder: str | Path) -> Splits[Files]:
    """The same clips as files. What the two lists do not name is for training; ``_background_noise_`` is left out."""
    base = find_folder(folder, FOLDERS[version], tuple(LISTS.values()))
    part_of = {line.strip(): part for part, name in LISTS.items() for line in text_lines(base / name)}
    classes = tuple(name for name in class_folders(base) if not name.startswith("_"))
    paths: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    labels: dict[str, list[int]] = {part: [] for part in paths}
    for label, word in enumerate(classes):
        for path in sorted((base / word).glob("*.wav")):
            part = part_of.get(f"{word}/{path.name}", "train")
            paths[part].append(str(path))
            labels[part].append(label)
    if not any(paths.values()):
        raise BadFile(f"{base} must hold .wav files in one folder per word, it has none")
    parts = {
        part: Files(tuple(found), torch.tensor(labels[part], dtype=torch.int64), classes, read_spectrogram)
        for part, found in paths.items()
    }
    return Splits(f"speech_commands_v{version}", parts)


def read_spectrogram(path: str) -> Tensor:
    """The spectrogram of one clip, float32 ``[1, 161, 101]``."""
    return spectrograms([read_samples(path)])[0]


def read_samples(path: str) -> numpy.ndarray:
    """The samples of a clip, int16 ``[n]``."""
    with _opened(path) as clip:
        count, raw = clip.getnframes(), clip.readframes(clip.getnframes())
    if len(raw) != 2 * count:
        raise BadFile(f"{path} must hold the {count:,} samples its header promises, it holds {len(raw) // 2:,}")
    return numpy.frombuffer(raw, dtype="<i2")


def clip_length(path: str) -> int:
    """Number of samples, from the header alone."""
    with _opened(path) as clip:
        count = clip.getnframes()
    if os.path.getsize(path) < 2 * count:
        raise BadFile(f"{path} must hold the {count:,} samples its header promises, it has {os.path.getsize(path):,} bytes")
    return count


@contextmanager
def _opened(path: str) -> Iterator[wave.Wave_read]:
    """The clip if it is what the set consists of: 16-bit mono at 16 kHz, not empty."""
    try:
        with wave.open(path, "rb") as clip:
            channels, width, rate = clip.getnchannels(), clip.getsampwidth(), clip.getframerate()
            if (channels, width, rate) != (1, 2, RATE):
                raise BadFile(
                    f"{path} must be 16-bit mono at {RATE} Hz, it is {8 * width}-bit with {channels} channels at {rate} Hz"
                )
            if clip.getnframes() == 0:
                raise BadFile(f"{path} must hold samples, it has none")
            yield clip
    except FileNotFoundError:
        raise BadFile(f"{path} is missing") from None
    except BadFile:
        raise
    except (wave.Error, EOFError, OSError, RuntimeError, ValueError) as error:  # a damaged size makes wave seek outside its chunk
        raise BadFile(f"{path} is no WAV file that can be read ({str(error) or 'it ends too early'})") from None


def spectrograms(clips: Sequence[numpy.ndarray]) -> Tensor:
    """float32 ``[N, 1, 161, 101]`` of N clips of any length, all at once; each comes out as it would alone."""
    if not clips:
        return torch.empty(0, *FORMAT.shape)
    margin = WINDOW // 2
    padded = numpy.zeros((len(clips), LONGEST + WINDOW), dtype=numpy.float32)
    for row, clip in zip(padded, clips, strict=True):
        # A longer clip is not reflected where it is cut off: its last frame holds what really follows.
        whole = numpy.pad(clip[: LONGEST + WINDOW], margin, mode="reflect")[: row.size]
        row[: whole.size] = whole
    padded /= 32768
    window = torch.hamming_window(WINDOW)
    waves = torch.stft(torch.from_numpy(padded), WINDOW, HOP, window=window, center=False, return_complex=True)
    # A frame belongs to a clip if its centre does; what a later one still holds of the end is zero padding by definition.
    last = torch.tensor([len(clip) // HOP for clip in clips])
    loud = waves.abs().log1p().masked_fill_(torch.arange(FRAMES) > last[:, None, None], 0.0)
    deviation, mean = torch.std_mean(loud, dim=(1, 2), correction=0, keepdim=True)
    # Silence is 0 everywhere and stays so.
    return ((loud - mean) / torch.where(deviation > 0, deviation, 1.0)).unsqueeze(1)


# fmt: off
for _version, _classes, _counts, _size, _sha256 in (
    (1, 30, (51_088, 6_798, 6_835), 1_489_096_277, "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"),
    (2, 35, (84_843, 9_981, 11_005), 2_428_923_189, "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"),
):
    _file = f"speech_commands_v0.0{_version}.tar.gz"
    register(DataSet(
        f"speech_commands_v{_version}", partial(read_speech_commands, _version), _classes,
        (0.0,), (1.0,), FORMAT.shape,  # spectrograms are normalised one by one when they are made
        dict(zip(("train", "validation", "test"), _counts, strict=True)), FOLDERS[_version], partial(speech_files, _version),
        sources=[Source(f"https://storage.googleapis.com/download.tensorflow.org/data/{_file}", _file, _size, _sha256, "tar.gz",
                        FOLDERS[_version][0], bare=True)],
    ))
