import os
import random
import signal
import struct
import threading
import warnings
import zlib
from pathlib import Path

import numpy
import pytest
import torch
from PIL import EpsImagePlugin, Image

from multimix.lab.data import BadFile, Files
from multimix.lab.data.reading import Format, find_bad, picture_size, read_all, read_array, read_picture, without_bad

FORM = Format("toy", (1, 2, 3), torch.float32)


def read(path):
    text = Path(path).read_text()
    if text == "bad":
        raise BadFile(f"{path} is bad")
    return torch.full(FORM.shape, float(text))


@pytest.fixture
def files(tmp_path):
    """Six files, the second and the last are bad."""
    paths = []
    for i, text in enumerate(["0", "bad", "2", "3", "4", "bad"]):
        (tmp_path / f"{i}").write_text(text)
        paths.append(str(tmp_path / f"{i}"))
    return Files(tuple(paths), torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c"), read, skipped=("earlier",))


@pytest.mark.parametrize("workers", [0, 2])
def test_read_all_come_in_order_and_bad_files_are_among_them(files, workers):
    found = list(read_all(read, files.paths, workers))
    assert [str(item) if isinstance(item, BadFile) else float(item[0, 0, 0]) for item in found] == [
        0.0, f"{files.paths[1]} is bad", 2.0, 3.0, 4.0, f"{files.paths[5]} is bad",
    ]  # fmt: skip
    assert [item is None for item in find_bad(read, files.paths, workers)] == [True, False, True, True, True, False]


def killed(path):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_one_sentence(files):
    with pytest.raises(OSError, match="^a process that reads the data was killed, as the system does when memory runs out$"):
        list(read_all(killed, files.paths, workers=1))


def test_bad_files_are_left_out_and_named(files):
    left = without_bad(files)
    assert left.paths == tuple(files.paths[i] for i in (0, 2, 3, 4))
    assert left.labels.tolist() == [0, 2, 0, 1]
    assert left.skipped == ("earlier", f"{files.paths[1]} is bad", f"{files.paths[5]} is bad")
    with pytest.raises(BadFile, match="^none of the files can be read; .*5 is bad$"):
        without_bad(files.take(torch.tensor([5, 1])))


class Load:
    """Counts how often the work is done."""

    def __init__(self):
        self.calls = 0

    def __call__(self, paths):
        self.calls += 1
        return read_all(read, paths)


@pytest.mark.parametrize("cached", [False, True])
def test_samples_are_gathered_without_the_bad_ones(files, tmp_path, cached):
    cache = tmp_path / "cache" if cached else None
    for _ in range(2):
        images = read_array(files, Load(), FORM, cache=cache, skip_bad=True)
        assert images.pixels.shape == (4, 1, 2, 3)
        assert images.pixels[:, 0, 1, 2].tolist() == [0, 2, 3, 4]
        assert images.labels.tolist() == [0, 2, 0, 1]
        assert images.skipped == ("earlier", f"{files.paths[1]} is bad", f"{files.paths[5]} is bad")
        with pytest.raises(BadFile, match="1 is bad$"):
            read_array(files, Load(), FORM, cache=cache, skip_bad=False)


def test_the_work_is_done_once_and_again_when_a_file_or_the_form_changes(files, tmp_path):
    load, good, cache = Load(), files.take(torch.tensor([0, 2, 3])), tmp_path / "cache"
    for _ in range(3):
        images = read_array(good, load, FORM, cache=cache, skip_bad=False)
    assert load.calls == 1
    assert images.pixels[:, 0, 0, 0].tolist() == [0, 2, 3]
    images.pixels[0] = 7  # a copy: the next reader sees the file
    assert read_array(good, load, FORM, cache=cache, skip_bad=False).pixels[0, 0, 0, 0] == 0
    Path(good.paths[1]).write_text("9")
    os.utime(good.paths[1], ns=(1, 1))
    assert read_array(good, load, FORM, cache=cache, skip_bad=False).pixels[:, 0, 0, 0].tolist() == [0, 9, 3]
    assert load.calls == 2
    read_array(good, load, Format("other", FORM.shape, FORM.dtype), cache=cache, skip_bad=False)
    assert load.calls == 3


@pytest.mark.parametrize("spoil", ["truncate", "no note", "bad note"])
def test_an_array_that_its_note_does_not_vouch_for_is_made_again(files, tmp_path, spoil):
    load, good, cache = Load(), files.take(torch.tensor([0, 2, 3])), tmp_path / "cache"
    read_array(good, load, FORM, cache=cache, skip_bad=False)
    (array,), (note,) = cache.glob("*.array"), cache.glob("*.json")
    if spoil == "truncate":
        array.write_bytes(array.read_bytes()[:-1])
    elif spoil == "no note":
        note.unlink()
    else:
        note.write_text('{"bytes"')
    assert read_array(good, load, FORM, cache=cache, skip_bad=False).pixels[:, 0, 0, 0].tolist() == [0, 2, 3]
    assert load.calls == 2
    assert sorted(path.suffix for path in cache.iterdir()) == [".array", ".json"]


def test_work_that_breaks_off_leaves_no_array(files, tmp_path):
    def broken(paths):
        yield torch.zeros(FORM.shape)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="^cannot write .*toy-.*array': No space left on device$"):
        read_array(files, broken, FORM, cache=tmp_path / "cache", skip_bad=False)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_process_left_of_an_array_is_removed(files, tmp_path):
    cache, load = tmp_path / "cache", Load()
    read_array(files, load, FORM, cache=cache, skip_bad=True)
    (array,) = cache.glob("*.array")
    for left in (f".{array.name}.12345", f".{array.stem}.json.12345", ".other-0123.array.12345"):
        (cache / left).write_bytes(b"half")
    array.unlink()  # as after a kill in the middle of the work
    read_array(files, load, FORM, cache=cache, skip_bad=True)
    assert sorted(path.name for path in cache.iterdir()) == [".other-0123.array.12345", array.name, f"{array.stem}.json"]


def test_two_that_need_one_array_at_once_make_it_once(files, tmp_path):
    begun, goes_on, load, found = threading.Event(), threading.Event(), Load(), []

    def slow(paths):
        begun.set()
        goes_on.wait(30)
        return load(paths)

    def make():
        found.append(read_array(files, slow, FORM, cache=tmp_path / "cache", skip_bad=True))

    threads = [threading.Thread(target=make) for _ in range(2)]
    threads[0].start()
    begun.wait(30)
    threads[1].start()
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert torch.equal(found[0].pixels, found[1].pixels)
    assert load.calls == 1


def test_a_cache_that_is_a_file_is_one_sentence(files, tmp_path):
    with pytest.raises(ValueError, match="must be a folder, .*0' is a file"):
        read_array(files, Load(), FORM, cache=tmp_path / "0", skip_bad=True)


@pytest.mark.parametrize("ending", ["png", "bmp"])
def test_pixels_come_out_as_they_were_saved(tmp_path, write, ending):
    pixels = write.picture(tmp_path / f"a.{ending}", 7, 12)
    found = read_picture(str(tmp_path / f"a.{ending}"))
    assert found.dtype == torch.uint8
    assert torch.equal(found, torch.tensor(pixels).permute(2, 0, 1))
    assert picture_size(str(tmp_path / f"a.{ending}")) == (7, 12)


def test_grey_palette_and_transparent_pictures_become_colours(tmp_path, write):
    grey = write.picture(tmp_path / "grey.png", 4, 5, mode="L")
    assert torch.equal(read_picture(str(tmp_path / "grey.png")), torch.tensor(grey).expand(3, 4, 5))
    colours = numpy.random.default_rng(0).integers(0, 256, (4, 5, 4), dtype=numpy.uint8)
    Image.fromarray(colours).save(tmp_path / "alpha.png")
    assert torch.equal(read_picture(str(tmp_path / "alpha.png")), torch.tensor(colours[:, :, :3]).permute(2, 0, 1))
    Image.fromarray(colours[:, :, :3]).quantize(4).save(tmp_path / "palette.png")
    with Image.open(tmp_path / "palette.png") as picture:
        expected = picture.convert("RGB")
    larger = expected.resize((10, 8), Image.Resampling.BICUBIC)
    for short_side, image in ((None, expected), (8, larger)):
        found = read_picture(str(tmp_path / "palette.png"), short_side)
        assert torch.equal(found, torch.tensor(numpy.array(image)).permute(2, 0, 1))


@pytest.mark.parametrize(("height", "width", "size"), [(30, 45, (20, 30)), (45, 30, (30, 20)), (10, 10, (20, 20))])
def test_the_short_side_gets_its_length_and_the_shape_stays(tmp_path, write, height, width, size):
    write.picture(tmp_path / "a.jpg", height, width, quality=95)
    found = read_picture(str(tmp_path / "a.jpg"), short_side=20)
    assert found.shape[1:] == size
    with Image.open(tmp_path / "a.jpg") as picture:
        expected = numpy.asarray(picture.resize(size[::-1], Image.Resampling.BICUBIC))
    assert torch.equal(found, torch.tensor(expected).permute(2, 0, 1))


def test_a_large_jpeg_decoded_at_a_part_of_its_size_looks_the_same(tmp_path):
    wave = numpy.fromfunction(lambda y, x, c: 127 + 100 * numpy.sin(x / 40 + c) * numpy.cos(y / 50), (600, 800, 3))
    Image.fromarray(wave.astype(numpy.uint8)).save(tmp_path / "a.jpg", quality=95)
    found = read_picture(str(tmp_path / "a.jpg"), short_side=60)
    with Image.open(tmp_path / "a.jpg") as picture:
        expected = torch.tensor(numpy.array(picture.resize((80, 60), Image.Resampling.BICUBIC))).permute(2, 0, 1)
    assert (found.int() - expected.int()).abs().max() <= 3


@pytest.mark.parametrize("read", [read_picture, picture_size])
def test_what_is_no_picture_is_named(tmp_path, read):
    with pytest.raises(BadFile, match=r"none.jpg is missing$"):
        read(str(tmp_path / "none.jpg"))
    for content in (b"", b"<html>not found</html>", b"\xff\xd8\xff"):
        (tmp_path / "a.jpg").write_bytes(content)
        with pytest.raises(BadFile, match=r"^[^\n]*a.jpg is (not an image|an image that cannot be decoded)[^\n]*$"):
            read(str(tmp_path / "a.jpg"))


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_truncated_picture_is_named(tmp_path, write, ending):
    path = tmp_path / f"a.{ending}"
    write.picture(path, 40, 40)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(BadFile, match=r"^[^\n]*a\.(jpg|png) is an image that cannot be decoded: [^\n]*$"):
        read_picture(str(path))


def test_formats_that_no_data_set_has_are_refused_without_being_tried(tmp_path, monkeypatch):
    """An EPS file would start Ghostscript."""
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **options: started.append(given))
    path = tmp_path / "a.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(BadFile, match=r"^[^\n]*a.jpg is not an image in JPEG, PNG[^\n]*$"):
        read_picture(str(path))
    assert started == []


def bomb(path, side):
    """A PNG of ``side`` × ``side`` black pixels in a few bytes."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0), b"IDAT": zlib.compress(bytes(1000)), b"IEND": b""}
    chunks = (
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part)) for name, part in parts.items()
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


@pytest.mark.parametrize("side", [10_000, 20_000, 2_000_000_000])
@pytest.mark.parametrize("read", [read_picture, picture_size])
def test_a_picture_that_would_fill_the_memory_is_not_decoded(tmp_path, read, side):
    bomb(tmp_path / "a.png", side)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user, who would only be warned of the smallest of them
        with pytest.raises(BadFile, match=r"^[^\n]*a.png is an image that cannot be decoded: Image size [^\n]* exceeds limit"):
            read(str(tmp_path / "a.png"))


def test_modern_formats_under_another_name_are_one_sentence(tmp_path):
    path = tmp_path / "a.jpg"
    for kind in (b"avif", b"avis", b"heic", b"jxl "):
        path.write_bytes(b"\x00\x00\x00\x20ftyp" + kind + b"\x00\x00\x00\x00" + kind + b"mif1miaf" + bytes(100))
        assert "is not an image in JPEG, PNG" in complaint(read_picture, path)


def complaint(read, path):
    """What is wrong with a file; empty if nothing is."""
    try:
        read(str(path))
    except BadFile as error:
        return str(error)
    return ""


def test_whatever_a_decoder_raises_is_one_sentence(tmp_path, write):
    path = tmp_path / "a.png"
    write.picture(path, 30, 30)
    sound = path.read_bytes()
    stream = random.Random(0)
    for _ in range(300):
        spoilt = bytearray(sound)
        for _ in range(3):
            spoilt[stream.randrange(len(spoilt))] = stream.randrange(256)
        path.write_bytes(spoilt)
        assert "\n" not in complaint(read_picture, path)
