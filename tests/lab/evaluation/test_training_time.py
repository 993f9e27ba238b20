"""Times by a clock that is not one: it passes as the test says, so medians, quartiles and ratios are known."""

import copy
import json
import random
from dataclasses import asdict, replace

import numpy
import pytest
import torch
from torch import nn

import multimix as mm
from multimix.lab.data import Augment, Images, Normalise
from multimix.lab.evaluation import training_time
from multimix.lab.evaluation.gradient_norm import Updates
from multimix.lab.evaluation.training_time import training_times
from multimix.methods.base import trained_parameters
from multimix.methods.samix.block import MixBlock, NewBlock
from trial import PUZZLE, DropNet

AUGMENT = Augment([Normalise((0.3,), (0.4,))])


def split(count=26):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)
    return Images(pixels, torch.randint(10, (count,), generator=generator), tuple(map(str, range(10))))


def times(net, method, samples, *, repeats=5, progress=iter, **options):
    return training_times(Updates(net, method, samples, AUGMENT, **options), repeats, progress)


class Rows(nn.Module):
    """Notes how many rows it is given, with the first pixel of the batch."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.layer = seen, nn.Linear(64, 10)

    def __deepcopy__(self, memo):
        return Rows(self.seen)

    def forward(self, x):
        assert self.training
        self.seen.append(len(x))
        return self.layer(x.flatten(1))


@pytest.fixture
def laps(monkeypatch):
    """What the clock will show, update by update: (wall, CPU); it must run when the network does."""
    shown, read = [], []

    class Fake:
        def __init__(self):
            read.append("start")

        def lap(self):
            read.append("stop")
            wall, cpu = shown.pop(0)
            return {"seconds": wall, "cpu_seconds": cpu}

    monkeypatch.setattr(training_time, "Clock", Fake)
    return shown, read


def test_medians_quartiles_and_paired_ratios(laps):
    shown, read = laps
    shown += [(100, 100)] * 3  # one unmeasured each
    # The turns begin with another K each: 3 5 1, then 5 1 3, then 1 3 5.
    shown += [(6, 3), (10, 20), (2, 1), (20, 9), (4, 2), (8, 8), (3, 4), (9, 4), (12, 12)]
    seen = []
    found = times(Rows(seen), mm.CutMix(k=7), split(), ks=(1, 3, 5), repeats=3, batch=4)
    assert seen == [4, 12, 20, 12, 20, 4, 20, 4, 12, 4, 12, 20]
    assert read == ["start", "stop"] * 12
    assert [row.seconds.values for row in found.rows] == [(2, 4, 3), (6, 8, 9), (10, 20, 12)]
    assert [row.cpu_seconds.values for row in found.rows] == [(1, 2, 4), (3, 8, 4), (20, 9, 12)]
    assert [row.ratio.values for row in found.rows] == [(1, 1, 1), (3, 2, 3), (5, 5, 4)]
    assert [row.cpu_ratio.values for row in found.rows] == [(1, 1, 1), (3, 4, 1), (20, 4.5, 3)]
    wall = found.rows[2].seconds
    assert (wall.low, wall.median, wall.high) == (11, 12, 16)
    assert found.updates == 6  # of 4 samples, out of 26
    assert [row.seconds_per_epoch for row in found.rows] == [18, 48, 72]
    # By how many per cent the median of the CPU multiples, 1, 3 and 4.5, is above 1.
    increases = {"increase_1": 0, "increase_3": 200, "increase_5": 350}
    assert found.numbers() == {"k1": 1, "k3": 3, "k5": 5, **increases, "seconds_k1": 18}
    # A device works beside the CPU, whose time says little: there it is that of wall multiples, 1, 3 and 5.
    assert {**increases, "increase_5": 400} == {
        key: value for key, value in replace(found, device="cuda").numbers().items() if key in increases
    }
    assert (found.device, found.threads, found.repeats, found.batch) == ("cpu", torch.get_num_threads(), 3, 4)
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["rows"][0]["k"] == 1


def test_what_is_remembered_is_there_before_the_clock_counts(laps):
    """The first batch of a method with a history is not mixed, so that is one more unmeasured turn; then all K rows are seen."""
    shown, read = laps
    shown += [(100, 100)] * 3 + [(50, 50)] * 3  # made a history, then warmed up
    # The turns begin with another K each: 5 1 3, then 1 3 5.
    shown += [(20, 9), (4, 2), (8, 8), (3, 4), (9, 4), (12, 12)]
    seen = []
    found = times(Rows(seen), mm.RecursiveMix(k=7), split(), ks=(1, 3, 5), repeats=2, batch=4)
    assert seen == [4, 4, 4, 12, 20, 4, 20, 4, 12, 4, 12, 20]
    assert read == ["start", "stop"] * 12
    assert [row.seconds.values for row in found.rows] == [(4, 3), (8, 9), (20, 12)]
    assert found.repeats == 2


def test_a_clock_that_stands_still_gives_no_ratio(laps):
    laps[0].extend([(0, 0)] * 8)
    found = times(Rows([]), mm.CutMix(), split(), ks=(1, 2), repeats=3, batch=4)
    assert found.numbers() == {"k1": None, "k2": None, "increase_1": None, "increase_2": None, "seconds_k1": 0}


def test_loading_is_outside_the_clock(laps, monkeypatch):
    shown, read = laps
    shown += [(1, 1)] * 9
    samples = split()
    pixels = Images.batch
    monkeypatch.setattr(Images, "batch", lambda self, index: read.append("load") or pixels(self, index))
    times(Rows([]), mm.CutMix(), samples, ks=(1, 2, 3), repeats=2, batch=4)
    assert read == ["load"] * 2 + ["start", "stop"] * 9


def test_the_optimiser_steps_inside_the_clock(laps, monkeypatch):
    shown, read = laps
    shown += [(1, 1)] * 4
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: read.append(has_gradients(self)) or step(self))
    times(Rows([]), mm.CutMix(), split(), ks=(1, 2), repeats=1, batch=4)
    assert read == ["start", "all", "stop"] * 4


def test_networks_that_learn_beside_are_inside_the_clock(laps, monkeypatch):
    shown, read = laps
    shown += [(1, 1)] * 4
    torch.manual_seed(5)
    net = DropNet()
    method = mm.SAMix(block=NewBlock("stage1")).bind(net, torch.randn(4, 1, 8, 8))
    nn.init.normal_(net.head[2].weight)  # which its slow copy would now follow
    before = copy.deepcopy(method.block.state_dict())
    count = len([*net.parameters(), *trained_parameters(method)])
    step, follow = torch.optim.SGD.step, MixBlock.update
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: read.append(len(self.param_groups[0]["params"])) or step(self))
    monkeypatch.setattr(MixBlock, "update", lambda self, model: read.append("follow") or follow(self, model))
    times(net, method, split(), ks=(1, 2), repeats=1, batch=4)
    assert read == ["start", count, "follow", "stop"] * 4
    assert all(torch.equal(value, before[name]) for name, value in method.block.state_dict().items())


def has_gradients(optimizer):
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return "all" if all(weight.grad is not None and weight.grad.any() for weight in weights) else "some"


def test_the_network_and_random_streams_stay_as_they_were():
    torch.manual_seed(5)
    net = DropNet().eval()
    net.stage1.train()
    net.head[2].weight.grad = torch.ones_like(net.head[2].weight)
    before = copy.deepcopy(net.state_dict())
    modes = [module.training for module in net.modules()]
    streams = torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate()
    found = times(net, PUZZLE, split(), ks=(1, 2), repeats=2, batch=6)
    assert all(value > 0 for row in found.rows for value in row.seconds.values)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(net.head[2].weight.grad, torch.ones_like(net.head[2].weight))
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert numpy.random.get_state()[1].tolist() == streams[1]
    assert random.getstate() == streams[2]


def test_without_mixing_there_is_only_one_k_and_progress_counts_every_update(laps):
    laps[0].extend([(3, 2)] * 3)
    wrapped = []
    found = times(Rows([]), mm.NoMix(), split(), repeats=2, batch=13, progress=lambda work: wrapped.extend(work) or work)
    assert found.numbers() == {"k1": 1, "increase_1": 0, "seconds_k1": 6}
    assert wrapped == [0, 1, 2]


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        times(Rows([]), mm.CutMix(), split(), repeats=0, batch=4)
    with pytest.raises(ValueError, match="ks must be ascending whole numbers from 1 on"):
        times(Rows([]), mm.CutMix(), split(), ks=(5,))
