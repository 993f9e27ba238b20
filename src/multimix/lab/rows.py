"""Results as append-only rows: one JSON line each, with its own checksum, safe against several writers and a crash."""

import errno
import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .results import digest, environment, make_folder

CHECK = "sha256"


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add ``row`` with the environment, the time and a checksum, in one write at the end of the file."""
    make_folder(path.parent)
    whole = {**row, "environment": environment(), "time": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    whole = json.loads(json.dumps(whole, allow_nan=False))
    line = (json.dumps({**whole, CHECK: digest(whole)}, ensure_ascii=False) + "\n").encode()
    try:
        # One write to a file opened for appending: lines of other processes come before or after it, never inside.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if _ends_inside_a_line(handle):
                line = b"\n" + line  # what a crash left half stays a line of its own
            if os.write(handle, line) < len(line):
                # What is there stays a line of its own, which the checksum shows to be damaged.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from error


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
        row = json.loads(line)
        check = row.pop(CHECK)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row if check == digest(row) else None


def _ends_inside_a_line(handle: int) -> bool:
    size = os.lseek(handle, 0, os.SEEK_END)
    if size == 0:
        return False
    os.lseek(handle, size - 1, os.SEEK_SET)
    return os.read(handle, 1) != b"\n"
