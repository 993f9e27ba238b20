"""mixed_logits on models as people have them."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import multimix as mm
from oracles import seeded


class Rows(nn.Module):
    """Passes its input on and notes how many rows it saw."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, z):
        self.seen.append(len(z))
        return z


def network(norm=False, classes=4):
    torch.manual_seed(0)
    parts = [("before", Rows()), ("conv", nn.Conv2d(2, 6, 3, padding=1)), ("act", nn.ReLU())]
    parts += [("norm", nn.BatchNorm2d(6))] if norm else []
    parts += [("after", Rows()), ("flat", nn.Flatten()), ("head", nn.Linear(6 * 5 * 7, classes))]
    return nn.Sequential(OrderedDict(parts))


def data(batch=6, dtype=torch.float32):
    return torch.randn(batch, 2, 5, 7, generator=seeded(0), dtype=dtype), torch.arange(batch) % 4


def test_hidden_mixing_equals_the_two_halves_by_hand():
    model, (x, _) = network(), data()
    plan = mm.ManifoldMixup(k=3, layers=("act",)).plan(x, generator=seeded(1))
    hidden = model.act(model.conv(x))
    expected = []
    for k in range(3):
        for i in range(6):
            lam = float(plan.lam[k, i])
            expected.append((1 - lam) * hidden[i] + lam * hidden[plan.partner[i]])
    expected = model.head(torch.stack(expected).flatten(1))
    torch.testing.assert_close(mm.mixed_forward(model, plan, x), expected)


def test_the_trunk_runs_once_on_b_and_the_rest_on_k_b():
    model, (x, y) = network(norm=True), data()
    mm.mixed_logits(model, mm.ManifoldMixup(k=5, layers=("act",)), x, y)
    assert model.before.seen == [6]
    assert model.after.seen == [30]
    assert int(model.norm.num_batches_tracked) == 1


def test_mixing_at_the_input_by_name_none_is_input_mixup():
    model, (x, y) = network(), data()
    hidden = mm.mixed_logits(model, mm.ManifoldMixup(k=3, alpha=1.0, layers=(None,)), x, y, generator=seeded(2))
    plain = mm.mixed_logits(model, mm.InputMixup(k=3), x, y, generator=seeded(2))
    assert torch.equal(hidden[0], plain[0])
    assert torch.equal(hidden[1], plain[1])


def test_a_linear_tail_mixes_the_outputs():
    model, (x, _) = network(), data()
    plan = mm.ManifoldMixup(k=4, layers=("flat",)).plan(x)
    torch.testing.assert_close(mm.mixed_forward(model, plan, x), plan.mix(model(x)), atol=1e-5, rtol=1e-5)


def test_gradient_at_the_hidden_layer():
    """Row i gets Σ_k (1 − λ_k) g_{k,i} from itself and Σ_k λ_k g_{k,j} from every j whose partner it is."""
    model, (x, _) = network(), data()
    plan = mm.ManifoldMixup(k=3, per_pair=True, layers=("act",)).plan(x, generator=seeded(3))
    kept = {}

    def keep(name):
        def hook(module, args, result):
            result.retain_grad()
            kept[name] = result

        return hook

    # The hook on ReLU itself runs before the mixing hook; the one on the next layer sees what was mixed.
    handles = [model.act.register_forward_hook(keep("hidden")), model.after.register_forward_hook(keep("mixed"))]
    mm.mixed_forward(model, plan, x).square().sum().backward()
    for handle in handles:
        handle.remove()
    incoming = kept["mixed"].grad.unflatten(0, (3, 6))
    expected = torch.zeros_like(kept["hidden"])
    for k in range(3):
        for i in range(6):
            lam = float(plan.lam[k, i])
            expected[i] += (1 - lam) * incoming[k, i]
            expected[plan.partner[i]] += lam * incoming[k, i]
    torch.testing.assert_close(kept["hidden"].grad, expected)


def test_chunks_differ_from_one_pass_only_under_batch_statistics():
    model, (x, y) = network(norm=True), data()
    method = mm.InputMixup(k=4)

    def logits():
        whole, _ = mm.mixed_logits(model, method, x, y, generator=seeded(4))
        parts = torch.cat([part for part, _, _ in mm.mixed_chunks(model, method, x, y, generator=seeded(4))])
        return whole, parts

    whole, parts = logits()
    assert not torch.allclose(whole, parts)
    model.eval()
    torch.testing.assert_close(*logits())


def test_chunks_keep_one_graph_at_a_time():
    model, (x, y) = network(), data()
    rows = [len(part) for part, _, _ in mm.mixed_chunks(model, mm.CutMix(k=5), x, y, steps=2)]
    assert rows == [12, 12, 6]
    assert model.before.seen == [12, 12, 6]


@pytest.mark.parametrize("layer", [None, "act"])
def test_bf16_autocast(layer):
    model, (x, y) = network(), data()
    method = mm.ManifoldMixup(k=5, layers=(layer,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, target = mm.mixed_logits(model, method, x, y, generator=seeded(5))
        loss = cross_entropy(logits, target)
    loss.backward()
    assert logits.dtype == torch.bfloat16
    assert target.dtype == torch.float32
    exact, _ = mm.mixed_logits(model, method, x, y, generator=seeded(5))
    torch.testing.assert_close(logits.float(), exact, atol=0.02, rtol=0.02)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("batch", [1, 3])
def test_small_and_odd_batches(batch):
    model, (x, y) = network(), data(batch)
    for method in (mm.CutMix(k=5), mm.ManifoldMixup(k=5, layers=("act", "conv"))):
        logits, target = mm.mixed_logits(model, method, x, y)
        assert logits.shape == target.shape == (5 * batch, 4)
    if batch == 1:
        torch.testing.assert_close(logits, model(x).expand(5, 4))


@pytest.mark.parametrize("method", [mm.InputMixup(k=3), mm.CutMix(k=3)])
def test_real_values_and_multi_hot(method):
    x, _ = data()
    regressor = nn.Sequential(nn.Flatten(), nn.Linear(70, 1), nn.Flatten(0))
    values, target = mm.mixed_logits(regressor, method, x, torch.rand(6))
    assert values.shape == target.shape == (18,)
    logits, target = mm.mixed_logits(network(), method, x, (torch.rand(6, 4) > 0.5).long())
    assert logits.shape == target.shape == (18, 4)


BAD_INPUT = [
    (lambda x, y: (x.byte(), y), "x must be floating point to be mixed, got torch.uint8"),
    (lambda x, y: (x[:0], y[:0]), r"x must hold at least 1 sample, none of them empty, got shape \[0, 2, 5, 7\]"),
    (lambda x, y: (x, y[:5]), r"one row per sample, got shapes \[6, 2, 5, 7\] and \[5\]"),
    (lambda x, y: (x, y + 1), "class indices must lie in 0 … 3, got 1 … 4"),
    (lambda x, y: (x.masked_fill(x == x[2, 0, 0, 0], torch.nan), y), "x must be finite, got NaN or infinity in sample 2"),
    (lambda x, y: (x.masked_fill(x == x[1, 0, 0, 0], torch.inf), y), "x must be finite, got NaN or infinity in sample 1"),
    (lambda x, y: (x, torch.full((6, 4), torch.nan)), "y must be finite"),
    (lambda x, y: (x.numpy(), y), "x must be a torch.Tensor, got ndarray"),
    (lambda x, y: (x, y.tolist()), "y must be a torch.Tensor, got list"),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD_INPUT)
@pytest.mark.parametrize("call", ["mixed_logits", "mixed_chunks", "Mix"])
def test_bad_input_is_one_sentence_and_changes_nothing(spoil, sentence, call):
    model, (x, y) = network(norm=True), data()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = spoil(x, y)
    calls = {
        "Mix": lambda: mm.Mix(mm.CutMix(k=2), 4)(x, y),
        "mixed_chunks": lambda: list(mm.mixed_chunks(model, mm.CutMix(k=2), x, y, num_classes=4)),
        "mixed_logits": lambda: mm.mixed_logits(model, mm.CutMix(k=2), x, y, num_classes=4),
    }
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        calls[call]()
    assert "\n" not in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "y", "options", "sentence"),
    [
        (
            nn.Linear(70, 1),
            torch.zeros(6, dtype=torch.long),
            {},
            r"at least 2 classes, got \[12, 1\]: pass y.float\(\) for real values",
        ),
        (nn.Sequential(nn.Linear(70, 1), nn.Flatten(0)), torch.arange(6), {}, r"at least 2 classes, got \[12\]"),
        (nn.Linear(70, 4), torch.rand(6, 3), {}, r"must have one shape, got \[12, 4\] and \[12, 3\]"),
        (nn.Linear(70, 4), torch.arange(6), {"num_classes": 9}, r"must have one shape, got \[12, 4\] and \[12, 9\]"),
        (nn.Linear(70, 1), torch.rand(6), {}, r"must have one shape, got \[12, 1\] and \[12\]"),
        (nn.Linear(70, 4), torch.arange(6).reshape(6, 1), {}, r"shape \[6, 1\] must be 0 or 1, got 0 … 5; y.squeeze\(1\)"),
        (nn.Linear(70, 4), torch.arange(18).reshape(6, 3), {}, r"shape \[6, 3\] must be 0 or 1, got 0 … 17"),
    ],
)
def test_labels_and_logits_that_do_not_fit(model, y, options, sentence):
    """Each of these once gave a loss without a word, some of them with inverted labels."""
    x = torch.randn(6, 70)
    with pytest.raises(ValueError, match=sentence):
        mm.mixed_logits(model, mm.InputMixup(k=2), x, y, **options)


def test_what_can_be_checked_is_checked_before_the_model_runs():
    model, (x, y) = network(norm=True), data()
    generator = seeded(3)
    before = generator.get_state()
    for bad, options in ((y - 1, {}), (y, {"smoothing": 2.0}), (y + 1, {"num_classes": 4})):
        with pytest.raises(ValueError, match="must"):
            mm.mixed_logits(model, mm.CutMix(k=2), x, bad, generator=generator, **options)
    assert int(model.norm.num_batches_tracked) == 0
    assert torch.equal(generator.get_state(), before)


def test_pair_and_path_can_be_given_and_typos_are_refused():
    model, (x, y) = network(), data()
    logits, target = mm.mixed_logits(model, mm.InputMixup(), x, y, partner=torch.arange(6).flip(0), lam=[0.25, 0.5])
    assert logits.shape == (12, 4)
    torch.testing.assert_close(target[0], 0.75 * torch.eye(4)[y[0]] + 0.25 * torch.eye(4)[y[5]])
    with pytest.raises(TypeError, match="InputMixup.plan takes no 'smothing'"):
        mm.mixed_logits(model, mm.InputMixup(), x, y, smothing=0.1)


def test_one_logit_with_float_labels():
    logits, target = mm.mixed_logits(nn.Linear(70, 1), mm.InputMixup(k=2), torch.randn(6, 70), torch.ones(6, 1))
    assert logits.shape == target.shape == (12, 1)
    torch.testing.assert_close(target, torch.ones(12, 1))


def test_tokens_are_mixed_after_the_embedding():
    model = nn.Sequential(OrderedDict(embedding=nn.Embedding(11, 8), flat=nn.Flatten(), out=nn.Linear(40, 3)))
    tokens = torch.randint(11, (4, 5))
    plan = mm.ManifoldMixup(k=2, layers=("embedding",)).plan(tokens, generator=seeded(0))
    expected = model.out(plan.mix(model.embedding(tokens)).flatten(1))
    torch.testing.assert_close(mm.mixed_forward(model, plan, tokens), expected)
    logits, _ = mm.mixed_logits(model, mm.ManifoldMixup(k=2, layers=("embedding",)), tokens, torch.arange(4) % 3)
    assert logits.shape == (8, 3)
    assert mm.mixed_logits(model, mm.NoMix(), tokens, torch.arange(4) % 3)[0].shape == (4, 3)
    with pytest.raises(ValueError, match="or mix at a hidden layer for indices such as tokens"):
        mm.mixed_logits(model, mm.ManifoldMixup(k=2, layers=(None, "embedding")), tokens, torch.arange(4) % 3)


def test_every_layer_is_checked_before_the_first_draw():
    model, (x, y) = network(), data()
    method = mm.OneOf((mm.InputMixup(), mm.ManifoldMixup(layers=(None, "act", "con"))), (0.99, 0.01))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"no layer 'con' \(did you mean 'conv'\?\); the model has before, conv"):
            mm.mixed_logits(model, method, x, y)


@pytest.mark.parametrize("method", ["cutmix", mm.CutMix, None])
def test_what_is_not_a_method(method):
    x, y = data()
    with pytest.raises(TypeError, match=r"method must be a mixing method such as CutMix\(k=5\), got"):
        mm.mixed_logits(network(), method, x, y)


def test_large_sums_are_not_mistaken_for_infinity():
    x = torch.full((2, 2, 5, 7), 6e4, dtype=torch.float16)
    assert mm.Mix(mm.InputMixup())(x, torch.rand(2))[0].shape == x.shape
