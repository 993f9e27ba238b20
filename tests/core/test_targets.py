import pytest
import torch
from torch.nn.functional import cross_entropy

import multimix as mm
from oracles import seeded


def test_kinds_of_target():
    assert torch.equal(mm.losses.soft_target(torch.tensor([1, 0]), 3), torch.eye(3)[[1, 0]])
    for y in (
        torch.rand(4, 3),
        torch.rand(4),
        torch.rand(4, 2, 2),
        torch.rand(4, 3, dtype=torch.float64),
    ):
        assert mm.losses.soft_target(y) is y
    multi_hot = torch.tensor([[1, 0, 1], [0, 1, 1]])
    assert torch.equal(mm.losses.soft_target(multi_hot), multi_hot.float())
    assert torch.equal(mm.losses.soft_target(multi_hot.bool()), multi_hot.float())


@pytest.mark.parametrize("y", [torch.rand(5), torch.rand(5, 3), torch.rand(5, 2, 4), torch.eye(5)[:, :3]])
def test_every_kind_is_mixed_alike(y):
    plan = mm.InputMixup(k=3).plan(torch.zeros(5, 1), generator=torch.Generator().manual_seed(0))
    target = plan.mix_target(y)
    for k in range(3):
        for i in range(5):
            lam = float(plan.lam[k, i])
            torch.testing.assert_close(target[5 * k + i], (1 - lam) * y[i] + lam * y[plan.partner[i]])


@pytest.mark.parametrize(
    "method",
    [mm.CutMix(k=3), mm.FMix(k=3, softness=0.2), mm.CutMix(k=3, per_pair=True), mm.Cutout(k=3)],
)
def test_a_dense_target_goes_where_its_pixels_go(method):
    """The map of a segmentation: mixing it and mixing the image must be the same thing."""
    x = torch.randn(4, 2, 6, 5)
    plan = method.plan(x)
    if isinstance(method, mm.Cutout):
        assert torch.equal(plan.mix_target(x), x.repeat(3, 1, 1, 1))
    else:
        torch.testing.assert_close(plan.mix_target(x), plan.mix(x))
    with pytest.raises(ValueError, match="y must be"):
        plan.mix_target(torch.rand(4, 2, 3, 3))


def test_smoothing_is_torchs_and_commutes_with_mixing():
    logits, label = torch.randn(6, 4), torch.arange(6) % 4
    ours = mm.losses.soft_cross_entropy(logits, mm.losses.soft_target(label, 4, 0.1))
    torch.testing.assert_close(ours, cross_entropy(logits, label, label_smoothing=0.1))
    plan = mm.CutMix(k=3).plan(torch.zeros(6, 1, 9, 9))
    before = plan.mix_target(label, 4, smoothing=0.1)
    after = mm.losses.smoothed(plan.mix_target(label, 4), 0.1)
    torch.testing.assert_close(before, after)
    torch.testing.assert_close(before.sum(1), torch.ones(18))


def test_averaging_smoothing_levels_is_smoothing_by_their_mean():
    """Cross-entropy is linear in the target, so K levels of smoothing are no more than one."""
    logits, label = torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 4
    levels = [0.0, 0.1, 0.3]
    many = sum(mm.losses.soft_cross_entropy(logits, mm.losses.soft_target(label, 4, e)) for e in levels) / 3
    torch.testing.assert_close(
        many,
        mm.losses.soft_cross_entropy(logits, mm.losses.soft_target(label, 4, sum(levels) / 3)),
        atol=1e-6,
        rtol=0,
    )


@pytest.mark.parametrize(
    ("y", "options", "sentence"),
    [
        (torch.tensor([0, 7]), {"num_classes": 3}, "class indices must"),
        (torch.tensor([-1, 0]), {"num_classes": 3}, "class indices must"),
        (torch.tensor([0, 1]), {}, "class indices need num_classes"),
        (torch.tensor([True, False]), {"num_classes": 2}, "class indices must"),
        (torch.tensor([0, 1]), {"num_classes": 1}, "num_classes must"),
        (torch.tensor([0, 1]), {"num_classes": 10.0}, "num_classes must"),
        (torch.tensor([[3, 7], [5, 1]]), {}, "integer y .* must be 0 or 1"),
        (torch.rand(2, 4), {"num_classes": 3}, "num_classes=3, y must"),
        (torch.tensor(1), {"num_classes": 3}, "y must"),
        (torch.ones(2, 3), {"smoothing": 0.1}, "smoothing needs"),
        (torch.rand(4), {"smoothing": 0.1}, "smoothing needs"),
        (torch.tensor([0, 1]), {"num_classes": 3, "smoothing": 1.5}, "smoothing must"),
        (torch.ones(3, 2, dtype=torch.complex64), {}, "y must be real"),
        (torch.ones(3, 2).to(torch.float8_e5m2), {}, "y must be real"),
    ],
)
def test_bad_targets(y, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        mm.losses.soft_target(y, **options)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.int32])
@pytest.mark.parametrize(("k", "options"), [(1, {}), (5, {}), (3, {"per_pair": True})])
@pytest.mark.parametrize("classes", [3, 700])
def test_class_indices_are_mixed_to_the_bit_as_one_hot_rows_are(default, kind, k, options, classes):
    x, label = torch.zeros(41, 1, 5, 7), torch.randint(0, 3, (41,), generator=seeded(0)).to(kind)
    one_hot = torch.nn.functional.one_hot(label.long(), classes)
    torch.set_default_dtype(default)
    try:
        for method in (
            mm.InputMixup(k=k, **options),
            mm.CutMix(k=k, **options),
            mm.FMix(k=k, **options),
        ):
            for seed in range(5):
                plan = method.plan(x, generator=seeded(seed))
                target = plan.mix_target(label, classes)
                rows = one_hot.to(default)
                expected = torch.lerp(rows, rows[plan.partner], plan.lam.to(default).unsqueeze(2)).flatten(0, 1)
                assert torch.equal(target, expected)
                assert target.dtype == default
                assert bool((target[:, 3:] == 0).all())
    finally:
        torch.set_default_dtype(torch.float32)


def test_shares_with_a_gradient_keep_it():
    lam = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    plan = mm.InputMixup().plan(torch.zeros(2, 1), partner=torch.tensor([1, 0]), lam=lam)
    plan.mix_target(torch.tensor([0, 1]), 2)[0, 1].backward()
    assert float(lam.grad) == 1
