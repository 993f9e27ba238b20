"""Foregrounds bit by bit, backgrounds against the other images, noise on known values, errors by hand."""

import json
import math
from collections import Counter
from dataclasses import asdict, replace
from functools import partial

import numpy
import pytest
import torch

from drawn import BOXES, Painter, check_draws, coloured, drawing, noise, photos, written
from multimix.core.sampling import seeded
from multimix.lab.data import Augment, CenterCrop, Images, Normalise, Resize
from multimix.lab.data.augment import resize
from multimix.lab.data.reading import read_picture
from multimix.lab.evaluation.background import (
    BACKGROUNDS,
    background_errors,
    derangement,
    measure_background,
    with_background,
    with_background_noise,
    with_spoilt_backgrounds,
)
from multimix.lab.evaluation.predictions import READING, Reading
from multimix.lab.evaluation.subject import Parts, Subject
from pretrained import as_it_was_trained, imagenet_validation, pretrained


def foreground(row, size):
    """The pixels any box of the row touches, one by one."""
    mask = torch.zeros(size, dtype=torch.bool)
    for y in range(size[0]):
        for x in range(size[1]):
            mask[y, x] = any(left < x + 1 and left + w > x and top < y + 1 and top + h > y for left, top, w, h in BOXES[row])
    return mask


@pytest.mark.parametrize("name", BACKGROUNDS)
def test_the_foreground_stays_bit_by_bit(tmp_path, name):
    split = photos(tmp_path)
    spoilt = with_spoilt_backgrounds(split, name, seed=4)
    clean, labels = split.batch(torch.arange(5))
    found, same = spoilt.batch(torch.arange(5))
    assert torch.equal(labels, same)
    for row, (before, after) in enumerate(zip(clean, found, strict=True)):
        assert after.dtype == torch.uint8
        assert after.shape == before.shape
        mask = foreground(row, before.shape[1:])
        assert torch.equal(before[:, mask], after[:, mask])
        assert (before[:, ~mask] != after[:, ~mask]).double().mean() > 0.9


def test_behind_the_object_is_the_other_image(tmp_path):
    split = photos(tmp_path)
    donors = derangement(5, 4).tolist()
    clean, _ = split.batch(torch.arange(5))
    found, _ = with_spoilt_backgrounds(split, "replaced", seed=4).batch(torch.arange(5))
    for row in range(5):
        mask = foreground(row, clean[row].shape[1:])
        donor = resize(clean[donors[row]][None], tuple(clean[row].shape[1:]))[0]
        assert torch.equal(found[row][:, ~mask], donor[:, ~mask])


def test_boxes_are_those_of_the_file_also_if_it_is_read_smaller(tmp_path):
    picture = drawing(40, 60, (0, 10, 20, 30, 10))
    split = written(tmp_path, [picture, noise(30, 30)], [0, 1], [[[10, 20, 30, 10]], [[0, 0, 1, 1]]])
    split = replace(split, reader=partial(read_picture, short_side=20))
    (before, _), (after, _) = (one.batch(torch.tensor([0])) for one in (split, with_spoilt_backgrounds(split, "noise")))
    same = (before == after).all(1)[0]
    assert same[10:15, 5:20].all()
    assert same.double().mean() < 0.3  # black is clipped, but one channel of three nearly always grows


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_noise_on_known_values(dtype):
    """Of grey 0.5 the noise has the deviation 0.1 outside the box and is exactly 0 inside; black and white are clipped."""

    def spoil(value):
        """The change of an image of one value, in 0 … 1: outside and inside the box."""
        whole = torch.full((3, 300, 200), round(255 * value) if dtype == torch.uint8 else value, dtype=dtype)
        made = with_background_noise(whole, box, seeded(1))
        assert made.dtype == dtype
        change = (made.double() - whole.double()) / (255 if dtype == torch.uint8 else 1)
        return change[:, ~box], change[:, box]

    box = torch.zeros(300, 200, dtype=torch.bool)
    box[50:130, 20:111] = True
    outside, inside = spoil(0.5)
    assert (inside == 0).all()
    assert float(outside.std()) == pytest.approx(0.1, rel=0.01)
    assert float(outside.mean()) == pytest.approx(0, abs=0.001)
    assert (outside.abs() < 0.1).double().mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.015), "it is normal"
    assert float(outside.abs().max()) > 0.35, "and not cut"
    # Every channel and pixel has noise of its own.
    assert abs(float(torch.corrcoef(outside)[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([outside[0, 1:], outside[0, :-1]]))[0, 1])) < 0.02
    for value, sign in ((0.0, 1), (1.0, -1)):
        outside, inside = spoil(value)
        assert (inside == 0).all()
        assert (sign * outside >= 0).all()
        # Half of it is cut off: E|N(0, σ²)| / 2 = σ / √(2π).
        assert (outside == 0).double().mean() == pytest.approx(0.5, abs=0.02)
        assert float(outside.abs().mean()) == pytest.approx(0.1 / math.sqrt(2 * math.pi), rel=0.02)


def test_a_run_sees_noise_of_this_size(tmp_path):
    """Large photos are made small first: on the pixels that a network gets, before normalisation, the deviation is 0.1."""
    grey = numpy.full((400, 600, 3), 128, dtype=numpy.uint8)
    split = written(tmp_path, [grey, grey], [0, 1], [[[0, 0, 200, 400]], [[0, 0, 200, 400]]])
    views = []

    class Watching(Painter):
        def forward(self, x):
            views.append(x)
            return super().forward(x)

    augment = Augment([Resize(64), CenterCrop((56, 48)), Normalise((0.2,) * 3, (0.5,) * 3)])
    found = measure_background(Subject(Watching(), lambda: Parts(split), augment), READING)
    assert found.numbers["n"] == 2
    assert len(views) == 3, "clean and two backgrounds"
    pixels = views[2] * 0.5 + 0.2
    # 600 × 400 becomes 96 × 64, of which the middle is cut out: the box ends at 200 · 64 / 400 − 24 = 8.
    assert (pixels[:, :, :, :8] - 128 / 255).abs().max() < 1e-6
    assert float(pixels[:, :, :, 8:].std()) == pytest.approx(0.1, rel=0.03)
    assert not torch.equal(pixels[0], pixels[1]), "each photo has noise of its own"


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
@pytest.mark.parametrize("name", BACKGROUNDS)
def test_draws_depend_on_the_image_and_the_seed_alone(tmp_path, name):
    split = photos(tmp_path)
    check_draws(lambda seed: with_spoilt_backgrounds(split, name, seed))


def test_errors_with_every_background(tmp_path):
    split, augment, ticks = coloured(tmp_path), Augment([Resize((24, 30))]), []

    def progress(numbers):
        ticks.append(len(numbers))
        return iter(numbers)

    found = background_errors(Painter(), split, augment, Reading(4, 0, progress), seed=2)
    assert (found.n, found.without_box) == (6, 1)
    assert [row.name for row in found.rows] == ["clean", "replaced", "noise"]
    assert ticks == [3 * 2], "three passes"
    clean, replaced, noisy = found.rows
    assert (clean.top1.count, clean.top5, clean.newly_wrong, clean.newly_right) == (0, None, 0, 0)
    # Behind an object lies another one, and the larger of the two colours wins; where it is the same colour nothing is lost.
    donors, sizes = derangement(6, 2).tolist(), [9, 12, 12, 12, 12, 12]
    shown = [sizes[donor] for donor in donors]  # the objects lie apart, so the other one is whole
    lost = [
        i
        for i in range(6)
        if donors[i] % 3 != i % 3 and (shown[i] > sizes[i] or (shown[i] == sizes[i] and donors[i] % 3 < i % 3))
    ]
    assert replaced.top1.count == replaced.newly_wrong == len(lost) > 0
    assert replaced.newly_right == 0
    assert noisy.top1.n == 6
    assert json.loads(json.dumps(asdict(found)))["rows"][1]["name"] == "replaced"


class Opposite(Painter):
    """Always takes the darkest colour."""

    def forward(self, x):
        return -super().forward(x)


def test_changes_to_the_right_are_counted_apart(tmp_path):
    found = background_errors(Opposite(), coloured(tmp_path), Augment([Resize((24, 30))]), seed=2)
    clean, *others = found.rows
    assert clean.top1.count == 6
    for row in others:
        assert (row.newly_wrong, row.newly_right) == (0, 6 - row.top1.count)


def test_the_numbers_of_table_v(tmp_path):
    split = coloured(tmp_path)
    subject = Subject(Painter(), lambda: Parts(split), Augment([Resize((24, 30))]))
    found = measure_background(subject, READING, seed=2)
    expected = background_errors(Painter(), split, subject.evaluation, seed=2)
    assert found.result == expected
    assert found.numbers == {
        "n": 6, "clean": 0, "replaced": 100 * expected.rows[1].top1.count / 6, "noise": 100 * expected.rows[2].top1.count / 6
    }  # fmt: skip


def test_what_cannot_be_spoilt_is_one_sentence(tmp_path):
    images = Images(torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2]), ("a", "b", "c"))
    subject = Subject(Painter(), lambda: Parts(images), Augment(), samples={"data": "digits"})
    with pytest.raises(ValueError, match="digits has no boxes, which background needs; imagenet, tiny_imagenet and cub200 have"):
        measure_background(subject, READING)
    with pytest.raises(ValueError, match="split must have boxes"):
        with_spoilt_backgrounds(photos(tmp_path, boxes=None), "noise")
    with pytest.raises(ValueError, match="the classes of network are not those of digits, so none is right or wrong"):
        measure_background(replace(subject, foreign=True), READING)
    with pytest.raises(ValueError, match="pixels must lie in 0 … 1 to be spoilt"):
        with_background_noise(torch.randn(3, 4, 4), torch.zeros(4, 4, dtype=torch.bool), seeded(1))


@pytest.mark.slow
def test_a_pretrained_network_errs_more_without_the_background():
    """Noise behind the objects alone costs it nearly nothing, and as much as on the whole photo where there is no object."""
    split = imagenet_validation(boxes=True)
    split = split.take(torch.arange(0, len(split), 8)[:30])
    clean, replaced, noisy = background_errors(pretrained(), split, as_it_was_trained()).rows
    assert clean.top1.percent < 50
    assert replaced.top1.percent > clean.top1.percent
    assert noisy.newly_wrong + noisy.newly_right <= 6
