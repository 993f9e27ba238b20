"""‖g‖² against gradients taken by hand, against an update of a training, and against its expectation; nothing is left behind."""

import copy
import json
import random
import threading
from dataclasses import asdict, replace

import numpy
import pytest
import torch
from accelerate import Accelerator
from torch import nn

import multimix as mm
import recursive_oracle
from multimix.core.hooks import MixPoints
from multimix.core.sampling import seeded
from multimix.lab.data import Augment, Images, Loader, Normalise
from multimix.lab.evaluation.gradient_norm import Updates, gradient_norms
from multimix.lab.training.step import MIXING, update
from multimix.methods.samix.block import NewBlock
from recursive_oracle import PooledNet
from trial import PUZZLE, DropNet, PlainNet, settings

AUGMENT = Augment([Normalise((0.3,), (0.4,))])


def split(count=12, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)
    return Images(pixels, torch.randint(classes, (count,), generator=generator), tuple(map(str, range(classes))))


def network(kind=DropNet):
    torch.manual_seed(5)
    return kind()


def norms(net, method, samples, augment=AUGMENT, *, batches=20, progress=iter, **options):
    return gradient_norms(Updates(net, method, samples, augment, **options), batches, progress)


def by_hand(net, method, x, y, key, smoothing=0.0):
    """Row by row, without the loss functions of the library."""
    plan = method.plan(x, generator=seeded(MIXING, *key, 0))
    mixed, target = plan.mix(x), plan.mix_target(y, 10, smoothing)
    total = 0.0
    for row, wanted in zip(mixed, target, strict=True):
        total = total - (wanted * net(row[None])[0].log_softmax(0)).sum() / len(mixed)
    return sum(float((grad.double() ** 2).sum()) for grad in torch.autograd.grad(total, list(net.parameters())))


@pytest.mark.parametrize("method", [mm.InputMixup(alpha=0.7), mm.CutMix(k=4), mm.Cutout(length=4)])
def test_every_value_is_the_gradient_by_hand(method):
    net, samples = network(PlainNet), split()
    found = norms(net, method, samples, ks=(1, 2, 5), batches=3, batch=5, seed=4, smoothing=0.1)
    loader = Loader(samples, AUGMENT, batch=5, seed=4)  # two batches an epoch: the third is of the next
    batches = [((4, epoch, step), x, y) for epoch in range(2) for step, (x, y) in enumerate(loader.epoch(epoch))][:3]
    for row, k in zip(found.rows, (1, 2, 5), strict=True):
        chosen = type(method)(**{**vars(method), "k": k})
        expected = [by_hand(net, chosen, x, y, key, 0.1) for key, x, y in batches]
        assert row.k == k
        assert row.values == pytest.approx(expected, rel=1e-4)
        assert row.mean == pytest.approx(sum(expected) / 3, rel=1e-4)
        assert found.numbers()[f"k{k}"] == row.mean


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        (PUZZLE, "softmax_bce"),
        (mm.ManifoldMixup(layers=("stage1", None)), "cross_entropy"),
        (mm.InputMixup(p=0.5), "softmax_bce"),
    ],
)
def test_values_are_those_of_the_first_updates_of_a_training(method, loss):
    net, samples = network().eval(), split()  # as a loaded one is; an update trains
    found = norms(net, method, samples, ks=(1, 3), batches=2, batch=6, loss=loss, seed=2)
    for step, (x, y) in enumerate(Loader(samples, AUGMENT, batch=6, seed=2).epoch(0)):
        for row in found.rows:
            accelerator = Accelerator(cpu=True)
            trained = copy.deepcopy(net)
            model, optimizer = accelerator.prepare(trained, torch.optim.SGD(trained.parameters(), lr=0.1, weight_decay=0.5))
            chosen = settings(method=type(method)(**{**vars(method), "k": row.k}), loss=loss)
            measured = update(accelerator, model, optimizer, chosen, [(x, y)], (2, 0, step))
            assert row.values[step] == pytest.approx(float(measured.numbers[2]), rel=1e-5)


@pytest.mark.parametrize("keep", ["middle", "random"])
def test_with_a_history_values_are_those_of_updates_after_the_first(keep):
    """The first batch has none and is not measured; later ones have that of the batch before, also in another epoch."""
    net, samples = network(PooledNet), split()
    method = mm.RecursiveMix(keep=keep, features="stage2", head="head", omega=3.0)
    found = norms(net, method, samples, ks=(1, 3), batches=4, batch=5, seed=2)
    loader = Loader(samples, AUGMENT, batch=5, seed=2)  # two batches an epoch
    batches = [((2, epoch, step), x, y) for epoch in range(3) for step, (x, y) in enumerate(loader.epoch(epoch))][:5]
    rows = []
    for row in found.rows:
        states, expected = (), []
        for key, x, y in batches:
            accelerator, trained = Accelerator(cpu=True), copy.deepcopy(net)
            model, optimizer = accelerator.prepare(trained, torch.optim.SGD(trained.parameters(), lr=0.1))
            measured = update(accelerator, model, optimizer, settings(method=replace(method, k=row.k)), [(x, y)], key, states)
            states = measured.states
            expected.append(float(measured.numbers[2]))
            rows.append(int(measured.numbers[3]))
        assert row.values == pytest.approx(expected[1:], rel=1e-5)
    assert rows == [5] * 5 + [5] + [15] * 4, "mixed K times but for the first"


def test_networks_of_the_method_are_those_of_an_update_and_stay_as_they_were():
    net, samples = network(), split()
    method = mm.SAMix(block=NewBlock("stage1")).bind(net, torch.randn(4, 1, 8, 8))
    nn.init.normal_(method.block.value_out.weight, std=5.0)  # masks that differ from place to place
    before = copy.deepcopy(method.block.state_dict())
    found = norms(net, method, samples, ks=(1, 3), batches=2, batch=6, seed=2)
    assert all(torch.equal(value, before[name]) for name, value in method.block.state_dict().items())
    assert all(weight.grad is None for weight in method.block.parameters())
    for step, (x, y) in enumerate(Loader(samples, AUGMENT, batch=6, seed=2).epoch(0)):
        for row in found.rows:
            accelerator, trained = Accelerator(cpu=True), copy.deepcopy(net)
            model, optimizer = accelerator.prepare(trained, torch.optim.SGD(trained.parameters(), lr=0.1))
            chosen = settings(method=copy.deepcopy(replace(method, k=row.k)))
            measured = update(accelerator, model, optimizer, chosen, [(x, y)], (2, 0, step))
            assert row.values[step] == pytest.approx(float(measured.numbers[2]), rel=1e-5)


def test_with_a_history_by_hand():
    """K = 1, plain loops: the second batch with all of the first made smaller in a box."""
    net, samples, method = network(PlainNet), split(), mm.RecursiveMix(area=1.0)
    found = norms(net, method, samples, ks=(1,), batches=1, batch=6, seed=3)
    (x_1, y_1), (x_2, y_2) = Loader(samples, AUGMENT, batch=6, seed=3).epoch(0)
    generator = seeded(MIXING, 3, 0, 1, 0)
    edges = recursive_oracle.boxes(mm.random.sample_path(1, 1.0, generator=generator)[0].tolist(), 6, 6, (8, 8), generator)[0]
    mixed, shares = recursive_oracle.pasted(x_2, x_1, edges)
    assert min(shares) > 0.1
    total = 0.0
    for i, share in enumerate(shares):
        target = (1 - share) * torch.eye(10)[y_2[i]] + share * torch.eye(10)[y_1[i]]
        total = total - (target * net(mixed[i : i + 1])[0].log_softmax(0)).sum() / 6
    expected = sum(float((grad.double() ** 2).sum()) for grad in torch.autograd.grad(total, list(net.parameters())))
    assert found.rows[0].values == pytest.approx((expected,), rel=1e-4)


@pytest.mark.slow
def test_the_mean_falls_with_k_as_it_must():
    """For given pairs E‖g̃‖² = ‖m‖² + v / K, m and v mean and trace variance over λ; two samples have one pairing only."""
    samples, ks = split(2, seed=1), (1, 6)
    centred = Augment([Normalise((0.5,), (0.3,))])  # or what both samples have in common would be nearly all of the gradient
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    x, y = next(iter(Loader(samples, centred, batch=2, shuffle=False)))
    assert y[0] != y[1]
    places, weights = numpy.polynomial.legendre.leggauss(12)
    grads = []
    for lam in (places + 1) / 2:
        target = (1 - lam) * torch.eye(10)[y] + lam * torch.eye(10)[y.flip(0)]
        value = -(target * net((1 - lam) * x + lam * x.flip(0)).log_softmax(1)).sum(1).mean()
        grads.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(value, list(net.parameters()))]).double())
    share = torch.tensor(weights) / 2
    middle = (share @ torch.stack(grads)).square().sum()
    variance = share @ torch.stack(grads).square().sum(1) - middle
    exact = {k: float(middle + variance / k) for k in ks}
    found = norms(net, mm.InputMixup(derange=True), samples, centred, ks=ks, batches=400, batch=2)
    for row in found.rows:
        assert abs(row.mean - exact[row.k]) < 2 * row.half  # four standard errors
        assert abs(row.ratio - exact[row.k] / exact[1]) < 2 * row.ratio_half + 1e-12
    assert exact[6] < exact[1] - 2 * found.rows[0].half  # otherwise nothing was tested


def test_intervals_against_formulas_written_out():
    found = norms(network(), mm.CutMix(), split(60), AUGMENT, ks=(1, 4), batches=4, batch=6)
    one, four = (numpy.array(row.values) for row in found.rows)
    t = 3.182446305284263  # 97.5 %, 3 degrees of freedom
    assert found.rows[1].half == pytest.approx(t * four.std(ddof=1) / 2)
    ratio = four.mean() / one.mean()
    assert found.rows[1].ratio == pytest.approx(ratio)
    assert found.rows[1].ratio_half == pytest.approx(t * (four - ratio * one).std(ddof=1) / 2 / one.mean())
    assert (found.rows[0].ratio, found.rows[0].ratio_half) == (1.0, 0.0)
    single = norms(network(), mm.CutMix(), split(), ks=(1, 4), batches=1, batch=6)
    assert [row.half for row in single.rows] == [None, None]
    assert single.rows[1].ratio_half is None
    assert json.loads(json.dumps(asdict(single), allow_nan=False))["rows"][1]["k"] == 4


def test_all_k_see_the_same_running_statistics():
    """Saliency is taken in evaluation mode, so one K must not leave its statistics to the next."""
    net = network()
    both = norms(net, PUZZLE, split(), ks=(1, 2, 3), batches=2, batch=6)
    alone = norms(net, PUZZLE, split(), ks=(1, 3), batches=2, batch=6)
    assert both.rows[2] == alone.rows[1]


def test_the_network_and_random_streams_stay_as_they_were():
    net = network().eval()
    net.stage1.train()
    net.head[2].weight.grad = torch.ones_like(net.head[2].weight)
    before = copy.deepcopy(net.state_dict())
    modes = [module.training for module in net.modules()]
    torch.manual_seed(1)
    numpy.random.seed(2)
    random.seed(3)
    streams = torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate()
    with torch.inference_mode():
        norms(net, PUZZLE, split(), ks=(1, 2), batches=1, batch=6)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(net.head[2].weight.grad, torch.ones_like(net.head[2].weight))
    assert net.head[2].bias.grad is None
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert numpy.random.get_state()[1].tolist() == streams[1]
    assert random.getstate() == streams[2]
    assert sum(len(module._forward_hooks) for module in net.modules()) == 0


def test_without_mixing_there_is_only_one_k():
    found = norms(network(), mm.NoMix(), split(), batches=2, batch=6)
    assert list(found.numbers()) == ["k1"]


def test_of_several_methods_each_gets_k():
    method = mm.OneOf((mm.CutMix(), mm.InputMixup()), (1.0, 0.0))
    found = norms(network(), method, split(), ks=(1, 4), batches=2, batch=6)
    seen = []
    norms(Rows(seen), method, split(), ks=(1, 4), batches=2, batch=6)
    assert seen == [6, 24, 6, 24]
    assert found.rows[0].values != found.rows[1].values


class Rows(nn.Module):
    """Notes how many rows it is given."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.layer = seen, nn.Linear(64, 10)

    def __deepcopy__(self, memo):
        return Rows(self.seen)

    def forward(self, x):
        assert self.training
        self.seen.append(len(x))
        return self.layer(x.flatten(1))


def test_frozen_parameters_do_not_count():
    net = network(PlainNet)
    whole = norms(net, mm.CutMix(), split(), ks=(1,), batches=1, batch=6)
    net.layers[1].requires_grad_(False)
    part = norms(net, mm.CutMix(), split(), ks=(1,), batches=1, batch=6)
    assert part.rows[0].mean < whole.rows[0].mean


def test_progress_counts_every_gradient():
    wrapped = []
    norms(network(), mm.CutMix(), split(), ks=(1, 2, 3), batches=2, batch=6, progress=lambda work: wrapped.extend(work) or work)
    assert wrapped == list(range(6))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ks": (3, 5)}, r"ks must be ascending whole numbers from 1 on, with which all are compared, got \(3, 5\)"),
        ({"ks": (1, 5, 3)}, "ks must be ascending"),
        ({"ks": (1, 1)}, "ks must be ascending"),
        ({"ks": ()}, "ks must be ascending"),
        ({"batches": 0}, "batches must be at least 1, got 0"),
        ({"batch": 13}, "batch must be at most the 12 samples"),
    ],
)
def test_what_cannot_be_is_said(changes, words):
    with pytest.raises(ValueError, match=words):
        norms(network(), mm.CutMix(), split(), **{"batch": 6, "batches": 1, **changes})


def test_a_network_with_mix_points_is_measured_as_without():
    net = network()
    plain = norms(net, mm.CutMix(), split(), ks=(1, 2), batches=2, batch=6)
    with MixPoints(net, ("stage1",)):
        assert norms(net, mm.CutMix(), split(), ks=(1, 2), batches=2, batch=6) == plain


def test_networks_that_cannot_be_measured():
    def ask(net):
        return norms(net, mm.CutMix(), split(), ks=(1, 2), batches=1, batch=6)

    with pytest.raises(ValueError, match="network must have parameters that ask for a gradient, it has none"):
        ask(network().requires_grad_(False))
    net = network()
    net.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"network must be one that can be copied, it cannot \(cannot pickle"):
        ask(net)
    net = network(PlainNet)
    nn.init.constant_(net.layers[1].weight, torch.nan)
    with pytest.raises(ValueError, match="the gradient must be finite, its squared norm at K = 1 in batch 0 is nan"):
        ask(net)
