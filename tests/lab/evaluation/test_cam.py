"""Maps against what they must add up to, loops, and gradients taken by hand; and what a network must not notice."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from drawn import Painter
from multimix.lab.evaluation.cam import CamLayers, cam_pass, find_layers, heat_maps
from multimix.lab.nets import network


def images(batch=3, height=40, width=33, channels=3, seed=0):
    return torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(seed))


def class_activation_maps(net, x, classes=None):
    """Of the predicted classes, unless others are named."""
    seen = cam_pass(net, x, find_layers(net, x))
    return heat_maps(seen.raw(seen.logits.argmax(1) if classes is None else classes), tuple(x.shape[2:]))


def stirred(net, seed=0):
    """The network with statistics and scales that are not those of the start."""
    draws = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            ends = (
                (module.weight, 0.5, 1.5),
                (module.bias, -0.5, 0.5),
                (module.running_mean, -0.3, 0.3),
                (module.running_var, 0.5, 2),
            )
            for values, low, high in ends:
                values.data.copy_(low + (high - low) * torch.rand(values.shape, generator=draws))
    return net


class Pooled(nn.Module):
    """Pooling and dropout as modules, one activation used twice, in place."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3)
        self.act, self.pool, self.drop, self.flat = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten()
        self.middle, self.fc = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        z = self.act(self.second(self.act(self.norm(self.first(x)))))
        return {"logits": self.fc(self.drop(self.flat(self.pool(z)))), "other": self.middle(z.mean((2, 3)))}


class Functional(nn.Module):
    """An activation without a module before the pooling."""

    def __init__(self, activation):
        super().__init__()
        self.conv, self.head, self.activation = nn.Conv2d(3, 7, 3), nn.Linear(7, 4), activation

    def forward(self, x):
        return self.head(self.activation(self.conv(x)).mean((2, 3)))


NETS = {
    "preact_resnet18_small": ("stage4", "none"),
    "wrn16_8_small": ("relu", "none"),
    "resnext29_4_24_small": ("stage3", "none"),
    "resnet50_small": ("stage4", "none"),
}


def check_adds_up(net, x, found, bias):
    """The mean of every class's map and the bias are its logit: what defines the map."""
    with torch.no_grad():
        logits = net.eval()(x)
    logits = logits["logits"] if isinstance(logits, dict) else logits
    seen = cam_pass(net, x, found)
    torch.testing.assert_close(seen.logits, logits)
    for label in range(logits.shape[1]):
        maps = seen.raw(torch.full((len(x),), label))
        assert maps.ndim == 3
        assert maps[0].numel() > 1
        torch.testing.assert_close(maps.mean((1, 2)) + bias[label], logits[:, label], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_maps_of_the_lab_networks_add_up_to_the_logits(name):
    torch.manual_seed(3)
    net, x = stirred(network(name, 6)), images()
    found = find_layers(net, x)
    assert found == CamLayers(NETS[name][0], "head", NETS[name][1])
    check_adds_up(net, x, found, net.head.bias)


def test_maps_behind_a_final_norm():
    net, x = stirred(network("preact_resnet18_small", 6, final_norm=True)), images()
    found = find_layers(net, x)
    assert found == CamLayers("norm", "head", "relu")
    check_adds_up(net, x, found, net.head.bias)


def test_maps_of_a_network_whose_pooling_is_a_module():
    net, x = stirred(Pooled()), images()
    found = find_layers(net, x)
    assert found == CamLayers("act", "fc", "none")  # not the pooling, whose mean fits as well
    check_adds_up(net, x, found, net.fc.bias)


@pytest.mark.parametrize("activation", ["relu6", "hardswish"])
def test_maps_behind_other_functions(activation):
    net, x = Functional(getattr(functional, activation)), 3 * images()
    found = find_layers(net, x)
    assert found == CamLayers("conv", "head", activation)
    check_adds_up(net, x, found, net.head.bias)


def test_the_map_is_a_weighted_sum_of_features():
    net, x = stirred(network("resnet50_small", 4)), images(2, 64, 96)
    with torch.no_grad():
        features = net.eval().stage4(net.stage3(net.stage2(net.stage1(net.stem(x)))))
    maps = cam_pass(net, x, find_layers(net, x)).raw(torch.tensor([3, 1]))
    assert maps.shape == (2, 2, 3)
    for i, label in enumerate((3, 1)):
        for row in range(2):
            for column in range(3):
                weights, places = net.head.weight[label].tolist(), features[i, :, row, column].tolist()
                expected = sum(w * a for w, a in zip(weights, places, strict=True))
                assert float(maps[i, row, column]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_network_is_left_as_it_was(context):
    net, x = stirred(network("preact_resnet18_small", 3)), images()
    net.train()
    net.stage3.eval()
    for i, weight in enumerate(net.parameters()):
        weight.requires_grad_(i % 2 == 0)
        weight.grad = torch.ones_like(weight) if i % 3 == 0 else None
    before = copy.deepcopy(net.state_dict())
    modes = [module.training for module in net.modules()]
    grads = [None if weight.grad is None else weight.grad.clone() for weight in net.parameters()]
    state = torch.get_rng_state()
    with context():
        maps = class_activation_maps(net, x)
        assert torch.is_grad_enabled() == (context is torch.enable_grad)
    assert maps.shape == (3, 40, 33)
    assert not maps.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    for weight, grad, i in zip(net.parameters(), grads, range(999), strict=False):
        assert weight.requires_grad == (i % 2 == 0)
        assert (weight.grad is None) == (grad is None)
        assert grad is None or torch.equal(weight.grad, grad)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_network_is_left_as_it_was_when_it_fails():
    net = network("preact_resnet18_small", 3)
    net.train()
    with pytest.raises(RuntimeError):
        find_layers(net, images(channels=4))
    assert all(module.training for module in net.modules())
    assert not any(module._forward_hooks for module in net.modules())


def test_maps_of_the_predicted_and_of_given_classes():
    net, x = Painter(), torch.zeros(2, 3, 12, 9)
    x[0, 1, 2:5, 3:8], x[1, 2, :, :4], x[1, 0, 6, 6] = 1, 1, 1
    maps = class_activation_maps(net, x)
    assert torch.equal(maps, torch.stack([x[0, 1], x[1, 2]]))
    assert torch.equal(class_activation_maps(net, x, torch.tensor([1, 0]))[1], x[1, 0])


def test_what_cannot_be_asked_is_one_sentence():
    net, x = Painter(), images()
    with pytest.raises(ValueError, match="no feature map was found whose mean .* goes into head 'head.1'"):
        find_layers(network("vgg11_small", 4), images(2, 161, 101, channels=1))
    with pytest.raises(ValueError, match="no linear layer with 2 outputs ran"):
        find_layers(nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), x)
    with torch.no_grad():
        net.head.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="the network must give finite logits, got NaN or infinity"):
        find_layers(net, x)


def test_heat_maps_have_a_zero_and_a_one():
    raw = images(4, 5, 7)[:, 0] * torch.tensor([1.0, 1e-3, 1e4, -2])[:, None, None]
    heat = heat_maps(raw, (31, 50))
    assert heat.shape == (4, 31, 50)
    assert heat.amin((1, 2)).tolist() == [0.0] * 4
    assert heat.amax((1, 2)).tolist() == [1.0] * 4
    flat = raw.flatten(1)
    low, high = flat.amin(1)[:, None, None], flat.amax(1)[:, None, None]
    torch.testing.assert_close(heat_maps(raw, (5, 7)), (raw - low) / (high - low))


def test_the_script_sums_three_by_three_places():
    raw = images(2, 4, 6)[:, 0]
    summed = torch.zeros_like(raw)
    for row in range(4):
        for column in range(6):
            summed[:, row, column] = raw[:, max(0, row - 1) : row + 2, max(0, column - 1) : column + 2].sum((1, 2))
    expected = functional.interpolate(summed[:, None], (20, 33), mode="bicubic")[:, 0]
    low, high = expected.amin((1, 2), keepdim=True), expected.amax((1, 2), keepdim=True)
    found = heat_maps(raw, (20, 33), as_script=True)
    torch.testing.assert_close(found, (expected - low) / (high - low), rtol=0, atol=1e-5)
    assert not torch.allclose(found, heat_maps(raw, (20, 33)), atol=1e-2)


@pytest.mark.parametrize(("as_script", "size"), [(False, (1, 1)), (True, (7, 7)), (True, (3, 5))])
def test_a_constant_map_is_zero_not_blown_up_rounding(as_script, size):
    raw = torch.tensor([0.1, -12345.6, 0.0])[:, None, None].expand(3, *size)
    assert not heat_maps(raw, (50, 41), as_script=as_script).any()


def test_maps_that_are_not_finite_are_one_sentence():
    raw = torch.zeros(3, 2, 2)
    raw[1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="maps must be finite, got NaN or infinity in image 1 of the batch"):
        heat_maps(raw, (4, 4))


def test_a_map_that_the_scripts_sum_makes_constant_has_no_places():
    """All 3 × 3 sums of a 2 × 2 map are its whole sum; stretched, their rounding would look like a map."""
    raw = torch.tensor([[[0.1, 0.7], [0.3, 0.9]], [[0.1, 0.1], [0.1, 0.1]]])
    assert not heat_maps(raw, (9, 9), as_script=True).any()
    assert heat_maps(raw, (9, 9))[0].max() == 1
    assert heat_maps(torch.rand(1, 3, 3), (9, 9), as_script=True).max() == 1
