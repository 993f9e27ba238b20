"""What is trained moves as Adam moves it, and nothing else moves at all."""

import copy
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from drawn import drawing, noise, written
from multimix.lab.data import Augment, CenterCrop, Flip, Loader, Normalise, Resize
from multimix.lab.evaluation.base import measure_named
from multimix.lab.evaluation.boxes import iou
from multimix.lab.evaluation.cam import cam_pass, find_layers, heat_maps
from multimix.lab.evaluation.localization import PAPER_TEXT, REFERENCE, box_of_map, localization
from multimix.lab.evaluation.predictions import READING
from multimix.lab.evaluation.runner import query_for
from multimix.lab.evaluation.subject import Subject
from multimix.lab.evaluation.transfer import (
    TRANSFER_RULES,
    last_stage,
    measure_transfer,
    put_new_head,
    train_on,
)
from multimix.lab.images import PREDICTED_BOX, TRUE_BOX
from multimix.lab.nets import network
from pretrained import as_it_was_trained, pretrained
from real_data import real

VIEW = Augment([Resize((24, 24)), Normalise((0.3,) * 3, (0.3,) * 3)])
TRAIN = Augment([Resize((24, 24)), Flip(), Normalise((0.3,) * 3, (0.3,) * 3)])


def birds(folder, count, seed):
    """Squares of three colours on noise, with their boxes; sizes differ."""
    draws = numpy.random.default_rng(seed)
    pictures, boxes = [], []
    for i in range(count):
        height, width = 24 + int(draws.integers(9)), 24 + int(draws.integers(9))
        place = [int(draws.integers(0, 12)), int(draws.integers(0, 12)), 10, 11]
        pictures.append(numpy.maximum(noise(height, width, seed=100 * seed + i) // 4, drawing(height, width, (i % 3, *place))))
        boxes.append([place])
    return written(folder / str(seed), pictures, [i % 3 for i in range(count)], boxes)


@pytest.fixture
def splits(tmp_path):
    return birds(tmp_path, 12, 1), birds(tmp_path, 7, 2)


def net(name="preact_resnet18_small", classes=5, seed=0):
    torch.manual_seed(seed)
    return network(name, classes)


def transfer(given, train, test, **options):
    return train_on(given, train, test, TRAIN, VIEW, **options)


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("preact_resnet18_small", ("stage4", "head")),
        ("wrn16_8_small", ("stage3", "norm", "head")),
        ("resnet50_small", ("stage4", "head")),
    ],
)
def test_only_the_last_stage_and_the_head_change(splits, name, parts):
    given = net(name)
    given.train()
    for i, weight in enumerate(given.parameters()):
        weight.requires_grad_(i % 5 != 1)
        weight.grad = torch.ones_like(weight) if i == 0 else None
    before = state(given)
    moved, result = transfer(given, *splits, count=2, batch=6)
    assert result.trained == tuple(key for key, _ in given.named_parameters() if key.startswith(parts))
    after = moved.state_dict()
    for key, value in before.items():
        if key.startswith("head"):
            continue
        same = torch.equal(value, after[key])
        if not key.startswith(parts):
            assert same, key  # batch-norm statistics among them
        elif "num_batches" not in key:
            assert not same, key
    assert after["head.weight"].shape[0] == after["head.bias"].shape[0] == 3
    # The network that was handed in did not notice.
    assert all(torch.equal(value, given.state_dict()[key]) for key, value in before.items())
    assert all(module.training for module in given.modules())
    for i, ((key, weight), copied) in enumerate(zip(given.named_parameters(), moved.parameters(), strict=True)):
        assert weight.requires_grad == (i % 5 != 1)
        assert (weight.grad is None) == (i != 0)
        assert copied.grad is None
        assert copied.requires_grad == (True if key.startswith("head") else i % 5 != 1)
    assert not any(module.training for module in moved.modules())


def test_one_step_moves_every_weight_by_the_learning_rate(splits):
    given = net()
    moved, _ = transfer(given, *splits, unit="step", count=1, batch=6)
    start = copy.deepcopy(given)
    put_new_head(start, "head", 3, seed=0)
    steps = torch.cat(
        [(b - a).detach().abs().flatten() for (name, a), b in zip(start.named_parameters(), moved.parameters(), strict=True)]
    )
    # Adam's first step is lr · g / (|g| + 1e-8).
    moving = steps[steps > 0]
    assert len(moving) > 1000
    assert float(moving.max()) < 1.01e-4
    assert float(moving.median()) == pytest.approx(1e-4, rel=0.01)


def test_training_is_a_plain_loop(splits):
    given, seen = net(), []
    given.stage3.register_forward_hook(lambda module, x, result: seen.append(result.requires_grad))  # the copy has it, too
    moved, result = transfer(given, *splits, count=2, batch=6, seed=5)
    assert seen
    assert not any(seen)  # no graph where nothing is trained
    own = copy.deepcopy(given).eval()
    put_new_head(own, "head", 3, seed=5)
    own.stage4.train()
    optimizer = torch.optim.Adam([*own.stage4.parameters(), *own.head.parameters()], lr=1e-4)
    for epoch in range(2):
        losses = []
        for x, y in Loader(splits[0], TRAIN, batch=6, seed=5).epoch(epoch):
            loss = nn.functional.cross_entropy(own(x), y)
            for weight in own.parameters():
                weight.grad = None
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert result.rows[epoch].loss == pytest.approx(sum(losses) / 2, rel=1e-5)
    for (name, a), b in zip(own.state_dict().items(), moved.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7, msg=name)


def test_an_epoch_is_its_steps(splits):
    by_epoch, epochs = transfer(net(), *splits, count=2, batch=6)
    by_step, steps = transfer(net(), *splits, unit="step", count=4, batch=6)
    assert all(torch.equal(a, b) for a, b in zip(by_epoch.state_dict().values(), by_step.state_dict().values(), strict=True))
    assert [row.number for row in epochs.rows] == [1, 2]
    assert [row.number for row in steps.rows] == [1, 2, 3, 4]
    assert epochs.rows[1].loss == pytest.approx((steps.rows[2].loss + steps.rows[3].loss) / 2)
    assert epochs.rows[1].accuracies == steps.rows[3].accuracies
    assert epochs.rows[1].error == steps.rows[3].error
    odd, _ = transfer(net(), *splits, unit="step", count=3, batch=6)
    assert not torch.equal(odd.head.weight, by_step.head.weight)


def test_seeds(splits):
    given = net()
    before = torch.get_rng_state()
    first, one = transfer(given, *splits, count=1, batch=6, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    again, same = transfer(given, *splits, count=1, batch=6, seed=3)
    assert one == same
    assert torch.equal(first.head.weight, again.head.weight)
    other, _ = transfer(given, *splits, count=1, batch=6, seed=4)
    assert not torch.equal(first.head.weight, other.head.weight)


def test_the_rows_are_what_is_measured_on_the_network(splits):
    moved, result = transfer(net(), *splits, count=1, batch=6)
    found = localization(moved, splits[1], VIEW, rules=TRANSFER_RULES, thresholds=0)
    assert result.rows[0].error == found.error
    assert result.rows[0].accuracies == found.accuracies
    assert [(one.cam_threshold, one.iou_threshold) for one in found.accuracies] == [(0.75, 0.25), (0.75, 0.5)]
    assert PAPER_TEXT.cam_threshold == REFERENCE.cam_threshold == 0.25
    assert json.loads(json.dumps(asdict(result)))["rows"][0]["number"] == 1


def test_boxes_of_some_birds_after_the_first_epoch(splits, tmp_path):
    train, test = splits
    shown = birds(tmp_path, 30, 3)
    _, result = transfer(net(), train, test, shown=shown, count=2, batch=6)
    once, _ = transfer(net(), train, test, count=1, batch=6)
    assert [one.row for one in result.examples] == [round(i * 29 / 7) for i in range(8)], "evenly spread"
    for one in result.examples:
        image, _ = shown.batch(torch.tensor([one.row]))
        x = VIEW.apply(image, torch.zeros(1, 0))
        seen = cam_pass(once, x, find_layers(once, x))
        (heat,) = heat_maps(seen.raw(seen.logits.argmax(1)), (24, 24), as_script=True)
        assert list(one.predicted) == box_of_map(heat, 0.75, in_bytes=True).tolist()
        height, width = image[0].shape[1:]
        (left, top, wide, high), (scale_x, scale_y) = shown.boxes[one.row][0].tolist(), (24 / width, 24 / height)
        assert [list(box) for box in one.true] == [pytest.approx([left * scale_x, top * scale_y, wide * scale_x, high * scale_y])]
    assert [one.row for one in transfer(net(), train, test, count=1, batch=6)[1].examples] == list(range(7)), "those of the test"
    stored = json.loads(json.dumps(asdict(result)))["examples"][0]
    assert (len(stored["predicted"]), [len(box) for box in stored["true"]]) == (4, [4])


class Run:
    """As much of a run as a transfer looks at."""

    def __init__(self, given, scale):
        settings = SimpleNamespace(data=SimpleNamespace(name="tiny_imagenet", entry=lambda: SimpleNamespace(layout="images")))
        self.subject = Subject(given, lambda: None, VIEW, folder=Path("."), settings=settings, scale=scale)


@pytest.fixture
def cub(tmp_path, monkeypatch):
    """Made-up birds in place of the real ones: 12 for training, 9 for testing."""
    parts = {"train": birds(tmp_path, 12, 1), "test": birds(tmp_path, 9, 2)}
    monkeypatch.setattr("multimix.lab.evaluation.transfer.read_cub200", lambda folder: SimpleNamespace(parts=parts))
    monkeypatch.setattr("multimix.lab.evaluation.transfer.resized_view", lambda _, training=False: TRAIN if training else VIEW)
    return parts


def test_the_numbers_of_table_vi(cub):
    found = measure_transfer(Run(net(), "small").subject, READING, count=2, batch=6)
    names = ("error", "accuracy", "transfer_text", "transfer_reference")
    assert list(found.numbers) == [f"{name}_{i}" for i in (1, 2) for name in names]
    for i in (1, 2):
        moved, _ = train_on(net(), cub["train"], cub["test"], TRAIN, VIEW, count=i, batch=6)
        right = boxes = 0
        for row in range(9):
            image, label = cub["test"].batch(torch.tensor([row]))
            x = VIEW.apply(image, torch.zeros(1, 0))
            seen = cam_pass(moved, x, find_layers(moved, x))
            predicted = seen.logits.argmax(1)
            right += int(predicted == label)
            (heat,) = heat_maps(seen.raw(predicted), (24, 24), as_script=True)
            scale = torch.tensor([24 / image[0].shape[2], 24 / image[0].shape[1]] * 2)
            true = cub["test"].boxes[row] * scale
            low, high = true[:, :2].floor(), (true[:, :2] + true[:, 2:]).floor()
            box = box_of_map(heat, 0.75, in_bytes=True)[None]
            boxes += float(iou(box, torch.cat([low, high - low], 1))) > 0.25
        assert found.numbers[f"accuracy_{i}"] == pytest.approx(100 * right / 9)
        assert found.numbers[f"error_{i}"] == pytest.approx(100 - 100 * right / 9)
        assert found.numbers[f"transfer_text_{i}"] == pytest.approx(100 * boxes / 9)


@pytest.mark.parametrize(
    ("scale", "count", "per_class", "batch"), [("smoke", 2, 1, 10), ("small", 10, None, 32), ("paper", 10, None, 32)]
)
def test_the_usual_options_depend_on_the_scale(cub, scale, count, per_class, batch):
    subject = Run(net(), scale).subject
    query = query_for("transfer", subject, {}, "last")
    assert query.variant == "", "they are the usual ones"
    names = ("count", "per_class", "batch", "layers")
    assert [query.options[f"transfer.{name}"] for name in names] == [count, per_class, batch, ["stage4"]]
    named = {"count": count, "batch": batch, "per_class": per_class, "layers": ("stage4",)}
    assert query_for("transfer", subject, named, "last").options == query.options, "the defaults by their names"
    other = query_for("transfer", subject, {"per_class": 2, "layers": ("stage4.0",)}, "last")
    assert other.variant == "transfer.per_class = 2, transfer.layers = stage4.0"


def test_a_smoke_run_is_transferred_with_few_birds(cub, monkeypatch):
    seen = []
    whole = train_on
    monkeypatch.setattr(
        "multimix.lab.evaluation.transfer.train_on",
        lambda network, train, test, *views, **options: (
            seen.append((len(train), len(test), len(options["shown"])))
            or whole(network, train, test, *views, **options | {"batch": 3})
        ),
    )
    subject = Run(net(), "smoke").subject
    measure = measure_named("transfer")
    found = measure.find(subject, READING, **measure.options(subject, {}))
    assert seen == [(3, 3, 9)], "one picture of every class, but the same birds are shown"
    assert "accuracy_2" in found.numbers
    assert "accuracy_3" not in found.numbers
    assert [one.row for one in found.result.examples] == [round(i * 8 / 7) for i in range(8)]


def test_the_birds_are_stored_with_their_boxes(cub):
    finding = measure_transfer(Run(net(), "small").subject, READING, count=1, batch=6)
    grid, examples = finding.pictures["birds"], finding.result.examples
    images, _ = zip(*(cub["test"].batch(torch.tensor([one.row])) for one in examples), strict=True)
    plain = Augment([Resize((24, 24))])
    expected = torch.cat([plain.apply(image, torch.zeros(1, 0)) for image in images])
    assert grid.images.shape == (8, 24, 24, 3)
    assert abs(grid.images - (255 * expected).permute(0, 2, 3, 1).numpy()).max() < 2
    boxes = [(i, *box, TRUE_BOX) for i, one in enumerate(examples) for box in one.true]
    boxes += [(i, *one.predicted, PREDICTED_BOX) for i, one in enumerate(examples) if one.predicted[2]]
    assert grid.boxes.tolist() == [list(map(float, box)) for box in boxes]


def test_it_learns(splits):
    _, result = transfer(net(), *splits, count=8, batch=6, lr=1e-2)
    assert result.classes == 3
    assert result.unit == "epoch"
    assert result.rows[-1].loss < result.rows[0].loss / 3


def test_named_layers_in_any_network(splits):
    torch.manual_seed(0)
    given = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 9),
    )  # fmt: skip
    moved, result = transfer(given, *splits, layers=("3",), count=1, batch=6)
    assert result.trained == ("3.weight", "3.bias", "7.weight", "7.bias")
    assert torch.equal(given[1].running_mean, moved[1].running_mean)
    _, result = transfer(given, *splits, layers=(), count=1, batch=6)
    assert result.trained == ("7.weight", "7.bias")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("preact_resnet18", ("stage4",)),
        ("wrn16_8", ("stage3", "norm")),
        ("resnext29_4_24", ("stage3",)),
        ("resnet50", ("stage4",)),
        ("vgg11", ("stage4",)),
    ],
)
def test_the_last_stage_of_the_paper_networks(name, expected):
    with torch.device("meta"):
        assert last_stage(network(name, 10)) == expected


def bottleneck_weights(channels_in, width, projection):
    """1 × 1, 3 × 3 and 1 × 1 with a batch norm each, and perhaps a 1 × 1 with one beside them."""
    main = channels_in * width + 9 * width**2 + width * 4 * width + 2 * (width + width + 4 * width)
    return main + (channels_in * 4 * width + 2 * 4 * width if projection else 0)


def test_both_readings_of_the_last_block_of_resnet50(splits):
    """The last stage is three bottlenecks of 2,048 channels, stage4.2 the last one of them; the head has three classes."""
    given = net("resnet50", 5)
    _, stage = transfer(given, *splits, unit="step", count=1, batch=6)
    moved, bottleneck = transfer(given, *splits, unit="step", count=1, batch=6, layers=("stage4.2",))
    counts = [sum(moved.get_parameter(name).numel() for name in one.trained) for one in (stage, bottleneck)]
    one, head = bottleneck_weights(2048, 512, False), 3 * 2048 + 3
    assert counts == [bottleneck_weights(1024, 512, True) + 2 * one + head, one + head]
    assert {".".join(name.split(".")[:2]) for name in bottleneck.trained} == {"stage4.2", "head.weight", "head.bias"}
    for place, same in ((1, True), (2, False)):
        pairs = zip(given.stage4[place].parameters(), moved.stage4[place].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs) == same


def test_the_last_stage_of_the_small_resnet50_is_one_bottleneck(splits):
    given = net("resnet50_small")
    _, stage = transfer(given, *splits, unit="step", count=1, batch=6)
    _, bottleneck = transfer(given, *splits, unit="step", count=1, batch=6, layers=("stage4.0",))
    assert stage == bottleneck


def test_what_cannot_be_done_is_one_sentence(splits):
    train, test = splits
    given = net()
    for match, options in (
        ("layers must be a tuple of layer names, such as .*, got 'stage4'", {"layers": "stage4"}),
        ("no layer 'stage9'", {"layers": ("stage9",)}),
        ("unit must be one of epoch, step", {"unit": "batch"}),
        ("count must be at least 1, got 0", {"count": 0}),
        ("lr must be positive, got 0", {"lr": 0}),
        ("batch must be at most the 12 samples", {"batch": 13}),
    ):
        with pytest.raises(ValueError, match=match):
            transfer(given, train, test, **options)
    with pytest.raises(ValueError, match="train and test must have the same classes, got 4 and 3"):
        transfer(given, replace(train, classes=("a", "b", "c", "d")), test)
    with pytest.raises(ValueError, match="layers must be named, since the network has no stage1, .*; its last parts are 0, 3"):
        last_stage(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)))
    with pytest.raises(ValueError, match="layers must have parameters to train, '2' has none"):
        transfer(
            nn.Sequential(nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3)),
            train, test, layers=("2",), batch=6,
        )  # fmt: skip
    with torch.no_grad():
        given.stage4[0].conv1.weight[0] = 1e30
        given.stage4[0].conv2.weight[:, 0] = 1e30
    with pytest.raises(ValueError, match="finite"):
        transfer(given, train, test, batch=6)


def test_one_bar_counts_training_and_measuring(splits):
    ticks, moved = [], []

    def progress(numbers):
        ticks.append(len(numbers))
        for number in numbers:
            moved.append(number)
            yield number

    transfer(net(), *splits, count=2, batch=4, progress=progress)
    assert ticks == [2 * (3 + 2)]
    assert moved == list(range(10))


@pytest.mark.slow
def test_a_pretrained_network_learns_real_birds():
    splits = real("cub200")
    train = splits["train"].take(torch.arange(0, len(splits["train"]), 12))
    test = splits["test"].take(torch.arange(0, len(splits["test"]), 40))
    view = Augment([Resize(128), CenterCrop(112), as_it_was_trained().steps[-1]])
    given = pretrained()
    options = {"unit": "step", "count": 2, "lr": 1e-3, "batch": 16, "layers": ("features.16", "features.17")}
    moved, result = train_on(given, train, test, view, view, **options)
    assert len(result.rows) == 2
    assert torch.equal(given.features[15].layers[0][0].weight, moved.features[15].layers[0][0].weight)
    assert not torch.equal(given.features[16].layers[0][0].weight, moved.features[16].layers[0][0].weight)
    assert result.rows[1].accuracies[0].accuracy.percent > 20
