"""The slow copy of a model: how it follows, what it tells, what it leaves alone."""

import math
import re
import threading

import pytest
import torch
from torch import nn

import multimix as mm
from multimix.core.hooks import MixingError
from multimix.methods.samix.momentum import MomentumEncoder
from oracles import seeded
from salient import Network, images


def test_it_starts_as_the_model_and_keeps_its_own_weights():
    model = Network()
    encoder = MomentumEncoder(model, "conv")
    for ours, theirs in zip(encoder.copy.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
        assert not ours.requires_grad
        assert theirs.requires_grad


def test_update_is_a_moving_average_of_weights_and_statistics():
    model = Network()
    encoder = MomentumEncoder(model, "conv", momentum=0.9)
    expected = {name: value.double().clone() for name, value in encoder.copy.state_dict().items()}
    for step in range(4):
        with torch.no_grad():
            for value in (*model.parameters(), model.norm.running_mean):
                value += torch.randn(value.shape, generator=seeded(step))
        model.norm.num_batches_tracked += 3
        before = {name: value.clone() for name, value in model.state_dict().items()}
        encoder.update(model)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), "the model itself is left alone"
            whole = name.endswith("num_batches_tracked")
            expected[name] = value.double() if whole else 0.9 * expected[name] + 0.1 * value.double()
            torch.testing.assert_close(encoder.copy.state_dict()[name].double(), expected[name], atol=1e-6, rtol=1e-5)
    assert int(encoder.updates) == 4


def test_tied_weights_move_once():
    first = nn.Linear(3, 3, bias=False)
    tied = nn.Linear(3, 3, bias=False)
    tied.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), tied)
    encoder = MomentumEncoder(model, "0", momentum=0.9)
    before = first.weight.detach().clone()
    with torch.no_grad():
        first.weight += 1
    encoder.update(model)
    torch.testing.assert_close(encoder.copy[0].weight, before + 0.1)
    assert encoder.copy[2].weight is encoder.copy[0].weight


def test_momentum_rises_along_a_cosine():
    model = nn.Sequential(nn.Linear(2, 2))
    encoder = MomentumEncoder(model, "0", momentum=0.99, last=0.9999, steps=10)
    found = []
    for _ in range(13):
        found.append(1 - float(encoder._step()))
        encoder.update(model)
    expected = [0.9999 - 0.0099 * (math.cos(math.pi * min(t, 10) / 10) + 1) / 2 for t in range(13)]
    assert found == pytest.approx(expected, abs=1e-12)
    assert found[0] == pytest.approx(0.99)
    assert found[10] == found[12] == pytest.approx(0.9999)
    assert found == sorted(found)
    fixed = MomentumEncoder(model, "0", momentum=0.5)
    fixed.update(model)
    assert 1 - float(fixed._step()) == 0.5


def test_features_and_logits():
    x, model = images(), Network()
    encoder = MomentumEncoder(model, "norm").train()
    twin = Network().eval()
    torch.testing.assert_close(encoder.features(x), twin.norm(twin.conv(x)))
    torch.testing.assert_close(encoder.logits(x), twin(x))
    assert not encoder.features(x).requires_grad
    assert encoder.features(x.half()).dtype == torch.float32
    assert encoder.features(x.double()).dtype == torch.float32
    assert MomentumEncoder(Network().double(), "norm").features(x).dtype == torch.float64
    torch.testing.assert_close(encoder.features(x[:1]), encoder.features(x)[:1])  # a sample does not depend on its batch


def test_asking_leaves_no_trace():
    x, encoder = images(), MomentumEncoder(Network(), "norm").train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.features(x)
    encoder.logits(x).sum()
    assert not encoder.copy.training
    assert encoder.training
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])
    assert not encoder.copy.norm._forward_hooks


def test_layers_that_work_in_place_change_neither_input_nor_features():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(2, 3, 1), nn.ReLU(inplace=True), nn.Flatten())
    nn.init.constant_(model[1].weight, -1.0)
    x = images()
    before, encoder = x.clone(), MomentumEncoder(model, "1")
    z = encoder.features(x)
    assert torch.equal(x, before)
    assert (z < 0).any()


def test_gradients_reach_x_only():
    x, encoder = images().requires_grad_(), MomentumEncoder(Network(), "norm")
    encoder.logits(x).square().sum().backward()
    assert (x.grad != 0).any()
    assert all(value.grad is None for value in encoder.parameters())


def test_state_dict_restores_weights_and_schedule():
    model = Network()
    first = MomentumEncoder(model, "norm", momentum=0.5, last=0.9, steps=6)
    with torch.no_grad():
        model.conv.weight += 1
    for _ in range(3):
        first.update(model)
    other = MomentumEncoder(Network(seed=4), "norm", momentum=0.5, last=0.9, steps=6)
    other.load_state_dict(first.state_dict())
    assert other._step() == first._step() != 0.5
    for encoder in (first, other):
        encoder.update(model)
    assert torch.equal(first.features(images()), other.features(images()))


class Odd(nn.Module):
    def __init__(self, times):
        super().__init__()
        self.times, self.part = times, nn.Identity()

    def forward(self, x):
        for _ in range(self.times):
            x = self.part(x)
        return x


def test_clear_sentences():
    model = Network()
    for options, sentence in (
        ({"momentum": 1.5}, "momentum must"),
        ({"momentum": 0.9, "last": 0.5}, "momentum must"),
        ({"steps": 0}, "steps must"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            MomentumEncoder(model, "norm", **options)
    with pytest.raises(ValueError, match="no layer 'nrm'"):
        MomentumEncoder(model, "nrm")
    with pytest.raises(ValueError, match="model"):
        MomentumEncoder(model, "norm").update(nn.Linear(2, 2))
    with mm.MixPoints(model, ("norm",)):
        MomentumEncoder(model, "norm")
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be copied"):
        MomentumEncoder(model, "norm")
    for times in (0, 2):
        with pytest.raises(MixingError, match=f"layer 'part'.*{times} times"):
            MomentumEncoder(Odd(times), "part").features(images())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_copy_of_a_model_in_half_precision_moves(dtype):
    """A step of a thousandth is less than the last bit of most weights in half precision."""
    model = Network().to(dtype)
    encoder = MomentumEncoder(model, "conv", momentum=0.999)
    start = encoder.copy.conv.weight.clone()
    with torch.no_grad():
        model.conv.weight += 1
    for _ in range(1000):
        encoder.update(model)
    made = (encoder.copy.conv.weight - start) / (model.conv.weight.float() - start)
    torch.testing.assert_close(made, torch.full_like(made, 1 - 0.999**1000), atol=1e-4, rtol=0)
    assert encoder.features(images().to(dtype)).dtype == torch.float32
