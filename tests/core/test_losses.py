import pytest
import torch
from torch.nn.functional import binary_cross_entropy, cross_entropy

import multimix as mm


def mixed(classes=5, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    x, label = torch.zeros(7, 1), torch.randint(classes, (7,), generator=generator)
    plan = mm.InputMixup(k=3, per_pair=True).plan(x, generator=generator)
    logits = scale * torch.randn(21, classes, generator=generator, dtype=dtype)
    return plan, label, logits, plan.mix_target(label, classes).to(dtype)


def test_soft_cross_entropy_is_the_two_term_form():
    plan, label, logits, target = mixed()
    two_terms = 0.0
    for k in range(3):
        for i in range(7):
            row, lam = logits[7 * k + i].unsqueeze(0), float(plan.lam[k, i])
            own, other = label[i : i + 1], label[plan.partner[i : i + 1]]
            two_terms += (1 - lam) * cross_entropy(row, own) + lam * cross_entropy(row, other)
    torch.testing.assert_close(mm.losses.soft_cross_entropy(logits, target), two_terms / 21, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(mm.losses.soft_cross_entropy(logits, target), cross_entropy(logits, target))


def test_repeating_the_path_changes_neither_loss_nor_gradient():
    _, _, logits, target = mixed()
    once = logits.clone().requires_grad_()
    mm.losses.soft_cross_entropy(once, target).backward()
    twice = logits.clone().requires_grad_()
    mm.losses.soft_cross_entropy(twice.repeat(2, 1), target.repeat(2, 1)).backward()
    torch.testing.assert_close(once.grad, twice.grad)


def test_softmax_bce_is_bce_of_the_softmax():
    _, _, logits, target = mixed()
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    mm.losses.softmax_bce(ours, target).backward()
    binary_cross_entropy(theirs.softmax(1), target).backward()
    torch.testing.assert_close(mm.losses.softmax_bce(logits, target), binary_cross_entropy(logits.softmax(1), target))
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_softmax_bce_survives_confidence():
    """At p = 1 in float32 the plain form is cut off at 100 and has no gradient; the true one is about 40 / C."""
    logits = torch.tensor([[40.0, 0.0, 0.0]], requires_grad=True)
    wrong = torch.tensor([[0.0, 1.0, 0.0]])
    loss = mm.losses.softmax_bce(logits, wrong)
    p = logits.detach().double().softmax(1)
    exact = -(p[0, 1].log() + (p[0, 1] + p[0, 2]).log() + torch.log1p(-p[0, 2])) / 3
    assert float(loss.detach()) == pytest.approx(float(exact), rel=1e-5)
    loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert float(logits.grad[0, 0]) > 0.3


def test_softmax_bce_gradient_is_about_one_over_c():
    for classes, expected in ((100, 0.0101), (200, 0.0050)):
        label = torch.arange(50) % classes
        target = mm.losses.soft_target(label, classes)
        grads = []
        for loss in (mm.losses.softmax_bce, mm.losses.soft_cross_entropy):
            logits = torch.zeros(50, classes, requires_grad=True)
            loss(logits, target).backward()
            grads.append(float(logits.grad.norm()))
        assert grads[0] / grads[1] == pytest.approx(expected, abs=1e-4)


def test_softmax_bce_under_autocast():
    _, _, logits, target = mixed(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mm.losses.softmax_bce(logits.bfloat16(), target)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)


def test_mixed_accuracy_weighs_both_labels():
    plan, label, logits, target = mixed()
    expected = 0.0
    for k in range(3):
        for i in range(7):
            guess, lam = int(logits[7 * k + i].argmax()), float(plan.lam[k, i])
            expected += (1 - lam) * (guess == int(label[i])) + lam * (guess == int(label[plan.partner[i]]))
    assert float(mm.losses.mixed_accuracy(logits, target)) == pytest.approx(expected / 21)
    assert float(mm.losses.mixed_accuracy(target, target)) == pytest.approx(float(target.max(1).values.mean()))


@pytest.mark.parametrize("loss", [mm.losses.soft_cross_entropy, mm.losses.softmax_bce, mm.losses.mixed_accuracy])
def test_shapes_must_agree(loss):
    with pytest.raises(ValueError, match="logits and target must"):
        loss(torch.zeros(4, 3), torch.zeros(2, 3))
    with pytest.raises(TypeError, match="target must be a floating-point tensor"):
        loss(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


def focal(logits, label):
    """Takes class indices only."""
    chosen = logits.log_softmax(1).gather(1, label.unsqueeze(1)).squeeze(1)
    return -((1 - chosen.exp()) ** 2) * chosen


@pytest.mark.parametrize("method", [mm.CutMix(k=3, per_pair=True), mm.NoMix()])
def test_a_loss_that_takes_indices_only_is_that_of_both_labels_by_their_shares(method):
    torch.manual_seed(0)
    x, y, model = (
        torch.rand(6, 1, 8, 8),
        torch.tensor([0, 1, 2, 0, 1, 4]),
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5)),
    )
    plan = method.plan(x)
    logits, lam = mm.plans.run_plan(model, plan, x), plan.lam.flatten().float()
    own, other = y.repeat(plan.k), y[plan.partner].repeat(plan.k)
    expected = ((1 - lam) * focal(logits, own) + lam * focal(logits, other)).mean()
    torch.testing.assert_close(mm.losses.pair_loss(focal)(logits, plan.mix_target(y, 5)), expected)


def test_a_pair_loss_is_a_criterion_and_equals_cross_entropy_for_cross_entropy():
    model, x, y = torch.nn.Linear(4, 3), torch.rand(5, 4), torch.arange(5) % 3
    pairs = mm.losses.pair_loss(torch.nn.CrossEntropyLoss(reduction="none"))
    losses = [
        mm.mixed_forward(
            model,
            mm.InputMixup(k=2),
            x,
            y,
            smoothing=0.1,
            generator=torch.Generator().manual_seed(0),
        ).loss(loss)
        for loss in (pairs, mm.losses.soft_cross_entropy)
    ]
    torch.testing.assert_close(*losses)


def test_a_pair_loss_needs_one_loss_per_row():
    with pytest.raises(ValueError, match="criterion must"):
        mm.losses.pair_loss(torch.nn.CrossEntropyLoss())(torch.zeros(2, 3), torch.eye(3)[:2])
