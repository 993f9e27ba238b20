import numpy
import pytest
import torch
from PIL import Image

from multimix.lab.data.base import BadFile
from multimix.lab.data.picture import picture_size, read_picture


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
