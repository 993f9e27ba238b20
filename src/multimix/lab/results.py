"""Finished pieces of work on disk: one small file each, written at once, verified when read.

A study is cut into units (one seed of one method, say). Each finished unit is a JSON file in a folder that belongs to the study's
settings, so a study that was stopped goes on with what is missing, and one with other settings starts afresh.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch

from .. import __version__


class Store:
    """The finished units of one study with one choice of settings (a frozen dataclass or a dictionary)."""

    def __init__(self, out: str | Path, study: str, settings: Any, note: Callable[[str], None] = print) -> None:
        if is_dataclass(settings) and not isinstance(settings, type):
            settings = asdict(settings)
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.folder = Path(out) / f"{study}-{digest(self.settings)[:10]}"
        self._note = note
        make_folder(self.folder)
        write_atomically(self.folder / "settings.json", _readable(self.settings))

    def get(self, unit: str) -> dict[str, Any] | None:
        """The unit's result, or None if it is not finished. A damaged file is named, set aside and counts as not finished."""
        path = self._path(unit)
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            result: dict[str, Any] = content["result"]
            sound = content["unit"] == unit and content["sha256"] == digest(result)
        except (ValueError, KeyError, TypeError, UnicodeDecodeError):
            sound = False
        if sound:
            return result
        aside = path.with_name(path.name + ".corrupt")
        os.replace(path, aside)
        self._note(f"{path} is damaged: set aside as {aside.name}, the work is done again")
        return None

    def put(self, unit: str, result: dict[str, Any]) -> None:
        """Keep a finished unit."""
        # Through JSON and back, so that the checksum is taken of exactly what will be read.
        result = json.loads(json.dumps(result, allow_nan=False))
        content = {"unit": unit, "environment": environment(), "sha256": digest(result), "result": result}
        write_atomically(self._path(unit), _readable(content))

    def _path(self, unit: str) -> Path:
        return self.folder / f"{unit}.json"


def digest(content: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def environment() -> dict[str, str]:
    """What a result was obtained with."""
    return {
        "multimix": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


def processor() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def _commit() -> str:
    """The commit the code is at, marked if the working tree differs from it; "unknown" outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+changes"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or raise one sentence."""
    for above in (folder, *folder.parents):
        if above.exists() and not above.is_dir():
            raise ValueError(f"out must be a folder, {str(above)!r} is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot write into {str(folder)!r}: {error.strerror}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """The file all at once: whoever looks sees the old one or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _readable(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
