"""One run, against a loop written without the library, and what the arms of a seed share."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import multimix.lab.studies.digits.train as train_module
from multimix import mixed_terms
from multimix.lab.nets.smallnet import initial_net
from multimix.lab.studies.digits.arms import arms
from multimix.lab.studies.digits.data import split
from multimix.lab.studies.digits.train import ORDER, SPLIT, Settings, batches, outcome, train
from multimix.sampling import seeded

BRIEF = Settings(steps=60)
ALL = arms((), (1, 5), 0.1, print)


def arm(label):
    return next(arm for arm in ALL if arm.label == label)


@pytest.fixture(scope="module")
def outcomes():
    return {one.label: outcome(one, 0, BRIEF) for one in ALL}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.label)
def test_every_arm_learns_far_above_chance(outcomes, one):
    found = outcomes[one.label]
    assert found.error < 30  # chance is 90
    assert found.train_error < 30
    assert all(math.isfinite(getattr(found, name)) for name in ("ece", "brier", "nll", "confidence"))
    assert 0 <= found.ece <= 100
    assert 10 < found.confidence <= 100
    unmixed = 1 if one.method.history else 0  # a method that needs the batch before has none at first
    assert found.rows == BRIEF.batch * ((BRIEF.steps - unmixed) * (one.k or 1) + unmixed)
    assert found.cpu_seconds > 0


def test_all_arms_of_a_seed_share_split_and_start_and_seeds_differ(outcomes):
    assert len({(found.split, found.start) for found in outcomes.values()}) == 1
    other = outcome(ALL[0], 1, replace(BRIEF, steps=1))
    first = outcomes["none"]
    assert other.split != first.split
    assert other.start != first.start


def test_all_arms_of_a_seed_see_the_same_batches(monkeypatch):
    seen = {}

    def spied(net, method, x, y, **options):
        seen[label].append((x.clone(), y.clone()))
        return mixed_terms(net, method, x, y, **options)

    monkeypatch.setattr(train_module, "mixed_terms", spied)
    for one in ALL:
        label = one.label
        seen[label] = []
        outcome(one, 2, replace(BRIEF, steps=7))
    expected = seen["none"]
    assert len(expected) == 7
    for found in seen.values():
        assert all(torch.equal(a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True))


def test_a_run_is_repeatable(outcomes):
    again = outcome(arm("cutmix, K = 5"), 0, BRIEF)
    assert replace(again, cpu_seconds=0) == replace(outcomes["cutmix, K = 5"], cpu_seconds=0)


@pytest.mark.parametrize(("label", "smoothing"), [("none", 0.0), ("smoothing", 0.1)])
def test_without_mixing_it_is_the_usual_loop(label, smoothing):
    """Class indices and torch's own label smoothing; momentum, weight decay, Nesterov and cosine written out."""
    settings, seed = replace(BRIEF, steps=12), 4
    data = split(settings.per_class, seeded(seed, SPLIT))
    ours, plain = initial_net(seed), initial_net(seed)
    train(ours, arm(label), data, seed, settings)
    criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)
    weights = list(plain.parameters())
    speed = [torch.zeros_like(weight) for weight in weights]
    for step, chosen in enumerate(batches(len(data.x), settings, seeded(seed, ORDER))):
        rate = settings.learning_rate * (1 + math.cos(math.pi * step / settings.steps)) / 2
        grads = torch.autograd.grad(criterion(plain(data.x[chosen]), data.label[chosen]), weights)
        with torch.no_grad():
            for weight, grad, v in zip(weights, grads, speed, strict=True):
                full = grad + settings.weight_decay * weight
                v.mul_(settings.momentum).add_(full)
                weight.sub_(rate * (full + settings.momentum * v))
    for one, other in zip(ours.parameters(), weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_batches_are_whole_epochs_in_fresh_orders():
    found = list(batches(250, Settings(steps=12), seeded(0, ORDER)))
    assert [len(chosen) for chosen in found] == [50] * 12
    first, second = torch.cat(found[:5]), torch.cat(found[5:10])
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(250))
    assert not torch.equal(first, second)
    assert [len(chosen) for chosen in batches(7, Settings(steps=4, batch=3), seeded(0, ORDER))] == [3, 3, 1, 3]


def test_the_error_is_counted_on_the_test_samples(outcomes):
    data = split(BRIEF.per_class, seeded(0, SPLIT))
    net = initial_net(0)
    train(net, arm("none"), data, 0, BRIEF)
    net.eval()
    wrong = sum(int(net(x[None]).argmax()) != y for x, y in zip(data.x_test, data.label_test.tolist(), strict=True))
    assert outcomes["none"].error == pytest.approx(100 * wrong / 1547)


def test_a_run_that_diverges_says_so():
    with pytest.raises(ValueError, match="none diverged with seed 0: its logits are not finite"):
        outcome(arm("none"), 0, replace(BRIEF, learning_rate=1e8))
