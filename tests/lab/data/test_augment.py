import math

import numpy
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from multimix.lab.data.augment import (
    Augment,
    CenterCrop,
    Flip,
    Normalise,
    PaddedCrop,
    RandomResizedCrop,
    Resize,
    Rotation,
    crop_boxes,
    cut,
    resize,
    sides,
)

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
STEPS = (Flip(), PaddedCrop(16, 2), RandomResizedCrop((9, 12)), Rotation(30), Resize(20), CenterCrop((7, 8)))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pixels(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(seed))


def naive_crop(image, top, left, height, width, padding):
    """Pixel by pixel, black outside."""
    found = torch.zeros(image.shape[0], height, width, dtype=image.dtype)
    for y in range(height):
        for x in range(width):
            row, column = y + top - padding, x + left - padding
            if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
                found[:, y, x] = image[:, row, column]
    return found


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("size", [(9, 9), (11, 6), (5, 13)])
def test_flip_padded_crop_and_normalise_pixel_by_pixel(batch, size):
    x = pixels(batch, 3, 9, 10)
    augment = Augment([Flip(0.4), PaddedCrop(size, 2), Normalise(MEAN, STD)])
    draws = augment.draw(batch, generator())
    assert draws.shape == (batch, 3)
    found = augment.apply(x, draws)
    assert found.dtype == torch.float32
    for i, (flip, row, column) in enumerate(draws.tolist()):
        image = x[i].flip(-1) if flip < 0.4 else x[i]
        window = naive_crop(image, int(row * (13 - size[0] + 1)), int(column * (14 - size[1] + 1)), *size, padding=2)
        for c in range(3):
            expected = (window[c].double() / 255 - MEAN[c]) / STD[c]
            torch.testing.assert_close(found[i, c].double(), expected, rtol=0, atol=1e-5)


def test_what_padding_brings_in_is_black_before_normalising():
    augment = Augment([PaddedCrop(4, 4), Normalise((0.5,), (0.25,))])
    found = augment.apply(torch.full((1, 1, 4, 4), 255, dtype=torch.uint8), torch.zeros(1, 2, dtype=torch.float64))
    assert found.unique().tolist() == [-2.0]


def test_offsets_are_uniform_with_both_borders():
    x = torch.arange(25, dtype=torch.float32).reshape(1, 1, 5, 5).expand(20000, 1, 5, 5)
    augment = Augment([PaddedCrop((3, 2), 1)])
    found = augment.apply(x + 1, augment.draw(20000, generator()))
    # The pixel at (1, 1) of a window says where it is, and 0 when it lies in the padding.
    places = {}
    for row in range(5):
        for column in range(6):
            value = float(x[0, 0, row, column] + 1) if column < 5 else 0.0
            places[value] = places.get(value, 0) + 1
    counts = {value: int((found[:, 0, 1, 1] == value).sum()) for value in places}
    assert sum(counts.values()) == 20000
    assert stats.chisquare(list(counts.values()), [20000 * n / 30 for n in places.values()]).pvalue > 0.01


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_flips_come_at_their_rate(p):
    augment = Augment([Flip(p)])
    x = torch.tensor([[0.0, 1.0]]).expand(5000, 1, 1, 2)
    rate = float(augment.apply(x, augment.draw(5000, generator()))[:, 0, 0, 0].mean())
    assert abs(rate - p) <= 4 * math.sqrt(p * (1 - p) / 5000)


def test_random_resized_crops_are_the_boxes_resized():
    x, step = pixels(6, 3, 31, 40), RandomResizedCrop((9, 12), scale=(0.2, 0.8), ratio=(0.5, 1.5))
    draws = Augment([step]).draw(6, generator())
    found = step.apply(x, draws)
    for i, (top, left, height, width) in enumerate(crop_boxes(draws, 31, 40, (0.2, 0.8), (0.5, 1.5)).tolist()):
        assert torch.equal(found[i], resize(x[i : i + 1, :, top : top + height, left : left + width], (9, 12))[0])


@pytest.mark.parametrize(("height", "width"), [(16, 16), (9, 14), (15, 8)])
def test_rotation_is_that_of_scipy(height, width):
    x, step = torch.rand(4, 2, height, width, generator=generator()), Rotation(180)
    draws = torch.tensor([[0.0], [0.25], [0.5], [0.61]], dtype=torch.float64)
    found = step.apply(x, draws)
    for i, angle in enumerate((-180, -90, 0, 0.22 * 180)):
        for c in range(2):
            expected = ndimage.rotate(
                x[i, c].double().numpy(), angle, reshape=False, order=1, mode="grid-constant", prefilter=False
            )
            torch.testing.assert_close(found[i, c].double(), torch.tensor(expected), rtol=0, atol=2e-5)


def test_a_positive_angle_turns_counter_clockwise():
    x = pixels(1, 3, 8, 8)
    quarter = Rotation(90).apply(x, torch.tensor([[1.0]]))
    torch.testing.assert_close(quarter, torch.rot90(x.float() / 255, 1, (2, 3)), rtol=0, atol=1e-5)


def test_angles_are_uniform():
    x = torch.zeros(3000, 1, 41, 41)
    x[:, :, 20, 40] = 1
    step = Augment([Rotation(60)])
    found = step.apply(x, step.draw(3000, generator()))[:, 0]
    rows, columns = torch.arange(41.0)[:, None] - 20, torch.arange(41.0)[None] - 20
    angle = torch.rad2deg(torch.atan2(-(found * rows).sum((1, 2)), (found * columns).sum((1, 2))))
    assert stats.kstest(angle.numpy(), stats.uniform(-60, 120).cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("shape", "size", "expected"), [((30, 45), 20, (20, 30)), ((45, 30), 20, (30, 20)), ((9, 9), (5, 7), (5, 7))]
)
def test_resize_keeps_the_shape_for_a_number_and_not_for_a_pair(shape, size, expected):
    x = pixels(2, 3, *shape)
    found = Resize(size).apply(x, torch.empty(2, 0))
    assert found.shape == (2, 3, *expected)
    assert torch.equal(found[1], resize(x[1:], expected)[0])


def test_the_middle_is_cut_out():
    x = pixels(2, 3, 9, 12)
    assert torch.equal(CenterCrop((5, 6)).apply(x, torch.empty(2, 0)), x[:, :, 2:7, 3:9])
    assert torch.equal(CenterCrop(9).apply(x, torch.empty(2, 0)), x[:, :, :, 2:11])
    with pytest.raises(ValueError, match="size must fit into the image, got 10 × 10 in 9 × 12"):
        CenterCrop(10).apply(x, torch.empty(2, 0))


def test_no_steps_give_pixels_in_the_unit_range_and_features_as_they_are():
    x = pixels(3, 1, 4, 5)
    assert torch.equal(Augment().apply(x, Augment().draw(3, generator())), x.float() / 255)
    features = torch.randn(3, 1, 4, 5, generator=generator())
    assert torch.equal(Augment().apply(features, torch.empty(3, 0)), features)


@pytest.mark.parametrize("more", [(), (Rotation(10),)])
def test_floats_in_the_unit_range_and_bytes_give_the_same(more):
    x, augment = pixels(5, 3, 12, 10), Augment([Flip(), PaddedCrop((12, 10), 2), *more, Normalise(MEAN, STD)])
    draws = augment.draw(5, generator())
    torch.testing.assert_close(augment.apply(x, draws), augment.apply(x.float() / 255, draws), rtol=0, atol=1e-5)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_row_comes_out_as_it_would_alone_and_the_input_stays(step, dtype):
    x = pixels(5, 3, 17, 22).to(dtype)
    before, augment = x.clone(), Augment([step, Normalise(MEAN, STD)])
    draws = augment.draw(5, generator())
    whole = augment.apply(x, draws)
    assert torch.equal(x, before)
    for rows in (slice(0, 1), slice(2, 5), slice(4, 5)):
        assert torch.equal(augment.apply(x[rows], draws[rows]), whole[rows])
    assert torch.equal(augment.apply([image.clone() for image in x], draws), whole)


def test_images_of_several_sizes_come_to_one():
    images = [pixels(3, 20, 31, seed=1), pixels(3, 40, 25, seed=2), pixels(3, 20, 31, seed=3)]
    augment = Augment([RandomResizedCrop(12), Flip(), Normalise(MEAN, STD)])
    draws = augment.draw(3, generator())
    found = augment.apply(images, draws)
    assert found.shape == (3, 3, 12, 12)
    assert torch.equal(found[1:2], augment.apply([images[1]], draws[1:2]))
    assert torch.equal(found[::2], augment.apply(torch.stack(images[::2]), draws[::2]))
    with pytest.raises(ValueError, match=r"steps must bring images of several sizes to one, got \(3, 20, 31\), \(3, 40, 25\)"):
        Augment().apply(images, torch.empty(3, 0))


def test_draws_depend_on_the_generator_alone():
    augment = Augment([Flip(), RandomResizedCrop(4)])
    before = torch.get_rng_state()
    assert torch.equal(augment.draw(6, generator(1)), augment.draw(6, generator(1)))
    assert not torch.equal(augment.draw(6, generator(1)), augment.draw(6, generator(2)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Flip(1.5), "p must lie in 0 … 1, got 1.5"),
        (lambda: PaddedCrop(0, 1), "size must be at least 1, got 0"),
        (lambda: PaddedCrop(4, -1), "padding must be at least 0, got -1"),
        (lambda: RandomResizedCrop(4, scale=(0.5, 0.2)), r"scale must be two ascending shares .* got \(0.5, 0.2\)"),
        (lambda: RandomResizedCrop(4, ratio=(0, 1)), r"ratio must be two ascending positive numbers, got \(0, 1\)"),
        (lambda: Rotation(181), "degrees must lie in 0 … 180, got 181"),
        (lambda: Normalise((0.5,), (0.5, 0.5)), "mean and std must have one number per channel"),
        (lambda: Normalise((0.5,), (0.0,)), "std must be positive"),
        (lambda: Augment([Normalise((0.5,), (0.5,)), Flip()]), "Normalise must be the last step"),
        (lambda: Augment([PaddedCrop(9, 1)]).apply(pixels(2, 1, 6, 9), torch.zeros(2, 2)), "got 9 × 9 in 8 × 11"),
        (lambda: Augment().apply(pixels(2, 1, 6, 9), torch.zeros(3, 0)), "one row per image, got 3 for 2"),
        (lambda: Normalise(MEAN, STD).apply(pixels(2, 1, 6, 9), torch.zeros(2, 0)), r"got 3 for x of shape \[2, 1, 6, 9\]"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def drawn(count, seed=0):
    return torch.rand(count, 22, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def box(numbers, height, width, scale, ratio):
    """One box by the definition: try after try."""
    for area, shape in zip(numbers[:10], numbers[10:20], strict=True):
        target = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * shape)
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 1 <= w <= width and 1 <= h <= height:
            return [int(numbers[20] * (height - h + 1)), int(numbers[21] * (width - w + 1)), h, w]
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize(("height", "width"), [(32, 32), (37, 64), (101, 20), (1, 1), (200, 3), (3, 200)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0)])
def test_boxes_are_those_of_the_definition_and_lie_in_the_image(height, width, scale):
    numbers, ratio = drawn(200), (3 / 4, 4 / 3)
    found = crop_boxes(numbers, height, width, scale, ratio)
    assert found.tolist() == [box(row, height, width, scale, ratio) for row in numbers.tolist()]
    assert (found[:, :2] >= 0).all()
    assert (found[:, 2:] >= 1).all()
    assert (found[:, :2] + found[:, 2:] <= torch.tensor([height, width])).all()


def test_what_never_fits_is_the_largest_allowed_part_in_the_middle():
    assert crop_boxes(drawn(5), 10, 100, (1.0, 1.0), (1.0, 1.0)).unique(dim=0).tolist() == [[0, 45, 10, 10]]
    assert crop_boxes(drawn(5), 101, 10, (1.0, 1.0), (0.5, 1.0)).unique(dim=0).tolist() == [[40, 0, 20, 10]]


def test_area_is_uniform_and_so_are_the_logarithm_of_the_shape_and_the_place():
    # Areas up to a quarter always fit into a large square, so nothing is drawn again.
    top, left, height, width = crop_boxes(drawn(4000), 2000, 2000, (0.05, 0.25), (0.5, 2.0)).double().T
    assert stats.kstest((height * width / 2000**2).numpy(), stats.uniform(0.05, 0.2).cdf).pvalue > 0.01
    assert stats.kstest(torch.log(width / height).numpy(), stats.uniform(-math.log(2), 2 * math.log(2)).cdf).pvalue > 0.01
    assert stats.kstest((top / (2000 - height)).numpy(), "uniform").pvalue > 0.01
    assert stats.kstest((left / (2000 - width)).numpy(), "uniform").pvalue > 0.01
    assert abs(float(torch.corrcoef(torch.stack([top, left]))[0, 1])) < 0.06


def test_places_reach_both_borders():
    boxes = crop_boxes(drawn(3000), 6, 5, (0.3, 0.3), (1.0, 1.0))
    assert boxes[:, 2:].unique(dim=0).tolist() == [[3, 3]]
    counts = torch.bincount(boxes[:, 0] * 3 + boxes[:, 1], minlength=12)
    assert len(counts) == 12
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_cut_takes_the_window_of_every_image():
    x = torch.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7)
    found = cut(x, torch.tensor([[0, 4], [2, 1]]), 3, 2)
    assert torch.equal(found[0], x[0, :, 0:3, 4:6])
    assert torch.equal(found[1], x[1, :, 2:5, 1:3])


@pytest.mark.parametrize("size", [(20, 33), (90, 50), (64, 48)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_is_that_of_pillow(size, channels):
    pixels = numpy.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=numpy.uint8)
    expected = numpy.array(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR))
    x = torch.tensor(pixels).permute(2, 0, 1)[None, :channels]
    found = resize(x, size)
    assert found.dtype == torch.uint8
    assert (found[0].int() - torch.tensor(expected).permute(2, 0, 1)[:channels].int()).abs().max() <= 1
    assert (resize(x.float(), size)[0] - torch.tensor(expected).permute(2, 0, 1)[:channels]).abs().max() <= 1.01


def test_memory_order_makes_no_difference():
    x = torch.randint(0, 256, (2, 3, 31, 45), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(resize(x, 16), resize(last, 16))
    assert torch.equal(resize(x, 16)[1:], resize(x[1:], 16))


def test_sizes():
    assert sides(3) == (3, 3)
    assert sides((2, 5)) == (2, 5)
    with pytest.raises(ValueError, match=r"size must be at least 1, got \(4, 0\)"):
        Resize((4, 0))
