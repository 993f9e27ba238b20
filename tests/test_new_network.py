"""Networks that methods work with, made from a description when model and images are there."""

import pytest
import torch
from torch import nn

import multimix as mm
from multimix.lab.sketch_pair import SketchPair
from multimix.methods import SAMix, StyleCutMix, StyleMix
from multimix.methods.base import trained_parameters
from multimix.methods.samix.block import FixedBlock, MixBlock, NewBlock
from multimix.methods.style.adain import StylePair
from multimix.methods.style.small_pair import NewPair, train_style_pair


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
    )


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


X = torch.randn(40, 3, 9, 12, generator=stream(1))
Y = torch.arange(40) % 4


def test_a_block_is_made_for_the_layer_it_names():
    net = model()
    made = SAMix(k=2, block=NewBlock("2", kappa=None, momentum=0.5, last=0.75)).bind(net, X, updates=4, generator=stream())
    block = made.block
    assert isinstance(block, MixBlock)
    assert (block.channels, block.kappa, block.encoder.layer) == (6, None, "2")
    assert (block.encoder.first, block.encoder.last, block.encoder.steps) == (0.5, 0.75, 4)
    assert dict(made.modules) == {"block": block}
    assert len(trained_parameters(made)) == 8
    ours = MixBlock(net, "2", 6, kappa=None, momentum=0.5, last=0.75, steps=4, generator=stream())
    for name, value in ours.state_dict().items():
        assert torch.equal(value, block.state_dict()[name])


@pytest.mark.parametrize("kind", [StyleMix, StyleCutMix])
def test_a_pair_learns_from_the_images_as_it_will_be_given_them(kind):
    method = kind(pair=NewPair(width=4, steps=6, batch=8), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), side=6)
    made = method.bind(model(), X, generator=stream())
    assert isinstance(made.pair, StylePair)
    shown = X * torch.tensor([0.2, 0.3, 0.4]).reshape(3, 1, 1) + torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1)
    shown = nn.functional.interpolate(shown, (6, 8), mode="bilinear", align_corners=False)
    expected = train_style_pair(shown, width=4, steps=6, batch=8, generator=stream())
    for module, other in ((made.pair.encoder, expected.encoder), (made.pair.decoder, expected.decoder)):
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    assert set(made.modules) == {"encoder", "decoder"}
    assert trained_parameters(made) == []
    assert mm.mixed_forward(model(), made, X, Y, generator=stream()).loss().isfinite()


def test_networks_that_learnt_nothing_take_the_weights_of_others():
    for method in (SAMix(block=NewBlock("2")), StyleMix(pair=NewPair(width=4, steps=4), side=None)):
        whole = method.bind(model(), X, generator=stream(5))
        empty = method.bind(model(), torch.zeros(1, 3, 9, 12), generator=stream(6), learn=False)
        empty.modules.load_state_dict(whole.modules.state_dict())
        given = {"generator": stream(), "partner": torch.arange(40).flip(0), "lam": [0.3]}
        ours, theirs = (one.plan(X, **(given | {"generator": stream()})).mix(X) for one in (whole, empty))
        assert torch.equal(ours, theirs)


def test_one_of_several_is_bound_one_by_one():
    several = mm.OneOf((SAMix(block=NewBlock("2")), mm.CutMix(), StyleMix(pair=NewPair(width=4, steps=4), side=None)))
    made = several.bind(model(), X, generator=stream())
    assert {name: set(part) for name, part in made.modules.items()} == {"0": {"block"}, "2": {"encoder", "decoder"}}
    assert trained_parameters(made) == trained_parameters(made.methods[0])
    assert made.methods[1] == mm.CutMix()


def test_methods_that_share_a_block_make_one_step_of_its_copy():
    net = model()
    first = SAMix(block=NewBlock("2", momentum=0.5)).bind(net, X)
    several = mm.OneOf((first, mm.CutMix(), SAMix(block=first.block, k=3)))
    several.after_step(net)
    assert int(first.block.encoder.updates) == 1


def test_a_block_that_is_not_trained_requires_no_gradient():
    assert trained_parameters(SAMix(block=NewBlock("2"), train_block=False).bind(model(), X)) == []


def test_what_has_its_network_or_none_stays_as_it_is():
    for method in (mm.CutMix(k=3), SAMix(block=FixedBlock(), train_block=False), StyleMix(pair=SketchPair(), side=None)):
        assert method.bind(model(), X) is method
        assert trained_parameters(method) == []
    assert len(mm.CutMix().modules) == 0


def test_a_description_alone_mixes_nothing_and_says_what_to_do():
    for method, word in ((SAMix(block=NewBlock("2")), "block"), (StyleMix(pair=NewPair()), "pair")):
        message = rf"^{word} of {type(method).__name__}.*method.bind\(model, images\)"
        for run in (lambda m=method: m.plan(X), lambda m=method: mm.mixed_forward(model(), m, X, Y)):
            with pytest.raises(ValueError, match=message):
                run()


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="stage3"):
        SAMix(block=NewBlock("stage3")).bind(model(), X)


def test_what_cannot_be_learnt_from_is_refused():
    method = SAMix(block=NewBlock("2"))
    with pytest.raises(TypeError, match="must be a torch.Tensor"):
        method.bind(model(), X.numpy())
    with pytest.raises(ValueError, match="^updates must"):
        method.bind(model(), X, updates=0)


def bound(block):
    return SAMix(block=block).bind(model(), X)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: bound(NewBlock("2", momentum=2.0)), "momentum must"),
        (lambda: bound(NewBlock("2", last=-1.0)), "last must"),
        (lambda: bound(NewBlock("9")), "no layer '9'"),
        (lambda: NewPair(steps=-1), "steps must"),
        (lambda: NewPair(width=0), "width must"),
        (lambda: NewPair(rate=0.0), "rate must"),
    ],
)
def test_descriptions_that_make_no_sense(make, sentence):
    with pytest.raises((TypeError, ValueError), match=f"^{sentence}"):
        make()


@pytest.mark.parametrize("method", [SAMix(block=NewBlock("2")), StyleMix(pair=NewPair(width=4, steps=4), side=None)])
def test_ranks_that_are_seeded_alike_begin_with_the_same_networks(method, monkeypatch):
    def weights(rank, seed):
        monkeypatch.setenv("RANK", str(rank))
        net = model()
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(method.bind(net, X).modules.parameters())

    first = weights(0, seed=3)
    assert torch.equal(weights(1, seed=3), first)
    assert not torch.equal(weights(0, seed=4), first)
