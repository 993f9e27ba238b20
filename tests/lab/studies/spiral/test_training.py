"""The network, and the stacked training against one plain network, trained through the public interface with torch's own Adam."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import multimix as mm
from multimix.core.sampling import seeded
from multimix.lab.recipes.spiral import ARMS, K1, K5, MIXED_LAYERS, NONE, SpiralSettings
from multimix.lab.studies.spiral.data import MIXING, ORDER, START, spiral_data
from multimix.lab.studies.spiral.training import (
    DEPTH,
    SHAPES,
    SpiralNet,
    net_weights,
    net_with_weights,
    split_layers,
    stack_plans,
    train_networks,
)


def test_the_net_is_eight_hidden_layers_of_six_units():
    net = SpiralNet(0.1, torch.Generator().manual_seed(0))
    assert sum(parameter.numel() for parameter in net.parameters()) == 326
    assert [name for name, _ in net.named_children()] == [*(f"layer{number}" for number in range(1, 9)), "out"]
    shapes = [tuple(module.weight.shape) for module in net.modules() if isinstance(module, nn.Linear)]
    assert shapes == [(6, 2)] + [(6, 6)] * 7 + [(2, 6)] == list(SHAPES)
    slopes = [module.negative_slope for module in net.modules() if isinstance(module, nn.LeakyReLU)]
    assert slopes == [0.1] * DEPTH
    assert net(torch.zeros(3, 2)).shape == (3, 2)


def test_he_start():
    """40 nets: the deviation of every layer within 10 % of sqrt(2 / ((1 + slope²) inputs)); biases 0."""
    generator = torch.Generator().manual_seed(1)
    nets = [SpiralNet(0.5, generator) for _ in range(40)]
    for layer, (_, inputs) in enumerate(SHAPES):
        linear = [[module for module in net.modules() if isinstance(module, nn.Linear)][layer] for net in nets]
        weight = torch.stack([one.weight.detach() for one in linear])
        assert abs(float(weight.std()) / math.sqrt(2 / (1.25 * inputs)) - 1) < 0.1
        assert all(not one.bias.any() for one in linear)


def test_start_values_come_from_the_generator_alone_in_both_precisions():
    before = torch.get_rng_state()
    single, double = (SpiralNet(0.1, torch.Generator().manual_seed(4), dtype) for dtype in (torch.float32, torch.float64))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(net_weights(single), net_weights(double).float())
    assert not torch.equal(net_weights(single), net_weights(SpiralNet(0.1, torch.Generator().manual_seed(5))))


def test_rows_and_nets_are_the_same_numbers():
    nets = [SpiralNet(0.1, torch.Generator().manual_seed(seed)) for seed in range(3)]
    rows = torch.stack([net_weights(net) for net in nets])
    for place, net in enumerate(nets):
        linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
        for (weight, bias), own in zip(split_layers(rows), linear, strict=True):
            assert torch.equal(weight[place], own.weight)
            assert torch.equal(bias[place, :, 0], own.bias)
        x = torch.randn(7, 2, generator=torch.Generator().manual_seed(9))
        assert torch.equal(net_with_weights(rows[place], 0.1)(x), net(x))


OTHER = {"slope": 0.3, "decay": 0.02, "alpha": 0.4, "rate": 0.003, "batch": 90, "turns": 1.5, "noise": 0.1, "flipped": 7}
PER_PAIR = {"per_pair": True, "uniform_in": "arc", "alpha": 2.0, "decay": 1e-3}


def train_plainly(method, settings, seed, dtype):
    """One net, one batch after the other; how many steps it took."""
    data, net, steps = spiral_data(settings, seed), SpiralNet(settings.slope, seeded(seed, START), dtype), 0
    x, target = data.x.to(dtype), one_hot(data.y, 2).to(dtype)
    adam = torch.optim.Adam(net.parameters(), lr=settings.rate, weight_decay=settings.decay)
    order, mixing = seeded(seed, ORDER), seeded(seed, MIXING)
    for _ in range(settings.epochs):
        for chosen in torch.randperm(settings.train, generator=order).split(settings.batch):
            out = mm.mixed_forward(net, method, x[chosen], target[chosen], generator=mixing)
            adam.zero_grad()
            out.loss(cross_entropy).backward()
            adam.step()
            steps += 1
    return net_weights(net), steps


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
@pytest.mark.parametrize(
    ("options", "dtype", "tolerance"),
    [
        (OTHER, torch.float64, 1e-12),
        (PER_PAIR, torch.float64, 1e-12),
        ({"slope": 0.0}, torch.float64, 1e-12),
        ({}, torch.float32, 2e-3),
    ],
)
def test_each_network_is_trained_as_a_plain_one(arm, options, dtype, tolerance):
    settings = SpiralSettings(epochs=11, **options)
    method = arm.method(settings)
    seeds = [8, 0, 3]
    stacked = train_networks(method, settings, seeds, dtype=dtype)
    assert stacked.dtype == dtype
    for row, seed in zip(stacked, seeds, strict=True):
        plain, steps = train_plainly(method, settings, seed, dtype)
        start = net_weights(SpiralNet(settings.slope, seeded(seed, START), dtype))
        assert steps >= 20
        assert float((plain - start).abs().max()) > 0.01
        torch.testing.assert_close(row, plain, rtol=0, atol=tolerance)


def test_the_three_methods_are_those_of_the_paper():
    settings = SpiralSettings()
    assert NONE.method(settings) == mm.NoMix()
    assert K1.method(settings) == mm.ManifoldMixup(k=1, alpha=1.0, layers=("layer1", "layer2"))
    assert K5.method(settings) == mm.ManifoldMixup(k=5, alpha=1.0, layers=("layer1", "layer2"))


def test_every_model_has_its_own_plans_and_both_layers_occur():
    settings, x = SpiralSettings(), torch.zeros(3, 2, 144)
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    again = [torch.Generator().manual_seed(seed) for seed in range(3)]
    layers = set()
    for _ in range(10):
        plans = stack_plans(K5.method(settings), x, generators)
        for place, generator in enumerate(again):
            plan = K5.method(settings).plan(x[place].T, generator=generator)
            layers.add(plan.layer)
            assert torch.equal(plans.partner[place, 0], plan.partner)
            assert torch.equal(plans.lam[place].flatten(), plan.share.flatten().float())
            assert bool(plans.first[place]) == (plan.layer == "layer1")
    assert layers == set(MIXED_LAYERS)
    assert stack_plans(NONE.method(settings), x, generators) is None


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_a_seed_ends_with_the_same_bits_whichever_seeds_are_beside_it(arm):
    settings = SpiralSettings(epochs=25)
    method = arm.method(settings)
    whole = train_networks(method, settings, range(5))
    for group in ([4], [3, 1, 0]):
        for seed, row in zip(group, train_networks(method, settings, group), strict=True):
            assert torch.equal(row, whole[seed])


def test_after_epoch_is_called_for_every_epoch_and_the_global_stream_stays():
    before, calls = torch.get_rng_state(), []
    train_networks(K5.method(SpiralSettings()), SpiralSettings(epochs=3), [1], after_epoch=lambda: calls.append(1))
    assert len(calls) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_diverged_weights_are_refused():
    with pytest.raises(ValueError, match="training must end with finite weights, got NaN or infinity for seed 5"):
        train_networks(NONE.method(SpiralSettings()), SpiralSettings(epochs=4, rate=1e30), [5])
