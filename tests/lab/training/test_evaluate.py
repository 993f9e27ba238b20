"""Errors against a plain count, with a last batch that is smaller, and a network left as it was."""

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from multimix.lab.data import Augment, Images
from multimix.lab.training.evaluate import evaluate
from trial import settings

CLASSES = tuple("abcdefg")


class Fixed(nn.Module):
    """The image itself holds the logits; notes its mode."""

    def __init__(self, classes=7):
        super().__init__()
        self.classes, self.modes = classes, []

    def forward(self, x):
        self.modes.append((self.training, torch.is_grad_enabled()))
        return x.reshape(len(x), -1)[:, : self.classes]


def split(count=23, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Images(torch.randn(count, 1, 1, 7, generator=generator), torch.randint(7, (count,), generator=generator), CLASSES)


@pytest.mark.parametrize("batch", [5, 100])
def test_errors_by_counting(batch):
    data, network = split(), Fixed().train()
    found = evaluate(network, data, Augment(), settings(evaluate_batch=batch), Accelerator(cpu=True))
    wrong = missed = nll = 0.0
    for row, label in zip(data.pixels.flatten(1).tolist(), data.labels.tolist(), strict=True):
        order = sorted(range(7), key=lambda c: -row[c])
        wrong += order[0] != label
        missed += label not in order[:5]
        nll -= row[label] - torch.tensor(row, dtype=torch.float64).logsumexp(0).item()
    assert found == pytest.approx((100 * wrong / 23, 100 * missed / 23, nll / 23), rel=1e-5)
    assert set(network.modes) == {(False, False)}
    assert network.training


def test_five_classes_have_no_top_five_and_a_bad_loss_is_none():
    data = split()
    few = Images(data.pixels, data.labels % 4, CLASSES)
    assert evaluate(Fixed(4), few, Augment(), settings(), Accelerator(cpu=True)).error_top5 is None
    endless = Images(data.pixels.index_fill(0, torch.tensor([2]), float("nan")), data.labels, CLASSES)
    assert evaluate(Fixed(), endless, Augment(), settings(), Accelerator(cpu=True)).nll is None


def test_nan_is_never_right():
    data = split()
    lost = Images(torch.full_like(data.pixels, float("nan")), torch.zeros_like(data.labels), CLASSES)
    assert evaluate(Fixed(), lost, Augment(), settings(), Accelerator(cpu=True)) == (100, 100, None)
