"""Models that return more than their logits."""

import pytest
import torch
from torch import nn

import multimix as mm
from oracles import seeded


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 5 * 7, 4))


def data():
    return torch.randn(6, 2, 5, 7, generator=seeded(0)), torch.arange(6) % 4


class Wrapped(nn.Module):
    """A model that returns more than its logits."""

    def __init__(self, wrap):
        super().__init__()
        self.body, self.wrap = network(), wrap

    def forward(self, x):
        return self.wrap(self.body(x))


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda z: {"logits": z, "loss": 0}, None),
        (lambda z: {"scores": z}, "scores"),
        (lambda z: (z, "more"), 0),
        (lambda z: [0, z], 1),
        (lambda z: (z,), lambda result: result[0]),
    ],
)
def test_models_that_return_more_than_a_tensor(wrap, output):
    x, y = data()
    model = Wrapped(wrap)
    for method in (mm.InputMixup(k=2), mm.ManifoldMixup(k=2, layers=("body.1",))):
        out = mm.mixed_forward(model, method, x, y, output=output, generator=seeded(6))
        plain = mm.mixed_forward(Wrapped(lambda z: z), method, x, y, generator=seeded(6))
        torch.testing.assert_close(out.logits, plain.logits)


@pytest.mark.parametrize(
    ("wrap", "output", "sentence"),
    [
        (lambda z: {"scores": z}, None, "output="),
        (lambda z: (z, z), None, "output="),
        (lambda z: {"scores": z}, "logit", "no output 'logit'"),
        (lambda z: z.sum(), None, "12 rows"),
        (lambda z: z[:3], None, "12 rows"),
    ],
)
def test_unclear_outputs_raise(wrap, output, sentence):
    x, y = data()
    with pytest.raises(ValueError, match=sentence):
        mm.mixed_forward(Wrapped(wrap), mm.InputMixup(k=2), x, y, output=output)


class Result:
    def __init__(self, logits):
        self.logits = logits


def test_an_attribute_can_be_the_output():
    x, y = data()
    out = mm.mixed_forward(Wrapped(Result), mm.InputMixup(k=2), x, y, output="logits")
    assert out.logits.shape == (12, 4)
    with pytest.raises(ValueError, match="no output 'logits'"):
        mm.mixed_forward(network(), mm.InputMixup(k=2), x, y, output="logits")
