"""The Composer adapter: its page runs with every kind of method, equals a plain loop, and resumes exactly."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from adapter_pages import CASES, plain_loop, run_page, same_weights
from multimix.methods.samix.block import NewBlock
from peers import peer

peer("torchvision")
composer = peer("composer")
models = peer("composer.models")
Mixing = importlib.import_module("multimix.compat.composer").Mixing  # not a peer: what is wrong with it is no reason to skip
pytestmark = [
    # Composer takes a sum of 1 - 6e-8 for less than 1.
    pytest.mark.filterwarnings("ignore:Some targets have less than 1 total probability:UserWarning"),
]


class Watched(nn.Sequential):
    """It counts the rows that it is given."""

    def forward(self, x):
        self.__dict__.setdefault("rows", []).append(len(x))
        return super().forward(x)


def data():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(12, 3, 8, 7, generator=generator), torch.randint(4, (12,), generator=generator))


def made(kind):
    torch.manual_seed(3)
    module = Watched(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(6 * 56, 4))
    model = models.ComposerClassifier(module, num_classes=4)
    images = data().tensors[0]
    method = {
        "history": lambda: mm.RecursiveMix(k=2),
        "network": lambda: mm.SAMix(k=2, block=NewBlock("1", momentum=0.5)).bind(module, images, updates=6),
        "clean": lambda: mm.PuzzleMix(k=2, blocks=((4, 7),), clean_weight=0.5),
        "input": lambda: mm.CutMix(k=3),
    }[kind]()
    return model, method


def trainer(model, method, *, epochs=2, micro=4, options=None, **more):
    weights = [*model.parameters(), *method.modules.parameters()]
    return composer.Trainer(
        model=model,
        algorithms=[Mixing(method, **(options or {}))],
        optimizers=torch.optim.SGD(weights, lr=0.1),
        train_dataloader=DataLoader(data(), batch_size=4, shuffle=False),
        device_train_microbatch_size=micro,
        max_duration=f"{epochs}ep",
        device="cpu",
        progress_bar=False,
        **more,
    )


def test_the_page_runs_with_every_kind_of_method():
    for name, k in CASES:
        found = run_page("Composer", name, k, "1")
        assert all(weight.isfinite().all() for weight in found["classifier"].parameters()), name
        saved = [key for key in found["classifier"].state_dict() if key.startswith("mixing_networks.")]
        assert (len(saved) > 0) == (name == "network"), name
        (accuracy,) = found["trainer"].state.train_metric_values.values()
        assert 0 <= float(accuracy) <= 1, name


@pytest.mark.parametrize("micro", [4, 2])
@pytest.mark.parametrize("kind", ["input", "history", "network", "clean"])
def test_it_is_the_plain_loop(kind, micro):
    """With microbatches, too, each of which has K times its rows."""
    model, method = made(kind)
    module, method_too = copy.deepcopy((model.module, method))
    found = trainer(model, method, micro=micro)
    states = []
    found.state.callbacks.append(composer.Callback())
    found.state.callbacks[-1].before_forward = lambda *_: states.append(torch.get_rng_state())
    found.fit()
    x, y = data().tensors
    batches = [(x[i : i + micro], y[i : i + micro]) for i in range(0, 12, micro)]
    optimizer = torch.optim.SGD([*module.parameters(), *method_too.modules.parameters()], lr=0.1)
    before = iter(states)
    plain_loop(
        module,
        method_too,
        [batches, batches],
        optimizer,
        loss=lambda logits, target: model.loss(logits, (None, target)),
        parts=4 // micro,
        before=lambda: torch.set_rng_state(next(before)),
    )
    close(model.module, module)
    close(method.modules, method_too.modules)
    if kind == "input":
        assert set(model.module.rows) == {3 * micro}


def close(a, b):
    for left, right in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("kind", ["input", "history", "network"])
def test_a_run_that_was_stopped_goes_on_exactly(kind, tmp_path):
    whole = made(kind)
    trainer(*whole, epochs=3, save_folder=str(tmp_path), save_interval="1ba", seed=5).fit()
    for batches in (2, 4):  # of 3 in an epoch
        torch.manual_seed(99)
        model, method = made(kind)
        with torch.no_grad():
            for weight in [*model.parameters(), *method.modules.parameters()]:
                weight.zero_()
        (stored,) = tmp_path.glob(f"*-ba{batches}-rank0.pt")
        trainer(model, method, epochs=3, load_path=str(stored), seed=6).fit()
        assert same_weights(model.module, whole[0].module), batches
        assert same_weights(method.modules, whole[1].modules), batches


def test_any_model_and_any_batch():
    class Net(composer.models.ComposerModel):
        def __init__(self):
            super().__init__()
            self.net = Watched(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 56, 4))

        def forward(self, batch):
            return self.net(2 * batch["x"])

        def loss(self, outputs, batch):
            return nn.functional.cross_entropy(outputs, batch["y"])

    for method in (mm.ManifoldMixup(k=5, layers=("net.0",)), mm.PuzzleMix(k=5, blocks=((4, 7),))):
        model = Net()
        found = trainer(model, method, options={"input_key": "x", "target_key": "y"})
        x, y = data().tensors
        rows = [{"x": x[i], "y": y[i]} for i in range(12)]
        found.state.set_dataloader(DataLoader(rows, batch_size=4), "train")
        found.fit(train_dataloader=DataLoader(rows, batch_size=4))
        assert max(model.net.rows) == (20 if method.traits.mixes_at == (None,) else 4)


def test_misuse_is_one_sentence():
    model, method = made("network")
    found = trainer(model, method)
    found.state.optimizers[0].param_groups[0]["params"] = list(model.module.parameters())
    with pytest.raises(ValueError, match="no optimi[sz]er trains the network of SAMix"):
        found.fit()


def test_a_training_that_is_prolonged_follows_once_per_step():
    model, method = made("network")
    found = trainer(model, method, epochs=1)
    found.fit()
    found.fit(duration="1ep")
    assert int(method.block.encoder.updates) == 6


def test_statistics_are_recomputed_when_the_training_ends():
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(168, 4))
    model = models.ComposerClassifier(module, num_classes=4)
    run = trainer(model, mm.InputMixup(k=2), epochs=1, options={"recompute_batchnorm": True})
    run.fit()
    twin = copy.deepcopy(module)
    mm.recompute_batchnorm(twin, DataLoader(data(), batch_size=4))
    assert torch.equal(module[0].running_var, twin[0].running_var)
