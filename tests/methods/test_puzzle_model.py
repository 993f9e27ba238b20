"""What puzzle mix asks of a model and of its surroundings: saliency, clean loss, noise, workers."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from batches import batch
from oracles import seeded
from salient import WithMap


def batch_of(size, batch=4):
    return torch.rand(batch, 3, *size, generator=seeded(0))


def small_network(size, classes=3):
    torch.manual_seed(0)
    width = size[0] * size[1]
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * width, classes))


def test_with_a_model_saliency_comes_by_itself():
    x = batch_of((9, 12))
    y = torch.tensor([0, 1, 2, 0])
    model, method = small_network((9, 12)), mm.PuzzleMix(k=3)
    saliency = mm.input_saliency(model, x, y)
    plan = method.plan(x, saliency=saliency, generator=seeded(5))
    out = mm.mixed_forward(model.eval(), method, x, y, generator=seeded(5))
    logits, target = out.logits, out.target
    torch.testing.assert_close(logits, model(plan.mix(x)))
    torch.testing.assert_close(target, plan.mix_target(y, 3))
    mixed = mm.Mix(method, 3, model=model, seed=1)
    again = mm.Mix(method, 3, seed=1)
    for ours, given in zip(mixed(x, y), again(x, y, saliency=saliency), strict=True):
        assert torch.equal(ours, given)
    given = mm.mixed_forward(model, method, x, y, saliency=saliency, generator=seeded(5))
    assert torch.equal(given.logits, logits)


class AnySize(nn.Module):
    """A convolution and a mean over all places; notes what it was shown, and in which mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append((tuple(x.shape), self.training))
        return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))


def test_pooled_saliency_by_every_way_in():
    x, y = batch_of((9, 12)), torch.tensor([0, 1, 2, 0])
    model, plain, pooled = AnySize(), mm.PuzzleMix(k=2, blocks=4), mm.PuzzleMix(k=2, blocks=4, saliency_pool=3)
    saliency = mm.input_saliency(model, x, y, pool=3)
    assert not torch.equal(saliency, mm.input_saliency(model, x, y))
    model.seen.clear()
    out = mm.mixed_forward(model, pooled, x, y, generator=seeded(5))
    assert model.seen == [((4, 3, 3, 4), False), ((8, 3, 9, 12), True)]
    given = mm.mixed_forward(model, plain, x, y, saliency=saliency, generator=seeded(5))
    assert torch.equal(out.logits, given.logits)
    assert torch.equal(out.target, given.target)
    assert torch.equal(out.loss(), given.loss())
    found = mm.Mix(pooled, 3, model=model, seed=1)(x, y)
    torch.testing.assert_close(found, mm.Mix(plain, 3, seed=1)(x, y, saliency=saliency), rtol=0, atol=0)
    model.seen.clear()
    mm.mixed_forward(model, pooled, x, y, saliency=saliency)
    assert model.seen == [((8, 3, 9, 12), True)], "a map that is given is taken"


@pytest.mark.parametrize("options", [{"clean_weight": 1.0}, {"adv_p": 1.0}])
def test_a_pass_that_is_needed_in_full_is_not_pooled(options):
    x, y = batch_of((9, 12)), torch.tensor([0, 1, 2, 0])
    model = AnySize()
    mm.mixed_forward(model, mm.PuzzleMix(k=2, saliency_pool=3, **options), x, y).loss()
    assert [shape for shape, _ in model.seen] == [(4, 3, 9, 12), (8, 3, 9, 12)]
    with pytest.raises(ValueError, match="saliency_pool must"):
        mm.PuzzleMix(saliency_pool=0)


@pytest.mark.parametrize(("scale", "factor"), [("plain", 0.3), ("per_class", 2 * 0.3 / 3)])
def test_clean_weight_adds_the_clean_loss(scale, factor):
    x = batch_of((9, 12))
    y = torch.tensor([0, 1, 2, 0])
    model = small_network((9, 12))
    reference = small_network((9, 12))
    method = mm.PuzzleMix(k=2, clean_weight=0.3, clean_scale=scale)
    mm.mixed_forward(model, method, x, y, generator=seeded(2)).loss(mm.losses.softmax_bce).backward()
    # By hand: the clean pass first, in training mode, its input gradient as saliency; then the mixed batch.
    source = x.clone().requires_grad_()
    clean = nn.functional.cross_entropy(reference(source), y)
    (gradient,) = torch.autograd.grad(clean, source, retain_graph=True)
    plan = method.plan(x, saliency=gradient.square().mean(1).sqrt(), generator=seeded(2))
    mixed = mm.losses.softmax_bce(reference(plan.mix(x)), plan.mix_target(y, 3))
    (mixed + factor * clean).backward()
    for ours, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad)
    assert torch.equal(model[1].running_mean, reference[1].running_mean), (
        "batch norm saw the clean and the mixed batch, once each"
    )


class Linear(nn.Module):
    """One weight per place and class: the gradient by x is known."""

    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, *shape, generator=seeded(9), device="cpu"))
        self.seen = []

    def forward(self, x):
        self.seen.append(x.detach())
        return torch.einsum("bchw,kchw->bk", x, self.weight)


def test_adversarial_noise_is_the_published_one():
    pixels = batch_of((8, 8), batch=3)
    pixels[0, 0, 0, :2] = torch.tensor([0.0, 1.0])  # no room below and above
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    column = [torch.tensor(part).reshape(3, 1, 1) for part in (mean, std)]
    x, y = (pixels - column[0]) / column[1], torch.tensor([0, 1, 0])
    model = Linear((3, 8, 8))
    method = mm.PuzzleMix(mean=mean, std=std, adv_p=1.0, adv_eps=10.0)
    told = method.inputs(batch(model, x, y, seeded(4)))
    generator = seeded(4)
    torch.rand(2, generator=generator, dtype=torch.float64)  # which role gets noise
    start = ((torch.rand(3, 3, 8, 8, generator=generator) * 2 - 1) * 10 / 255 + pixels).clamp(0, 1) - pixels
    torch.testing.assert_close(model.seen[0], x + start / column[1])
    scale = float(torch.rand((), generator=generator, dtype=torch.float64))
    # d CE / dx = Σ_k (p_k − y_k) w_k, at the perturbed input.
    p = torch.einsum("bchw,kchw->bk", model.seen[0], model.weight).softmax(1)
    gradient = torch.einsum("bk,kchw->bchw", p - nn.functional.one_hot(y, 2), model.weight)
    delta = ((start + 12 / 255 * gradient.sign()).clamp(-10 / 255, 10 / 255) * scale + pixels).clamp(0, 1) - pixels
    torch.testing.assert_close(told["noise"], (delta / column[1]).detach(), atol=1e-5, rtol=1e-4)
    saliency = told["saliency"]
    torch.testing.assert_close(saliency, gradient.square().mean(1).sqrt().detach(), atol=1e-5, rtol=1e-3)
    for roles in ((True, False), (False, True), (True, True)):
        noise, noise_pair = (told["noise"] if role else None for role in roles)
        plan = method.plan(x, saliency=saliency, noise=noise, noise_pair=noise_pair, generator=seeded(1))
        assert (plan.noise is not None, plan.noise_pair is not None) == roles


def test_adversarial_coins():
    """Two coins per batch, each with probability adv_p, with the model and with given noise."""
    generator = seeded(0)
    method = mm.PuzzleMix(blocks=2, transport="none", adv_p=0.3)
    x, model = batch_of((4, 4), batch=2), Linear((3, 4, 4))
    y, saliency = torch.tensor([0, 1]), x.mean(1)

    def with_model():
        return method.inputs(batch(model, x, y, generator))

    def with_given_noise():
        plan = method.plan(x, saliency=saliency, noise=x, generator=generator)
        return {"noise": plan.noise, "noise_pair": plan.noise_pair}

    for draw in (with_model, with_given_noise):
        drawn = [draw() for _ in range(1000)]
        counts = Counter((given["noise"] is not None, given["noise_pair"] is not None) for given in drawn)
        for roles, count in counts.items():
            chance = (0.3 if roles[0] else 0.7) * (0.3 if roles[1] else 0.7)
            assert abs(count - 1000 * chance) < 4 * (1000 * chance * (1 - chance)) ** 0.5
        assert len(counts) == 4
    model.seen.clear()
    method = mm.PuzzleMix(adv_p=1e-9)
    given = method.inputs(batch(model, x, y, generator))
    assert torch.equal(model.seen[0], x)
    assert given["noise"] is given["noise_pair"] is None
    x = batch_of((8, 8))
    model = Linear((3, 8, 8))
    for seed in range(8):
        out = mm.mixed_forward(model, mm.PuzzleMix(k=2, adv_p=0.5), x, torch.tensor([0, 1, 0, 1]), generator=seeded(seed))
        assert out.logits.shape == (8, 2)
    for seed in range(20):  # whatever the coins would say
        with pytest.raises(TypeError, match="PuzzleMix.plan needs noise="):
            mm.PuzzleMix(adv_p=0.1).plan(x, saliency=x.mean(1), generator=seeded(seed))
        with pytest.raises(ValueError, match="PuzzleMix needs noise.*model="):
            mm.Mix(mm.PuzzleMix(adv_p=0.1), 2, seed=seed)(x, torch.tensor([0, 1, 0, 1]), saliency=x.mean(1))
    with pytest.raises(TypeError, match="PuzzleMix.plan needs noise="):
        mm.PuzzleMix(adv_p=1.0).plan(x, saliency=x.mean(1))
    with pytest.raises(ValueError, match="mean=.*std="):
        mm.mixed_forward(model, mm.PuzzleMix(adv_p=1.0), x - 0.2, torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_data_loader_workers(start):
    """Kernels that this process has loaded work in forked workers, and spawned ones load them: same masks as here."""
    x, y = torch.rand(32, 3, 16, 16, generator=seeded(0)), torch.arange(32)
    method = mm.PuzzleMix(k=2, blocks=(4, 8), transport_eps=0.1)
    method.plan(x, saliency=x.mean(1))
    mix = mm.Mix(method, num_classes=32, seed=0)
    loader = DataLoader(
        TensorDataset(x, y), 4, num_workers=2, collate_fn=WithMap(mix), multiprocessing_context=start, persistent_workers=False
    )
    batches = list(loader)
    again = mm.Mix(method, num_classes=32, seed=0)
    repeated = list(DataLoader(TensorDataset(x, y), 4, num_workers=2, collate_fn=WithMap(again), multiprocessing_context=start))
    assert len(batches) == 8
    for (mixed, target), (mixed_again, target_again) in zip(batches, repeated, strict=True):
        assert mixed.shape == (8, 3, 16, 16)
        assert torch.equal(mixed, mixed_again)
        assert torch.equal(target, target_again)
    changed = [not torch.equal(mixed[4:], own) for (mixed, _), own in zip(batches, x.split(4), strict=True)]
    assert sum(changed) > 4
    assert len({tuple(target.flatten().tolist()) for _, target in batches}) == 8


def test_a_default_device_changes_nothing():
    x, saliency = batch_of((16, 12)), torch.rand(4, 16, 12, generator=seeded(1)) ** 4
    method = mm.PuzzleMix(k=3, blocks=(4,), transport_eps=0.01)
    plan = method.plan(x, saliency=saliency, generator=seeded(0))
    mixed = plan.mix(x)
    assert plan.source is not None or plan.source_pair is not None
    torch.set_default_device("meta")
    try:
        again = method.plan(x, saliency=saliency, generator=torch.Generator("cpu").manual_seed(0))
        assert torch.equal(again.mix(x), mixed)
        torch.testing.assert_close(again.mix(x.clone().requires_grad_()).detach(), mixed)
        assert torch.equal(again.lam, plan.lam)
        y = torch.zeros(4, dtype=torch.long, device="cpu")
        attacked = mm.mixed_forward(Linear((3, 16, 12)), mm.PuzzleMix(adv_p=1.0), x, y)
        assert attacked.logits.device.type == "cpu"
    finally:
        torch.set_default_device(None)
