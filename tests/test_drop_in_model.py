"""Mix for methods that need saliency: from its model, or handed in."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import multimix as mm
from salient import CLASSES, Network, Salient, images, labels

NEEDY = TensorDataset(images(), labels())


def test_a_model_serves_methods_with_needs():
    model = Network(dropout=0)
    saliency = mm.input_saliency(model, images(), labels())
    model.seen.clear()
    mix = mm.Mix(Salient(k=3), CLASSES, model=model, smoothing=0.2, seed=4)
    given = mm.Mix(Salient(k=3), CLASSES, smoothing=0.2, seed=4)
    generator = torch.Generator()
    generator.set_state(mix.state_dict()["generator"])
    assert mix.state_dict().keys() == {"enabled", "generator", "starts"}
    plan = Salient(k=3).plan(images(), saliency=saliency, generator=generator)
    for x_mix, target in (mix(images(), labels()), given(images(), labels(), saliency=saliency)):
        assert torch.equal(x_mix, plan.mix(images()))
        assert torch.equal(target, plan.mix_target(labels(), CLASSES, 0.2))
        assert not x_mix.requires_grad, "nothing leads from the batch back into the model"
    assert model.seen == [(6, False)]
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    mix(images(), labels(), saliency=saliency)
    mix.enabled = False
    mix(images(), labels())
    assert model.seen == [(6, False)], "a map that is given, or no mixing, asks nothing of the model"


def test_the_output_of_a_model_can_be_named():
    class Wordy(Network):
        def forward(self, x):
            return x, super().forward(x)

    mixed = mm.Mix(Salient(), CLASSES, model=Wordy(), output=1, seed=0)(images(), labels())[0]
    assert torch.equal(mixed, mm.Mix(Salient(), CLASSES, model=Network(), seed=0)(images(), labels())[0])


def test_only_a_method_that_was_drawn_asks_the_model():
    model = Network()
    mix = mm.Mix(mm.OneOf((mm.InputMixup(k=1), Salient(k=2)), (0.4, 0.4)), CLASSES, model=model, seed=0)
    rows = [len(mix(images(), labels())[0]) for _ in range(20)]
    assert len(model.seen) == rows.count(12)
    assert 0 < rows.count(12) < 20


@pytest.mark.parametrize("method", [Salient(), mm.OneOf((mm.CutMix(), Salient()), (0.99, 0.01))], ids=["alone", "one of"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda mix: pickle.loads(pickle.dumps(mix))], ids=["deepcopy", "pickle"])
def test_needs_without_a_model_are_one_sentence_before_any_draw(method, copied):
    mix = mm.Mix(method, CLASSES, model=Network(), seed=0)
    twin = copied(mix)
    assert mix.model is not None
    assert b"Network" not in pickle.dumps(mix)
    for bare in (twin, mm.Mix(method, CLASSES, seed=0)):
        before = bare.state_dict()["generator"]
        with pytest.raises(ValueError, match=r"needs saliency: give Mix a model= .*, or call mix\(x, y, saliency=…\)"):
            bare(images(), labels())
        assert torch.equal(bare.state_dict()["generator"], before)
        assert len(bare(images(), labels(), saliency=torch.ones(6, 5, 7))[0]) == 6


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="CutMix.plan takes no 'saliency'; it takes partner, lam"):
        mm.Mix(mm.CutMix(), CLASSES)(images(), labels(), saliency=torch.ones(6, 5, 7))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_model_is_refused_in_workers(start):
    mix = mm.Mix(Salient(), CLASSES, model=Network())
    batches = DataLoader(NEEDY, 6, num_workers=1, collate_fn=mix.collate, multiprocessing_context=start)
    with pytest.raises(ValueError, match="Salient needs saliency, and a model cannot be asked in data-loader workers, where its"):
        next(iter(batches))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_maps_can_be_handed_in_in_workers():
    mix = mm.Mix(Salient(k=2), CLASSES, model=Network(), seed=0)

    def collate(samples):
        x, y = default_collate(samples)
        return mix(x, y, saliency=x.abs().mean(1))

    (batch,) = DataLoader(NEEDY, 6, num_workers=1, collate_fn=collate, multiprocessing_context="fork")
    assert len(batch[0]) == 12
