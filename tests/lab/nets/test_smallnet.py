"""The network of the digits: its size, and that it has the layers that methods name for small images."""

from multimix.lab.method_options import lab_options
from multimix.lab.nets.smallnet import SmallNet


def test_it_has_as_many_parameters_as_it_says():
    net = SmallNet()
    assert sum(weight.numel() for weight in net.parameters()) == 6_090
    assert "6,090" in (SmallNet.__doc__ or "")


def test_hidden_layers_have_the_names_that_methods_give_for_small_images():
    layers = {layer for name in ("alignmixup", "manifoldmix") for layer in lab_options(name).small["layers"]}
    assert layers <= set(dict(SmallNet().named_modules()))
