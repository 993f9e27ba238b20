"""Pictures are PNG files with lines where the boxes are; examples are what the rule sees."""

import io

import numpy
import pytest
import torch
from PIL import Image, ImageColor

from drawn import Painter, drawing, noise, written
from multimix.lab.data import Augment, CenterCrop, Normalise, Resize
from multimix.lab.evaluation.localization import REFERENCE, Rule
from multimix.lab.results.figures.boxes import (
    BIRD,
    GAP,
    NAME,
    PREDICTED,
    RED,
    TRUE,
    BoxExample,
    birds_panels,
    birds_strip,
    box_examples,
    box_picture,
)
from multimix.lab.results.figures.boxes import GREEN as TRUE_BIRD

GREEN = "#33cc33"
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


def test_examples_are_what_the_rule_sees(tmp_path):
    examples = box_examples(Painter(), four(tmp_path), AUGMENT, torch.tensor([2, 0, 1, 3]), rule=RULE)
    assert [one.title for one in examples] == ["IoU 0.00, not found", "IoU 1.00, found", "IoU 1.00, class wrong"]
    assert examples[1].predicted.tolist() == examples[1].true[0].tolist() == [10, 5, 10, 20]
    assert examples[1].image.shape == (3, 40, 40)
    assert (float(examples[1].image.min()), float(examples[1].image.max())) == (0, 1)  # not normalised
    assert torch.equal(examples[1].heat, examples[1].image[0])
    foreign = box_examples(Painter(), four(tmp_path), AUGMENT, torch.tensor([1]), rule=RULE, foreign=True)
    assert foreign[0].title == "IoU 1.00, found"


def near(content, colour):
    """Pixels of the PNG close to a colour, [H, W]."""
    pixels = numpy.array(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    return numpy.abs(pixels - ImageColor.getrgb(colour)).max(2) < 12


def example(height=60, width=80, predicted=(5.0, 10, 50, 40), true=((20.0, 20, 40, 30),), channels=3):
    green = torch.tensor([0.2, 0.8, 0.2])[:channels, None, None].expand(-1, height, width)
    return BoxExample(green, torch.zeros(height, width), torch.tensor(predicted), torch.tensor(true).reshape(-1, 4), "IoU 0.50")


def test_lines_are_where_the_boxes_are():
    content = box_picture([example()])
    assert content.startswith(b"\x89PNG")
    image = near(content, GREEN)
    rows, columns = image.any(1).nonzero()[0], image.any(0).nonzero()[0]
    scale = (rows[-1] - rows[0] + 1) / 60
    for colour, (x, y, wide, high) in ((TRUE, (20, 20, 40, 30)), (PREDICTED, (5, 10, 50, 40))):
        inside = near(content, colour)
        inside[rows[-1] + 1 :] = False  # the legend is below
        found_rows, found_columns = inside.any(1).nonzero()[0], inside.any(0).nonzero()[0]
        ends = [
            (found_columns[0] - columns[0]) / scale,
            (found_rows[0] - rows[0]) / scale,
            (found_columns[-1] - columns[0]) / scale,
            (found_rows[-1] - rows[0]) / scale,
        ]
        assert ends == pytest.approx([x, y, x + wide, y + high], abs=1.5)
    solid, dashed = near(content, TRUE), near(content, PREDICTED)
    # Along its upper edge the true box is one line, the predicted one is broken.
    line = solid[int(rows[0] + 20 * scale) - 1 : int(rows[0] + 20 * scale) + 2].any(0)
    left, right = line.nonzero()[0][[0, -1]]
    assert line[left + 3 : right - 3].mean() > 0.95
    broken = dashed[int(rows[0] + 10 * scale) - 1 : int(rows[0] + 10 * scale) + 2].any(0)
    left, right = broken.nonzero()[0][[0, -1]]
    assert 0.3 < broken[left:right].mean() < 0.85


def test_a_grid_of_many_sizes():
    sizes = [(60, 80), (80, 60), (30, 30), (64, 64), (10, 90)]
    content = box_picture(
        [example(*size, true=(), channels=1 + 2 * (i % 2)) for i, size in enumerate(sizes)], columns=3, note="a note"
    )
    image = Image.open(io.BytesIO(content))
    assert image.width > image.height
    none = box_picture([example(predicted=(0.0, 0, 0, 0), true=())])
    legend = near(none, PREDICTED).any(1).nonzero()[0]
    assert legend.max() - legend.min() < 12  # only the legend has the colour
    with pytest.raises(ValueError, match="examples must hold at least 1 picture, got none"):
        box_picture([])
    with pytest.raises(ValueError, match="columns must be at least 1, got 0"):
        box_picture([example()], columns=0)


def test_the_heat_map_covers_where_it_is_high():
    cold, hot = example(true=(), predicted=(0.0, 0, 0, 0)), example(true=(), predicted=(0.0, 0, 0, 0))
    hot.heat[20:40, 20:60] = 1
    share = near(box_picture([hot]), GREEN).sum() / near(box_picture([cold]), GREEN).sum()
    assert share == pytest.approx(1 - 20 * 40 / (60 * 80), abs=0.01)


def test_examples_of_the_script_are_drawn(tmp_path):
    split = written(tmp_path, [noise(30, 40, seed=i) for i in range(3)], [0, 1, 2], [[[3, 4, 20, 20]]] * 3)
    examples = box_examples(Painter(), split, Augment([Resize((32, 28))]), torch.arange(3), rule=REFERENCE)
    assert len(box_picture(examples)) > 5000


def test_a_strip_of_birds_has_green_true_and_dashed_red_boxes():
    blue = torch.tensor([0.0, 0.0, 1.0])[:, None, None].expand(-1, 40, 40)
    box = torch.tensor([4.0, 8, 16, 20]), torch.tensor([[10.0, 10, 20, 25]])
    content = birds_strip([blue, blue], [box[0], box[1][0]], [box[1], box[0][None]])
    picture = Image.open(io.BytesIO(content))
    assert picture.size == (2 * BIRD + GAP, BIRD)
    edges = {}
    for colour, place in ((TRUE_BIRD, 0), (RED, 0), (TRUE_BIRD, 1), (RED, 1)):
        seen = near(content, colour)[:, place * (BIRD + GAP) : place * (BIRD + GAP) + BIRD]
        rows, columns = seen.any(1).nonzero()[0], seen.any(0).nonzero()[0]
        edges[colour, place] = [end * 40 / BIRD for end in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]
    for (colour, place), found in edges.items():
        x, y, wide, high = (box[0] if (colour == RED) == (place == 0) else box[1][0]).tolist()
        assert found == pytest.approx([x, y, x + wide, y + high], abs=0.6)
    side = near(content, RED)[:, round(4 * BIRD / 40)].sum()
    assert 0 < side < 0.8 * 20 * BIRD / 40  # with gaps


def test_panels_hold_every_strip_below_each_other():
    strips = {name: written_png((90, 30), colour) for name, colour in (("no mixup", "#123456"), ("multi-mix, K = 5", "#654321"))}
    content = birds_panels(strips)
    pixels = numpy.array(Image.open(io.BytesIO(content)).convert("RGB"))
    for place, colour in enumerate(("#123456", "#654321")):
        top = GAP + place * (30 + GAP)
        assert (pixels[top : top + 30, NAME : NAME + 90] == ImageColor.getrgb(colour)).all()
        assert (pixels[top : top + 30, :NAME].min(2) < 100).any()  # its name
    with pytest.raises(ValueError, match="at least 1 method"):
        birds_panels({})


def written_png(size, colour):
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, "PNG")
    return content.getvalue()
