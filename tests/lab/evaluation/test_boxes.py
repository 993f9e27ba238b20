"""Overlaps against counted pixels, places against pictures of coordinates, regions against a walk around them."""

from functools import partial
from itertools import pairwise

import numpy
import pytest
import torch
from scipy import ndimage

from drawn import noise, written
from multimix.lab.data import Augment, BadFile, CenterCrop, Flip, Images, Normalise, Resize
from multimix.lab.data.reading import read_picture
from multimix.lab.evaluation.boxes import boxed_batches, clipped, covered, iou, largest_box, seen_boxes, with_boxes


def one_iou(first, second):
    return float(iou(torch.tensor([first]), torch.tensor([second])))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.0, 0, 1, 1], [2.0, 2, 1, 1], 0),  # apart on both axes: a product of two negative overlaps is positive
        ([0.0, 0, 1, 1], [5.0, 0, 1, 1], 0),
        ([0.0, 0, 2, 3], [2.0, 1, 4, 4], 0),  # an edge in common
        ([0.0, 0, 2, 2], [2.0, 2, 2, 2], 0),  # a corner in common
        ([0.0, 0, 10, 10], [2.0, 3, 4, 5], 0.2),  # nested
        ([1.0, 2, 4, 6], [1.0, 2, 4, 6], 1),
        ([0.0, 0, 4, 4], [2.0, 2, 4, 4], 4 / 28),
        ([0.0, 0, 2, 2], [1.0, 0, 2, 2], 1 / 3),
        ([3.0, 3, 0, 0], [3.0, 3, 0, 0], 0),  # no area, though equal
        ([3.0, 3, 0, 5], [0.0, 0, 9, 9], 0),
        ([3.0, 3, -2, 5], [0.0, 0, 9, 9], 0),
        ([-4.0, -4, 8, 8], [0.0, 0, 4, 4], 0.25),
    ],
)
def test_overlap_of_two_boxes_by_hand(first, second, expected):
    assert one_iou(first, second) == pytest.approx(expected, abs=1e-12)
    assert one_iou(second, first) == one_iou(first, second)


def test_overlaps_are_counted_pixels():
    draws = torch.Generator().manual_seed(0)
    boxes = torch.cat([torch.randint(0, 12, (40, 2), generator=draws), torch.randint(0, 9, (40, 2), generator=draws)], 1)
    masks = torch.stack([covered(box[None], 24, 24) for box in boxes])
    first, second = boxes[:17], boxes[17:]
    found = iou(first, second)
    assert found.shape == (17, 23)
    for i in range(17):
        for j in range(23):
            both, either = masks[i] & masks[17 + j], masks[i] | masks[17 + j]
            assert float(found[i, j]) == pytest.approx(int(both.sum()) / max(1, int(either.sum())), abs=1e-12)


def test_equal_boxes_overlap_exactly_whatever_the_rounding():
    boxes = torch.rand(500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100
    assert iou(boxes, boxes).diagonal().tolist() == [1.0] * 500


def test_boxes_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"boxes must be \[n, 4\]: x, y, width, height, got \[4\]"):
        iou(torch.zeros(4), torch.zeros(1, 4))
    with pytest.raises(ValueError, match="boxes must be finite, got NaN or infinity"):
        clipped(torch.tensor([[0.0, 0, float("nan"), 1]]), 5, 5)


def test_what_lies_outside_is_cut_off_and_what_is_wholly_outside_dropped():
    boxes = [
        [-3.0, 2, 5, 4],
        [8.0, 1, 5, 2],
        [10.0, 0, 3, 3],
        [2.0, 7, 3, 1],
        [2.0, 6.5, 3, 9],
        [4.0, 4, 0, 2],
        [-9.0, -9, 50, 50],
    ]
    kept = [[0, 2, 2, 4], [8, 1, 2, 2], [2, 6.5, 3, 0.5], [0, 0, 10, 7]]
    assert clipped(torch.tensor(boxes), 7, 10).tolist() == kept
    assert clipped(torch.zeros(0, 4), 7, 10).shape == (0, 4)


def test_every_pixel_a_box_touches_is_covered():
    boxes = torch.tensor([[1.2, 2.0, 2.0, 1.5], [6.0, 0.0, 1.0, 1.0], [-2.0, 5.5, 3.0, 30.0], [20.0, 0, 2, 2]])
    mask = covered(boxes, 7, 9)
    for row in range(7):
        for column in range(9):
            touched = any(
                min(x + w, column + 1) - max(x, column) > 1e-3 and min(y + h, row + 1) - max(y, row) > 1e-3
                for x, y, w, h in boxes.tolist()
            )
            assert bool(mask[row, column]) == touched, (row, column)
    # 0.1 · 3 is a little more than 0.3: rounding must not touch another pixel.
    assert covered(torch.tensor([[0.0, 0.0, 10 * (0.1 * 3), 1.0]], dtype=torch.float64), 1, 9).sum() == 3


@pytest.mark.parametrize(
    ("size", "steps"),
    [
        ((37, 53), [Resize(24), CenterCrop(17)]),
        ((53, 37), [Resize(24), CenterCrop((18, 21))]),
        ((20, 31), [Resize(45), CenterCrop((40, 41))]),
        ((37, 53), [Resize((30, 29)), CenterCrop(22)]),
        ((37, 53), [CenterCrop((30, 44)), Resize(17)]),
        ((37, 53), []),
    ],
)
def test_boxes_go_where_pictures_of_coordinates_go(size, steps):
    height, width = size
    ramps = torch.stack(
        [(torch.arange(width) + 0.5).expand(height, width), (torch.arange(height) + 0.5)[:, None].expand(height, width)]
    )
    seen = Augment(steps).apply(ramps[None], torch.zeros(1, 0))[0]
    # Away from the edges ramps stay straight but for rounding: read off where the picture's places went.
    step_x, x0 = numpy.polyfit(numpy.arange(seen.shape[2])[3:-3] + 0.5, seen[0, 8, 3:-3].numpy(), 1)
    step_y, y0 = numpy.polyfit(numpy.arange(seen.shape[1])[3:-3] + 0.5, seen[1, 3:-3, 8].numpy(), 1)
    box = torch.tensor([[width * 0.4, height * 0.45, width * 0.2, height * 0.1]])
    x, y, wide, high = box[0].tolist()
    expected = [(x - x0) / step_x, (y - y0) / step_y, wide / step_x, high / step_y]
    assert seen_boxes(box, size, size, Augment(steps))[0].tolist() == pytest.approx(expected, abs=0.03)
    # The same box in a file twice as large that was made smaller when it was read.
    assert seen_boxes(2 * box, (2 * height, 2 * width), size, Augment(steps))[0].tolist() == pytest.approx(expected, abs=0.03)


def test_boxes_outside_the_view_are_dropped():
    augment = Augment([CenterCrop(10), Normalise((0.5,), (0.5,))])
    boxes = torch.tensor([[0.0, 0, 5, 5], [3.0, 3, 4, 4], [10.0, 10, 3, 3]])
    assert seen_boxes(boxes, (20, 20), (20, 20), augment).tolist() == [[0, 0, 2, 2], [5, 5, 3, 3]]


def test_steps_that_boxes_cannot_follow_are_named(tmp_path):
    split = written(tmp_path, [noise(9, 9)], [0], [[[0, 0, 3, 3]]])
    with pytest.raises(ValueError, match="boxes can be followed through Resize, CenterCrop and Normalise only, augment has Flip"):
        boxed_batches(split, Augment([Flip()]))


def five(folder, **options):
    sizes = [(20, 31), (33, 18), (24, 24), (40, 19), (21, 50)]
    boxes = [[[2, 3, 8, 9]], [[0, 0, 18, 3], [5, 14, 6, 6]], [], [[4, 10, 9, 20], [0, 39, 2, 1], [18, 0, 1, 1]], [[40, 5, 9, 9]]]
    return written(folder, [noise(*size, seed=i) for i, size in enumerate(sizes)], [2, 0, 1, 1, 0], boxes, **options)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_batches_in_order_with_boxes_in_their_pixels(tmp_path):
    split, augment = five(tmp_path), Augment([Resize(20), CenterCrop(16), Normalise((0.5,) * 3, (0.5,) * 3)])
    parts = list(boxed_batches(split, augment, batch=2))
    assert [len(part.x) for part in parts] == [2, 2, 1]
    assert torch.cat([part.labels for part in parts]).tolist() == [2, 0, 1, 1, 0]
    boxes, vanished = [some for part in parts for some in part.boxes], [n for part in parts for n in part.vanished]
    assert [len(some) for some in boxes] == [1, 1, 0, 1, 0]
    assert vanished == [0, 1, 0, 2, 1]
    assert boxes[0].tolist() == [[0, 1, 2, 9]]  # 31 × 20 as it is; 8 columns and 2 rows are cut off
    x, _ = split.batch(torch.tensor([3]))
    assert torch.equal(parts[1].x[1:], augment.apply(x, torch.zeros(1, 0)))
    for one, other in zip(parts, boxed_batches(split, augment, batch=2, workers=2), strict=True):
        assert torch.equal(one.x, other.x)
        assert all(torch.equal(a, b) for a, b in zip(one.boxes, other.boxes, strict=True))
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        boxed_batches(split, augment, batch=0)


def test_boxes_are_those_of_the_file_also_if_it_is_read_smaller(tmp_path):
    picture = noise(40, 60)
    whole = written(tmp_path, [picture], [0], [[[10, 20, 30, 10]]])
    small = written(tmp_path, [picture], [0], [[[10, 20, 30, 10]]], reader=partial(read_picture, short_side=20))
    assert next(iter(boxed_batches(small, Augment(), 1))).boxes[0].tolist() == [[5, 10, 15, 5]]
    for split in (whole, small):
        assert next(iter(boxed_batches(split, Augment([Resize(10)]), 1))).boxes[0].tolist() == [[2.5, 5, 7.5, 2.5]]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_is_one_sentence(tmp_path, workers):
    split = five(tmp_path)
    (tmp_path / "3.png").unlink()
    with pytest.raises(BadFile, match="3.png is missing$") as caught:
        list(boxed_batches(split, Augment([Resize((16, 16))]), 2, workers))
    assert "\n" not in str(caught.value)  # no traceback of the worker in it


def test_only_samples_with_boxes_are_kept(tmp_path):
    assert with_boxes(five(tmp_path)).labels.tolist() == [2, 0, 1, 0]
    bare = written(tmp_path, [noise(5, 5)], [0])
    with pytest.raises(ValueError, match="split must have boxes .*, got Files"):
        with_boxes(bare)
    with pytest.raises(ValueError, match="split must have boxes .*, got Images"):
        with_boxes(Images(torch.zeros(1, 3, 4, 4), torch.tensor([0]), ("a",)))
    with pytest.raises(ValueError, match="at least 1 sample with a box, it has none"):
        with_boxes(written(tmp_path, [noise(5, 5)], [0], [[]]))


def drawn(*lines):
    return numpy.array([[letter == "#" for letter in line] for line in lines])


@pytest.mark.parametrize(
    ("mask", "box"),
    [
        (drawn("....", "...."), (0, 0, 0, 0)),
        (drawn("####", "####"), (0, 0, 4, 2)),
        (drawn(".....", "..##.", "..#.."), (2, 1, 2, 2)),
        (drawn("##...#", "......", "....##", "....##"), (4, 2, 2, 2)),  # the largest of three
        (drawn("#....", ".#...", "..#..", "...##", "....."), (0, 0, 5, 4)),  # corners connect
        (drawn("##...##", "##...##"), (5, 0, 2, 2)),  # the last of equal ones
        # The ring's contour encloses 9; the block beside it has more pixels, 14 against 12, and encloses 6.
        (drawn("####...", "#..#.##", "#..#.##", "####.##", ".....##", ".....##", ".....##", ".....##"), (0, 0, 4, 4)),
        (drawn("##....", "##....", "......", "######"), (0, 0, 2, 2)),  # a line of more pixels encloses nothing
        (drawn("###.#", "#.#.#", "###.#", "....#"), (0, 0, 3, 3)),
        (drawn("......#", "......#"), (6, 0, 1, 2)),  # at the border
    ],
)
def test_the_box_of_the_largest_region_by_hand(mask, box):
    assert largest_box(mask) == box


CLOCKWISE = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]  # rows go down


def reached(mask, start):
    """All places of ``mask`` that can be reached from ``start``, over corners, too."""
    found, todo = {start}, [start]
    while todo:
        row, column = todo.pop()
        for down, across in CLOCKWISE:
            place = (row + down, column + across)
            inside = 0 <= place[0] < mask.shape[0] and 0 <= place[1] < mask.shape[1]
            if inside and place not in found and mask[place]:
                found.add(place)
                todo.append(place)
    return found


def contour(region):
    """The outermost pixels of ``region`` in order: a walk with the outside to the left, until its first step comes again."""
    first = min(region)
    here, back, walked, steps = first, 4, [], []  # nothing lies to the left of the first
    while True:
        places = [
            (turn, (here[0] + CLOCKWISE[turn % 8][0], here[1] + CLOCKWISE[turn % 8][1])) for turn in range(back + 1, back + 9)
        ]
        step = next(((turn % 8, place) for turn, place in places if place in region), None)
        if step is None or (here == first and step[0] in steps[:1]):
            return [*walked, first]
        walked.append(here)
        steps.append(step[0])
        here, back = step[1], (step[0] + 4) % 8


def naive_box(mask):
    """The box of the region whose contour encloses most, walked around and measured as a polygon."""
    seen, best, most = set(), (0, 0, 0, 0), -1.0
    for place in zip(*mask.nonzero(), strict=True):
        if place in seen:
            continue
        region = reached(mask, place)
        seen |= region
        around = contour(region)
        area = abs(sum(r * d - c * b for (r, c), (b, d) in pairwise(around))) / 2
        if area >= most:
            rows, columns = [r for r, _ in region], [c for _, c in region]
            box = (min(columns), min(rows), max(columns) - min(columns) + 1, max(rows) - min(rows) + 1)
            most, best = area, tuple(map(int, box))
    return best


def random_masks(count):
    draws = numpy.random.default_rng(0)
    for number in range(count):
        values = draws.random(draws.integers(1, 24, 2))
        values = ndimage.gaussian_filter(values, 1.0) if number % 2 else values
        yield values > numpy.quantile(values, draws.choice([0.3, 0.5, 0.75, 0.9]))


def test_the_box_of_the_largest_region_by_a_walk_around_each():
    for mask in random_masks(120):
        assert largest_box(mask) == naive_box(mask)


def test_the_box_of_the_largest_region_is_that_of_the_authors_calls():
    cv2 = pytest.importorskip("cv2", reason="OpenCV is compared with where it is installed")
    for mask in random_masks(1000):
        found, _ = cv2.findContours(mask.astype(numpy.uint8), cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
        expected = tuple(cv2.boundingRect(max(found, key=cv2.contourArea))) if found else (0, 0, 0, 0)
        assert largest_box(mask) == expected
