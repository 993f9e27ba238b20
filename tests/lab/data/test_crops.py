import math

import numpy
import pytest
import torch
from PIL import Image
from scipy import stats

from multimix.lab.data.crops import check_size, crop_boxes, cut, resized, sides


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
    found = resized(x, size)
    assert found.dtype == torch.uint8
    assert (found[0].int() - torch.tensor(expected).permute(2, 0, 1)[:channels].int()).abs().max() <= 1
    assert (resized(x.float(), size)[0] - torch.tensor(expected).permute(2, 0, 1)[:channels]).abs().max() <= 1.01


def test_memory_order_makes_no_difference():
    x = torch.randint(0, 256, (2, 3, 31, 45), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(resized(x, 16), resized(last, 16))
    assert torch.equal(resized(x, 16)[1:], resized(x[1:], 16))


def test_sizes():
    assert sides(3) == (3, 3)
    assert sides((2, 5)) == (2, 5)
    with pytest.raises(ValueError, match=r"size must be at least 1, got \(4, 0\)"):
        check_size((4, 0))
