"""One update against a slow loop: shares, chunks, the mean gradient, what is measured, what is drawn."""

import copy
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

import multimix as mm
from multimix.core.sampling import seeded
from multimix.lab.recipes.settings import Network, Optimizer
from multimix.lab.training.loop import Training
from multimix.lab.training.step import MIXING, seed_everything, update
from trial import DropNet, PlainNet, settings, splits

KEY = (3, 1, 4)


def batch(rows=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 1, 8, 8, generator=generator), torch.randint(10, (rows,), generator=generator)


def stepped(network, chosen, shares):
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(network, torch.optim.SGD(network.parameters(), lr=0.5))
    measured = update(accelerator, model, optimizer, chosen, shares, KEY)
    return network, measured


def slowly(network, method, shares, loss, smoothing=0.0):
    """Sample by sample: the mean over shares of the mean over rows, and one plain step."""
    total, hits = 0.0, []
    for share, (x, y) in enumerate(shares):
        plan = method.plan(x, generator=seeded(MIXING, *KEY, share))
        x_mix, target = plan.mix(x), plan.mix_target(y, 10, smoothing)
        rows = [loss(network(x_mix[i : i + 1]), target[i : i + 1]) for i in range(len(x_mix))]
        total = total + sum(rows) / len(rows) / len(shares)
        hits.append(sum(float(target[i, network(x_mix[i : i + 1]).argmax()]) for i in range(len(x_mix))) / len(x_mix))
    grads = torch.autograd.grad(total, list(network.parameters()))
    with torch.no_grad():
        for weight, grad in zip(network.parameters(), grads, strict=True):
            weight -= 0.5 * grad
    return network, total.item(), sum(hits) / len(hits), float(sum((grad**2).sum() for grad in grads))


@pytest.mark.parametrize("name", ["softmax_bce", "cross_entropy"])
@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("k_chunk", [None, 1, 2])
def test_an_update_is_the_mean_over_shares_and_rows(name, shares, k_chunk):
    torch.manual_seed(0)
    start = PlainNet()
    batches = [batch(seed=i) for i in range(shares)]
    method = mm.InputMixup(k=5)
    chosen = settings(method=method, loss=name, k_chunk=k_chunk, smoothing=0.1)
    loss = {"softmax_bce": mm.losses.softmax_bce, "cross_entropy": nn.functional.cross_entropy}[name]
    expected, value, accuracy, norm = slowly(copy.deepcopy(start), method, batches, loss, 0.1)
    found, measured = stepped(copy.deepcopy(start), chosen, batches)
    for a, b in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert measured.numbers.tolist() == pytest.approx([value, accuracy, norm, 40 * shares], rel=1e-4)
    assert measured.images == 8 * shares


def test_the_key_decides_all_draws_whatever_the_global_streams_say():
    torch.manual_seed(0)
    start, shares = DropNet(p=0.5), [batch()]
    chosen = settings(method=mm.CutMix(k=2, per_pair=True))
    digests = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        digests.append(torch.cat([w.detach().flatten() for w in stepped(copy.deepcopy(start), chosen, shares)[0].parameters()]))
    assert torch.equal(*digests), "dropout must follow the key, too"


def test_all_three_global_streams_are_set():
    import random

    import numpy

    draws = []
    for _ in range(2):
        seed_everything(1, 2, 3)
        draws.append((torch.rand(3).tolist(), numpy.random.rand(3).tolist(), random.random()))
    assert draws[0] == draws[1]
    seed_everything(1, 2, 4)
    assert torch.rand(3).tolist() != draws[0][0]


def test_decay_is_not_part_of_the_gradient_norm():
    data = splits()
    norms = []
    for decay in (0.0, 0.5):
        chosen = settings(network=Network("trial:PlainNet"), method=mm.NoMix(), epochs=1, batch=200)
        chosen = replace(chosen, optimizer=Optimizer(weight_decay=decay))
        training = Training(chosen, 0, data, Accelerator(cpu=True))
        training.run(None)
        norms.append(training.at.history[0].squared_grad_norm)
    assert norms[0] == norms[1]
