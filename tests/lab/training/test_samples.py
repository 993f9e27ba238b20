"""The stored samples are those of the first update that mixes, bit for bit what the network sees."""

from itertools import islice

import numpy
import pytest
import torch

import multimix as mm
from multimix.lab.images import SAMPLES, read_image_grid
from multimix.lab.recipes.runs import planned
from multimix.lab.training.loop import Training
from multimix.lab.training.run import engine, train
from multimix.lab.training.samples import first_batch, sample_grid
from multimix.methods.samix.block import NewBlock
from trial import PUZZLE, RECIPE, settings, splits

METHODS = {
    "mixup": mm.InputMixup(k=3),
    "cutmix": mm.CutMix(k=2),
    "puzzlemix": PUZZLE,
    "none": mm.NoMix(),
    "cutout": mm.Cutout(length=3),
    "recursivemix": mm.RecursiveMix(k=3),
    "samix": mm.SAMix(k=2, block=NewBlock("stage1"), margin=0.0),
}
LATER = {"recursivemix": (1, 1), "samix": (0, 1)}  # the update and the forward pass that mix


def training_of(chosen, seed):
    return Training(chosen, seed, splits(), engine(chosen))


def seen_by_a_training(chosen, seed, update, forward):
    """The batch before mixing, and what the network is given in a forward pass of a real training."""
    training = training_of(chosen, seed)
    clean = list(training.loaders(0)[0].epoch(0))[update][0]
    seen = []

    def look(module, given):
        if module.training:  # the saliency pass is in evaluation mode
            seen.append(given[0].detach().clone())

    training.network.register_forward_pre_hook(look)
    training.run(None)
    return clean, seen[forward]


@pytest.mark.parametrize("name", METHODS)
def test_it_is_what_the_network_sees(name):
    chosen = settings(method=METHODS[name], channels_last=False, epochs=1)
    update, forward = LATER.get(name, (0, 0))
    clean, seen = seen_by_a_training(chosen, 7, update, forward)
    batch = first_batch(training_of(chosen, 7))
    assert batch.update == update + 1
    assert torch.equal(batch.x, clean)
    assert torch.equal(batch.mixed.flatten(0, 1), seen)
    assert batch.layer is None
    assert batch.lam.shape == (len(batch.mixed), len(batch.x))


@pytest.mark.parametrize("name", ["puzzlemix", "recursivemix", "samix"])
def test_a_training_ends_alike_whether_samples_were_taken_or_not(name):
    chosen = settings(method=METHODS[name], epochs=1)
    states = []
    for take in (False, True):
        training = training_of(chosen, 3)
        torch.manual_seed(5)
        if take:
            sample_grid(training)
            expected = torch.rand(1)
            torch.manual_seed(5)
            assert torch.equal(torch.rand(1), expected), "the global stream is untouched"
        training.run(None)
        states.append(training.network.state_dict() | training.fitted.method.modules.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))


def test_partners_of_a_method_with_a_history_are_the_batch_before():
    chosen = settings(method=mm.RecursiveMix(k=2, area=1.0))
    before, _ = islice(training_of(chosen, 3).loaders(0)[0].epoch(0), 2)
    batch = first_batch(training_of(chosen, 3))
    assert batch.lam.min() > 0
    assert torch.equal(batch.x_pair, before[0])
    assert torch.equal(batch.y_pair, before[1])


def test_an_epoch_of_one_update_never_mixes_with_a_history():
    batch = first_batch(training_of(settings(method=mm.RecursiveMix(k=2), batch=200), 0))
    assert batch.update == 1
    assert torch.equal(batch.mixed[0], batch.x)
    assert torch.equal(batch.x_pair, batch.x)


def test_the_grid_shows_sample_mixtures_and_partner_with_their_titles():
    training = training_of(settings(method=METHODS["mixup"], channels_last=False), 0)
    batch, grid = first_batch(training), sample_grid(training)
    assert (grid.columns, len(grid.images)) == (5, 20)
    assert grid.images.shape[1:] == (8, 8, 3)
    pairs = [i for i in range(len(batch.x)) if not torch.equal(batch.x[i], batch.x_pair[i])]
    names = training.train.classes
    expected = [
        names[int(batch.y[pairs[0]])],
        *(f"λ = {lam:.2f}" for lam in batch.lam[:, pairs[0]]),
        names[int(batch.y_pair[pairs[0]])],
    ]
    assert list(grid.titles[:5]) == expected
    assert "ascending order of λ" in grid.caption
    # Brighter pixels of the sample are brighter in the picture, at the same place: one color map for every value.
    order = batch.x[pairs[0], 0].flatten().argsort()
    brightness = grid.images[0].astype(int).sum(2).flatten()[order.numpy()]
    assert (numpy.diff(brightness) >= 0).all()


def test_samples_mixed_inside_the_network_are_shown_as_pairs():
    grid = sample_grid(training_of(settings(method=mm.ManifoldMixup(k=2, layers=("stage1",))), 0))
    assert grid.columns == 2
    assert "at layer stage1" in grid.caption
    assert sample_grid(training_of(settings(method=mm.NoMix()), 0)).titles


def test_a_run_stores_its_samples_once(tmp_path, capsys):
    runs = planned(RECIPE, scale="smoke", method="mixup", k=2)
    train(runs, data=".", out=tmp_path, note=lambda _: None)
    path = tmp_path / runs[0].folder / SAMPLES
    grid = read_image_grid(path)
    assert grid.columns == 4
    path.write_bytes(b"damaged")
    assert read_image_grid(path) is None
    assert str(path) in capsys.readouterr().err
    path.unlink()
    assert read_image_grid(path) is None
    assert capsys.readouterr().err == ""
