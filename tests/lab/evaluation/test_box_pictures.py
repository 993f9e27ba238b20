"""Pictures with boxes and heat maps, as a network sees them."""

import numpy
import pytest
import torch

from drawn import Painter, drawing, noise, photos, written
from multimix.lab.data import Augment, CenterCrop, Normalise, Resize
from multimix.lab.evaluation.box_pictures import MAX_OPACITY, blend_heat, box_grid, pictures_seen
from multimix.lab.evaluation.localization import REFERENCE, Rule, box_pictures, measure_localization
from multimix.lab.evaluation.predictions import READING
from multimix.lab.evaluation.subject import Parts, Subject
from multimix.lab.images import PREDICTED_BOX, TRUE_BOX

RULE = Rule("sharp", cam_threshold=0.5, iou_threshold=0.5, top1=True, as_script=False)
AUGMENT = Augment([Resize(40), CenterCrop(40), Normalise((0.5,) * 3, (0.25,) * 3)])


def four(folder):
    pictures = [
        drawing(40, 60, (0, 20, 5, 10, 20)),
        drawing(40, 60, (1, 20, 5, 10, 20)),
        drawing(40, 60, (2, 30, 20, 9, 9)),
        drawing(40, 60, (2, 30, 20, 9, 9)),
    ]
    return written(folder, pictures, [0, 0, 2, 2], [[[20, 5, 10, 20]], [[20, 5, 10, 20]], [[11, 2, 5, 5]], []])


def test_titles_and_boxes_are_those_of_the_rule(tmp_path):
    split = four(tmp_path).take(torch.tensor([2, 0, 1, 3]))
    grid = box_pictures(Painter(), split, AUGMENT, rule=RULE)
    assert grid.titles == ("IoU 0.00, not found", "IoU 1.00, found", "IoU 1.00, class wrong")
    assert (grid.images.shape, grid.columns) == ((3, 40, 40, 3), 3)
    second = grid.boxes[grid.boxes[:, 0] == 1]
    assert second.tolist() == [[1, 10, 5, 10, 20, TRUE_BOX], [1, 10, 5, 10, 20, PREDICTED_BOX]]
    foreign = box_pictures(Painter(), four(tmp_path).take(torch.tensor([1])), AUGMENT, rule=RULE, foreign=True)
    assert foreign.titles == ("IoU 1.00, found",)


def test_pictures_are_not_normalized(tmp_path):
    seen = pictures_seen(four(tmp_path).take(torch.tensor([0])), AUGMENT)
    assert seen.shape == (1, 3, 40, 40)
    assert (float(seen.min()), float(seen.max())) == (0, 1)


def test_the_heat_map_covers_where_it_is_high():
    green = torch.tensor([0.2, 0.8, 0.2])[:, None, None].expand(1, -1, 6, 8)
    heat = torch.zeros(1, 6, 8)
    heat[:, 2:4, 2:6] = 1
    blended = blend_heat(green, heat)
    assert torch.equal(blended[:, :, heat[0] == 0], green[:, :, heat[0] == 0])
    hottest = torch.tensor([0.988362, 0.998364, 0.644924])  # the last color of inferno
    expected = (1 - MAX_OPACITY) * green[0, :, 0, 0] + MAX_OPACITY * hottest
    torch.testing.assert_close(blended[0, :, 2, 2], expected, rtol=0, atol=1e-4)


def test_gray_pictures_and_boxes_without_area():
    images = torch.tensor([0.0, 0.5, 1.0]).reshape(3, 1, 1, 1).expand(-1, -1, 4, 4)
    empty, box = torch.zeros(4), torch.tensor([0.5, 1, 2, 2])
    grid = box_grid(images, [box, empty, empty], [torch.zeros(0, 4)] * 3, ["a", "b", "c"], columns=5, caption="gray")
    assert [numpy.unique(image).tolist() for image in grid.images] == [[0], [128], [255]]
    assert grid.boxes.tolist() == [[0, 0.5, 1, 2, 2, PREDICTED_BOX]]
    assert (grid.columns, grid.caption, grid.titles) == (3, "gray", ("a", "b", "c"))
    assert box_grid(images[:1], [empty], [torch.zeros(0, 4)], [""], columns=5, caption="").boxes.shape == (0, 6)


@pytest.mark.parametrize(("count", "shown"), [(5, 5), (14, 10)])
def test_localization_stores_at_most_ten_pictures(tmp_path, count, shown):
    pictures = [noise(30, 30, seed=i) for i in range(count)]
    split = (
        photos(tmp_path) if count == 5 else written(tmp_path, pictures, [i % 3 for i in range(count)], [[[3, 4, 20, 20]]] * count)
    )
    augment = Augment([Resize((32, 28))])
    subject = Subject(Painter(), lambda: Parts(split), augment)
    grid = measure_localization(subject, READING).pictures["boxes"]
    rows = [round(i * (count - 1) / (shown - 1)) for i in range(shown)]
    expected = box_pictures(Painter(), split.take(torch.tensor(rows)), augment, rule=REFERENCE)
    assert (grid.titles, grid.columns) == (expected.titles, 5)
    assert (grid.images == expected.images).all()
    assert (grid.boxes == expected.boxes).all()
