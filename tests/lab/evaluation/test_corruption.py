"""Foregrounds bit by bit, backgrounds against their donors, common corruptions against slow arithmetic."""

import colorsys
import io
import json
import math
import pickle
from collections import Counter
from dataclasses import asdict, replace
from functools import partial

import numpy
import pytest
import torch
from PIL import Image

from drawn import Painter, drawing, noise, written
from multimix.lab.data import Augment, Images, Loader, Resize
from multimix.lab.data.augment import resize
from multimix.lab.data.reading import read_picture
from multimix.lab.evaluation.corruption import (
    BACKGROUND,
    COMMON,
    corrupted,
    corrupted_split,
    corruption_errors,
    derangement,
    with_background,
    with_background_noise,
)
from multimix.lab.evaluation.error import errors
from multimix.lab.evaluation.predictions import Reading, predictions
from multimix.lab.look.pictures import cat
from multimix.sampling import seeded
from pretrained import as_it_was_trained, imagenet_validation, pretrained

SIZES = [(20, 31), (33, 18), (24, 24), (40, 19), (21, 50)]
BOXES = [[[2, 3, 8, 9]], [[0, 0, 18, 3], [5, 14, 6, 6]], [[-4, -4, 9, 9]], [[4.5, 10.2, 9, 20]], [[40, 5, 30, 30]]]


def photos(folder, boxes=BOXES, **options):
    return written(folder, [noise(*size, seed=i) for i, size in enumerate(SIZES)], [2, 0, 1, 1, 0], boxes, **options)


def foreground(row, size):
    """The pixels any box of the row touches, one by one."""
    mask = torch.zeros(size, dtype=torch.bool)
    for y in range(size[0]):
        for x in range(size[1]):
            mask[y, x] = any(left < x + 1 and left + w > x and top < y + 1 and top + h > y for left, top, w, h in BOXES[row])
    return mask


@pytest.mark.parametrize("name", BACKGROUND)
def test_the_foreground_stays_bit_by_bit(tmp_path, name):
    split = photos(tmp_path)
    spoilt = corrupted_split(split, name, seed=4)
    clean, labels = split.batch(torch.arange(5))
    found, same = spoilt.batch(torch.arange(5))
    assert torch.equal(labels, same)
    for row, (before, after) in enumerate(zip(clean, found, strict=True)):
        assert after.dtype == torch.uint8
        assert after.shape == before.shape
        mask = foreground(row, before.shape[1:])
        assert torch.equal(before[:, mask], after[:, mask])
        assert (before[:, ~mask] != after[:, ~mask]).double().mean() > 0.9


def test_the_background_is_that_of_the_donor(tmp_path):
    split = photos(tmp_path)
    donors = derangement(5, 4).tolist()
    clean, _ = split.batch(torch.arange(5))
    found, _ = corrupted_split(split, "background_replaced", seed=4).batch(torch.arange(5))
    for row in range(5):
        mask = foreground(row, clean[row].shape[1:])
        donor = resize(clean[donors[row]][None], tuple(clean[row].shape[1:]))[0]
        assert torch.equal(found[row][:, ~mask], donor[:, ~mask])


def test_boxes_are_those_of_the_file_also_if_it_is_read_smaller(tmp_path):
    picture = drawing(40, 60, (0, 10, 20, 30, 10))
    split = written(tmp_path, [picture, noise(30, 30)], [0, 1], [[[10, 20, 30, 10]], [[0, 0, 1, 1]]])
    split = replace(split, reader=partial(read_picture, short_side=20))
    (before, _), (after, _) = split.batch(torch.tensor([0])), corrupted_split(split, "background_noise").batch(torch.tensor([0]))
    same = (before == after).all(1)[0]
    assert same[10:15, 5:20].all()
    assert same.double().mean() < 0.3  # black is clipped, but one channel of three nearly always grows


def test_noise_of_the_background_has_its_deviation_and_is_clipped():
    image, nothing = torch.full((3, 200, 150), 128, dtype=torch.uint8), torch.zeros(200, 150, dtype=torch.bool)
    grey = with_background_noise(image, nothing, seeded(1)).double() / 255
    assert float(grey.std()) == pytest.approx(0.1, rel=0.01)
    assert float(grey.mean()) == pytest.approx(128 / 255, abs=0.001)
    for value in (0, 255):
        edge = with_background_noise(torch.full_like(image, value), nothing, seeded(1)).double() / 255
        # Half of it is cut off: E|N(0, σ²)| / 2 = σ / √(2π).
        assert float((edge - value / 255).abs().mean()) == pytest.approx(0.1 / math.sqrt(2 * math.pi), rel=0.02)
    whole = ~nothing
    assert torch.equal(with_background_noise(image, whole, seeded(1)), image)
    floating = with_background_noise(image.float() / 255, nothing, seeded(1))
    assert floating.dtype == torch.float32
    torch.testing.assert_close(floating.double(), grey, rtol=0, atol=0.51 / 255)


def test_backgrounds_take_the_dtype_of_the_image():
    mask = torch.tensor([[True, False]])
    merged = with_background(torch.zeros(3, 1, 2), mask, torch.full((3, 5, 5), 0.5))
    assert merged.dtype == torch.float32
    assert merged[:, 0].tolist() == [[0, pytest.approx(0.5)]] * 3


def test_a_derangement_leaves_nothing_in_its_place_and_is_uniform():
    counts = Counter(tuple(derangement(4, seed).tolist()) for seed in range(1800))
    assert len(counts) == 9
    assert all(drawn[i] != i for drawn in counts for i in range(4))
    assert 150 < min(counts.values()) <= max(counts.values()) < 250
    assert derangement(2, 0).tolist() == [1, 0]
    assert torch.equal(derangement(50, 3), derangement(50, 3))
    with pytest.raises(ValueError, match="backgrounds come from other images, so there must be at least 2, got 1"):
        derangement(1, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("name", "severity"), [("background_replaced", None), ("background_noise", None), ("shot_noise", 3)])
def test_draws_depend_on_the_image_and_the_seed_alone(tmp_path, name, severity):
    split, augment = photos(tmp_path), Augment([Resize((16, 16))])
    spoilt = corrupted_split(split, name, severity, seed=4)
    whole, _ = spoilt.batch(torch.arange(5))
    some, _ = spoilt.batch(torch.tensor([3, 0]))
    assert torch.equal(some[0], whole[3])
    assert torch.equal(some[1], whole[0])
    again, _ = pickle.loads(pickle.dumps(spoilt)).batch(torch.tensor([3]))  # as it goes to workers that are spawned
    assert torch.equal(again[0], whole[3])
    for workers in (0, 2):
        loader = Loader(spoilt, augment, batch=2, shuffle=False, drop_last=False, workers=workers)
        assert torch.equal(torch.cat([x for x, _ in loader]), augment.apply(whole, torch.zeros(5, 0)))
    other, _ = corrupted_split(split, name, severity, seed=5).batch(torch.arange(5))
    assert any(not torch.equal(a, b) for a, b in zip(whole, other, strict=True))
    if name != "background_replaced":
        # Two equal images get noise of their own.
        twice = corrupted_split(
            Images(torch.full((2, 3, 8, 8), 99, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b")), "shot_noise", 3
        )
        x, _ = twice.batch(torch.arange(2))
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
    with pytest.raises(ValueError, match=r"no corruption 'jpg' \(did you mean 'jpeg'\?\); there are background_replaced"):
        corrupted_split(split, "jpg", 1)
    with pytest.raises(ValueError, match="severity must be one of 1 … 5, got 6"):
        corrupted_split(split, "jpeg", 6)
    with pytest.raises(ValueError, match="severity must be one of 1 … 5, got None"):
        corrupted_split(split, "jpeg")
    with pytest.raises(ValueError, match="severity must be None for background_noise, got 2"):
        corrupted_split(split, "background_noise", 2)
    with pytest.raises(ValueError, match="split must have boxes"):
        corrupted_split(photos(tmp_path, boxes=None), "background_noise")
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


def coloured(folder):
    """Objects whose colour is their class, apart from one another, the first one small, the last without a box."""
    places = [(1 + 4 * i, 1 + 3 * i, 3 if i == 0 else 4, 3) for i in range(7)]
    pictures = [drawing(24, 30, (i % 3, *place)) for i, place in enumerate(places)]
    return written(folder, pictures, [i % 3 for i in range(7)], [[place] if i < 6 else [] for i, place in enumerate(places)])


def test_errors_of_every_corruption(tmp_path):
    split, augment, ticks = coloured(tmp_path), Augment([Resize((24, 30))]), []

    def progress(numbers):
        ticks.append(len(numbers))
        return iter(numbers)

    found = corruption_errors(Painter(), split, augment, Reading(4, 0, progress), severities=(1, 5), seed=2)
    assert (found.n, found.without_box) == (6, 1)
    assert [row.name for row in found.rows] == ["clean", *BACKGROUND, *(name for name in COMMON for _ in range(2))]
    assert [row.severity for row in found.rows[3:5]] == [1, 5]
    assert ticks == [17 * 2]
    with_box = split.take(torch.arange(6))
    assert found.rows[0].top1 == errors(predictions(Painter(), with_box, augment)).top1
    assert found.rows[0].top1.count == 0
    replaced = predictions(Painter(), corrupted_split(with_box, "background_replaced", seed=2), augment)
    assert found.rows[1].top1 == errors(replaced).top1
    assert found.rows[1].top1.count > 0  # another object is behind
    assert found.rows[0].top5 is None
    jpeg = [row.top1.percent for row in found.rows if row.name == "jpeg"]
    assert found.means()["jpeg"] == pytest.approx(sum(jpeg) / 2)
    assert json.loads(json.dumps(asdict(found)))["rows"][1]["name"] == "background_replaced"


def test_without_boxes_only_what_needs_none(tmp_path):
    images = Images(torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2]), ("a", "b", "c"))
    found = corruption_errors(Painter(), images, Augment(), severities=(3,))
    assert [row.name for row in found.rows] == ["clean", *COMMON]
    assert (found.n, found.without_box) == (3, 0)
    # Images without boxes stay where backgrounds are not asked for.
    assert corruption_errors(Painter(), coloured(tmp_path), Augment(), names=("blur",), severities=(1,)).n == 7
    with pytest.raises(ValueError, match="split must have boxes"):
        corruption_errors(Painter(), images, Augment(), names=("background_noise",))


@pytest.mark.slow
def test_a_pretrained_network_errs_more_on_spoilt_photos():
    split = imagenet_validation(boxes=True)
    split = split.take(torch.arange(0, len(split), 8)[:20])
    found = corruption_errors(pretrained(), split, as_it_was_trained(), names=("background_noise", "contrast"), severities=(5,))
    clean, noisy, dull = (row.top1.percent for row in found.rows)
    assert clean < 50
    assert clean - 5 <= noisy < 80
    assert dull > clean + 20
