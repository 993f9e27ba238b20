"""Boxes of maps drawn by hand; rules at their edges; accuracies of pictures whose maps are the pictures themselves."""

import json
from dataclasses import asdict, replace

import numpy
import pytest
import torch
from torch import nn

from drawn import CLASSES, Painter, drawing, noise, written
from multimix.lab.data import Augment, CenterCrop, Files, Resize
from multimix.lab.evaluation.boxes import iou, largest_box
from multimix.lab.evaluation.error import proportion
from multimix.lab.evaluation.localization import PAPER_TEXT, REFERENCE, Rule, box_of_map, localization
from multimix.lab.evaluation.predictions import Reading
from pretrained import as_it_was_trained, imagenet_validation, pretrained


def heat(height, width, *regions):
    """A map of zeros but for (x, y, width, height, value)."""
    made = torch.zeros(height, width)
    for x, y, wide, high, value in regions:
        made[y : y + high, x : x + wide] = value
    return made


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize(
    ("made", "cam_threshold", "box"),
    [
        (heat(7, 9), 0.25, [0, 0, 0, 0]),  # empty
        (torch.ones(7, 9), 0.25, [0, 0, 9, 7]),  # all of it is above a quarter of its maximum
        (torch.ones(7, 9), 1.0, [0, 0, 0, 0]),  # nothing is above the maximum
        (heat(7, 9, (2, 1, 3, 4, 1.0)), 0.25, [2, 1, 3, 4]),
        (heat(7, 9, (1, 1, 1, 1, 1.0), (5, 2, 3, 4, 0.6)), 0.25, [5, 2, 3, 4]),  # the largest region, not the highest
        (heat(7, 9, (1, 1, 1, 1, 1.0), (5, 2, 3, 4, 0.6)), 0.75, [1, 1, 1, 1]),
        (heat(7, 9, (0, 0, 2, 2, 0.8), (2, 2, 2, 2, 1.0)), 0.5, [0, 0, 4, 4]),  # they touch at a corner
        (heat(5, 12, (9, 0, 3, 5, 1.0)), 0.5, [9, 0, 3, 5]),  # at the border
        (heat(12, 5, (0, 11, 5, 1, 1.0)), 0.5, [0, 11, 5, 1]),
        (heat(7, 9, (2, 1, 3, 4, 0.4), (3, 2, 1, 1, 0.8)), 0.45, [2, 1, 3, 4]),  # a share of the maximum, which is not 1
    ],
)
def test_boxes_of_maps_drawn_by_hand(made, cam_threshold, box, in_bytes):
    assert box_of_map(made, cam_threshold, in_bytes=in_bytes).tolist() == box


def test_the_script_cuts_to_whole_numbers_first():
    # A quarter of 255 is 63.75, cut to 63: a pixel needs 64 of 255.
    made = heat(3, 4, (0, 0, 1, 1, 1.0), (1, 0, 1, 1, 0.2505))
    assert box_of_map(made, 0.25).tolist() == [0, 0, 2, 1]
    assert box_of_map(made, 0.25, in_bytes=True).tolist() == [0, 0, 1, 1]
    made[0, 1] = 64.5 / 255
    assert box_of_map(made, 0.25, in_bytes=True).tolist() == [0, 0, 2, 1]
    # 63.9 is cut off to 63, which is not above 63, though a plain share would be.
    assert box_of_map(heat(3, 4, (0, 0, 1, 1, 1.0), (1, 0, 1, 1, 63.9 / 255)), 0.25, in_bytes=True).tolist() == [0, 0, 1, 1]
    assert box_of_map(heat(3, 4, (0, 0, 1, 1, 1.0), (1, 0, 1, 1, 0.25)), 0.25).tolist() == [0, 0, 1, 1]  # above, not at


def test_rules_at_their_edges():
    overlap, correct = torch.tensor([0.25, 0.2501, 0.5, 0.4999, 1.0], dtype=torch.float64), torch.tensor([True] * 5)
    assert PAPER_TEXT.met(overlap, correct).tolist() == [False, True, True, True, True]
    assert PAPER_TEXT.met(overlap, ~correct).tolist() == [False, True, True, True, True]
    assert REFERENCE.met(overlap, correct).tolist() == [False, False, True, False, True]
    assert not REFERENCE.met(overlap, ~correct).any()


def test_the_two_thresholds_are_what_the_sources_say():
    assert (PAPER_TEXT.cam_threshold, PAPER_TEXT.iou_threshold, PAPER_TEXT.above, PAPER_TEXT.top1) == (0.25, 0.25, True, False)
    assert (REFERENCE.cam_threshold, REFERENCE.iou_threshold, REFERENCE.above, REFERENCE.top1) == (0.25, 0.5, False, True)
    assert REFERENCE.as_script


def test_the_best_of_the_true_boxes_counts_in_whole_pixels_or_not():
    box, true = torch.tensor([2.0, 2, 4, 4]), torch.tensor([[2.6, 2.6, 4.0, 4.0], [20.0, 20, 4, 4]])
    assert REFERENCE.overlap(box, true) == 1  # 2.6 … 6.6 is cut to 2 … 6
    assert replace(REFERENCE, as_script=False).overlap(box, true) == pytest.approx(3.4**2 / (32 - 3.4**2))
    assert REFERENCE.overlap(box, true.flip(0)) == 1
    assert REFERENCE.overlap(box, true[:0]) == 0


SHARP = Rule("sharp", cam_threshold=0.5, iou_threshold=0.5, top1=True, as_script=False)
LOOSE = Rule("loose", cam_threshold=0.5, iou_threshold=0.25, above=True, as_script=False)


def six(folder):
    """Exact; class wrong; a third; disjoint on both axes; out of sight; no box. Pictures of 40 × 60, of which 40 × 40 is seen."""
    pictures = [
        drawing(40, 60, (0, 20, 5, 10, 20)),
        drawing(40, 60, (1, 30, 10, 10, 20)),
        drawing(40, 60, (2, 20, 10, 10, 20)),
        drawing(40, 60, (0, 14, 4, 8, 8)),
        drawing(40, 60, (1, 30, 30, 9, 9)),
        drawing(40, 60, (1, 30, 30, 9, 9)),
    ]
    boxes = [
        [[20, 5, 10, 20]],
        [[0, 0, 60, 40], [30, 10, 10, 20]],
        [[20, 10, 10, 20 / 3], [2, 0, 5, 5]],
        [[30, 30, 8, 8]],
        [[0, 0, 9, 9]],
        [],
    ]
    return written(folder, pictures, [0, 0, 2, 0, 1, 1], boxes)


CENTRE = Augment([Resize(40), CenterCrop(40)])


def test_accuracies_of_six_pictures(tmp_path):
    found = localization(Painter(), six(tmp_path), CENTRE, rules=(SHARP, LOOSE), thresholds=0)
    assert (found.n, found.without_box, found.vanished_boxes, found.vanished_images) == (5, 1, 2, 1)
    assert found.error == proportion(1, 5)
    assert found["sharp"].accuracy == proportion(1, 5)  # the first
    assert found["loose"].accuracy == proportion(3, 5)  # the first three: the class does not count, a third is enough
    assert found["loose"].iou_threshold == 0.25
    assert found["loose"].cam_threshold == 0.5
    assert json.loads(json.dumps(asdict(found)))["accuracies"][0]["accuracy"]["count"] == 1


def test_the_reference_rule_sees_a_sum_of_nine(tmp_path):
    # Sums over 3 × 3 are 3/9 beside an edge, above a quarter, and 1/9 at a corner: the box is one pixel wider all around.
    split = written(tmp_path, [drawing(32, 32, (0, 8, 9, 4, 4))] * 2, [0, 1], [[[8, 9, 4, 4]], [[7, 8, 6, 6]]])
    found = localization(Painter(), split, Augment(), thresholds=0)
    assert found["paper_text"].accuracy == proportion(2, 2)
    assert found["reference"].accuracy == proportion(0, 2)  # 16/36 of the first; the second has another class
    found = localization(Painter(), replace(split, labels=torch.tensor([0, 0])), Augment(), thresholds=0)
    assert found["reference"].accuracy == proportion(1, 2)


def graded(folder, count=9):
    """Random pyramids of three colours, so that thresholds matter, on noise."""
    draws = numpy.random.default_rng(5)
    pictures, boxes, labels = [], [], []
    for i in range(count):
        height, width = 24 + i, 40 - 2 * i
        picture, label = noise(height, width, seed=i) // 8, int(draws.integers(3))
        x, y = int(draws.integers(2, width - 16)), int(draws.integers(2, height - 16))
        for ring in range(6):
            part = picture[y + ring : y + 14 - ring, x + ring : x + 12 - ring]
            part[..., label] = 60 + 38 * ring
        if i % 4 == 0:  # so that another class is predicted
            picture[..., (label + 1) % 3] = 250
        edge = int(draws.integers(0, 5))
        pictures.append(picture)
        boxes.append([[x + edge, y + edge, 12 - 2 * edge, 14 - 2 * edge], [0, 0, 2, 2]])
        labels.append(label)
    return written(folder, pictures, labels, boxes)


def test_max_box_accuracy_is_the_best_of_all_thresholds(tmp_path):
    split, augment = graded(tmp_path), Augment([Resize((28, 34))])
    found = localization(Painter(), split, augment, thresholds=20)
    overlaps, correct = numpy.zeros((len(split), 20)), []
    for i in range(len(split)):
        image, _ = split.batch(torch.tensor([i]))
        x = augment.apply(image, torch.zeros(1, 0))[0]
        correct.append(int(x.mean((1, 2)).argmax()) == int(split.labels[i]))
        plane = x[split.labels[i]].numpy()
        plane = (plane - plane.min()) / (plane.max() - plane.min())
        scale = torch.tensor([34 / image.shape[3], 28 / image.shape[2]] * 2)
        for j in range(20):
            box = torch.tensor([largest_box(plane > j / 20)])
            overlaps[i, j] = iou(box, split.boxes[i] * scale).max()
    correct = numpy.array(correct)
    assert 0 < correct.sum() < len(split)
    best = set()
    for name, allowed in (("gt_known", True), ("top1", correct[:, None])):
        for least in (0.3, 0.5, 0.7):
            hits = ((overlaps >= least) & allowed).sum(0)
            one = found[f"max_box_{name}_{least}"]
            assert one.accuracy == proportion(int(hits.max()), len(split)), (name, least)
            assert one.cam_threshold == pytest.approx(int(hits.argmax()) / 20)
            assert one.iou_threshold == least
            best.add(one.cam_threshold)
    assert len(best) > 1
    assert found["max_box_gt_known_0.3"].accuracy.count > found["max_box_top1_0.3"].accuracy.count


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_batches_and_workers_do_not_matter(tmp_path):
    split, augment, ticks = graded(tmp_path), Augment([Resize((28, 34))]), []

    def progress(numbers):
        ticks.append(len(numbers))
        return iter(numbers)

    whole = localization(Painter(), split, augment, thresholds=10)
    assert localization(Painter(), split, augment, thresholds=10, reading=Reading(4, 1, progress)) == whole
    assert ticks == [3]


class Wide(nn.Module):
    """A fourth class that never wins."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(4)[:, :3])
            self.head.bias.copy_(torch.tensor([0, 0, 0, -9.0]))
        self.features = nn.Identity()

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def test_a_network_with_other_classes(tmp_path):
    split = six(tmp_path)
    with pytest.raises(ValueError, match="the network must have the 3 classes of the split, it has 4; with foreign=True"):
        localization(Wide(), split, CENTRE)
    found = localization(Wide(), split, CENTRE, foreign=True, thresholds=10)
    assert found.error is None
    names = ["paper_text", "max_box_predicted_0.3", "max_box_predicted_0.5", "max_box_predicted_0.7"]
    assert [one.name for one in found.accuracies] == names
    assert found["max_box_predicted_0.7"].accuracy == proportion(2, 5)


def test_what_cannot_be_measured_is_one_sentence(tmp_path):
    split = six(tmp_path)
    with pytest.raises(ValueError, match="split must have boxes"):
        localization(Painter(), Files(split.paths, split.labels, CLASSES, split.reader), CENTRE)


def test_a_constant_map_finds_nothing(tmp_path):
    split = written(tmp_path, [numpy.full((20, 20, 3), (90, 20, 20), dtype=numpy.uint8)], [0], [[[0, 0, 20, 20]]])
    found = localization(Painter(), split, Augment(), thresholds=10)
    assert {one.accuracy for one in found.accuracies} == {proportion(0, 1)}
    assert found.error == proportion(0, 1)


@pytest.mark.slow
def test_a_pretrained_network_finds_real_objects():
    split = imagenet_validation(boxes=True)
    split = split.take(torch.arange(0, len(split), 8)[:30])
    found = localization(pretrained(), split, as_it_was_trained(), thresholds=20)
    assert found.n == 30
    assert found.error is not None
    assert found.error.percent < 45
    # Plausible, and in the order that follows from the definitions.
    assert found["reference"].accuracy.percent > 25
    assert found["paper_text"].accuracy.percent > 70
    assert found["max_box_gt_known_0.3"].accuracy.count >= found["max_box_gt_known_0.5"].accuracy.count
    assert found["max_box_gt_known_0.5"].accuracy.count >= found["max_box_top1_0.5"].accuracy.count
    assert found["max_box_gt_known_0.5"].accuracy.percent > 45
