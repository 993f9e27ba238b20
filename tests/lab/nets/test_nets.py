"""Every registered network: its size, what it puts out, mixing at its layers; names, options, import paths, decay."""

import math
import sys
import time

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import multimix as mm
from multimix.lab.nets import NETWORKS, OF_POINTS, network, network_from_path, parameter_groups

OF_IMAGES = [name for name in NETWORKS if name not in OF_POINTS]
FULL = [name for name in OF_IMAGES if not name.endswith("_small")]
SMALL = [f"{name}_small" for name in FULL]

COUNTS = {
    ("preact_resnet18",): {10: 11_171_146, 100: 11_217_316, 200: 11_268_616, 1000: 11_679_016},
    ("preact_resnet18", "final_norm"): {10: 11_172_170, 100: 11_218_340, 200: 11_269_640, 1000: 11_680_040},
    ("wrn16_8",): {10: 10_965_866, 100: 11_012_036, 200: 11_063_336},
    ("wrn16_8", "no bias"): {10: 10_961_370, 100: 11_007_540, 200: 11_058_840},
    ("resnext29_4_24",): {10: 4_845_002, 100: 4_937_252, 200: 5_039_752},
    ("resnet50",): {200: 23_917_832, 1000: 25_557_032},
    ("vgg11",): {12: 13_163_660, 30: 13_172_894, 35: 13_175_459},
}
OPTIONS = {"final_norm": {"final_norm": True}, "no bias": {"bias": False}}


def images(name, batch, side=32):
    size = (1, 161, 101) if name.startswith("vgg") else (3, side, side)
    return torch.randn(batch, *size, generator=torch.Generator().manual_seed(batch))


def count(net):
    return sum(weight.numel() for weight in net.parameters() if weight.requires_grad)


@pytest.mark.parametrize(
    ("variant", "classes", "expected"),
    [(variant, classes, expected) for variant, counts in COUNTS.items() for classes, expected in counts.items()],
)
def test_parameter_counts(variant, classes, expected):
    name, *option = variant
    with torch.device("meta"):
        assert count(network(name, classes, **(OPTIONS[option[0]] if option else {}))) == expected


def test_the_reference_size_is_in_the_description():
    for name in FULL:
        counts = COUNTS[(name,)]
        assert any(
            f"{counts[classes]:,} parameters" in NETWORKS[name].__doc__ for classes in (30, 100, 1000) if classes in counts
        )


def test_every_network_has_its_stages_and_a_small_sibling_of_the_same_class():
    assert sorted(OF_IMAGES) == sorted(FULL + SMALL)
    for name in FULL:
        with torch.device("meta"):
            net, small = network(name, 10), network(f"{name}_small", 10)
        assert type(net) is type(small)
        assert [part for part, _ in net.named_children()] == [part for part, _ in small.named_children()]
        assert {"stem", "stage1", "stage2", "stage3", "head"} <= set(dict(net.named_children()))
        assert type(net).mix_layers == (None, "stage1", "stage2")
        assert count(small) < count(net) / 10


@pytest.mark.parametrize("name", OF_IMAGES)
def test_any_batch_gives_one_row_of_logits_per_sample(name):
    net = network(name, 7).eval()
    with torch.no_grad():
        logits = net(images(name, 3))
        assert logits.shape == (3, 7)
        torch.testing.assert_close(net(images(name, 3)[1:2]), logits[1:2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in OF_IMAGES if "vgg" not in name])
@pytest.mark.parametrize("side", [37, 64, 224])
def test_images_of_any_size_pass(name, side):
    with torch.device("meta"), torch.no_grad():
        assert network(name, 7).eval()(torch.empty(2, 3, side, side + 8)).shape == (2, 7)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_other_numbers_of_channels(name):
    with torch.device("meta"), torch.no_grad():
        net = network(name, 7, in_channels=2).eval()
        assert net(torch.empty(2, 2, *images(name, 1).shape[2:])).shape == (2, 7)


@pytest.mark.parametrize("name", OF_POINTS)
def test_clouds_of_any_number_of_points_pass_and_their_order_does_not_matter(name):
    net, x = network(name, 7, in_channels=3), torch.randn(4, 31, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = net(x)
        assert logits.shape == (4, 7)
        assert net(x[:, :5]).shape == (4, 7)
        torch.testing.assert_close(net(x.flip(1)), logits)
        assert network(name, 3, in_channels=2)(x[..., :2]).shape == (4, 3)
    assert (logits[0] - logits[1]).abs().max() > 1e-4


@pytest.mark.parametrize("suffix", ["", "_small"])
def test_options_reach_the_network(suffix):
    with torch.device("meta"):
        assert network(f"preact_resnet18{suffix}", 7, stem_stride=2).stem.stride == (2, 2)
        assert network(f"preact_resnet18{suffix}", 7, final_norm=True).norm is not None
        assert network(f"wrn16_8{suffix}", 7, bias=False).stage1[0].conv1.bias is None
    net = network(f"resnet50{suffix}", 7, zero_init=True)
    assert (net.stage1[0].norm3.weight == 0).all()


@pytest.mark.parametrize("name", FULL)
def test_manifold_mixup_reaches_the_full_networks(name):
    net, x, y = network(name, 7), images(name, 2), torch.tensor([3, 5])
    method = mm.ManifoldMixup(k=3, layers=net.mix_layers[2:])
    out = mm.mixed_forward(net, method, x, y)
    assert out.logits.shape == out.target.shape == (6, 7)
    out.loss().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in net.parameters())


def by_stages(net, z, after):
    """The network by its parts from the input (None) or from what the stage ``after`` put out."""
    names = [name for name, _ in net.named_children() if name.startswith("st")]
    for name in names[0 if after is None else names.index(after) + 1 :]:
        z = getattr(net, name)(z)
    if type(net).__name__ == "SpeechVGG":
        return net.head(z.reshape(len(z), -1))
    if getattr(net, "norm", None) is not None:
        z = net.norm(z).clamp(min=0)
    return net.head(z.mean((2, 3)))


@pytest.mark.parametrize("layer", [None, "stage1", "stage2"])
@pytest.mark.parametrize("name", SMALL)
def test_mixing_at_a_stage_is_mixing_of_the_whole_signal(name, layer):
    net, x, y = network(name, 7), images(name, 3), torch.tensor([3, 5, 0])
    rows = {}
    for part in ("stem", "stage1", "stage2", "stage3"):
        module = getattr(net, part)
        module.register_forward_pre_hook(lambda module, args, part=part: rows.update({part: len(args[0])}))
    partner, lam = torch.tensor([1, 2, 0]), [0.2, 0.5, 0.9]
    method = mm.ManifoldMixup(k=3, layers=(layer,))
    logits = mm.mixed_forward(net, method, x, y, partner=partner, lam=lam).logits
    before = ["stem", "stage1", "stage2", "stage3"][: {None: 0, "stage1": 2, "stage2": 3}[layer]]
    assert rows == {part: 3 if part in before else 9 for part in ("stem", "stage1", "stage2", "stage3")}
    z = x
    for part in before:
        z = getattr(net, part)(z)
    mixed = torch.cat([(1 - share) * z + share * z[partner] for share in lam])
    torch.testing.assert_close(logits, by_stages(net, mixed, layer), atol=1e-4, rtol=1e-4)
    logits.logsumexp(1).sum().backward()
    assert all(torch.isfinite(weight.grad).all() and weight.grad.abs().sum() > 0 for weight in net.stem.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_a_training_step_of_a_sibling(name, capsys):
    """Printed, not judged: other work shares the machine."""
    net, x, y = network(name, 100), images(name, 100), torch.arange(100)
    optimiser = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, nesterov=True)
    begin = time.process_time()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    spent = time.process_time() - begin
    assert math.isfinite(loss.item())
    with capsys.disabled():
        print(f"\n{name}: {spent:.2f} s per step of 100, {count(net):,} parameters", end=" ")


OWN = """
from torch import nn

NUMBER = 3
ready = nn.Linear(2, 2)

def plain(num_classes, depth=1):
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)), nn.Linear(4, num_classes))

def with_keywords(**options):
    return nn.Linear(options.pop("width", 3), options["num_classes"])

def no_module(num_classes):
    return "a string"

class Fixed(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.linear = nn.Linear(width, 5)

class Demanding(nn.Module):
    def __init__(self, num_classes, width):
        super().__init__()
        self.linear = nn.Linear(width, num_classes)
"""


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Somebody's own module, and one that cannot be imported."""
    (tmp_path / "own_nets.py").write_text(OWN)
    (tmp_path / "broken_nets.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("here")
def test_networks_by_import_path():
    assert network("own_nets:plain", 6)[-1].out_features == 6
    assert len(network("own_nets:plain", 6, depth=3)) == 4
    assert network("own_nets:with_keywords", 6).weight.shape == (6, 3)
    assert network("own_nets:with_keywords", 6, width=2).weight.shape == (6, 2)
    assert network("own_nets:Fixed", 6).linear.out_features == 5  # it does not take num_classes
    assert network("own_nets:Demanding", 6, width=2).linear.weight.shape == (6, 2)
    assert network("multimix.lab.nets:resnet50_small", 6, in_channels=1).stem[0].in_channels == 1


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "preact_resnet",
            {},
            r"no network 'preact_resnet' \(did you mean 'preact_resnet18'\?\); there are preact_resnet18, .*, vgg11_small, "
            r"pointnet, timm/NAME, and any other by package\.module:name",
        ),
        (None, {}, r"no network None; there are preact_resnet18, "),
        (
            "preact_resnet18",
            {"final_nrm": True},
            r"preact_resnet18 has no option 'final_nrm' \(did you mean 'final_norm'\?\); it has in_channels, stem_stride",
        ),
        ("wrn16_8", {"stem_stride": 2}, r"wrn16_8 has no option 'stem_stride'; it has in_channels, bias"),
        ("preact_resnet18", {"stem_stride": 0}, r"stem_stride must be at least 1, got 0"),
        ("vgg11", {"in_channels": 0}, r"in_channels must be a whole number of at least 1, got 0"),
        ("own_nets:plian", {}, r"no class or function 'plian' in own_nets \(did you mean 'plain'\?\)"),
        ("own_nets:NUMBER", {}, r"no class or function 'NUMBER' in own_nets"),
        ("own_nets:ready", {}, r"no class or function 'ready' in own_nets"),
        ("own_nets:plain", {"dept": 2}, r"own_nets:plain has no option 'dept' \(did you mean 'depth'\?\); it has depth"),
        ("own_nets:plain", {"in_channels": 2}, r"own_nets:plain has no option 'in_channels'; it has depth"),
        ("own_nets:Demanding", {}, r"own_nets:Demanding needs width="),
        ("own_nets:no_module", {}, r"own_nets:no_module must make an nn\.Module, got str"),
        (
            "no_such_module:Net",
            {},
            r"cannot import the network 'no_such_module:Net': .*; is it in this folder, or its folder on PYTHONPATH\?",
        ),
        ("broken_nets:Net", {}, r"cannot import the network 'broken_nets:Net': No module named 'nothing_of_this_name'$"),
        (":Net", {}, r"an import path must have the form package\.module:name, got ':Net'"),
        (".nets:Net", {}, r"an import path must have the form package\.module:name, got '\.nets:Net'"),
        ("own_nets:", {}, r"an import path must have the form package\.module:name, got 'own_nets:'"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_wrong_is_said_in_one_sentence(name, options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}") as caught:
        network(name, 6, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("classes", [0, -1, 2.5, True, "10"])
def test_the_number_of_classes_is_checked(classes):
    with pytest.raises(ValueError, match="num_classes must be a whole number of at least 1, got "):
        network("vgg11_small", classes)


@pytest.mark.parametrize("name", SMALL)
def test_without_norm_decay_exactly_the_batch_norms_are_spared(name):
    net = network(name, 7)
    decayed, spared = parameter_groups(net, 1e-4, norm_decay=False)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1e-4, 0.0)
    norms = [module for module in net.modules() if "BatchNorm" in type(module).__name__]
    assert {id(weight) for weight in spared["params"]} == {id(w) for norm in norms for w in (norm.weight, norm.bias)}
    assert {id(weight) for weight in decayed["params"] + spared["params"]} == {id(weight) for weight in net.parameters()}
    assert len(decayed["params"] + spared["params"]) == len(list(net.parameters()))


def test_with_norm_decay_everything_decays():
    net = network("vgg11_small", 7)
    (group,) = parameter_groups(net, 0.5, norm_decay=True)
    assert group["weight_decay"] == 0.5
    assert [id(weight) for weight in group["params"]] == [id(weight) for weight in net.parameters()]


def test_other_norms_are_spared_and_shared_weights_counted_once():
    first = nn.Linear(4, 4)
    net = nn.Sequential(first, nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.Sequential(first))
    decayed, spared = parameter_groups(net, 0.1, norm_decay=False)
    assert (len(decayed["params"]), len(spared["params"])) == (2, 5)
    assert len(parameter_groups(nn.Linear(2, 2), 0.1, norm_decay=False)) == 1
    torch.optim.SGD(parameter_groups(net, 0.1, norm_decay=False), lr=0.1)


def test_a_negative_decay_is_refused():
    with pytest.raises(ValueError, match="weight_decay must be at least 0, got -1"):
        parameter_groups(nn.Linear(2, 2), -1, norm_decay=True)


def test_a_module_of_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "net_of_this_folder.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(2, 3)\n"
    )
    path = [place for place in sys.path if place not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", path)
    with pytest.raises(ValueError, match="cannot import the network 'net_of_this_folder:Net'"):
        network_from_path("net_of_this_folder:Net")
    monkeypatch.chdir(tmp_path)
    assert network_from_path("net_of_this_folder:Net").out_features == 3
    assert str(tmp_path) not in sys.path, "nothing else is looked for there"
    del sys.modules["net_of_this_folder"]
