"""Gradients of stacked batches against torch.autograd.grad, one mixed sample at a time."""

import pytest
import torch
from torch import nn

from multimix import CutMix, InputMixup, ManifoldMixup
from multimix.lab.studies.variance import Gradients


class Plain(nn.Module):
    """A small network with a named hidden layer; ``branching`` looks at values, which vmap cannot follow."""

    def __init__(self, branching=False):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(2, 5), nn.Tanh()), nn.Linear(5, 3)
        self.branching = branching

    def forward(self, x):
        z = self.first(x)
        return self.second(z) if not self.branching or z.sum() > -1000 else z


def made(kind):
    """Model, samples and labels in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "cnn":
            model = nn.Sequential(
                nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4)
            ).eval()
            return model.double(), torch.randn(7, 1, 7, 5).double(), torch.tensor([0, 1, 2, 3, 0, 2, 1])
        return Plain(kind == "branching").double(), torch.randn(6, 2).double(), torch.tensor([0, 1, 2, 1, 0, 2])


def one_gradient(model, x, y, i, j, lam, layer):
    if layer:
        z = model.first(x[[i, j]])
        logits = model.second((1 - lam) * z[0] + lam * z[1])
    else:
        logits = model(((1 - lam) * x[i] + lam * x[j])[None])[0]
    log_p = logits.log_softmax(0)
    loss = -(1 - lam) * log_p[y[i]] - lam * log_p[y[j]]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


CASES = [("plain", None), ("plain", "first"), ("branching", None), ("branching", "first"), ("cnn", None)]


@pytest.mark.parametrize(("kind", "layer"), CASES)
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_is_the_mean_of_its_mixed_samples(kind, layer, per_pair, batch):
    model, x, y = made(kind)
    generator = torch.Generator().manual_seed(1)
    own, other = torch.randint(len(x), (2, 3, batch), generator=generator)
    lam = torch.rand(3, 2, batch if per_pair else 1, dtype=torch.float64, generator=generator)
    found = Gradients(model, x, y).of_pairs(own, other, lam, layer)
    for r, gradient in enumerate(found):
        each = [
            one_gradient(model, x, y, int(own[r, b]), int(other[r, b]), float(lam[r, k, b if per_pair else 0]), layer)
            for b in range(batch)
            for k in range(2)
        ]
        torch.testing.assert_close(gradient, torch.stack(each).mean(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", [InputMixup(k=3), CutMix(k=3), ManifoldMixup(k=3, layers=("0", "2"))], ids=lambda m: m.name)
@pytest.mark.parametrize("keep", [7, 4])
def test_planned_batches_are_what_mixed_forward_and_backward_give(method, keep):
    model, x, y = made("cnn")
    generator = torch.Generator().manual_seed(2)
    rows = torch.stack([torch.randperm(7, generator=generator) for _ in range(5)])
    plans = [method.plan(x[row], generator=generator) for row in rows]
    grads = Gradients(model, x, y)
    steps = [plan[k] for plan in plans for k in range(3)]
    by_step = grads.of_plans(steps, rows.repeat_interleave(3, 0), keep).unflatten(0, (5, 3))
    torch.testing.assert_close(grads.of_plans(plans, rows, keep), by_step.mean(1), rtol=1e-9, atol=1e-12)
    for plan, row, found in zip(plans, rows, by_step, strict=True):
        for k, step in enumerate(found):
            z, head, tail = x[row], nn.Identity(), model
            if plan.layer is not None:
                at = int(plan.layer) + 1
                head, tail = model[:at], model[at:]
            logits = tail(plan[k].mix(head(z)))[:keep]
            target = plan[k].mix_target(y[row], 4)[:keep]
            loss = nn.functional.cross_entropy(logits, target.double())
            expected = torch.autograd.grad(loss, list(model.parameters()))
            # Targets are float32, hence the tolerance.
            torch.testing.assert_close(step, torch.cat([g.flatten() for g in expected]), rtol=1e-5, atol=1e-7)


def test_nothing_is_left_behind():
    model, x, y = made("plain")
    before = [p.clone() for p in model.parameters()]
    state = torch.get_rng_state()
    Gradients(model.train(), x, y).of_pairs(torch.tensor([[0]]), torch.tensor([[1]]), torch.ones(1, 1, 1) / 3, "first")
    assert model.training
    assert model.first.training
    assert all(p.grad is None for p in model.parameters())
    assert all(map(torch.equal, before, model.parameters()))
    assert not model.first._forward_hooks
    assert torch.equal(state, torch.get_rng_state())


def test_frozen_parameters_are_left_out():
    model, x, y = made("plain")
    model.first.requires_grad_(False)
    assert Gradients(model, x, y).size == 18
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="the model must have parameters that require gradients, got none"):
        Gradients(model, x, y)


def test_models_without_a_gradient_per_sample_are_refused():
    _, x, y = made("cnn")
    x = x.float()
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(35), nn.Linear(35, 4))
    with pytest.raises(ValueError, match=r"must not use batch statistics: call model.eval\(\); '1'"):
        Gradients(net, x, y)
    assert torch.equal(net[1].running_mean, torch.zeros(35))
    Gradients(net.eval(), x, y)
    with pytest.raises(ValueError, match="the model must return the same logits"):
        Gradients(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(35, 4)), x, y)
    with pytest.raises(ValueError, match=r"the model must return logits \[B, C\], got shape \[1, 1, 7, 5\]"):
        Gradients(nn.Conv2d(1, 1, 1), x, y)
    with pytest.raises(ValueError, match="class indices"):
        Gradients(nn.Sequential(nn.Flatten(), nn.Linear(35, 2)), x, y)
