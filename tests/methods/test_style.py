"""AdaIN, pairs, distances between classes, the small pair and the loader of published weights."""

import random

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import interpolate

import multimix as mm
import style_oracle as slow
from multimix.methods.style import small_pair as style_small
from multimix.methods.style.adain import ClassDistances, StylePair, StyleSpace, adain, class_distances, style_of
from multimix.methods.style.small_pair import small_style_pair, train_style_pair
from multimix.methods.style.vgg_pair import RELU_X_1, adain_decoder, adain_encoder, load_adain_pair
from oracles import seeded


def images(*shape, seed=0):
    return torch.rand(shape, generator=seeded(seed))


@pytest.mark.parametrize("shape", [(3, 4, 5, 7), (2, 3, 1, 1), (1, 2, 1, 6)], ids=str)
def test_adain_is_the_slow_one(shape):
    content, style = images(*shape), 4 * images(*shape, seed=1) - 3
    expected = torch.stack([slow.adain(f, g) for f, g in zip(content, style, strict=True)])
    torch.testing.assert_close(adain(content, style), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(adain(content, content), content, atol=1e-5, rtol=0)


def test_adain_has_the_statistics_of_the_style():
    made = adain(images(2, 3, 20, 20).double(), 5 * images(2, 3, 9, 8, seed=2).double())
    wanted = style_of(5 * images(2, 3, 9, 8, seed=2).double())
    torch.testing.assert_close(made.mean((2, 3)), wanted[0][..., 0, 0])
    torch.testing.assert_close(made.std((2, 3)), wanted[1][..., 0, 0], rtol=1e-3, atol=0)
    flat = torch.full((1, 1, 3, 3), 2.0)
    assert torch.equal(adain(flat, flat + 1), flat + 1)


def test_a_pair_is_frozen():
    encoder, decoder = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Dropout(0.9)), nn.Conv2d(2, 1, 1)
    pair = StylePair(encoder.train(), decoder)
    assert not encoder.training
    assert not any(p.requires_grad for module in (encoder, decoder) for p in module.parameters())
    x = images(2, 1, 3, 3)
    assert torch.equal(pair.encode(x), pair.encode(x))
    assert pair.encode(x.double()).dtype == torch.float32
    with pytest.raises(TypeError, match="decoder must"):
        StylePair(encoder, "decoder")
    with pytest.raises(ValueError, match="taps must"):
        StylePair(encoder, decoder, taps=(2,))
    with pytest.raises(ValueError, match="x is on meta, the style pair on cpu"):
        pair.encode(x.to("meta"))


def test_a_pair_in_training_mode_is_refused_when_it_is_used():
    norm = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    method = mm.StyleMix(pair=StylePair(norm, nn.Conv2d(4, 3, 1)), side=None)
    norm.train()  # as model.train() of whatever holds it would do
    with pytest.raises(ValueError, match="pair must"):
        method.plan(torch.randn(2, 3, 6, 6))
    with pytest.raises(TypeError, match="pair must"):
        mm.StyleMix(pair=StylePair)


def test_sizes_that_the_decoder_rounds_are_brought_back():
    pair = small_style_pair(2, 4, generator=seeded(3))
    x = images(3, 2, 7, 9)
    space = StyleSpace(pair=pair)
    features = space.encode(x)
    assert features.shape == (3, 8, 4, 5)
    expected = interpolate(pair.decode(features), (7, 9), mode="bilinear", align_corners=False)
    torch.testing.assert_close(space.decode(features, x), expected)
    assert space.decode(features, x.half()).dtype == torch.float32
    assert space.decode(features, x.double()).dtype == torch.float64


def test_class_distances_count_every_image():
    """Against loops; classes repeat inside a batch, and batches are uneven."""
    pair, x, label = small_style_pair(1, 3, generator=seeded(4)), images(11, 1, 6, 6), torch.arange(11) ** 2 % 3 % 2
    space = StyleSpace(pair=pair, mean=0.2, std=0.5)
    found = class_distances(space, [(x[:7], label[:7]), (x[7:], label[7:])], 2).values
    styles = []
    for image in x:
        row = []
        for layer in pair.layers((image * 0.5 + 0.2)[None]):
            pairs = [slow.statistics(channel) for channel in layer[0]]
            row += [mean for mean, _ in pairs] + [deviation for _, deviation in pairs]
        styles.append(row)
    assert len(styles[0]) == 2 * (3 + 6)
    means = [
        [
            sum(row[s] for row, c in zip(styles, label.tolist(), strict=True) if c == which) / int((label == which).sum())
            for s in range(18)
        ]
        for which in range(2)
    ]
    apart = sum((a - b) ** 2 for a, b in zip(*means, strict=True)) / 18
    torch.testing.assert_close(found, torch.tensor([[2.0, apart], [apart, 2.0]]).double(), atol=1e-7, rtol=1e-4)
    whole = class_distances(space, [(x, label)], 2)
    torch.testing.assert_close(whole.values, found)
    plain = StyleSpace(pair=slow.IDENTITY)
    assert plain.styles(x).shape == (11, 2)
    with pytest.raises(ValueError, match=r"image of every class, got none of \[2\]"):
        class_distances(space, [(x, label)], 3)
    with pytest.raises(ValueError, match="num_classes"):
        class_distances(space, [(x, label)], 1)


def test_distances_are_compared_by_content():
    one, same, other = (ClassDistances(torch.eye(2) * factor) for factor in (1, 1, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    with pytest.raises(ValueError, match="finite and at least 0"):
        ClassDistances(-torch.eye(2))


def style_left(pair, x):
    """How far from the partner's style images stylised by ``pair`` stay, as a share of how far they were."""
    with torch.no_grad():
        features = pair.encode(x)
        other = features.roll(1, 0)
        found = style_of(pair.encode(pair.decode(adain(features, other))))
    left, before = (
        sum(float((a - b).square().mean()) for a, b in zip(start, style_of(other), strict=True))
        for start in (found, style_of(features))
    )
    return left / before


def test_the_small_pair_learns_in_seconds(monkeypatch):
    x = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
    x, unseen = x[:400], x[400:600]
    pair = train_style_pair(x, steps=160, width=12, generator=seeded(5))
    untrained = small_style_pair(1, 12, generator=seeded(5))
    with torch.no_grad():
        error, before = ((p.decode(p.encode(unseen)) - unseen).square().mean() / x.var() for p in (pair, untrained))
    assert float(error) < 0.25 < float(before)
    assert not pair.encoder.training
    assert not any(p.requires_grad for p in [*pair.encoder.parameters(), *pair.decoder.parameters()])
    # Decoded images take on some of the partner's style, more than those of a pair that only learned to give images back.
    term = style_small._pair_loss
    monkeypatch.setattr(style_small, "_pair_loss", lambda pair, x, x_pair, stylise: term(pair, x, x_pair, False))
    plain = train_style_pair(x, steps=160, width=12, generator=seeded(5))
    assert style_left(pair, unseen) < min(0.8, style_left(plain, unseen))


def test_training_draws_from_its_generator_alone():
    x = images(6, 3, 5, 7)
    state = torch.get_rng_state()
    with torch.no_grad():
        first, again, other = (train_style_pair(x, steps=4, width=2, batch=3, generator=seeded(s)) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    same, different = (nn.utils.parameters_to_vector(pair.decoder.parameters()) for pair in (again, other))
    weights = nn.utils.parameters_to_vector(first.decoder.parameters())
    assert torch.equal(weights, same)
    assert not torch.equal(weights, different)
    with pytest.raises(ValueError, match="images must"):
        train_style_pair(x[:1])
    with pytest.raises(ValueError, match="steps must"):
        train_style_pair(x, steps=1)


# Positions and channels of all convolutions in the published files, written down apart from the code that builds them.
VGG = {
    0: (3, 3, 1), 2: (3, 64, 3), 5: (64, 64, 3), 9: (64, 128, 3), 12: (128, 128, 3), 16: (128, 256, 3), 19: (256, 256, 3),
    22: (256, 256, 3), 25: (256, 256, 3), 29: (256, 512, 3),
}  # fmt: skip
BACK = {
    1: (512, 256, 3), 5: (256, 256, 3), 8: (256, 256, 3), 11: (256, 256, 3), 14: (256, 128, 3), 18: (128, 128, 3),
    21: (128, 64, 3), 25: (64, 64, 3), 28: (64, 3, 3),
}  # fmt: skip


def weights(convolutions, seed):
    generator, state = seeded(seed), {}
    for position, (inputs, outputs, side) in convolutions.items():
        scale = (2 / (inputs * side * side)) ** 0.5
        state[f"{position}.weight"] = scale * torch.randn(outputs, inputs, side, side, generator=generator)
        state[f"{position}.bias"] = 0.1 * torch.randn(outputs, generator=generator)
    return state


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    encoder = weights(VGG, 6)
    # The published file goes on beyond relu4_1, and is of the old format.
    torch.save(
        {**encoder, "32.weight": torch.zeros(2), "51.bias": torch.zeros(2)},
        folder / "vgg.pth",
        _use_new_zipfile_serialization=False,
    )
    torch.save(weights(BACK, 7), folder / "decoder.pth")
    return folder / "vgg.pth", folder / "decoder.pth", encoder


def test_published_weights_are_loaded_and_used(files):
    pair = load_adain_pair(files[0], files[1])
    state = pair.encoder.state_dict()
    assert state.keys() == files[2].keys()
    assert all(torch.equal(state[key], value) for key, value in files[2].items())
    x = images(1, 3, 18, 25)
    features = pair.layers(x)
    assert [list(f.shape[1:]) for f in features] == [[64, 18, 25], [128, 9, 13], [256, 5, 7], [512, 3, 4]]
    assert torch.equal(features[-1], pair.encode(x))
    assert all((f >= 0).all() for f in features)
    assert pair.decode(features[-1]).shape == (1, 3, 24, 32)
    assert StyleSpace(pair=pair).styles(x).shape == (1, 1920)
    # The first two layers by hand: colours are mixed, borders reflected.
    held = files[2]
    coloured = torch.einsum("oi,bihw->bohw", held["0.weight"][..., 0, 0], x) + held["0.bias"][:, None, None]
    padded = torch.nn.functional.pad(coloured, (1, 1, 1, 1), mode="reflect")
    first = torch.nn.functional.conv2d(padded, held["2.weight"], held["2.bias"]).relu()
    torch.testing.assert_close(features[0], first)


def test_layers_of_the_definition():
    encoder, decoder = adain_encoder(), adain_decoder()
    assert len(encoder) == 31
    assert len(decoder) == 29
    assert all(isinstance(encoder[tap], nn.ReLU) for tap in RELU_X_1)
    assert [i for i, layer in enumerate(encoder) if isinstance(layer, nn.MaxPool2d)] == [7, 14, 27]
    assert [i for i, layer in enumerate(decoder) if isinstance(layer, nn.Upsample)] == [3, 16, 23]


def test_images_vgg_cannot_take_are_refused(files):
    pair = load_adain_pair(files[0], files[1])
    for shape in [(1, 1, 32, 32), (1, 3, 32, 8)]:
        with pytest.raises(ValueError, match=r"needs images \[B, 3, H, W\] of at least 9 pixels"):
            pair.encode(torch.zeros(shape))
    assert pair.decode(pair.encode(torch.zeros(1, 3, 9, 9))).shape == (1, 3, 16, 16)


def test_files_that_do_not_fit_are_refused(files, tmp_path):
    good_encoder, good_decoder, _ = files
    state = weights(BACK, 8)
    bad = tmp_path / "bad.pth"

    def refused(content, sentence):
        torch.save(content, bad)
        with pytest.raises(ValueError, match=sentence):
            load_adain_pair(good_encoder, bad)

    refused({k: v for k, v in state.items() if k != "5.bias"}, r"decoder weights in .*5\.bias")
    refused({**state, "32.weight": torch.zeros(2)}, r"decoder weights in .*32\.weight")
    refused({**state, "28.bias": torch.zeros(4)}, r"decoder weights in .*28\.bias")
    refused({**state, "28.bias": torch.full((3,), torch.nan)}, r"28\.bias must")
    refused([1, 2], "decoder weights in")
    refused({**state, "28.bias": torch.zeros(3).to_sparse()}, r"28\.bias must")
    refused({**state, "28.bias": torch.zeros(3, device="meta")}, r"28\.bias must")
    with pytest.raises(FileNotFoundError, match="encoder weights: no file"):
        load_adain_pair(tmp_path / "none.pth", good_decoder)
    bad.write_bytes(b"no weights at all")
    with pytest.raises(ValueError, match="decoder weights in .* cannot be loaded"):
        load_adain_pair(good_encoder, bad)

    torch.save({**state, "28.bias": Dangerous()}, bad)
    with pytest.raises(ValueError, match="decoder weights in .* cannot be loaded"):
        load_adain_pair(good_encoder, bad)
    assert not Dangerous.ran


@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_of_weights_is_one_sentence(tmp_path, zipped):
    path = tmp_path / "encoder.pth"
    torch.save({"1.weight": torch.ones(2, 3), "1.bias": torch.ones(2)}, path, _use_new_zipfile_serialization=zipped)
    sound, stream, refused = path.read_bytes(), random.Random(0), []
    for _ in range(300):
        spoilt = bytearray(sound)
        for _ in range(stream.randint(1, 4)):
            spoilt[stream.randrange(len(spoilt))] = stream.randrange(256)
        path.write_bytes(spoilt[: stream.choice([None, stream.randrange(len(spoilt))])])
        with pytest.raises(ValueError, match="^encoder weights in ") as error:  # at the least, these are not its layers
            load_adain_pair(path, path)
        refused.append(str(error.value))
    assert not any("\n" in sentence for sentence in refused)
    assert len({sentence.partition(": ")[2].partition(" ")[0] for sentence in refused}) > 5, "of many kinds"


class Dangerous:
    """What a hostile file could hold."""

    ran = False

    def __reduce__(self):
        return (setattr, (Dangerous, "ran", True))
