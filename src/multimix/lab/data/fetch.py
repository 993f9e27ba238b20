"""Data sets from their official addresses: resumed when broken off, verified, unpacked as a whole or not at all.

An archive may be deleted once it is unpacked. Whatever was not written here is never changed or removed.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path, PureWindowsPath
from typing import IO, Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ... import __version__
from ...checks import nearest

BLOCK = 1 << 18
TRIES = 4  # in a row without a single new byte
PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that may be another one a moment later
RECORD = ".fetched.json"  # in every unpacked folder: what it was unpacked from, how many files and bytes it has

Progress = Callable[[int, int | None], None]
Note = Callable[[str], None]
Opener = Callable[[Request], Any]


@dataclass(frozen=True)
class Source:
    """One file of a data set. ``checksum`` is ``md5:…`` or ``sha256:…``, None where no official one could be established."""

    url: str
    file: str
    size: int | None
    checksum: str | None
    unpack: Literal["tar.gz", "zip", "none"]
    folder: str  # what appears in the data folder; a file that is not unpacked goes into it
    bare: bool = False  # the archive lacks that folder and has only what belongs into it; else it is all that is unpacked


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SPEECH = "https://storage.googleapis.com/download.tensorflow.org/data"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

# fmt: off
SOURCES: Mapping[str, Sequence[Source]] = {
    "cifar10": [Source(f"{_CIFAR}/cifar-10-python.tar.gz", "cifar-10-python.tar.gz", 170_498_071,
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce", "tar.gz", "cifar-10-batches-py")],
    "cifar100": [Source(f"{_CIFAR}/cifar-100-python.tar.gz", "cifar-100-python.tar.gz", 169_001_437,
        "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7", "tar.gz", "cifar-100-python")],
    "tiny_imagenet": [Source("https://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip", 248_100_043,
        "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821", "zip", "tiny-imagenet-200")],
    "cub200": [Source(  # beside its folder the archive has only attributes.txt, a list of words
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1", "CUB_200_2011.tgz", 1_150_585_339,
        "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081", "tar.gz", "CUB_200_2011")],
    "speech_commands_v1": [Source(f"{_SPEECH}/speech_commands_v0.01.tar.gz", "speech_commands_v0.01.tar.gz", 1_489_096_277,
        "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d", "tar.gz", "speech_commands_v0.01", bare=True)],
    "speech_commands_v2": [Source(f"{_SPEECH}/speech_commands_v0.02.tar.gz", "speech_commands_v0.02.tar.gz", 2_428_923_189,
        "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58", "tar.gz", "speech_commands_v0.02", bare=True)],
    "fashion_mnist": [Source(f"{_FASHION}/{file}", file, size, f"sha256:{sha}", "none", "fashion-mnist") for file, size, sha in (
        ("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"))],
}
# fmt: on

NOT_FETCHED = {
    "imagenet": "imagenet cannot be fetched, it needs a registration at https://image-net.org/download-images; unpack it so "
    "that the images lie in imagenet/train/<wnid>/*.JPEG and imagenet/val/<wnid>/*.JPEG of the data folder",
    "digits": "digits need not be fetched, they come with scikit-learn",
}


def fetched(
    name: str,
    folder: str | Path,
    *,
    sources: Mapping[str, Sequence[Source]] = SOURCES,
    progress: Progress = lambda done, total: None,
    note: Note = print,
    opener: Opener = lambda request: urlopen(request, timeout=30),
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """The folder of the data set ``name`` inside ``folder``, downloaded and unpacked unless it is there already.

    ``progress`` is told the bytes done and the bytes in all (None while unknown) of the files that were missing. Stopped at any
    moment, the same call goes on from there.
    """
    if name not in sources:
        raise ValueError(NOT_FETCHED.get(name) or f"no data set {name!r}{nearest(name, sources)}; there are {', '.join(sources)}")
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        missing = [source for source in sources[name] if not _there(source, root)]
        _check_space(name, missing, root)
        sizes = [source.size or 0 for source in missing]
        for number, source in enumerate(missing):
            report = partial(_report, progress, sum(sizes[:number]), sum(sizes[number + 1 :]))
            _download(source, _place(source, root), report, note, opener, pause)
            if source.unpack != "none":
                _unpack(source, root)
    except OSError as error:
        if error.errno is None:  # one of ours, already a sentence; the network's are all turned into one where they occur
            raise
        raise OSError(f"cannot fetch {name} into {str(root)!r}: {error.strerror}; what came so far is kept") from error
    if not missing:
        note(f"{name} is already there and verified")
    return root / sources[name][0].folder


def _report(progress: Progress, before: int, after: int, done: int, total: int | None) -> None:
    progress(before + done, None if total is None else before + total + after)


def _place(source: Source, root: Path) -> Path:
    return (root / source.folder if source.unpack == "none" else root) / source.file


def _there(source: Source, root: Path) -> bool:
    """Whether nothing is left to do for this file; an error if something else stands where it belongs."""
    folder, path = root / source.folder, _place(source, root)
    if source.unpack == "none" or not folder.exists():
        return source.unpack == "none" and path.exists() and not _wrong(path, source)
    try:
        record = json.loads((folder / RECORD).read_bytes())
        files, size, known = record["files"], record["bytes"], record["source"] == [source.file, source.checksum]
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{str(folder)!r} is already there, but not from {source.file}: move it away to fetch it anew")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != RECORD]
    if len(sizes) < files or sum(sizes) < size:
        raise ValueError(f"{str(folder)!r} has lost some of its {files:,} files, {size:,} bytes: move it away to fetch it anew")
    return True


def _wrong(path: Path, source: Source) -> str | None:
    """What is wrong with a complete file, with both values."""
    if source.size not in (None, size := path.stat().st_size):
        return f"it has {size:,} bytes instead of {source.size:,}"
    kind, _, expected = (source.checksum or "").partition(":")
    if not expected or expected == (found := _digest(path, kind)):
        return None
    return f"its {kind} is {found} instead of {expected}"


def _digest(path: Path, kind: str) -> str:
    whole = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _check_space(name: str, missing: Sequence[Source], root: Path) -> None:
    need = 0
    for source in missing:
        path, size = _place(source, root), source.size or 0
        have = sum(each.stat().st_size for each in (path, path.with_name(path.name + ".part")) if each.exists())
        # Unpacked it is at least as large as packed; how much larger only the archive could tell.
        need += max(size - have, 0) + (size if source.unpack != "none" else 0)
    if need > (free := shutil.disk_usage(root).free):
        raise OSError(f"{name} needs at least {need:,} bytes in {str(root)!r}, {free:,} are free")


def _download(source: Source, path: Path, report: Progress, note: Note, opener: Opener, pause: Callable[[float], None]) -> None:
    """Bring the file to ``path``: a broken connection is tried again from where it broke, what came wrong is deleted."""
    if path.exists():
        if wrong := _wrong(path, source):
            raise ValueError(f"{str(path)!r} is already there, but {wrong}: move it away to fetch it anew")
        return
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(exist_ok=True)
    part.touch()
    tries, furthest = 0, part.stat().st_size
    while True:
        try:
            _receive(source, part, report, opener)
            break
        except _BrokenError as broken:
            reached = part.stat().st_size
            tries, furthest = 1 if reached > furthest else tries + 1, max(reached, furthest)
            if tries == TRIES:
                raise OSError(f"cannot fetch {source.url}: {broken}; the same command goes on from byte {reached:,}") from broken
            note(f"{source.file}: {broken}; trying again from byte {reached:,}")
            pause(2.0 ** (tries - 1))
    if wrong := _wrong(part, source):
        part.unlink()
        raise ValueError(f"{source.url} was fetched, but {wrong}: it is deleted, try again later")
    if source.checksum is None:
        note(f"{source.file}: sha256 {_digest(part, 'sha256')} could not be verified, no official checksum is known")
    os.replace(part, path)


class _BrokenError(Exception): ...  # the connection failed in a way that another try may overcome


def _receive(source: Source, part: Path, report: Progress, opener: Opener) -> None:
    """Complete ``part`` by one request for what it lacks."""
    have = part.stat().st_size
    if source.size is not None and have >= source.size:
        return
    headers = {"User-Agent": f"multimix/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = opener(Request(source.url, headers=headers))
    except HTTPError as error:
        error.close()
        answer = f"the server answers {error.code} {error.reason}"
        if error.code == 416:  # nothing lies behind what is here, so this is no part of that file
            part.write_bytes(b"")
        elif error.code not in PASSING:
            raise OSError(f"cannot fetch {source.url}: {answer}") from error
        raise _BrokenError(answer) from error
    except (OSError, HTTPException) as error:
        raise _BrokenError(f"the server cannot be reached ({getattr(error, 'reason', error)})") from error
    with response:
        start = have if response.status == 206 else 0  # a server that knows no ranges sends everything again
        total = source.size if response.length is None else start + response.length
        if start and response.headers.get("Content-Range") != f"bytes {start}-{(total or 0) - 1}/{total}":
            part.write_bytes(b"")
            raise _BrokenError("the server sends another part than it was asked for")
        if source.size not in (None, total):
            raise ValueError(f"cannot fetch {source.url}: the server offers {total:,} bytes instead of {source.size:,}")
        _copy(response, part, start, total, report)


def _copy(response: Any, part: Path, start: int, total: int | None, report: Progress) -> None:
    """Put what comes behind the first ``start`` bytes of ``part``."""
    with part.open("ab" if start else "wb", buffering=0) as file:  # so every byte that came is kept whatever happens next
        report(start, total)
        while total is None or start < total:
            try:
                block = memoryview(response.read1(BLOCK))
            except (OSError, HTTPException) as error:
                raise _BrokenError(f"the connection broke off ({error})") from error
            if not block:
                break
            start += len(block)
            while block:
                block = block[file.write(block) :]
            report(start, total)
        os.fsync(file.fileno())
    if total is not None and start < total:
        raise _BrokenError("the connection broke off")


def _unpack(source: Source, root: Path) -> None:
    """Unpack into a folder aside, then give it its name: it is there as a whole or not at all."""
    archive, aside = _place(source, root), root / f".{source.folder}.unpacking"
    shutil.rmtree(aside, ignore_errors=True)  # a run that was killed may have left one
    files = size = 0
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
            if content:
                with place.open("wb") as file:
                    shutil.copyfileobj(content, file, BLOCK)
                files, size = files + 1, size + place.stat().st_size
        if not files:
            raise ValueError(f"it has no files for {source.folder!r}")
        (aside / RECORD).write_text(json.dumps({"source": [source.file, source.checksum], "files": files, "bytes": size}))
        os.rename(aside, root / source.folder)
    except (OSError, ValueError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(f"{str(archive)!r} cannot be unpacked: {error}; nothing of it is left, the archive is kept") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


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
            while tar.fileobj and tar.fileobj.read(BLOCK):  # to its very end, where a cut becomes apparent
                pass
