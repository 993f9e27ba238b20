import torch

from multimix.lab.nets.smallnet import SmallNet, digest, initial_net
from multimix.methods.registry import entry


def test_the_net_is_as_small_as_it_says():
    net = SmallNet()
    assert net(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert sum(weight.numel() for weight in net.parameters()) == 6090
    assert "6,090" in (SmallNet.__doc__ or "")


def test_a_seed_has_its_own_weights_and_leaves_the_global_stream_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = initial_net(0), initial_net(0), initial_net(1)
    assert torch.equal(torch.rand(3), expected)
    assert digest(first) == digest(again) != digest(other)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_the_layers_named_for_manifold_mixup_exist():
    assert set(entry("manifoldmix").small["layers"]) <= set(dict(SmallNet().named_modules()))
