"""Data sets from their official addresses: downloads resume and are verified, archives are unpacked as a whole or not at all.

Not pooch: it starts an interrupted download again from its first byte, and these files have up to 2.4 GB.

An archive may be deleted once it is unpacked. Nothing that was not written here is ever changed or removed.
"""

import hashlib
import json
import os
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path, PureWindowsPath
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ... import __version__
from ..locks import held, holder
from ..storage import no_follow, parse_json
from .datasets import Source, dataset

BLOCK = 1 << 18
TRIES = 4  # in a row without a single new byte
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # answers that may be another one a moment later
MOST_TIMES, SMALL = 50, 1 << 20  # how much larger than itself an archive may become, and what even a small one may
TOO_LARGE = f"it holds more than {MOST_TIMES} times its own size"
ENTRY = 512  # bytes that every entry counts for, so that their number has a limit, too
RECORD = ".fetched.json"  # in every unpacked folder: what it was unpacked from, how many files and bytes it has

Note = Callable[[str], None]
Opener = Callable[[Request], Any]


def fetch(
    name: str,
    folder: str | Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    note: Note = print,
    opener: Opener = lambda request: urlopen(request, timeout=30),
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """The folder of the data set ``name`` inside ``folder``, downloaded and unpacked unless it is there already.

    ``progress`` gets the bytes done and the bytes in all of the files that were missing. Interrupted at any moment, the same
    call resumes from there. If another process is fetching it, this one waits.
    """
    entry = dataset(name)
    if not entry.sources:
        raise ValueError(entry.not_fetched)
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(name, root, note):
            missing = [source for source in entry.sources if not _is_complete(source, root)]
            _check_space(name, missing, root)
            total = sum(source.size for source in missing)
            for number, source in enumerate(missing):
                before = sum(earlier.size for earlier in missing[:number])
                report = lambda done, before=before: progress(before + done, total)  # noqa: E731
                _download(source, root / source.file, report, note, opener, pause)
                _unpack(source, root)
    except OSError as error:
        if error.errno is None:  # one of ours, already a sentence; the network's are all turned into one where they occur
            raise
        raise OSError(f"cannot fetch {name} into {str(root)!r}: {error.strerror}; the part received so far is kept") from error
    if not missing:
        note(f"{name} is already there and verified")
    return root / entry.sources[0].folder


@contextmanager
def _alone(name: str, root: Path, note: Note) -> Iterator[None]:
    """No two processes write the same files: the second waits until the first is done, and finds them there."""
    path = root / f".{name}.fetching"
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, passing=True))
        except BlockingIOError:
            note(f"another process{holder(path)} is fetching {name}: waiting for it")
            stack.enter_context(held(path, wait=-1, passing=True))
        yield


def _is_complete(source: Source, root: Path) -> bool:
    """Return whether this archive is unpacked already; raise a ValueError if its folder has other content."""
    folder = root / source.folder
    if not folder.exists():
        return False
    try:
        record = parse_json((folder / RECORD).read_bytes())
        files, size, known = record["files"], record["bytes"], record["source"] == [source.file, f"sha256:{source.sha256}"]
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{str(folder)!r} is already there, but not from {source.file}: move it away to fetch it anew")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != RECORD]
    if len(sizes) < files or sum(sizes) < size:
        raise ValueError(f"{str(folder)!r} has lost some of its {files:,} files, {size:,} bytes: move it away to fetch it anew")
    return True


def _mismatch(path: Path, source: Source) -> str | None:
    """What is wrong with a complete file, with both values."""
    if (size := path.stat().st_size) != source.size:
        return f"it has {size:,} bytes instead of {source.size:,}"
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return None if digest.hexdigest() == source.sha256 else f"its sha256 is {digest.hexdigest()} instead of {source.sha256}"


def _check_space(name: str, missing: Sequence[Source], root: Path) -> None:
    need = 0
    for source in missing:
        path = root / source.file
        have = sum(each.stat().st_size for each in (path, _part(path)) if each.exists())
        # Unpacked it is at least as large as packed; how much larger only the archive could tell.
        need += max(source.size - have, 0) + source.size
    if need > (free := shutil.disk_usage(root).free):
        raise OSError(f"{name} needs at least {need:,} bytes in {str(root)!r}, {free:,} are free")


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


class _BrokenError(Exception): ...  # the connection failed in a way that another try may overcome


def _download(
    source: Source, path: Path, report: Callable[[int], None], note: Note, opener: Opener, pause: Callable[[float], None]
) -> None:
    """Bring the file to ``path``: a broken connection is tried again from where it broke, wrong content is deleted."""
    if path.exists():
        if mismatch := _mismatch(path, source):
            raise ValueError(f"{str(path)!r} is already there, but {mismatch}: move it away to fetch it anew")
        return
    part = _part(path)
    open(part, "ab", opener=no_follow).close()
    tries, furthest = 0, part.stat().st_size
    while part.stat().st_size < source.size:
        try:
            _receive(source, part, report, opener)
        except _BrokenError as broken:  # noqa: PERF203  that is what the loop is for
            reached = part.stat().st_size
            tries, furthest = 1 if reached > furthest else tries + 1, max(reached, furthest)
            if tries == TRIES:
                raise OSError(f"cannot fetch {source.url}: {broken}; the same command resumes from byte {reached:,}") from broken
            note(f"{source.file}: {broken}; trying again from byte {reached:,}")
            pause(2.0 ** (tries - 1))
    if mismatch := _mismatch(part, source):
        part.unlink()
        raise ValueError(f"{source.url} was fetched, but {mismatch}: it is deleted, try again later")
    os.replace(part, path)


def _receive(source: Source, part: Path, report: Callable[[int], None], opener: Opener) -> None:
    """Complete ``part`` by one request for what it lacks."""
    have = part.stat().st_size
    headers = {"User-Agent": f"multimix/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = opener(Request(source.url, headers=headers))
    except HTTPError as error:
        error.close()
        answer = f"the server answers {error.code} {error.reason}"
        if error.code == 416:  # the server's file ends before ours does, so ours is no part of it
            open(part, "wb", opener=no_follow).close()
        elif error.code not in TEMPORARY:
            raise OSError(f"cannot fetch {source.url}: {answer}") from error
        raise _BrokenError(answer) from error
    except (OSError, HTTPException) as error:
        raise _BrokenError(f"the server cannot be reached ({getattr(error, 'reason', error)})") from error
    with response:
        start = have if response.status == 206 else 0  # a server that knows no ranges sends everything again
        if start and response.headers.get("Content-Range") != f"bytes {start}-{source.size - 1}/{source.size}":
            open(part, "wb", opener=no_follow).close()
            raise _BrokenError("the server sends another part than requested")
        if response.length not in (None, source.size - start):
            raise ValueError(
                f"cannot fetch {source.url}: the server offers {start + response.length:,} bytes instead of {source.size:,}"
            )
        with open(
            part, "ab" if start else "wb", buffering=0, opener=no_follow
        ) as file:  # unbuffered: every byte received is kept
            _copy(response, file, start, source.size, report)


def _copy(response: Any, file: IO[bytes], start: int, size: int, report: Callable[[int], None]) -> None:
    """Append what comes until ``size`` bytes are reached."""
    report(start)
    while start < size:
        try:
            block = memoryview(response.read1(BLOCK))
        except (OSError, HTTPException) as error:
            raise _BrokenError(f"the connection broke off ({error})") from error
        if not block:
            raise _BrokenError("the connection broke off")
        start += len(block)
        while block:
            block = block[file.write(block) :]
        report(start)
    os.fsync(file.fileno())


def _unpack(source: Source, root: Path) -> None:
    """Unpack into a temporary folder, then rename it: it is there as a whole or not at all."""
    archive, aside = root / source.file, root / f".{source.folder}.unpacking"
    shutil.rmtree(aside, ignore_errors=True)  # a run that was killed may have left one
    files, size, room = 0, 0, MOST_TIMES * source.size + SMALL
    try:
        aside.mkdir()
        for name, plain, content in _entries(archive, source.unpack):
            inner = PureWindowsPath(name)  # knows the separators and roots of every system
            if not plain or inner.anchor or ".." in inner.parts:
                raise ValueError(f"{name!r} in it {'leads out of its folder' if plain else 'is neither a file nor a folder'}")
            if not source.bare and inner.parts[:1] != (source.folder,):
                continue
            place = aside.joinpath(*inner.parts[0 if source.bare else 1 :])
            (place.parent if content else place).mkdir(parents=True, exist_ok=True)
            room -= ENTRY
            if content:
                with place.open("wb") as file:
                    _copy_at_most(content, file, room)
                files, size, room = files + 1, size + place.stat().st_size, room - place.stat().st_size
            elif room < 0:
                raise ValueError(TOO_LARGE)
        if not files:
            raise ValueError(f"it has no files for {source.folder!r}")
        record = {"source": [source.file, f"sha256:{source.sha256}"], "files": files, "bytes": size}
        (aside / RECORD).write_text(json.dumps(record))
        os.rename(aside, root / source.folder)
    except (OSError, ValueError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(f"{str(archive)!r} cannot be unpacked: {error}; nothing of it is left, the archive is kept") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy_at_most(content: IO[bytes], file: IO[bytes], most: int) -> None:
    """Copy an entry of an archive, unless it would fill the disk: a few bytes of an archive can become any number."""
    while most >= 0:
        block = content.read(BLOCK)
        if not block:
            return
        most -= len(block)
        file.write(block)
    raise ValueError(TOO_LARGE)


def _entries(archive: Path, kind: str) -> Iterator[tuple[str, bool, IO[bytes] | None]]:
    """Of everything in an archive the name, whether it is a file or a folder (not a link, say), and the content of a file."""
    if kind == "zip":
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
                with packed.open(info) as content:
                    yield info.filename, plain, None if info.is_dir() else content
    else:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                plain = member.isreg() or member.isdir()
                yield member.name, plain, tar.extractfile(member) if plain else None
            while tar.fileobj and tar.fileobj.read(BLOCK):  # a truncated archive shows only at its very end
                pass
