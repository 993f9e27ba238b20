import contextlib
import errno
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import threading
import time
import zipfile
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from multimix.lab.data import fetch as module
from multimix.lab.data.datasets import DATASETS, DataSet, Source
from multimix.lab.data.fetch import RECORD, TRIES


class Server:
    """Files at addresses of this machine; ``answers`` are used up one per request, then everything is answered properly."""

    def __init__(self):
        self.files, self.answers, self.ranges = {}, [], []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler):  # noqa: N805
                self.ranges.append(handler.headers.get("Range"))
                answer = self.answers.pop(0) if self.answers else proper
                answer(handler, self.files.get(handler.path.strip("/")))

            def log_message(handler, *words):  # noqa: N805
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def proper(handler, content, cut=None, knows_ranges=True, says_length=True, status=None, content_range=None):
    """The file, or the part that was asked for; ``cut``: the connection closes after so many bytes."""
    if content is None:
        return handler.send_error(404)
    asked, first = handler.headers.get("Range"), 0
    if asked and knows_ranges:
        first = int(asked.removeprefix("bytes=").removesuffix("-"))
        if first >= len(content):
            return handler.send_error(416)
    handler.send_response(status or (206 if first else 200))
    if first:
        handler.send_header("Content-Range", content_range or f"bytes {first}-{len(content) - 1}/{len(content)}")
    if says_length:
        handler.send_header("Content-Length", str(len(content) - first))
    handler.end_headers()
    handler.wfile.write(content[first:][:cut])


def but(**changes):
    return lambda handler, content: proper(handler, content, **changes)


def instead(content):
    return lambda handler, _: proper(handler, content)


def error(code):
    return lambda handler, _: handler.send_error(code)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def fetch(server, tmp_path, monkeypatch):
    """``fetch(source, …)`` with notes, pauses and progress written down instead of shown, waited for and drawn."""

    def call(*sources, **options):
        options = {"progress": lambda *numbers: call.progress.append(numbers), "note": call.notes.append} | options
        monkeypatch.setitem(DATASETS, "set", DataSet("set", None, 1, (), (), (), {}, sources=sources))
        return module.fetch("set", tmp_path / "data", pause=call.pauses.append, **options)

    call.notes, call.pauses, call.progress, call.root = [], [], [], tmp_path / "data"
    return call


def tar_of(files, gzip_level=9):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=gzip_level) as tar:
        for name, content in files.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.name = name
            if content is None:
                member.type = tarfile.DIRTYPE
            data = content if isinstance(content, bytes) else b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, b"" if content is None else content)
    return packed.getvalue()


NOISE = random.Random(0).randbytes(3_000)
CONTENT = {"birds/": None, "birds/a.txt": b"first", "birds/deep/b.bin": NOISE, "birds/empty": b"", "words.txt": b"beside"}
UNPACKED = {"a.txt": b"first", "deep/b.bin": NOISE, "empty": b""}
PACKED = tar_of({"birds/noise": NOISE})


def offered(server, content, file="birds.tar.gz", unpack="tar.gz", **changes):
    """The server has the file, and this is the line of the table for it."""
    server.files[file] = content
    digest = hashlib.sha256(content).hexdigest()
    line = {"url": f"{server.url}/{file}", "file": file, "size": len(content), "sha256": digest, "unpack": unpack}
    return Source(**line | {"folder": "birds"} | changes)


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def unpacked(folder):
    found = files_in(folder)
    found.pop(RECORD)
    return found


def one_sentence(failure):
    words = str(failure.value)
    assert "\n" not in words
    assert len(words) < 400
    return words


@pytest.mark.parametrize(("unpack", "pack"), [("tar.gz", tar_of), ("zip", zip_of)])
def test_an_archive_becomes_its_folder(server, fetch, unpack, pack):
    source = offered(server, pack(CONTENT), f"birds.{unpack}", unpack)
    folder = fetch(source)
    assert folder == fetch.root / "birds"
    assert unpacked(folder) == UNPACKED
    assert sorted(os.listdir(fetch.root)) == ["birds", f"birds.{unpack}"], "nothing temporary, nothing from beside the folder"
    assert fetch.progress[-1] == (source.size, source.size)
    assert fetch.notes == fetch.pauses == []


def test_an_archive_without_a_folder_of_its_own_is_given_one(server, fetch):
    content = {"./": None, "./yes/1.wav": b"yes", "./testing_list.txt": b"yes/1.wav"}
    folder = fetch(offered(server, tar_of(content), bare=True))
    assert unpacked(folder) == {"yes/1.wav": b"yes", "testing_list.txt": b"yes/1.wav"}


def test_a_set_of_several_archives_fetches_only_what_is_missing(server, fetch):
    sources = [offered(server, tar_of({f"{name}/a": NOISE}), f"{name}.tar.gz", folder=name) for name in ("birds", "fish", "cats")]
    total = sum(source.size for source in sources)
    assert fetch(*sources) == fetch.root / "birds"
    assert [unpacked(fetch.root / source.folder) for source in sources] == [{"a": NOISE}] * 3
    assert [done for done, _ in fetch.progress] == sorted(done for done, _ in fetch.progress)
    assert {every for _, every in fetch.progress} == {total}
    assert fetch.progress[-1][0] == total
    shutil.rmtree(fetch.root / "fish")
    (fetch.root / "fish.tar.gz").unlink()
    fetch(*sources)
    assert len(server.ranges) == 4


def test_a_connection_that_breaks_twice_is_resumed(server, fetch):
    source = offered(server, tar_of(CONTENT))
    server.answers = [but(cut=1_000), but(cut=500)]
    assert unpacked(fetch(source)) == UNPACKED
    assert server.ranges == [None, "bytes=1000-", "bytes=1500-"]
    assert fetch.pauses == [1.0, 1.0], "new bytes came, so the patience starts anew"
    assert len(fetch.notes) == 2
    assert "byte 1,500" in fetch.notes[1]


def test_a_server_that_knows_no_ranges_and_always_breaks_is_given_up(server, fetch):
    source = offered(server, tar_of(CONTENT))
    server.answers = [but(cut=1_000, knows_ranges=False)] * 50
    with pytest.raises(OSError, match="broke off") as failure:
        fetch(source)
    assert "resumes from byte 1,000" in one_sentence(failure)
    assert len(server.ranges) == TRIES


@pytest.mark.parametrize("wrong", [f"bytes 999-{len(PACKED) - 1}/{len(PACKED)}", f"bytes 1000-1999/{len(PACKED)}", "nonsense"])
def test_another_part_than_asked_for_starts_again(server, fetch, wrong):
    source = offered(server, PACKED)
    server.answers = [but(cut=1_000), but(content_range=wrong)]
    fetch(source)
    assert server.ranges == [None, "bytes=1000-", None]
    assert unpacked(fetch.root / "birds") == {"noise": NOISE}


def test_resuming_follows_a_redirection(server, fetch):
    def elsewhere(handler, _):
        handler.send_response(302)
        handler.send_header("Location", f"{server.url}/birds.tar.gz")
        handler.end_headers()

    source = offered(server, tar_of(CONTENT), url=f"{server.url}/old?download=1")
    server.answers = [elsewhere, but(cut=700), elsewhere]
    assert unpacked(fetch(source)) == UNPACKED
    assert server.ranges == [None, None, "bytes=700-", "bytes=700-"]


def test_a_wrong_byte_is_found_and_deleted(server, fetch):
    right = tar_of(CONTENT)
    source = offered(server, right)
    wrong = right[:1_234] + bytes([right[1_234] ^ 1]) + right[1_235:]
    server.answers = [instead(wrong)]
    with pytest.raises(ValueError, match="instead of") as failure:
        fetch(source)
    assert hashlib.sha256(wrong).hexdigest() in one_sentence(failure)
    assert hashlib.sha256(right).hexdigest() in one_sentence(failure)
    assert files_in(fetch.root) == {}
    assert unpacked(fetch(source)) == UNPACKED


@pytest.mark.parametrize("extra", [-1, 1])
def test_another_length_than_expected_is_refused(server, fetch, extra):
    source = offered(server, PACKED)
    server.answers = [instead((PACKED + b"x")[: len(PACKED) + extra])]
    with pytest.raises(ValueError, match=f"offers {len(PACKED) + extra:,} bytes instead of {len(PACKED):,}") as failure:
        fetch(source)
    one_sentence(failure)
    assert fetch.progress == [], "refused before it is fetched"
    server.files["birds.tar.gz"] += b"x"
    server.answers = [but(says_length=False)]
    with pytest.raises(ValueError, match=f"{len(PACKED) + 1:,} bytes instead of {len(PACKED):,}"):
        fetch(source)
    assert files_in(fetch.root) == {}


def test_a_server_that_never_stops_does_not_fill_the_disk(server, fetch):
    def endless(handler, _):
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                handler.wfile.write(bytes(module.BLOCK))

    server.answers = [endless]
    with pytest.raises(ValueError, match=f"instead of {len(PACKED):,}: it is deleted"):
        fetch(offered(server, PACKED))
    assert fetch.progress[-1][0] <= len(PACKED) + module.BLOCK
    assert files_in(fetch.root) == {}


def test_a_part_that_is_complete_needs_no_server(server, fetch):
    source = offered(server, tar_of(CONTENT))
    fetch.root.mkdir()
    (fetch.root / "birds.tar.gz.part").write_bytes(tar_of(CONTENT))
    assert unpacked(fetch(source)) == UNPACKED
    assert server.ranges == []


def test_a_file_without_announced_length_is_complete_when_its_size_is_reached(server, fetch):
    source = offered(server, PACKED)
    server.answers = [but(says_length=False, cut=1_000), but(says_length=False)]
    fetch(source)
    assert server.ranges == [None, "bytes=1000-"]
    assert unpacked(fetch.root / "birds") == {"noise": NOISE}


@pytest.mark.parametrize("code", [403, 404])
def test_a_refusal_of_the_server_is_one_sentence_at_once(server, fetch, code):
    source = offered(server, NOISE)
    server.answers = [error(code)]
    with pytest.raises(OSError, match=f"{source.url}: the server answers {code}") as failure:
        fetch(source)
    one_sentence(failure)
    assert fetch.pauses == []


def test_a_server_that_is_overloaded_is_asked_again(server, fetch):
    server.answers = [error(503), error(429), error(500)]
    assert unpacked(fetch(offered(server, tar_of(CONTENT)))) == UNPACKED
    assert fetch.pauses == [1.0, 2.0, 4.0]
    server.answers = [error(503)] * 9
    with pytest.raises(OSError, match="503 Service Unavailable"):
        fetch(offered(server, PACKED, "fish.tar.gz", folder="fish"))
    assert len(server.answers) == 9 - TRIES


def test_an_absent_server_is_one_sentence(server, fetch):
    source = offered(server, tar_of(CONTENT))
    server.answers = [but(cut=800)]
    server.close()
    with pytest.raises(OSError, match="cannot be reached .*refused") as failure:
        fetch(source)
    one_sentence(failure)
    assert fetch.pauses == [1.0, 2.0, 4.0]


def test_silence_counts_as_a_broken_connection(server, fetch):
    def hangs(handler, content):
        but(cut=1_000)(handler, content)
        handler.wfile.flush()
        time.sleep(0.4)

    source = offered(server, tar_of(CONTENT))
    server.answers = [hangs]
    assert unpacked(fetch(source, opener=lambda request: module.urlopen(request, timeout=0.1))) == UNPACKED
    assert "timed out" in fetch.notes[0]


def test_progress_follows_a_trickle(server, fetch):
    def trickle(handler, content):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        for start in range(0, len(content), 100):
            handler.wfile.write(content[start : start + 100])
            handler.wfile.flush()
            time.sleep(0.005)

    server.answers = [trickle]
    fetch(offered(server, PACKED))
    done = [each for each, _ in fetch.progress]
    assert len(done) > 10, "told while it trickles, not when a block is full"
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, len(PACKED))
    assert {total for _, total in fetch.progress} == {len(PACKED)}


def test_stopped_by_hand_it_keeps_what_came(server, fetch):
    def stop(done, total):
        if done >= 1_000:
            raise KeyboardInterrupt

    source = offered(server, tar_of(CONTENT))
    server.answers = [but(cut=1_000)]
    with pytest.raises(KeyboardInterrupt):
        fetch(source, progress=stop)
    assert files_in(fetch.root) == {"birds.tar.gz.part": tar_of(CONTENT)[:1_000]}
    assert unpacked(fetch(source)) == UNPACKED
    assert server.ranges == [None, "bytes=1000-"]


def link(kind, target):
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


EVIL_TARS = {
    "above": {"birds/../../stolen": b"x"},
    "beside the folder": {"../stolen": b"x"},
    "absolute": {"{outside}/stolen": b"x"},
    "backslashes": {"birds\\..\\..\\stolen": b"x"},
    "a drive": {"C:\\stolen": b"x"},
    "a link out and a file through it": {"birds/way": link(tarfile.SYMTYPE, "{outside}"), "birds/way/stolen": b"x"},
    "a link inside": {"birds/a": b"x", "birds/b": link(tarfile.SYMTYPE, "a")},
    "a hard link": {"birds/way": link(tarfile.LNKTYPE, "{outside}/kept")},
    "a device": {"birds/device": link(tarfile.CHRTYPE, "")},
    "a link where nothing is unpacked": {"elsewhere": link(tarfile.SYMTYPE, "{outside}")},
}


def made(files, outside):
    """The evil archive aimed at a folder of this test."""
    aimed = {}
    for name, content in files.items():
        if isinstance(content, tarfile.TarInfo):
            content = link(content.type, content.linkname.format(outside=outside))
        aimed[name.format(outside=outside)] = content
    return aimed


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_bytes(b"kept")
    return tmp_path / "outside"


def refused(fetch, source, tmp_path):
    with pytest.raises(OSError, match="cannot be unpacked") as failure:
        fetch(source)
    assert set(files_in(tmp_path)) == {"outside/kept", f"data/{source.file}"}
    assert os.listdir(fetch.root) == [source.file]
    assert (tmp_path / "outside/kept").read_bytes() == b"kept"
    return one_sentence(failure)


@pytest.mark.parametrize("evil", EVIL_TARS)
def test_a_tar_that_reaches_outside_is_refused(server, fetch, tmp_path, outside, evil):
    aimed = made(EVIL_TARS[evil], outside)
    source = offered(server, tar_of({"birds/a.txt": b"good"} | aimed))
    assert repr(next(name for name in aimed if name != "birds/a")) in refused(fetch, source, tmp_path)


def symlink_in_zip(target):
    info = zipfile.ZipInfo("birds/way")
    info.external_attr = 0o120777 << 16
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(info, str(target))
        archive.writestr("birds/way/stolen", b"x")
    return packed.getvalue()


@pytest.mark.parametrize("evil", ["birds/../../stolen", "{outside}/stolen", "birds\\..\\..\\stolen", "link"])
def test_a_zip_that_reaches_outside_is_refused(server, fetch, tmp_path, outside, evil):
    name = evil.format(outside=outside)
    content = symlink_in_zip(outside) if evil == "link" else zip_of({"birds/a.txt": b"good", name: b"x"})
    source = offered(server, content, "birds.zip", "zip")
    assert repr("birds/way" if evil == "link" else name) in refused(fetch, source, tmp_path)


BOMBS = {
    "one file": {"birds/a": bytes(4_000_000)},
    "many files": {f"birds/{i}": bytes(1_000) for i in range(4_000)},
    "many empty files": {f"birds/{i}": b"" for i in range(5_000)},
    "many folders": {f"birds/{i}/": None for i in range(5_000)},
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize(("unpack", "pack"), [("tar.gz", tar_of), ("zip", zip_of)])
def test_an_archive_that_would_fill_the_disk_is_refused(server, fetch, tmp_path, outside, monkeypatch, unpack, pack, bomb):
    monkeypatch.setattr(module, "MOST_TIMES", 2 if unpack == "zip" else 20)  # zip has a few bytes for each name
    source = offered(server, pack(BOMBS[bomb]), f"birds.{unpack}", unpack)
    assert "times its own size" in refused(fetch, source, tmp_path)


def test_two_at_once_fetch_it_once(server, fetch, tmp_path):
    """The second begins while the first receives, and waits."""
    source, begun, waits, ended = offered(server, tar_of(CONTENT)), threading.Event(), threading.Event(), []

    def slow(handler, content):
        begun.set()
        waits.wait(30)
        proper(handler, content)

    def told(sentence):
        fetch.notes.append(sentence)
        if "waiting for it" in sentence:
            waits.set()

    def first():
        ended.append(unpacked(fetch(source)))

    server.answers = [slow]
    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(30)
    ended.append(unpacked(fetch(source, note=told)))
    thread.join(30)
    assert ended == [UNPACKED, UNPACKED]
    assert server.ranges == [None], "it was received once"
    assert f"another process (pid {os.getpid()}) is fetching set: waiting for it" in fetch.notes
    assert sorted(os.listdir(fetch.root)) == ["birds", "birds.tar.gz"]


@pytest.mark.parametrize("left", [0.1, 0.999])
@pytest.mark.parametrize(("unpack", "pack"), [("tar.gz", tar_of), ("zip", zip_of)])
def test_a_damaged_archive_is_one_sentence(server, fetch, tmp_path, outside, unpack, pack, left):
    whole = pack(CONTENT)
    source = offered(server, whole[: int(len(whole) * left)], f"birds.{unpack}", unpack)
    refused(fetch, source, tmp_path)


@pytest.mark.parametrize(
    "content", [{"other/a": b"x"}, {"birds/": None}, {"birds": b"a file"}, {"birds/a": b"x", "birds/a/b": b"y"}]
)
def test_an_archive_with_other_things_than_the_folder_is_refused(server, fetch, tmp_path, outside, content):
    refused(fetch, offered(server, tar_of(content)), tmp_path)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_unpacking_that_is_stopped_leaves_no_half_folder(server, fetch, monkeypatch, stop):
    copied = []

    def copy(*arguments):
        copied.append(arguments)
        if len(copied) == 2:
            raise stop
        plain(*arguments)

    plain = module._copy_at_most
    source = offered(server, tar_of(CONTENT))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_copy_at_most", copy)
        with pytest.raises((KeyboardInterrupt, OSError)) as failure:
            fetch(source)
    assert len(copied) == 2
    assert os.listdir(fetch.root) == ["birds.tar.gz"]
    if isinstance(failure.value, OSError):
        assert "No space left" in one_sentence(failure)
    assert unpacked(fetch(source)) == UNPACKED
    assert len(server.ranges) == 1, "the archive is still there and is not fetched again"


def test_what_a_killed_unpacking_left_is_not_taken_over(server, fetch):
    (fetch.root / ".birds.unpacking/deep").mkdir(parents=True)
    (fetch.root / ".birds.unpacking/deep/half").write_bytes(b"half")
    assert unpacked(fetch(offered(server, tar_of(CONTENT)))) == UNPACKED
    assert sorted(os.listdir(fetch.root)) == ["birds", "birds.tar.gz"]


def test_a_second_call_does_nothing(server, fetch):
    source = offered(server, tar_of(CONTENT))
    other = offered(server, tar_of({"fish/noise": NOISE}), "fish.tar.gz", folder="fish")
    fetch(source)
    fetch(other)
    state = {path: path.stat().st_mtime_ns for path in fetch.root.rglob("*")}
    fetch(source)
    fetch(other)
    assert {path: path.stat().st_mtime_ns for path in fetch.root.rglob("*")} == state
    assert len(server.ranges) == 2
    assert fetch.notes == ["set is already there and verified"] * 2
    (fetch.root / "birds.tar.gz").unlink()
    (fetch.root / "birds/added.cache").write_bytes(b"by a reader")
    fetch(source)
    assert len(server.ranges) == 2


def test_a_folder_that_lost_files_is_named_and_left_alone(server, fetch):
    source = offered(server, tar_of(CONTENT))
    folder = fetch(source)
    (folder / "empty").unlink()
    with pytest.raises(ValueError, match="has lost some of its 3 files, 3,005 bytes") as failure:
        fetch(source)
    one_sentence(failure)
    (folder / "empty").write_bytes(b"")
    (folder / "a.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="has lost some"):
        fetch(source)
    assert (folder / "deep/b.bin").exists()


@pytest.mark.parametrize("record", [None, "{", json.dumps({"source": ["birds.tar.gz", "sha256:0"], "files": 0, "bytes": 0})])
def test_a_folder_from_elsewhere_is_never_touched(server, fetch, record):
    (fetch.root / "birds").mkdir(parents=True)
    (fetch.root / "birds/mine").write_bytes(b"mine")
    if record:
        (fetch.root / "birds" / RECORD).write_text(record)
    before = files_in(fetch.root)
    with pytest.raises(ValueError, match="is already there, but not from birds.tar.gz") as failure:
        fetch(offered(server, tar_of(CONTENT)))
    one_sentence(failure)
    assert files_in(fetch.root) == before
    assert server.ranges == []


def test_a_disk_without_room_is_told_before_anything_is_fetched(server, fetch, monkeypatch):
    source = offered(server, tar_of(CONTENT))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage(0, 0, 2 * source.size - 1))
    with pytest.raises(OSError, match=f"at least {2 * source.size:,} bytes in .*, {2 * source.size - 1:,} are free") as failure:
        fetch(source)
    one_sentence(failure)
    assert server.ranges == []
    (fetch.root / "birds.tar.gz.part").write_bytes(tar_of(CONTENT)[:1])
    assert unpacked(fetch(source)) == UNPACKED, "one byte is there already, so there is just enough"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file that is always full")
def test_a_disk_that_fills_up_is_one_sentence(server, fetch, monkeypatch):
    fetch.root.mkdir()
    (fetch.root / "birds.tar.gz.part").touch()
    monkeypatch.setattr(module, "no_follow", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match="cannot fetch set into .*data': No space left on device") as failure:
        fetch(offered(server, tar_of(CONTENT)))
    one_sentence(failure)


def test_a_folder_that_cannot_be_written_is_one_sentence(server, fetch, monkeypatch):
    def forbidden(path, flags):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(module, "no_follow", forbidden)
        with pytest.raises(OSError, match="data': Permission denied") as failure:
            fetch(offered(server, tar_of(CONTENT)))
    one_sentence(failure)
    shutil.rmtree(fetch.root)
    fetch.root.write_bytes(b"a file")
    with pytest.raises(OSError, match="data': File exists"):
        fetch(offered(server, tar_of(CONTENT)))
    assert fetch.root.read_bytes() == b"a file"


@pytest.mark.parametrize("target", ["notes.txt", "nowhere.txt"])
def test_a_part_that_is_a_link_is_not_written_through(server, fetch, tmp_path, target):
    (tmp_path / "notes.txt").write_bytes(b"mine")
    fetch.root.mkdir()
    (fetch.root / "birds.tar.gz.part").symlink_to(tmp_path / target)
    with pytest.raises(OSError, match=r"birds\.tar\.gz\.part': it is a symbolic link"):
        fetch(offered(server, tar_of(CONTENT)))
    assert server.ranges == []
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere.txt").exists()


def test_names_that_cannot_be_fetched(tmp_path):
    for name, sentence in (
        ("cifar_100", r"no data set 'cifar_100' \(did you mean 'cifar100'\?\); there are cifar10, cifar100, "),
        ("imagenet", "imagenet cannot be fetched, it needs a registration .*imagenet/val/<wnid>"),
        ("digits", "scikit-learn"),
        ("shapes", "shapes need not be fetched, they are computed"),
    ):
        with pytest.raises(ValueError, match=sentence) as failure:
            module.fetch(name, tmp_path)
        one_sentence(failure)
    assert os.listdir(tmp_path) == []


def test_the_addresses_are_well_formed():
    every = [source for entry in DATASETS.values() for source in entry.sources]
    assert len({source.file for source in every}) == len({source.sha256 for source in every}) == len(every) == 6
    for source in every:
        assert len(bytes.fromhex(source.sha256)) == 32
        assert source.url.partition("?")[0].endswith(f"/{source.file}")
        assert source.size > 5_000
