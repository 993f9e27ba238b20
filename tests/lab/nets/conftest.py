"""What the tests of single networks share: batch norm from its definition, weights that are nowhere 0 or 1, shapes."""

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def _seeded():
    """Start values, and with them the statistics, are the same in every run."""
    torch.manual_seed(0)


@pytest.fixture
def scrambled():
    """A function that moves the scales, shifts and running statistics of all batch norms away from where they start."""

    def moved(net, seed=0):
        generator = torch.Generator().manual_seed(seed)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                for values in (module.weight, module.bias, module.running_mean, module.running_var):
                    values.data.uniform_(0.5, 1.5, generator=generator)
        return net

    return moved


@pytest.fixture
def normed():
    """Batch norm written out."""

    def by_hand(z, norm, training):
        mean = z.mean((0, 2, 3)) if training else norm.running_mean
        variance = ((z - mean[:, None, None]) ** 2).mean((0, 2, 3)) if training else norm.running_var
        z = (z - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]
        return norm.weight[:, None, None] * z + norm.bias[:, None, None]

    return by_hand


@pytest.fixture
def shapes():
    """A function that gives what stem and stages put out for an input of this shape, without computing anything."""

    def found(net, *size):
        seen = {}
        handles = [
            part.register_forward_hook(lambda module, args, z, name=name: seen.update({name: tuple(z.shape[1:])}))
            for name, part in net.named_children()
            if name.startswith("st")
        ]
        with torch.no_grad():
            net.to("meta").eval()(torch.empty(2, *size, device="meta"))
        for handle in handles:
            handle.remove()
        return seen

    return found


@pytest.fixture
def is_torch_default():
    """A function that says whether a weight follows torch's own law, uniform in ± 1/√inputs."""

    def yes(weight):
        bound = weight[0].numel() ** -0.5
        return (
            0.98 * bound < weight.abs().max().item() <= bound * (1 + 1e-6)
            and abs(weight.std().item() / bound * 3**0.5 - 1) < 0.03
        )

    return yes
