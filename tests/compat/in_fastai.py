"""The fastai adapter: its page runs with every kind of method and equals a plain loop; the loss function stays where it is."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from adapter_pages import CASES, plain_loop, run_page
from multimix.methods.samix.block import NewBlock
from peers import peer

peer("torchvision")
losses, learner, core = peer("fastai.losses"), peer("fastai.learner"), peer("fastai.data.core")
optimizer, training = peer("fastai.optimizer"), peer("fastai.callback.training")
Mixing = importlib.import_module("multimix.compat.fastai").Mixing  # not a peer: what is wrong with it is no reason to skip


def data(rows=None):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(12, 3, 8, 7, generator=generator), torch.randint(4, (12,), generator=generator)
    return TensorDataset(x, y if rows is None else rows(y))


def made(kind):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 56, 4))
    method = {
        "history": lambda: mm.RecursiveMix(k=2),
        "network": lambda: mm.SAMix(k=2, block=NewBlock("1", momentum=0.5)).bind(model, data().tensors[0], updates=6),
        "clean": lambda: mm.PuzzleMix(k=2, blocks=((4, 7),), clean_weight=0.5),
        "input": lambda: mm.CutMix(k=3),
    }[kind]()
    return model, method


def sgd(weights, **_):
    return optimizer.OptimWrapper(weights, torch.optim.SGD, lr=0.1)


def made_learner(model, mixing, loss=None, rows=None, splitter=True, **more):
    loaders = core.DataLoaders(DataLoader(data(rows), batch_size=4), DataLoader(data(rows), batch_size=4), device="cpu")
    found = learner.Learner(
        loaders,
        model,
        loss_func=losses.CrossEntropyLossFlat() if loss is None else loss,
        opt_func=sgd,
        cbs=mixing,
        **({"splitter": mixing[0].splitter} if splitter else {}),
        **more,
    )
    return found


def fit(found, epochs=2):
    with found.no_bar(), found.no_logging():
        found.fit(epochs, 0.1)


def states_of(found, mixing):
    """The random states before each of the batches that ``found`` is then trained on."""
    states, batch = [], mixing._mixed

    def remember(*args):
        states.append(torch.get_rng_state())
        return batch(*args)

    object.__setattr__(mixing, "_mixed", remember)
    return states


def test_the_page_runs_with_every_kind_of_method():
    for name, k in CASES:
        found = run_page("fastai", name, k, "1")
        assert all(weight.isfinite().all() for weight in found["model"].parameters()), name
        _, loss, accuracy = found["learner"].recorder.values[-1]
        with torch.no_grad():
            expected = nn.functional.cross_entropy(found["model"].eval()(found["images"]), found["labels"])
        assert loss == pytest.approx(float(expected), rel=1e-4), name
        assert 0 <= accuracy <= 1, name


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", ["input", "history", "network", "clean"])
def test_it_is_the_plain_loop(kind, parts):
    """By pairs of indices, which is the soft cross-entropy; with gradient accumulation, which counts samples, not rows."""
    model, method = made(kind)
    model_too, method_too = copy.deepcopy((model, method))
    mixing = Mixing(method)
    found = made_learner(model, [mixing, training.GradientAccumulation(4 * parts)])
    function, states = found.loss_func, states_of(found, mixing)
    fit(found)
    assert found.loss_func is function
    assert function.reduction == "mean"
    before = iter(states)
    weights = [*model_too.parameters(), *method_too.modules.parameters()]
    batches = list(DataLoader(data(), batch_size=4))
    plain_loop(
        model_too,
        method_too,
        [batches, batches],
        torch.optim.SGD(weights, lr=0.1),
        parts=parts,
        before=lambda: torch.set_rng_state(next(before)),
    )
    close(model, model_too)
    close(method.modules, method_too.modules)


def close(a, b):
    for left, right in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(left, right)


def test_losses_of_several_labels_get_soft_targets():
    seen = []

    class Watched(losses.BCEWithLogitsLossFlat):
        def __call__(self, logits, target, **options):
            seen.append((len(logits), len(target), float(target.max())))
            return super().__call__(logits, target, **options)

    model, _ = made("input")
    fit(made_learner(model, [Mixing(mm.CutMix(k=5))], Watched(), lambda y: nn.functional.one_hot(y, 4).float()), 1)
    assert {(20, 20), (4, 4)} == {rows[:2] for rows in seen}


def test_misuse_is_one_sentence():
    model, method = made("network")
    with pytest.raises(ValueError, match="no optimi[sz]er trains the network of SAMix"):
        fit(made_learner(model, [Mixing(method)], splitter=False))
    with pytest.raises(TypeError, match="method must"):
        Mixing("cutmix")
