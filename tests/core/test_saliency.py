"""The map itself, against slow loops, on every kind of input, model and context."""

import pytest
import torch
from torch import nn

import multimix as mm
from multimix.core.saliency import clean_pass, root_mean_square
from oracles import places, seeded
from salient import CLASSES, Network, images, labels, soft_labels


@torch.no_grad()
def by_differences(loss, x, step=1e-5):
    """sqrt(mean over channels of g²) with every entry of g from two evaluations."""
    result = torch.zeros(len(x), *x.shape[2:], dtype=torch.float64)
    for i in range(len(x)):
        for place in places(x.shape[2:]):
            square = 0.0
            for channel in range(x.shape[1]):
                at = (i, channel, *place)
                up, down = x.clone(), x.clone()
                up[at] += step
                down[at] -= step
                square += float((loss(up) - loss(down)) / (2 * step)) ** 2
            result[(i, *place)] = (square / x.shape[1]) ** 0.5
    return result


@pytest.mark.parametrize("soft", [False, True])
def test_equals_finite_differences(soft):
    model, x = Network().double(), images(2, torch.float64)
    target = soft_labels(2, torch.float64) if soft else torch.eye(CLASSES, dtype=torch.float64)[labels(2)]
    found = mm.input_saliency(model, x, target if soft else labels(2))
    model.eval()
    expected = by_differences(lambda moved: -(target * model(moved).softmax(1).log()).sum(), x)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("size", [(), (9,), (4, 6), (2, 3, 4)], ids=str)
def test_any_number_of_axes(size):
    x = torch.randn(3, 2, *size, generator=seeded(0), dtype=torch.float64)
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), CLASSES), nn.Tanh(), nn.Linear(CLASSES, CLASSES)).double()
    found = mm.input_saliency(model, x, labels(3))
    expected = by_differences(lambda moved: nn.functional.cross_entropy(model(moved), labels(3), reduction="sum"), x)
    assert found.shape == (3, *size)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-6)


def window_means(x, pool):
    """Means over windows of ``pool`` places per axis from the first place on, by a loop; the last may be narrower."""
    sizes = [-(-side // pool) for side in x.shape[2:]]
    means = torch.zeros(*x.shape[:2], *sizes, dtype=x.dtype)
    for window in places(sizes):
        means[(..., *window)] = x[(..., *(slice(pool * i, pool * (i + 1)) for i in window))].flatten(2).mean(2)
    return means


@pytest.mark.parametrize(("size", "pool"), [((9,), 2), ((4, 6), 2), ((5, 7), 3), ((3, 2), 4), ((2, 3, 4), 2)], ids=str)
def test_pooled_is_the_gradient_of_what_the_model_says_about_window_means(size, pool):
    x = torch.randn(2, 2, *size, generator=seeded(0), dtype=torch.float64)
    means = window_means(x, pool)
    model = nn.Sequential(nn.Flatten(), nn.Linear(means[0].numel(), CLASSES), nn.Tanh(), nn.Linear(CLASSES, CLASSES)).double()
    found = mm.input_saliency(model, x, labels(2), pool=pool)
    expected = by_differences(
        lambda moved: nn.functional.cross_entropy(model(window_means(moved, pool)), labels(2), reduction="sum"),
        x,
    )
    assert found.shape == (2, *size)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-6)


def test_a_model_of_one_size_cannot_be_asked_about_a_smaller_one():
    with pytest.raises(mm.MixingError, match="pooled by 2"):
        mm.input_saliency(Network(), images(), labels(), pool=2)
    with pytest.raises(ValueError, match="pool needs x"):
        mm.input_saliency(nn.Linear(4, CLASSES), torch.randn(6, 4), labels(), pool=2)
    with pytest.raises(ValueError, match="pool must"):
        mm.input_saliency(Network(), images(), labels(), pool=0)


def test_a_sample_does_not_depend_on_its_batch():
    model, x, y = Network(), images(), labels()
    whole = mm.input_saliency(model, x, y)
    alone = torch.cat([mm.input_saliency(model, x[i : i + 1], y[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(whole, alone, atol=1e-6, rtol=1e-5)


def test_labels_of_any_integer_kind_and_one_hot_rows_agree():
    model, x, y = Network(), images(), labels()
    expected = mm.input_saliency(model, x, y)
    for kind in (torch.uint8, torch.int32):
        assert torch.equal(mm.input_saliency(model, x, y.to(kind)), expected)
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        torch.testing.assert_close(mm.input_saliency(model, x, torch.eye(CLASSES)[y].to(kind)), expected)


def test_a_loss_of_your_own():
    """One logit has no cross-entropy over classes; binary cross-entropy gives |σ(z) − y| · |w| place by place."""
    model, x, y = (
        nn.Sequential(nn.Flatten(), nn.Linear(70, 1)),
        images(),
        torch.rand(6, 1, generator=seeded(3)),
    )
    found = mm.input_saliency(
        model,
        x,
        y,
        loss=lambda logits, y: nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="sum"),
    )
    gap = (torch.sigmoid(model(x)) - y).detach()
    gradient = gap[:, :, None, None] * model[1].weight.detach().reshape(1, 2, 5, 7)
    torch.testing.assert_close(found, gradient.square().mean(1).sqrt())


def test_models_that_return_more_than_logits():
    class Wordy(Network):
        def forward(self, x):
            return {"scores": super().forward(x), "features": x}

    x, y = images(), labels()
    expected = mm.input_saliency(Network(), x, y)
    assert torch.equal(mm.input_saliency(Wordy(), x, y, output="scores"), expected)
    with pytest.raises(ValueError, match="output="):
        mm.input_saliency(Wordy(), x, y)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("soft", [False, True])
def test_inside_any_gradient_mode(context, soft):
    model, x, y = Network(), images(), soft_labels() if soft else labels()
    expected = mm.input_saliency(model, x, y)
    with context():
        found = mm.input_saliency(model, x.clone(), y.clone())
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert not found.is_inference()


def test_inputs_with_a_graph_of_their_own():
    model, x, y = Network(), images(), labels()
    expected = mm.input_saliency(model, x, y)
    leaf = x.clone().requires_grad_()
    for source in (leaf, leaf * 1.0, x.expand(6, 2, 5, 7)):
        found = mm.input_saliency(model, source, y)
        assert torch.equal(found, expected)
        assert not found.requires_grad
    assert leaf.grad is None


def test_channels_last_stays_channels_last():
    class Seen(Network):
        def forward(self, x):
            self.format = x.is_contiguous(memory_format=torch.channels_last)
            return super().forward(x)

    model, x, y = Seen(), images(), labels()
    expected = mm.input_saliency(model, x, y)
    assert not model.format
    found = mm.input_saliency(model, x.contiguous(memory_format=torch.channels_last), y)
    assert model.format
    torch.testing.assert_close(found, expected)


def test_a_first_layer_that_works_in_place():
    model, x, y = nn.Sequential(nn.ReLU(inplace=True), Network()), images(), labels()
    before = x.clone()
    found = mm.input_saliency(model, x, y)
    assert torch.equal(x, before)
    torch.testing.assert_close(found, mm.input_saliency(nn.Sequential(nn.ReLU(), Network()), x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision(dtype):
    exact = mm.input_saliency(Network().double(), images().double(), labels())
    found = mm.input_saliency(Network().to(dtype), images().to(dtype), labels())
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), exact, atol=0.05 * float(exact.max()), rtol=0.05)


def test_large_batches_do_not_underflow_in_float16():
    """The gradient of a mean over 4096 samples is below what float16 can hold; that of the sum is not."""
    torch.manual_seed(0)
    model, x = nn.Linear(8, CLASSES), torch.randn(4096, 8, generator=seeded(0))
    nn.init.normal_(model.weight, std=2e-4)
    exact = mm.input_saliency(model, x, labels(4096))
    found = mm.input_saliency(model.half(), x.half(), labels(4096))
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0)


def test_squares_of_small_gradients_do_not_underflow():
    gradient = torch.randn(2, 3, 4, 5, generator=seeded(0)) * torch.tensor([1.0, 1e-30])[:, None, None, None]
    torch.testing.assert_close(
        root_mean_square(gradient),
        gradient.double().square().mean(1).sqrt().float(),
        rtol=1e-5,
        atol=0,
    )
    assert torch.equal(root_mean_square(torch.zeros(2, 3, 4)), torch.zeros(2, 4))


def test_a_training_pass_keeps_its_loss_and_its_graph():
    model, twin, x, y = Network(), Network(), images(), labels()
    torch.manual_seed(7)
    found = clean_pass(model, x, y, training=True)
    torch.manual_seed(7)
    leaf = x.clone().requires_grad_()
    loss = nn.functional.cross_entropy(twin(leaf), y)
    loss.backward()
    assert torch.equal(found.loss, loss)
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(found.gradient, leaf.grad * 6, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(found.saliency, (leaf.grad * 6).square().mean(1).sqrt())
    assert not found.gradient.requires_grad
    assert not found.saliency.requires_grad
    found.loss.backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    assert int(model.norm.num_batches_tracked) == 1
    assert model.training


def test_the_loss_of_an_evaluation_pass_is_the_detached_mean():
    model, x, y = Network(), images(), labels()
    found = clean_pass(model, x, y, training=False)
    model.eval()
    torch.testing.assert_close(found.loss, nn.functional.cross_entropy(model(x), y).detach())
    assert not found.loss.requires_grad
    with torch.no_grad():
        assert not clean_pass(model, x, y, training=True).loss.requires_grad


def test_a_kept_loss_reaches_what_is_behind_x():
    model, x, y = Network(dropout=0), images(), labels()
    shift = torch.zeros(2, 1, 1, requires_grad=True)
    found = clean_pass(model, x + shift, y, training=True)
    found.loss.backward()
    torch.testing.assert_close(shift.grad.flatten() * 6, found.gradient.sum((0, 2, 3)), atol=1e-5, rtol=1e-4)


def test_one_hot_rows_of_any_type_are_indices():
    model, x, y = Network(dropout=0), images(), labels()
    expected = mm.input_saliency(model, x, y)
    rows = torch.nn.functional.one_hot(y, CLASSES)
    for kind in (torch.long, torch.bool, torch.float32, torch.bfloat16):
        torch.testing.assert_close(mm.input_saliency(model, x, rows.to(kind)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_several_labels_a_sample_are_asked_for_by_binary_cross_entropy(dtype):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * 6 * 6, 4))
    x, y = (
        torch.rand(5, 2, 6, 6),
        torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]], dtype=dtype),
    )

    def binary(logits, y):
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, y.float(), reduction="sum")

    torch.testing.assert_close(mm.input_saliency(model, x, y), mm.input_saliency(model, x, y, loss=binary))
    mean = torch.nn.functional.binary_cross_entropy_with_logits
    mm.mixed_forward(model, mm.PuzzleMix(k=2), x, y).loss(mean).backward()
    out = mm.mixed_forward(model, mm.PuzzleMix(k=2, clean_weight=0.5), x, y)
    assert out.loss(binary).isfinite()
    one = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * 6 * 6, 1))
    assert mm.input_saliency(one, x, y[:, :1]).shape == (5, 6, 6)
    with pytest.raises(ValueError, match=r"logits .*got \[5, 1\]"):
        mm.input_saliency(one, x, y)
