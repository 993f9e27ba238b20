"""Predictions against a network that is asked by hand, one sample at a time; and a really trained network on real images."""

import pytest
import torch
from torch import nn

from multimix.lab.data import Augment, CenterCrop, Files, Images, Normalise
from multimix.lab.evaluation.calibration import calibration, temperature_scaling
from multimix.lab.evaluation.error import errors
from multimix.lab.evaluation.predictions import Predictions, Reading, one_bar, predictions
from pretrained import as_it_was_trained, imagenet_validation, pretrained

NORMAL = Augment([Normalise((0.4, 0.5), (0.2, 0.3))])


def split(count=7, height=3, width=5):
    pixels = torch.randint(0, 256, (count, 2, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    return Images(pixels, torch.arange(count) % 3, ("a", "b", "c"))


def network():
    """Dropout, and batch norm with statistics of its own: in training mode it would say something else."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(2, 4, 2), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 3))
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net


class Notes(nn.Module):
    """Says nothing, and notes what it was given."""

    def __init__(self, weight=None):
        super().__init__()
        self.seen = []
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        if weight is not None:
            self.weight = nn.Parameter(weight)

    def forward(self, x):
        self.seen.append((x.device.type, x.dtype, len(x), self.training, torch.is_grad_enabled()))
        return torch.zeros(len(x), 3, dtype=x.dtype)


def by_hand(net, samples):
    mean, std = torch.tensor([0.4, 0.5]).reshape(2, 1, 1), torch.tensor([0.2, 0.3]).reshape(2, 1, 1)
    net.eval()
    with torch.no_grad():
        return torch.cat([net(((image / 255 - mean) / std).unsqueeze(0)) for image in samples.pixels])


@pytest.mark.parametrize("batch", [1, 3, 200])
def test_every_sample_once_and_in_order_whatever_the_batch(batch):
    samples, net = split(), network()
    found = predictions(net, samples, NORMAL, Reading(batch))
    assert found.logits.dtype == torch.float32
    torch.testing.assert_close(found.logits, by_hand(net, samples), rtol=0, atol=1e-5)
    assert torch.equal(found.labels, samples.labels)
    assert len(found) == 7


def test_modes_and_statistics_stay_as_they_were():
    net = network().train()
    net[1].eval()  # frozen
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = predictions(net, split(), NORMAL)
    assert [module.training for module in net.modules()] == [True, True, False, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not found.logits.requires_grad


def test_modes_come_back_after_a_failure():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).train()
    with pytest.raises(RuntimeError, match="shapes"):
        predictions(net, split(), NORMAL)
    assert net.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(None, ("cpu", torch.float32)), (torch.zeros(1, dtype=torch.bfloat16, device="meta"), ("meta", torch.bfloat16))],
)
def test_samples_go_where_the_network_is_in_its_precision(weight, expected):
    net = Notes(weight)
    found = predictions(net, split(), NORMAL, Reading(4))
    assert net.seen == [(*expected, 4, False, False), (*expected, 3, False, False)]
    assert found.logits.dtype == torch.float32


def test_progress_wraps_the_numbers_of_the_batches():
    wrapped, passed = [], []

    def progress(work):
        wrapped.append(list(work))
        for item in work:
            passed.append(item)
            yield item
        passed.append("end")

    predictions(network(), split(), NORMAL, Reading(3, progress=progress))
    assert wrapped == [[0, 1, 2]]
    assert passed == [0, 1, 2, "end"]


def test_one_bar_for_several_loops():
    shown, ended = [], []

    def progress(numbers):
        for number in numbers:
            shown.append(number)
            yield number
        ended.append(True)

    with one_bar(progress, 5) as ticking:
        assert list(ticking(range(3))) == [0, 1, 2]
        assert list(ticking(range(2))) == [0, 1]
        assert not ended
    assert shown == [0, 1, 2, 3, 4]
    assert ended == [True]


def read_made_up(path):
    """An image whose size and pixels follow from its name."""
    number = int(path)
    return torch.full((2, 4 + number % 2, 5), 10 * number, dtype=torch.uint8)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_files_of_several_sizes(workers):
    files = Files(tuple(map(str, range(5))), torch.tensor([2, 0, 1, 1, 0]), ("a", "b", "c"), read_made_up)
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3, bias=False))
    nn.init.constant_(net[2].weight, 0.5)
    found = predictions(net, files, Augment([CenterCrop(4)]), Reading(2, workers))
    expected = torch.arange(5)[:, None].expand(5, 3) * 10 / 255
    torch.testing.assert_close(found.logits, expected, rtol=0, atol=1e-6)
    assert found.labels.tolist() == [2, 0, 1, 1, 0]


class Wrapped(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.net = form, network()

    def forward(self, x):
        return self.form(self.net(x))


@pytest.mark.parametrize(
    ("form", "output"), [(lambda z: {"logits": z, "aux": 0}, None), (lambda z: (0, z), 1), (lambda z: {"y": z}, "y")]
)
def test_networks_that_return_more_than_logits(form, output):
    net = Wrapped(form)
    found = predictions(net, split(), NORMAL, output=output)
    torch.testing.assert_close(found.logits, by_hand(net.net, split()), rtol=0, atol=1e-5)


def test_of_equal_logits_the_first_class_is_predicted():
    found = Predictions(torch.tensor([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]]), torch.tensor([2, 0]))
    assert found.predicted.tolist() == [1, 0]
    assert found.correct.tolist() == [False, True]


def test_taking_keeps_rows_and_labels_together():
    found = Predictions(torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 2, 1])).take(torch.tensor([3, 0]))
    assert found.logits.tolist() == [[9, 10, 11], [0, 1, 2]]
    assert found.labels.tolist() == [1, 0]


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        ([[0.0, NAN], [0.0, 1.0]], [0, 1], r"logits must be finite, got NaN or infinity in 1 of 2 samples: 0$"),
        ([[0.0], [INFINITY], [-INFINITY]], [0, 0, 0], r"in 2 of 3 samples: 1, 2$"),
        ([[NAN]] * 6, [0] * 6, r"in 6 of 6 samples: 0, 1, 2, 3, 4, …$"),
        ([[0.0, 1.0]], [2], r"labels must lie in 0 … 1, since there are 2 outputs, got 2 … 2"),
        ([[0.0, 1.0]], [-1], r"labels must lie in 0 … 1, since there are 2 outputs, got -1 … -1"),
        ([[0.0, 1.0]], [0, 1], r"labels must be int64 \[1\], one per row, got torch.int64 \[2\]"),
        ([[0.0, 1.0]], [0.0], r"labels must be int64 \[1\], one per row, got torch.float32 \[1\]"),
        ([0.0, 1.0], [0, 1], r"logits must be floating point \[N, C\] with N ≥ 1 and C ≥ 1, got torch.float32 \[2\]"),
        ([[0, 1]], [0], r"got torch.int64 \[1, 2\]"),
        ([], [], r"got torch.float32 \[0\]"),
    ],
)
def test_what_cannot_be_measured_is_refused(logits, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        Predictions(torch.tensor(logits), torch.tensor(labels))


def test_a_split_without_samples_is_refused():
    empty = Images(torch.zeros(0, 2, 3, 5, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="split must hold at least 1 sample, it has none"):
        predictions(network(), empty, NORMAL)


@pytest.mark.slow
def test_a_pretrained_network_on_real_images():
    """Half of the images, for time. On all 250: error 26.8 %, top-5 9.6 %, ECE 7.9 %, temperature 0.79."""
    files = imagenet_validation()
    half = files.take(torch.arange(0, len(files), 2))
    found = predictions(pretrained(), half, as_it_was_trained(), Reading(10))
    wrong, sure, scaling = errors(found), calibration(found), temperature_scaling(found)
    # A wrong order of classes, crop or normalisation costs far more than this leaves.
    assert 20 < wrong.top1.percent < 34
    assert 5 < wrong.top5.percent < 14
    assert wrong.top1.percent == pytest.approx(100 - sure.accuracy)
    assert 3 < sure.ece < 18
    assert sure.confidence < sure.accuracy  # it was trained with smoothed labels, so it is less sure than it could be
    assert 0.5 < scaling.temperature < 1
