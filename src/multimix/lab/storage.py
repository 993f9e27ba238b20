"""Finished pieces of work on disk: one small file each, written at once, verified when read.

A study is cut into units (one seed of one method, say). Each finished unit is a JSON file in a folder that belongs to the study's
settings, so a study that was stopped goes on with what is missing, and one with other settings starts afresh.
"""

import errno
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch

from .. import __version__
from .terminal import ORDERS, note


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
            content = parse_json(path.read_bytes())
            result: dict[str, Any] = content["result"]
            sound = content["unit"] == unit and content["sha256"] == digest(result)
        except (ValueError, KeyError, TypeError):
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
        raise OSError(f"out must be a folder that can be written, {str(folder)!r} cannot: {error.strerror}") from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """One sentence with the file, if the system refuses to write it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a sentence already
            raise
        raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error


def reject_link(path: str | Path) -> None:
    """Raise an OSError if ``path`` is a symbolic link."""
    if Path(path).is_symlink():
        raise OSError(f"cannot write {str(path)!r}: it is a symbolic link; delete the link, or put the file in its place")


def no_follow(path: str | Path, flags: int) -> int:
    """Open a file to write, unless it is a symbolic link, through which the content would leave the folder.

    Args:
        path: The file, which is created if it is missing and ``flags`` say so.
        flags: As those of ``os.open``; the function is the ``opener`` of ``open``.

    Returns:
        The file descriptor.

    Raises:
        OSError: ``path`` is a symbolic link, or the system refuses to open it.
    """
    reject_link(path)
    # The flag, where the platform has it, closes the gap between the check and the opening.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def write_atomically(path: Path, content: bytes) -> None:
    """The file all at once: whoever looks sees the old one or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with named(path):
        try:
            with open(temporary, "wb", opener=no_follow) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def parse_json(content: bytes | str) -> Any:
    """The value, or a ValueError; json itself raises a RecursionError for lists deep inside lists."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its values are too deep inside each other") from None


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files by their names into a folder, which is made; a page that was there and differs is kept, and that is said."""
    make_folder(folder)
    for name, content in files.items():
        if name.endswith(".html"):
            keep_page(folder / name, content)
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def keep_page(path: Path, content: bytes) -> None:
    """Before a page is written anew: if it changes, the one that is there gets another name."""
    if path.exists() and path.read_bytes() != content:
        aside = path.with_name(f"{path.stem}-before{path.suffix}")
        os.replace(path, aside)
        note(f"{path.name} was there, with other content: it is kept as {aside}")


def _readable(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


CHECK = "sha256"
ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u00[01]|[bfr])")  # characters that a terminal obeys, as JSON writes them


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add ``row`` with the environment, the time and a checksum, in one write at the end of the file."""
    make_folder(path.parent)
    whole = {**row, "environment": environment(), "time": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    whole = json.loads(json.dumps(whole, allow_nan=False))
    line = (json.dumps({**whole, CHECK: digest(whole)}, ensure_ascii=False) + "\n").encode()
    with named(path):
        # One write to a file opened for appending: lines of other processes come before or after it, never inside.
        handle = no_follow(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if _ends_inside_a_line(handle):
                line = b"\n" + line  # what a crash left half stays a line of its own
            if os.write(handle, line) < len(line):
                # What is there stays a line of its own, which the checksum shows to be damaged.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        finally:
            os.close(handle)


def read_rows(path: Path, note: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """All sound rows in the order they were added; ``note`` is told about lines that are damaged."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        row = _row(line)
        if row is None:
            note(f"line {number} of {path} is damaged and left out")
        else:
            rows.append(row)
    return rows


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
        check = row.pop(CHECK)
        words = json.dumps(row, ensure_ascii=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if ORDERS.search(words) or ESCAPED.search(words):  # no name of ours has any, and they could reach a terminal or a figure
        return None
    return row if check == digest(row) else None


def _ends_inside_a_line(handle: int) -> bool:
    size = os.lseek(handle, 0, os.SEEK_END)
    if size == 0:
        return False
    os.lseek(handle, size - 1, os.SEEK_SET)
    return os.read(handle, 1) != b"\n"


def checkpoint_sum(path: Path) -> str | None:
    """Return the checksum in the head of a checkpoint, or None without such a file."""
    try:
        with path.open("rb") as file:
            head: str = parse_json(file.readline(1000))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return head
