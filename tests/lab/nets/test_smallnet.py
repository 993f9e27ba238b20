"""The network of the digits: its size, and that it has the layers that methods of its recipe mix at."""

from multimix.lab.nets.smallnet import SmallNet
from multimix.lab.recipes.digits_smallnet import OPTIONS


def test_it_has_as_many_parameters_as_it_says():
    net = SmallNet()
    assert sum(weight.numel() for weight in net.parameters()) == 6_090
    assert "6,090" in (SmallNet.__doc__ or "")


def test_hidden_layers_have_the_names_that_the_recipe_mixes_at():
    layers = {layer for name in ("alignmixup", "manifoldmix") for layer in OPTIONS[name]["layers"]}
    assert layers <= set(dict(SmallNet().named_modules()))
