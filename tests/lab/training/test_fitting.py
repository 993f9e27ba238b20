"""Methods with networks of their own in a training: made at the start, trained beside, kept, found again."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from multimix.core.sampling import seeded
from multimix.lab.data import Loader
from multimix.lab.recipes.runs import planned
from multimix.lab.training.checkpoint import load_run
from multimix.lab.training.loop import FITTING, Training
from multimix.lab.training.run import train
from multimix.methods import SAMix, StyleMix
from multimix.methods.base import trained_parameters
from multimix.methods.samix.block import NewBlock
from multimix.methods.style.small_pair import NewPair, train_style_pair
from trial import MEAN, RECIPE, STD, settings, splits

DATA = splits()
LEARNS = settings(method=SAMix(k=2, block=NewBlock("stage1", momentum=0.8)))


def training(chosen, seed=0):
    return Training(chosen, seed, DATA, Accelerator(cpu=True))


def test_the_block_learns_beside_the_model_and_its_copy_follows():
    run = training(LEARNS)
    block = run.fitted.method.block
    before = {name: value.clone() for name, value in block.state_dict().items()}
    start = [value.clone() for value in run.network.parameters()]
    run.run(None)
    after = block.state_dict()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert {"query.weight", "key.weight", "value_in.weight", "value_out.weight", "encoder.copy.stage1.0.weight"} <= moved
    assert int(block.encoder.updates) == run.at.updates == 15
    assert block.encoder.steps == 15
    # The copy lies between where the model was and where it is.
    name, weight = next(iter(run.network.named_parameters()))
    assert 0 < (after[f"encoder.copy.{name}"] - weight).norm() < (start[0] - weight).norm()


def test_the_block_decays_and_steps_by_the_rate_of_the_model():
    run = training(replace(LEARNS, optimizer=replace(LEARNS.optimizer, weight_decay=0.25)))
    held = {id(weight): group for group in run.optimizer.param_groups for weight in group["params"]}
    block = run.fitted.method.block
    assert {held[id(weight)]["weight_decay"] for weight in trained_parameters(run.fitted.method)} == {0.25}
    assert not any(id(weight) in held for weight in block.encoder.parameters()), "the copy is no optimiser's"
    run.run(None)
    assert len({group["lr"] for group in run.optimizer.param_groups}) == 1


def test_a_pair_is_made_from_the_first_samples_of_the_training():
    method = StyleMix(pair=NewPair(width=4, steps=6), side=None, mean=MEAN, std=STD)
    run = training(settings(method=method), seed=3)
    augment = run.settings.augment.training(run.data)
    loader = Loader(run.train, augment, batch=len(run.train), seed=3)
    images = next(iter(loader.epoch(0)))[0] * STD + MEAN
    expected = train_style_pair(images, width=4, steps=6, generator=seeded(FITTING, 3))
    other = training(settings(method=method), seed=4).fitted.method.pair
    fitted, wanted, different = (
        nn.utils.parameters_to_vector([*pair.encoder.parameters(), *pair.decoder.parameters()])
        for pair in (run.fitted.method.pair, expected, other)
    )
    assert torch.equal(fitted, wanted)
    assert not torch.equal(fitted, different)
    assert run.settings.method is method, "what the run is called by stays its description"


@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("method", ["samix", "stylemix"])
def test_a_run_gives_its_networks_back(tmp_path, method, which):
    changes = {"epochs": "1", **({"method.pair.steps": "10"} if method == "stylemix" else {"method.block.momentum": "0.5"})}
    if which == "best":
        changes["data.select"] = "test"
    (run,) = planned(RECIPE, scale="smoke", method=method, k=2, changes=changes)
    train([run], data=".", out=tmp_path, note=lambda sentence: None)
    found = load_run(tmp_path / run.folder, which)
    again = training(run.settings)
    again.run(None)
    assert found.settings == run.settings
    for key, value in again.fitted.method.modules.state_dict().items():
        assert torch.equal(value, found.method.modules.state_dict()[key]), key
    x = torch.randn(4, 1, 8, 8)
    assert found.method.plan(x, generator=seeded(1)).mix(x).isfinite().all()
