"""The Lightning adapter: its page runs with every kind of method, equals a plain loop, and resumes exactly."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from adapter_pages import CASES, plain_loop, run_page, same_weights
from multimix.compat.lightning import Mixing
from multimix.methods.samix.block import NewBlock
from peers import peer

pl = peer("lightning.pytorch")
pytestmark = [
    # Advice about the number of workers and such; what Lightning uses of torch.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
]


class Net(Mixing, pl.LightningModule):
    """As on the page, with dropout, and the batches it was given."""

    def __init__(self, method, model=None, rate=0.1):
        super().__init__()
        self.model = small_model() if model is None else model
        self.use_mixing(method)
        self.rate, self.rows, self.losses = rate, [], []

    def training_step(self, batch, index):
        out = self.mixed(self.model, *batch)
        loss = out.loss()
        self.rows.append(len(out.logits))
        self.losses.append(float(loss.detach()))
        return loss

    def validation_step(self, batch, index):
        out = self.mixed(self.model, *batch)
        assert len(out.logits) == len(batch[0])
        torch.testing.assert_close(out.loss(), nn.functional.cross_entropy(self.model(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)


def small_model():
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(6 * 56, 4))


def data():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(14, 3, 8, 7, generator=generator), torch.randint(4, (14,), generator=generator))


def trainer(epochs, folder=None, **options):
    checkpoints = [] if folder is None else [pl.callbacks.ModelCheckpoint(folder, save_top_k=-1, **options)]
    return pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=bool(checkpoints),
        callbacks=checkpoints,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )


def made(kind):
    torch.manual_seed(3)
    model = small_model()
    method = {
        "history": lambda: mm.RecursiveMix(k=2),
        "network": lambda: mm.SAMix(k=2, block=NewBlock("1", momentum=0.5)).bind(model, data().tensors[0], updates=6),
        "clean": lambda: mm.PuzzleMix(k=2, blocks=((4, 7),), clean_weight=0.5),
        "input": lambda: mm.CutMix(k=3),
    }[kind]()
    return Net(method, model)


def test_the_page_runs_with_every_kind_of_method():
    for name, k in CASES:
        found = run_page("Lightning", name, k, "1")
        assert all(weight.isfinite().all() for weight in found["net"].parameters()), name
        saved = [key for key in found["net"].state_dict() if key.startswith("mixing_networks.")]
        assert (len(saved) > 0) == (name == "network"), name


@pytest.mark.parametrize("kind", ["input", "history", "network", "clean"])
def test_it_is_the_plain_loop(kind):
    net = made(kind)
    model, method = copy.deepcopy((net.model, net._mixer.method))
    loader = DataLoader(data(), batch_size=5)
    torch.manual_seed(0)
    trainer(2).fit(net, loader)
    torch.manual_seed(0)
    weights = [*model.parameters(), *method.modules.parameters()]
    plain_loop(model, method, [loader, loader], torch.optim.SGD(weights, lr=0.1, momentum=0.9))
    assert same_weights(net.model, model)
    assert same_weights(net._mixer.method.modules, method.modules)


@pytest.mark.parametrize("kind", ["input", "history", "network"])
def test_a_run_that_was_stopped_goes_on_exactly(kind, tmp_path):
    """Shuffling, dropout, mixing and the method's network."""
    loaders = DataLoader(data(), batch_size=5, shuffle=True), DataLoader(data(), batch_size=7)
    torch.manual_seed(0)
    whole = made(kind)
    trainer(3).fit(whole, *loaders)
    torch.manual_seed(0)
    begun = made(kind)
    trainer(1, tmp_path).fit(begun, *loaders)
    torch.manual_seed(99)
    ended = made(kind)
    with torch.no_grad():
        for weight in ended.parameters():
            weight.zero_()
    trainer(3, tmp_path).fit(ended, *loaders, ckpt_path=next(tmp_path.glob("*.ckpt")))
    assert begun.losses + ended.losses == whole.losses
    assert same_weights(ended, whole)
    assert not same_weights(begun, whole)


def test_misuse_is_one_sentence():
    loader = DataLoader(data(), batch_size=5)

    class Forgot(Net):
        def use_mixing(self, method):
            pass

    class Own(Net):
        def configure_callbacks(self):
            return []

    class ModelOnly(Net):
        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=0.1)

    with pytest.raises(RuntimeError, match="use_mixing"):
        trainer(1).fit(Forgot(mm.CutMix()), loader)
    with pytest.raises(RuntimeError, match="Mixing must"):
        trainer(1).fit(Own(mm.CutMix()), loader)
    network = made("network")
    with pytest.raises(ValueError, match="SAMix.*configure_optimizers"):
        trainer(1).fit(ModelOnly(network._mixer.method, network.model), loader)
    with pytest.raises(ValueError, match="SAMix only describes its block"):
        Net(mm.SAMix(block=NewBlock("1")))
    with pytest.raises(TypeError, match="method must"):
        Net("cutmix")


def test_statistics_are_recomputed_when_the_training_ends():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(168, 4))
    net, loader = Net(mm.InputMixup(k=2), model), DataLoader(data(), batch_size=5)
    net.use_mixing(mm.InputMixup(k=2), recompute_batchnorm=True)
    trainer(1).fit(net, loader)
    twin = copy.deepcopy(model)
    mm.recompute_batchnorm(twin, loader)
    assert torch.equal(model[0].running_var, twin[0].running_var)
