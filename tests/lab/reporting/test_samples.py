"""The first update of a run is drawn again: bit for bit what its network saw."""

import io

import pytest
import torch
from PIL import Image

import multimix as mm
from multimix.lab.reporting.samples import first_batch, plain_picture, samples_picture
from multimix.lab.training.loop import Training
from multimix.lab.training.run import engine
from trial import PUZZLE, settings, splits

METHODS = {
    "mixup": mm.InputMixup(k=3),
    "cutmix": mm.CutMix(k=2),
    "puzzlemix": PUZZLE,
    "none": mm.NoMix(),
    "cutout": mm.Cutout(length=3),
}


def seen_by_a_training(chosen, seed):
    """The batch before mixing and what the network was given in its first pass with gradients, from a real training."""
    training = Training(chosen, seed, splits(), engine(chosen))
    clean = next(iter(training.loaders(0)[0].epoch(0)))[0]
    found = []

    def look(module, given):
        if module.training:  # the pass for saliency is in evaluation mode
            found.append(given[0].detach().clone())

    training.network.register_forward_pre_hook(look)
    training.run(None)
    return clean, found[0]


@pytest.mark.parametrize("name", METHODS)
def test_it_is_what_the_network_saw(name):
    chosen = settings(method=METHODS[name], channels_last=False, epochs=1)
    clean, seen = seen_by_a_training(chosen, 7)
    batch = first_batch(chosen, 7, splits().train.subset(20, 0))
    assert torch.equal(batch.x, clean)
    assert torch.equal(batch.mixed.flatten(0, 1), seen)
    assert batch.layer is None
    assert batch.lam.shape == (len(batch.mixed), len(batch.x))


def test_another_seed_and_untouched_streams():
    chosen = settings(method=METHODS["mixup"])
    train = splits().train.subset(20, 0)
    torch.manual_seed(5)
    first = torch.rand(1)
    torch.manual_seed(5)
    one, other = first_batch(chosen, 1, train), first_batch(chosen, 2, train)
    assert torch.equal(torch.rand(1), first), "the global stream goes on as if nothing had been"
    assert not torch.equal(one.x, other.x)


def test_mixed_inside_the_network():
    chosen = settings(method=mm.ManifoldMixup(k=2, layers=("stage1",)))
    batch = first_batch(chosen, 0, splits().train.subset(20, 0))
    assert batch.mixed is None
    assert batch.layer == "stage1"
    assert picture(samples_picture(batch, chosen, splits().train.classes))


def test_pictures_grow_with_k_and_pairs():
    train = splits().train.subset(20, 0)
    sizes = {}
    for k, pairs in ((1, 2), (5, 2), (5, 4)):
        chosen = settings(method=mm.InputMixup(k=k))
        batch = first_batch(chosen, 0, train)
        sizes[k, pairs] = picture(samples_picture(batch, chosen, train.classes, pairs=pairs))
    assert sizes[5, 2][0] > sizes[1, 2][0]
    assert sizes[5, 4][1] > sizes[5, 2][1]
    chosen = settings(method=mm.NoMix())
    assert picture(plain_picture(first_batch(chosen, 0, train), chosen, train.classes, count=3))


def picture(content):
    return Image.open(io.BytesIO(content)).size
