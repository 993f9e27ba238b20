"""Every method can add the loss of the unmixed batch, once for any K and without a second pass where it has one."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import frozen
import multimix as mm
from frozen import BATCH, CLASSES, POINTS, seeded

Y = torch.arange(BATCH) % CLASSES
WEIGHT = 0.7
NAMES = [name for name in frozen.OPTIONS if name != "none"]


class Counting(nn.Module):
    """A network for images or clouds that records how many rows each pass had."""

    def __init__(self, name):
        super().__init__()
        self.seen = []
        torch.manual_seed(0)
        self.body = nn.Linear(3, 8) if name == "sagemix" else frozen.model().body
        self.head = nn.Linear(8, CLASSES)
        self.is_cloud = name == "sagemix"

    def forward(self, x):
        self.seen.append(len(x))
        z = torch.tanh(self.body(x))
        return self.head(z.mean(1) if self.is_cloud else z.mean((2, 3)))


def samples(name):
    shape = (BATCH, POINTS, 3) if name == "sagemix" else (BATCH, 3, 16, 20)
    return torch.rand(shape, generator=seeded(1))


def method_of(name, k, weight):
    method = frozen.make(name, frozen.OPTIONS[name][0], k)
    scale = {"clean_scale": "loss"} if hasattr(method, "clean_scale") else {}
    return replace(method, clean_weight=weight, **scale)


def run(name, k, weight, steps=None):
    """Loss, gradients and rows of each pass; the criterion is not cross-entropy, so that no other can stand in for it."""
    model, x = Counting(name), samples(name)
    parts = mm.mixed_parts(model, method_of(name, k, weight), x, Y, steps=steps, smoothing=0.1, generator=seeded(2), state=None)
    loss = sum(part.loss(squared_error) for part in parts)
    return loss, torch.autograd.grad(loss, list(model.parameters())), model.seen


def squared_error(logits, target):
    return (logits - target).square().mean()


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_of_the_unmixed_batch_is_added_once(name, k):
    model, x = Counting(name), samples(name)
    target = one_hot(Y, CLASSES) * 0.9 + 0.1 / CLASSES
    clean = squared_error(model(x), target)
    clean_gradients = torch.autograd.grad(clean, list(model.parameters()))
    loss, gradients, _ = run(name, k, 0.0)
    for steps in (None, 2):
        total, total_gradients, _ = run(name, k, WEIGHT, steps)
        torch.testing.assert_close(total, loss + WEIGHT * clean)
        for got, mixed, own in zip(total_gradients, gradients, clean_gradients, strict=True):
            torch.testing.assert_close(got, mixed + WEIGHT * own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_saliency_pass_is_the_clean_pass(name):
    without, with_clean = run(name, 2, 0.0)[2], run(name, 2, WEIGHT)[2]
    needs_map = "saliency" in method_of(name, 2, 0.0).traits.needs
    assert len(with_clean) - len(without) == (0 if needs_map else 1)


@pytest.mark.parametrize("name", NAMES)
def test_mix_rejects_a_clean_loss(name):
    method = method_of(name, 2, WEIGHT)
    assert str(WEIGHT) in method.traits.own_loss
    with pytest.raises(ValueError, match="clean loss"):
        mm.Mix(method, CLASSES)
    with pytest.raises(ValueError, match="clean_weight"):
        replace(method, clean_weight=-1.0)


def test_regmixup():
    """RegMixup (Pinto et al., 2022): CE(f(x), y) + η CE(f(x̂), ŷ), here with η = 2 and divided by it."""
    model, x = Counting("mixup"), samples("mixup")
    plan = mm.InputMixup(alpha=20.0).plan(x, generator=seeded(3))
    expected = cross_entropy(model(x), Y) + 2 * cross_entropy(model(plan.mix(x)), plan.mix_target(Y, CLASSES))
    out = mm.mixed_forward(model, mm.InputMixup(alpha=20.0, clean_weight=0.5), x, Y, generator=seeded(3))
    torch.testing.assert_close(2 * out.loss(), expected)


def test_a_function_as_model_has_a_clean_loss():
    model, x = Counting("cutmix"), samples("cutmix")
    method = mm.CutMix(k=2, clean_weight=WEIGHT)
    expected = mm.mixed_forward(model, method, x, Y, generator=seeded(2)).loss()
    torch.testing.assert_close(mm.mixed_forward(lambda z: model(z), method, x, Y, generator=seeded(2)).loss(), expected)


def test_inputs_without_those_of_the_base_class_raise():
    class Forgets(mm.CutMix):
        def inputs(self, batch):
            return {}

    out = mm.mixed_forward(Counting("cutmix"), Forgets(clean_weight=WEIGHT), samples("cutmix"), Y)
    with pytest.raises(RuntimeError, match=r"super\(\).inputs"):
        out.loss()
