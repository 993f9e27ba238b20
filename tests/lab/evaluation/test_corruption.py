"""Common corruptions against slow arithmetic."""

import colorsys
import io
import json
import math
from dataclasses import asdict

import numpy
import pytest
import torch
from PIL import Image

from drawn import Painter, check_draws, coloured, noise, photos
from multimix.core.sampling import seeded
from multimix.lab.data import Augment, Images, Resize
from multimix.lab.evaluation.corruption import COMMON, corrupted, corrupted_split, corruption_errors
from multimix.lab.evaluation.error import errors
from multimix.lab.evaluation.predictions import Reading, predictions
from multimix.lab.studies.look.pictures import cat
from pretrained import as_it_was_trained, imagenet_validation, pretrained


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_draws_depend_on_the_image_and_the_seed_alone(tmp_path):
    split = photos(tmp_path)
    check_draws(lambda seed: corrupted_split(split, "shot_noise", 3, seed))
    # Two equal images get noise of their own.
    images = Images(torch.full((2, 3, 8, 8), 99, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))
    x, _ = corrupted_split(images, "shot_noise", 3).batch(torch.arange(2))
    assert not torch.equal(x[0], x[1])


def small(height=10, width=13, seed=0):
    return torch.from_numpy(noise(height, width, seed)).permute(2, 0, 1)


def spoil(image, name, severity, seed=0):
    return corrupted(image, name, severity, seeded(seed))


def test_gaussian_and_shot_noise_have_their_deviations():
    image = torch.full((3, 200, 200), 0.5)
    for severity, sigma in ((1, 0.08), (2, 0.12)):  # larger ones are clipped
        made = spoil(image, "gaussian_noise", severity)
        assert float(made.mean()) == pytest.approx(0.5, abs=0.002)
        assert float(made.std()) == pytest.approx(sigma, rel=0.02)
    for severity, photons in ((1, 60), (2, 25)):
        made = spoil(image, "shot_noise", severity)
        assert float(made.mean()) == pytest.approx(0.5, abs=0.002)
        assert float(made.var()) == pytest.approx(0.5 / photons, rel=0.03)
        torch.testing.assert_close(made * photons, (made * photons).round(), rtol=0, atol=1e-3)


def test_blur_by_a_slow_sum():
    image, sigma = small(9, 8), 1.0
    made = spoil(image, "blur", 1)
    kernel = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-4, 5)]
    total = sum(kernel) ** 2
    for channel, row, column in ((0, 0, 0), (1, 4, 4), (2, 8, 3), (0, 5, 7)):
        value = sum(
            kernel[i + 4] * kernel[j + 4] * int(image[channel, min(max(row + i, 0), 8), min(max(column + j, 0), 7)])
            for i in range(-4, 5)
            for j in range(-4, 5)
        )
        assert int(made[channel, row, column]) == pytest.approx(value / total, abs=0.51)


def test_contrast_brightness_and_pixels_by_loops():
    image = small()
    image[:, 0, 0] = 0
    unit = image.double() / 255
    dull = spoil(image, "contrast", 2)
    for channel in range(3):
        mean = float(unit[channel].mean())
        torch.testing.assert_close(dull[channel].double() / 255, mean + 0.3 * (unit[channel] - mean), rtol=0, atol=0.51 / 255)
    bright = spoil(image, "brightness", 3)
    for row in range(10):
        for column in range(13):
            hue, saturation, value = colorsys.rgb_to_hsv(*unit[:, row, column].tolist())
            expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.3))
            assert (bright[:, row, column].double() / 255).tolist() == pytest.approx(expected, abs=0.51 / 255)
    coarse = spoil(image[:, :, :12], "pixelate", 2)  # cells of 2 × 2
    for row in range(10):
        for column in range(12):
            cell = image[:, row // 2 * 2 : row // 2 * 2 + 2, column // 2 * 2 : column // 2 * 2 + 2]
            assert coarse[:, row, column].tolist() == pytest.approx(cell.double().mean((1, 2)).tolist(), abs=0.51)
    assert len(torch.unique(spoil(image, "pixelate", 1).flatten(1), dim=1).T) <= 6 * 7


def test_jpeg_is_what_pillow_makes():
    image = (cat(64) * 255).to(torch.uint8)
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(file, "jpeg", quality=15)
    expected = torch.from_numpy(numpy.array(Image.open(file))).permute(2, 0, 1)
    assert torch.equal(spoil(image, "jpeg", 3), expected)
    assert spoil(image[:1], "jpeg", 3).shape == (1, 64, 64)
    with pytest.raises(ValueError, match="jpeg needs images of 1 or 3 channels, got 2"):
        spoil(image[:2], "jpeg", 3)


@pytest.mark.parametrize("name", COMMON)
def test_severities_grow_and_the_dtype_stays(name):
    picture = cat(96)
    before = picture.clone()
    distances = [float((spoil(picture, name, severity) - picture).square().mean()) for severity in (1, 2, 3, 4, 5)]
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert torch.equal(picture, before)
    for image in (picture, (picture * 255).to(torch.uint8), picture[:, :31, :50]):
        made = spoil(image, name, 5)
        assert made.dtype == image.dtype
        assert made.shape == image.shape
    assert 0 <= float(spoil(picture, name, 5).min()) <= float(spoil(picture, name, 5).max()) <= 1


def test_what_cannot_be_spoilt_is_one_sentence(tmp_path):
    split = photos(tmp_path)
    with pytest.raises(ValueError, match=r"no corruption 'jpg' \(did you mean 'jpeg'\?\); there are gaussian_noise, shot"):
        corrupted_split(split, "jpg", 1)
    with pytest.raises(ValueError, match="severity must be one of 1 … 5, got 6"):
        corrupted_split(split, "jpeg", 6)
    with pytest.raises(ValueError, match="no corruption 'background_noise'"):
        corruption_errors(Painter(), split, Augment(), names=("background_noise",))
    features = Images(torch.randn(2, 1, 8, 8), torch.tensor([0, 0]), ("a",))
    with pytest.raises(ValueError, match="pixels must lie in 0 … 1 to be spoilt, as uint8 in 0 … 255, got values from"):
        corrupted_split(features, "blur", 1)


def test_samples_in_memory():
    images = Images(torch.stack([small(8, 9, seed=i) for i in range(4)]), torch.tensor([0, 0, 1, 1]), ("a", "b"))
    spoilt = corrupted_split(images, "contrast", 5)
    assert (len(spoilt), spoilt.classes, spoilt.skipped, spoilt.labels.tolist()) == (4, ("a", "b"), (), [0, 0, 1, 1])
    x, y = spoilt.batch(torch.tensor([2, 1]))
    assert y.tolist() == [1, 0]
    assert torch.equal(x[0], spoil(images.pixels[2], "contrast", 5))
    assert len(spoilt.subset(1, 0)) == 2


def test_errors_of_every_corruption(tmp_path):
    split, augment, ticks = coloured(tmp_path), Augment([Resize((24, 30))]), []

    def progress(numbers):
        ticks.append(len(numbers))
        return iter(numbers)

    found = corruption_errors(Painter(), split, augment, Reading(4, 0, progress), severities=(1, 5), seed=2)
    assert found.n == 7, "those without a box, too"
    assert [row.name for row in found.rows] == ["clean", *(name for name in COMMON for _ in range(2))]
    assert [row.severity for row in found.rows[1:3]] == [1, 5]
    assert ticks == [15 * 2]
    assert found.rows[0].top1 == errors(predictions(Painter(), split, augment)).top1
    assert found.rows[0].top1.count == 0
    assert found.rows[0].top5 is None
    noisy = predictions(Painter(), corrupted_split(split, "gaussian_noise", 5, seed=2), augment)
    assert found.rows[2].top1 == errors(noisy).top1
    jpeg = [row.top1.percent for row in found.rows if row.name == "jpeg"]
    assert found.means()["jpeg"] == pytest.approx(sum(jpeg) / 2)
    assert json.loads(json.dumps(asdict(found)))["rows"][1]["name"] == "gaussian_noise"


def test_samples_in_memory_have_the_same_rows():
    images = Images(torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2]), ("a", "b", "c"))
    found = corruption_errors(Painter(), images, Augment(), severities=(3,))
    assert [row.name for row in found.rows] == ["clean", *COMMON]
    assert found.n == 3
    assert len(corruption_errors(Painter(), images, Augment(), names=("blur",), severities=(1,)).rows) == 2


@pytest.mark.slow
def test_a_pretrained_network_errs_more_on_spoilt_photos():
    split = imagenet_validation(boxes=True)
    split = split.take(torch.arange(0, len(split), 8)[:20])
    found = corruption_errors(pretrained(), split, as_it_was_trained(), names=("contrast",), severities=(5,))
    clean, dull = (row.top1.percent for row in found.rows)
    assert clean < 50
    assert dull > clean + 20
