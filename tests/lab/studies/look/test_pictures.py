from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image

from multimix.lab.cli import main
from multimix.lab.studies.look.pictures import cat, dog, read_picture, to_image

GREEN, RED, BLUE = (0, 255, 0), (255, 0, 0), (0, 0, 255)


@pytest.mark.parametrize("drawn", [cat, dog])
@pytest.mark.parametrize("size", [256, 97])
def test_a_drawn_picture_fills_the_range_and_repeats(drawn, size):
    picture = drawn(size)
    assert picture.shape == (3, size, size)
    assert picture.dtype == torch.float32
    assert picture.min() >= 0
    assert picture.max() <= 1
    assert picture.max() - picture.min() > 0.8
    assert torch.equal(picture, drawn(size))


def test_cat_and_dog_have_different_backgrounds():
    corners = torch.stack([cat(), dog()])[:, :, [3, 3, -4], [3, -4, 3]]
    assert ((corners[0] - corners[1]).abs().amax(0) > 0.3).all()


@pytest.mark.parametrize(("name", "picture"), [("cat.png", cat), ("dog.png", dog)])
def test_the_pictures_are_files_of_the_package_shown_pixel_by_pixel_at_their_own_size(name, picture):
    with files("multimix.lab.studies.look").joinpath(name).open("rb") as file, Image.open(file) as image:
        assert np.array_equal(np.asarray(image), np.asarray(to_image(picture(), 256)))


def saved(tmp_path, image, name="picture.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def pixels(path, size):
    return (read_picture(path, size) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


@pytest.mark.parametrize(("width", "height"), [(9, 5), (5, 9), (5, 5)])
def test_the_middle_square_is_kept(tmp_path, width, height):
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    top, left = (height - 5) // 2, (width - 5) // 2
    assert np.array_equal(pixels(saved(tmp_path, Image.fromarray(image)), 5), image[top : top + 5, left : left + 5])


def test_a_picture_is_scaled_smoothly_to_the_size(tmp_path):
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    expected = np.asarray(image.resize((16, 16), Image.Resampling.LANCZOS))
    assert np.array_equal(pixels(saved(tmp_path, image), 16), expected)


# How a camera's note "this row is the top" turns the stored pixels, from the EXIF standard.
UPRIGHT = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: p.transpose(1, 0, 2)[:, ::-1],
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: p.transpose(1, 0, 2)[::-1],
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_the_orientation_in_the_file_is_respected(tmp_path, orientation):
    image = np.random.default_rng(2).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(image), exif=exif)
    assert np.array_equal(pixels(path, 6), UPRIGHT[orientation](image))


def test_transparent_parts_are_white(tmp_path):
    image = Image.new("RGBA", (4, 4), (*RED, 0))
    image.putpixel((1, 2), (*BLUE, 255))
    image.putpixel((3, 3), (0, 0, 0, 51))
    read = pixels(saved(tmp_path, image), 4)
    assert tuple(read[0, 0]) == (255, 255, 255)
    assert tuple(read[2, 1]) == BLUE
    assert tuple(read[3, 3]) == (204, 204, 204)


def test_a_palette_with_a_transparent_colour(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([*RED, *GREEN, *BLUE])
    image.putpixel((0, 0), 0)
    read = pixels(saved(tmp_path, image, "picture.gif", transparency=0), 4)
    assert tuple(read[0, 0]) == (255, 255, 255)
    assert tuple(read[3, 3]) == GREEN


@pytest.mark.parametrize(
    ("image", "grey"),
    [
        (Image.new("L", (4, 4), 77), 77),
        (Image.new("1", (4, 4), 1), 255),
        (Image.new("LA", (4, 4), (100, 255)), 100),
        (Image.fromarray(np.full((4, 4), 0x4D4D, np.uint16)), 0x4D),
        (Image.fromarray(np.full((4, 4), 0xFFFF, np.uint16)), 255),
    ],
    ids=["8 bits", "1 bit", "with alpha", "16 bits", "16 bits, white"],
)
def test_grey_pictures_have_three_equal_channels(tmp_path, image, grey):
    assert (pixels(saved(tmp_path, image), 4) == grey).all()


def damaged(tmp_path, kind):
    whole = saved(tmp_path, Image.fromarray(np.random.default_rng(3).integers(0, 256, (64, 64, 3), np.uint8)), f"whole.{kind}")
    path = tmp_path / f"half.{kind}"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


def written(tmp_path, content):
    path = tmp_path / "words.png"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda tmp_path: tmp_path / "missing.png",
        lambda tmp_path: tmp_path,
        lambda tmp_path: written(tmp_path, b""),
        lambda tmp_path: written(tmp_path, b"not a picture at all"),
        lambda tmp_path: damaged(tmp_path, "png"),
        lambda tmp_path: damaged(tmp_path, "jpg"),
        lambda tmp_path: damaged(tmp_path, "gif"),
    ],
    ids=["missing", "folder", "empty", "text", "half a png", "half a jpg", "half a gif"],
)
def test_what_cannot_be_read_is_one_sentence_with_the_name(tmp_path, make):
    path = make(tmp_path)
    with pytest.raises(ValueError, match=r"there is no picture|cannot be read as a picture") as caught:
        read_picture(path, 32)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_picture_survives_the_way_to_an_image_and_back(tmp_path):
    picture = cat(64)
    assert torch.equal(read_picture(saved(tmp_path, to_image(picture, 64)), 64), picture)


@pytest.mark.parametrize("size", [100000, 0, -1])
def test_a_size_that_would_fill_the_memory_or_is_none_is_refused_before_anything_is_read(tmp_path, capsys, size):
    assert main(["look", "--size", str(size), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"size must lie in 16 … 512 pixels, got {size}\n"
