import math

import torch
from torch import nn

from multimix.lab.studies.spiral.nets import DEPTH, SHAPES, SpiralNet, by_layer, weights_of, with_weights


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
    assert torch.equal(weights_of(single), weights_of(double).float())
    assert not torch.equal(weights_of(single), weights_of(SpiralNet(0.1, torch.Generator().manual_seed(5))))


def test_rows_and_nets_are_the_same_numbers():
    nets = [SpiralNet(0.1, torch.Generator().manual_seed(seed)) for seed in range(3)]
    rows = torch.stack([weights_of(net) for net in nets])
    for place, net in enumerate(nets):
        linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
        for (weight, bias), own in zip(by_layer(rows), linear, strict=True):
            assert torch.equal(weight[place], own.weight)
            assert torch.equal(bias[place, :, 0], own.bias)
        x = torch.randn(7, 2, generator=torch.Generator().manual_seed(9))
        assert torch.equal(with_weights(rows[place], 0.1)(x), net(x))
