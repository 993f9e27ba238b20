"""mixed_forward and mixed_parts: any model, any method, one output object."""

import warnings
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import multimix as mm
from batches import batch
from multimix.losses import mixed_accuracy, soft_cross_entropy, softmax_bce
from multimix.methods.samix.block import NewBlock
from oracles import seeded
from salient import CLASSES, Network, Salient, images, labels, soft_labels

X, Y = images(), labels()


class Rows(nn.Module):
    """Identity that records how many rows it saw."""

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


class Flat(nn.Module):
    """Without batch statistics, so that parts must add up to the whole batch."""

    def __init__(self):
        super().__init__()
        self.seen = []
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Conv2d(2, 3, 3, padding=1)
            self.head = nn.Linear(3, CLASSES)

    def forward(self, x):
        self.seen.append(len(x))
        return self.head(torch.tanh(self.body(x)).flatten(2).mean(2))


# Hidden layers.


def test_hidden_mixing_equals_the_two_halves_by_hand():
    model = network()
    plan = mm.ManifoldMixup(k=3, layers=("act",)).plan(X, generator=seeded(1))
    hidden = model.act(model.conv(X))
    expected = []
    for k in range(3):
        for i in range(6):
            lam = float(plan.lam[k, i])
            expected.append((1 - lam) * hidden[i] + lam * hidden[plan.partner[i]])
    expected = model.head(torch.stack(expected).flatten(1))
    torch.testing.assert_close(mm.plans.run_plan(model, plan, X), expected)


def test_layers_before_the_mixing_layer_run_once_on_b_rows():
    model = network(norm=True)
    mm.mixed_forward(model, mm.ManifoldMixup(k=5, layers=("act",)), X, Y)
    assert model.before.seen == [6]
    assert model.after.seen == [30]
    assert int(model.norm.num_batches_tracked) == 1


def test_mixing_at_layer_none_is_input_mixup():
    method = mm.ManifoldMixup(k=3, alpha=1.0, layers=(None,))
    hidden = mm.mixed_forward(network(), method, X, Y, generator=seeded(2))
    plain = mm.mixed_forward(network(), mm.InputMixup(k=3), X, Y, generator=seeded(2))
    assert torch.equal(hidden.logits, plain.logits)
    assert torch.equal(hidden.target, plain.target)


def test_a_linear_tail_mixes_the_outputs():
    model = network()
    plan = mm.ManifoldMixup(k=4, layers=("flat",)).plan(X)
    mixed = mm.plans.run_plan(model, plan, X)
    torch.testing.assert_close(mixed, plan.mix(model(X)), atol=1e-5, rtol=1e-5)


def test_gradient_at_the_hidden_layer():
    """Row i receives Σ_k (1 − λ_k) g_{k,i}, and Σ_k λ_k g_{k,j} from every j whose partner it is."""
    model = network()
    plan = mm.ManifoldMixup(k=3, per_pair=True, layers=("act",)).plan(X, generator=seeded(3))
    stored = {}

    def store(name):
        def hook(module, args, result):
            result.retain_grad()
            stored[name] = result

        return hook

    # The hook on ReLU runs before the mixing hook; the hook on the next layer sees the mixture.
    model.act.register_forward_hook(store("hidden"))
    model.after.register_forward_hook(store("mixed"))
    mm.plans.run_plan(model, plan, X).square().sum().backward()
    incoming = stored["mixed"].grad.unflatten(0, (3, 6))
    expected = torch.zeros_like(stored["hidden"])
    for k in range(3):
        for i in range(6):
            lam = float(plan.lam[k, i])
            expected[i] += (1 - lam) * incoming[k, i]
            expected[plan.partner[i]] += lam * incoming[k, i]
    torch.testing.assert_close(stored["hidden"].grad, expected)


@pytest.mark.parametrize("layer", [None, "act"])
def test_bf16_autocast(layer):
    model, method = network(), mm.ManifoldMixup(k=5, layers=(layer,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = mm.mixed_forward(model, method, X, Y, generator=seeded(5))
        loss = out.loss(cross_entropy)
    loss.backward()
    assert out.logits.dtype == torch.bfloat16
    assert out.target.dtype == torch.float32
    exact = mm.mixed_forward(model, method, X, Y, generator=seeded(5)).logits
    torch.testing.assert_close(out.logits.float(), exact, atol=0.02, rtol=0.02)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_tokens_are_mixed_after_the_embedding():
    layers = OrderedDict(embedding=nn.Embedding(11, 8), flat=nn.Flatten(), out=nn.Linear(40, 3))
    model, tokens, y = nn.Sequential(layers), torch.randint(11, (4, 5)), torch.arange(4) % 3
    method = mm.ManifoldMixup(k=2, layers=("embedding",))
    plan = method.plan(tokens, generator=seeded(0))
    expected = model.out(plan.mix(model.embedding(tokens)).flatten(1))
    torch.testing.assert_close(mm.plans.run_plan(model, plan, tokens), expected)
    assert mm.mixed_forward(model, method, tokens, y).logits.shape == (8, 3)
    assert mm.mixed_forward(model, mm.NoMix(), tokens, y).logits.shape == (4, 3)
    with pytest.raises(ValueError, match="x must"):
        mm.mixed_forward(model, mm.ManifoldMixup(k=2, layers=(None, "embedding")), tokens, y)


# Labels and shapes.


@pytest.mark.parametrize("size", [1, 3])
def test_small_and_odd_batches(size):
    model = network()
    for method in (mm.CutMix(k=5), mm.ManifoldMixup(k=5, layers=("act", "conv"))):
        out = mm.mixed_forward(model, method, X[:size], Y[:size])
        assert out.logits.shape == out.target.shape == (5 * size, 4)
    if size == 1:
        torch.testing.assert_close(out.logits, model(X[:1]).expand(5, 4))


@pytest.mark.parametrize("method", [mm.InputMixup(k=3), mm.CutMix(k=3)])
def test_real_values_and_multi_hot(method):
    regressor = nn.Sequential(nn.Flatten(), nn.Linear(70, 1), nn.Flatten(0))
    out = mm.mixed_forward(regressor, method, X, torch.rand(6))
    assert out.logits.shape == out.target.shape == (18,)
    out = mm.mixed_forward(network(), method, X, (torch.rand(6, 4) > 0.5).long())
    assert out.logits.shape == out.target.shape == (18, 4)


def test_one_logit_with_float_labels():
    x = torch.randn(6, 70)
    out = mm.mixed_forward(nn.Linear(70, 1), mm.InputMixup(k=2), x, torch.ones(6, 1))
    assert out.logits.shape == (12, 1)
    torch.testing.assert_close(out.target, torch.ones(12, 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8])
def test_labels_of_every_integer_type(dtype):
    for method in (mm.InputMixup(k=2), mm.AttentiveMix(k=2)):
        out = mm.mixed_forward(Flat(), method, X, Y.to(dtype), generator=seeded(4))
        expected = mm.mixed_forward(Flat(), method, X, Y, generator=seeded(4))
        assert torch.equal(out.target, expected.target)
        assert torch.equal(out.logits, expected.logits)
    mixed = [mm.Mix(mm.CutMix(), 4, seed=1)(X, y)[1] for y in (Y, Y.to(dtype))]
    assert torch.equal(*mixed)


BAD_INPUT = [
    (lambda x, y: (x.byte(), y), "x must"),
    (lambda x, y: (x.to(torch.float8_e4m3fn), y), "x must"),
    (lambda x, y: (x.to_sparse(), y), "x must"),
    (lambda x, y: (x[:0], y[:0]), "x must"),
    (lambda x, y: (x.numpy(), y), "x must"),
    (lambda x, y: (x, y[:5]), "y must|x and y must"),
    (lambda x, y: (x, y.tolist()), "y must"),
    (lambda x, y: (x, y.to("meta")), "x and y must be on one device"),
    (lambda x, y: (x, y + 1), "class indices must"),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD_INPUT)
@pytest.mark.parametrize("call", ["mixed_forward", "mixed_parts", "Mix"])
def test_bad_input_raises_before_a_draw_or_a_pass(spoil, sentence, call):
    model, generator = network(norm=True), seeded(3)
    before, position = state_of(model), generator.get_state()
    x, y = spoil(X, Y)
    mix = mm.Mix(mm.CutMix(k=2), 4, seed=0)
    stream = mix.state_dict()["generator"]
    options = {"num_classes": 4, "generator": generator}
    calls = {
        "Mix": lambda: mix(x, y),
        "mixed_forward": lambda: mm.mixed_forward(model, mm.CutMix(k=2), x, y, **options),
        "mixed_parts": lambda: mm.mixed_parts(model, mm.CutMix(k=2), x, y, **options),
    }
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        calls[call]()
    assert "\n" not in str(error.value)
    assert is_unchanged(model, before)
    assert model.before.seen == []
    assert torch.equal(generator.get_state(), position)
    assert torch.equal(mix.state_dict()["generator"], stream)


@pytest.mark.parametrize(
    ("model", "y", "options", "sentence"),
    [
        (nn.Linear(70, 1), torch.zeros(6, dtype=torch.long), {}, r"y.float\(\)"),
        (nn.Sequential(nn.Linear(70, 1), nn.Flatten(0)), torch.arange(6), {}, "at least 2 classes"),
        (nn.Linear(70, 4), torch.rand(6, 3), {}, "logits and target must"),
        (nn.Linear(70, 4), torch.arange(6), {"num_classes": 9}, "logits and target must"),
        (nn.Linear(70, 1), torch.rand(6), {}, "logits and target must"),
        (nn.Linear(70, 4), torch.arange(6).reshape(6, 1), {}, r"y .*y.squeeze\(1\)"),
        (nn.Linear(70, 4), torch.arange(18).reshape(6, 3), {}, "y .*must be 0 or 1"),
    ],
)
def test_labels_and_logits_that_do_not_fit(model, y, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        mm.mixed_forward(model, mm.InputMixup(k=2), torch.randn(6, 70), y, **options)


@pytest.mark.parametrize(("y", "options"), [(Y - 1, {}), (Y, {"smoothing": 2.0}), (Y + 1, {"num_classes": 4})])
def test_labels_are_checked_before_the_model_runs(y, options):
    model, generator = network(), seeded(3)
    before = generator.get_state()
    with pytest.raises(ValueError, match="must"):
        mm.mixed_forward(model, mm.CutMix(k=2), X, y, generator=generator, **options)
    assert model.before.seen == []
    assert torch.equal(generator.get_state(), before)


def test_pair_and_path_can_be_passed_and_unknown_keywords_raise():
    partner = torch.arange(6).flip(0)
    out = mm.mixed_forward(network(), mm.InputMixup(), X, Y, partner=partner, lam=[0.25, 0.5])
    assert out.logits.shape == (12, 4)
    expected = 0.75 * torch.eye(4)[Y[0]] + 0.25 * torch.eye(4)[Y[5]]
    torch.testing.assert_close(out.target[0], expected)
    with pytest.raises(TypeError, match="InputMixup.plan takes no 'smothing'"):
        mm.mixed_forward(network(), mm.InputMixup(), X, Y, smothing=0.1)


def test_every_layer_is_checked_before_the_first_draw():
    several = (mm.InputMixup(), mm.ManifoldMixup(layers=(None, "act", "con")))
    method = mm.OneOf(several, (0.99, 0.01))
    for _ in range(3):
        with pytest.raises(ValueError, match="no layer 'con' .*'conv'"):
            mm.mixed_forward(network(), method, X, Y)


@pytest.mark.parametrize("method", ["cutmix", mm.CutMix, None])
@pytest.mark.parametrize("call", [mm.mixed_forward, mm.mixed_parts])
def test_what_is_not_a_method(method, call):
    with pytest.raises(TypeError, match=r"method must .* CutMix\(k=5\)"):
        call(network(), method, X, Y)


def test_a_model_must_be_callable():
    with pytest.raises(TypeError, match="model must"):
        mm.mixed_forward("model", mm.CutMix(), X, Y)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (nn.Conv2d(3, 3, 1), mm.CutMix(k=2)),
        (nn.Conv2d(3, 3, 1), mm.AttentiveMix()),
        (nn.Sequential(nn.Conv2d(3, 3, 1)), mm.ManifoldMixup(layers=("0",))),
    ],
)
def test_errors_of_the_model_become_a_mixing_error_with_their_text(model, method):
    with pytest.raises(mm.MixingError, match=r"\[2, 5, 7\].*Given groups=1"):
        mm.mixed_forward(model, method, X, Y)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_failing_model_is_a_mixing_error_in_every_pass_of_samix(fails_at):
    """Features and mixed batch of the slow copy, clean pass and mixed pass of the model."""

    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.calls, self.fails_at = nn.Conv2d(2, 3, 1), 0, None

        def forward(self, x):
            z = self.body(x)
            self.calls += 1
            if self.calls == self.fails_at:
                raise RuntimeError("raw error")
            return z.flatten(2).mean(2)

    model = Fails()
    method = mm.SAMix(block=NewBlock("body")).bind(model, X)
    encoder = method.block.encoder.copy
    net, call = {1: (encoder, 1), 2: (encoder, 2), 3: (model, 2)}[fails_at]
    net.calls, net.fails_at = 0, call
    model.calls = 0
    with pytest.raises(mm.MixingError, match="raw error") as raised:
        mm.mixed_forward(model, method, X, Y % 3)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert net.calls == call


def test_other_errors_of_the_model_keep_their_type():
    class OutOfMemoryError(RuntimeError):
        pass

    def full(x):
        raise OutOfMemoryError("no memory")

    with pytest.raises(OutOfMemoryError, match="no memory"):
        mm.mixed_forward(full, mm.InputMixup(), X, Y)


def test_nan_reaches_the_loss_and_is_not_searched_for():
    x = X.clone()
    x[1, 0, 2, 2] = torch.nan
    assert mm.mixed_forward(Flat(), mm.InputMixup(k=2), x, Y).loss().isnan()
    assert mm.Mix(mm.InputMixup(), 4)(x, Y)[0].isnan().any()


# Methods that ask the model.


def state_of(model):
    return [value.clone() for value in model.state_dict().values()]


def is_unchanged(model, before):
    now = model.state_dict().values()
    return all(torch.equal(new, old) for new, old in zip(now, before, strict=True))


@pytest.mark.parametrize("y", [labels(), soft_labels()], ids=["indices", "soft"])
def test_saliency_comes_from_the_model(y):
    model, method = Network(dropout=0), Salient(k=3)
    plan = method.plan(X, saliency=mm.input_saliency(model, X, y), generator=seeded(1))
    target = plan.mix_target(y, CLASSES if y.ndim == 1 else None)
    expected = model(plan.mix(X))
    model = Network(dropout=0)
    out = mm.mixed_forward(model, method, X, y, generator=seeded(1))
    torch.testing.assert_close(out.logits, expected)
    assert torch.equal(out.target, target)
    assert model.seen == [(6, False), (18, True)], "one pass on the clean batch, one on the mixed"
    model = Network(dropout=0)
    parts = list(mm.mixed_parts(model, method, X, y, generator=seeded(1)))
    assert torch.equal(torch.cat([part.target for part in parts]), target)
    assert model.seen == [(6, False)] + [(6, True)] * 3


def test_smoothing_and_num_classes_do_not_reach_the_saliency():
    model, options = Network(dropout=0), {"num_classes": CLASSES, "smoothing": 0.3}
    plan = Salient(k=2).plan(X, saliency=mm.input_saliency(model, X, Y), generator=seeded(1))
    out = mm.mixed_forward(model, Salient(k=2), X, Y, generator=seeded(1), **options)
    assert torch.equal(out.target, plan.mix_target(Y, CLASSES, 0.3))


def test_methods_without_needs_do_not_run_the_model_on_the_clean_batch():
    model, generator, twin = Network(), seeded(2), seeded(2)
    mm.mixed_forward(model, mm.CutMix(k=2, p=0.9), X, Y, generator=generator)
    plan = mm.CutMix(k=2, p=0.9).plan(X, generator=twin)
    assert model.seen == [(plan.k * 6, True)]
    assert torch.equal(generator.get_state(), twin.get_state())


@pytest.mark.parametrize(
    "method",
    [
        Salient(k=2, p=0.5),
        mm.OneOf((mm.InputMixup(k=1), Salient(k=2)), (0.4, 0.4)),
        mm.OneOf((Salient(k=2, p=0.5), mm.NoMix())),
    ],
    ids=["p", "one of", "one of p"],
)
def test_only_the_method_that_was_drawn_uses_the_model(method):
    """Which method mixes is drawn before the model runs, so the stream is that of ``plan``."""
    model, generator, twin = Network(), seeded(3), seeded(3)
    row_counts = set()
    for _ in range(40):
        model.seen.clear()
        out = mm.mixed_forward(model, method, X, Y, generator=generator)
        plan = method.plan(X, saliency=torch.ones(6, 5, 7), generator=twin)
        assert torch.equal(generator.get_state(), twin.get_state())
        rows = plan.k * 6
        assert len(out.logits) == rows
        row_counts.add(rows)
        assert model.seen == ([(6, False)] if rows == 12 else []) + [(rows, True)]
    assert row_counts == {6, 12}


def test_a_map_that_is_passed_is_used():
    model, saliency = Network(), torch.rand(6, 5, 7, generator=seeded(4))
    out = mm.mixed_forward(model, Salient(k=2), X, Y, generator=seeded(1), saliency=saliency)
    assert model.seen == [(12, True)]
    plan = Salient(k=2).plan(X, saliency=saliency, generator=seeded(1))
    assert torch.equal(out.target, plan.mix_target(Y, CLASSES))
    several = mm.OneOf((mm.InputMixup(), Salient()))
    for seed in range(4):
        mm.mixed_forward(model, several, X, Y, saliency=saliency, generator=seeded(seed))


@pytest.mark.parametrize("call", [mm.mixed_forward, mm.mixed_parts])
def test_unknown_keywords_raise_before_a_draw_or_a_pass(call):
    model, generator = Network(), seeded(0)
    before, position = state_of(model), generator.get_state()
    with pytest.raises(TypeError, match="Salient.plan takes no 'salience'.* saliency, partner, lam"):
        call(model, Salient(p=0.5), X, Y, generator=generator, salience=torch.ones(6, 5, 7))
    assert model.seen == []
    assert is_unchanged(model, before)
    assert torch.equal(generator.get_state(), position)


@dataclass(frozen=True, kw_only=True)
class Demanding(Salient):
    @property
    def traits(self):
        return super().traits._replace(needs=("saliency", "depth"))


def test_needs_that_no_model_can_compute_must_be_passed():
    model = Network()
    with pytest.raises(TypeError, match="Demanding.plan needs depth="):
        mm.mixed_forward(model, Demanding(), X, Y)
    assert model.seen == []
    with pytest.raises(TypeError, match="Salient.plan needs saliency="):
        Salient().plan(X)


def test_inputs_computes_only_what_is_missing():
    model = Network()
    assert mm.CutMix().inputs(batch(model, X, Y)) == {}
    assert Salient().inputs(batch(model, X, Y, saliency=X[:, 0])) == {}
    assert model.seen == []
    assert list(Salient().inputs(batch(model, X, Y))) == ["saliency"]
    inputs = Salient(clean_weight=0.1).inputs(batch(model, X, Y, saliency=X[:, 0]))
    assert list(inputs) == ["clean_logits"]
    assert inputs["clean_logits"].requires_grad


def test_draws_stay_on_the_cpu_while_the_model_uses_the_default_device():
    class Asks(Network):
        def forward(self, x):
            self.device = torch.empty(0).device.type  # get_default_device of torch 2.6 misses it
            return super().forward(x)

    model = Asks().eval()
    for method in (Salient(k=2, p=0.9), Salient(k=2)):
        with torch.device("meta"):
            out = mm.mixed_forward(model, method, X, Y, generator=seeded(1))
        assert model.device == "meta"
        assert out.logits.device.type == out.target.device.type == "cpu"
        again = mm.mixed_forward(model, method, X, Y, generator=seeded(1))
        assert torch.equal(out.target, again.target)


# The loss, and the terms that methods add.


def test_without_own_terms_the_loss_is_the_criterion():
    model = Network(dropout=0).eval()
    for method in (mm.CutMix(k=3), Salient(k=3), mm.NoMix()):
        out = mm.mixed_forward(model, method, X, Y, generator=seeded(1))
        torch.testing.assert_close(out.loss(), cross_entropy(out.logits, out.target))
        torch.testing.assert_close(out.loss(softmax_bce), softmax_bce(out.logits, out.target))


def test_a_method_with_a_clean_weight_declares_it():
    assert mm.CutMix().traits.own_loss is None
    assert "0.5" in Salient(clean_weight=0.5).traits.own_loss
    assert "0.2" in mm.OneOf((mm.CutMix(), Salient(clean_weight=0.2))).traits.own_loss
    with pytest.raises(ValueError, match="^clean_weight must"):
        Salient(clean_weight=-1)
    with pytest.raises(ValueError, match="^clean_scale must"):
        Salient(clean_scale="auto")


@pytest.mark.parametrize("given", [False, True], ids=["computed", "passed"])
@pytest.mark.parametrize("y", [labels(), soft_labels()], ids=["indices", "soft"])
@pytest.mark.parametrize(
    ("scale", "criterion", "factor"),
    [
        ("plain", soft_cross_entropy, 1),
        ("per_class", softmax_bce, 2 / CLASSES),
        ("per_class", soft_cross_entropy, 2 / CLASSES),
        ("plain", softmax_bce, 1),
    ],
)
def test_the_clean_term_by_hand(scale, criterion, factor, y, given):
    """Gradients against the written sum: the clean term once, not K times, on unsmoothed labels."""
    method = Salient(k=3, clean_weight=0.7, clean_scale=scale)
    model, twin = Network(dropout=0), Network(dropout=0)
    saliency = torch.rand(6, 5, 7, generator=seeded(5))
    options = {"smoothing": 0.1, "num_classes": CLASSES, "generator": seeded(1)}
    if given:
        options["saliency"] = saliency
    total = mm.mixed_forward(model, method, X, y, **options).loss(criterion)
    total.backward()

    rows = one_hot(y, CLASSES).float() if y.ndim == 1 else y
    leaf = X.clone().requires_grad_()
    clean = -(rows * twin(leaf).log_softmax(1)).sum(1).mean()
    if not given:
        gradient = torch.autograd.grad(clean, leaf, retain_graph=True)[0]
        saliency = gradient.square().mean(1).sqrt()
    plan = Salient(k=3).plan(X, saliency=saliency, generator=seeded(1))
    target = 0.9 * plan.mix_target(rows) + 0.1 / CLASSES
    expected = criterion(twin(plan.mix(X)), target) + 0.7 * factor * clean
    expected.backward()
    torch.testing.assert_close(total, expected)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert model.seen == [(6, True), (18, True)]


def test_the_loss_of_sage_includes_its_clean_share():
    model, method = Flat(), mm.SAGE(k=2, update_ratio=0.25)
    out = mm.mixed_forward(model, method, X, Y, generator=seeded(1))
    expected = 0.25 * cross_entropy(out.logits, out.target) + 0.75 * cross_entropy(model(X), Y)
    torch.testing.assert_close(out.loss(), expected)


def test_the_loss_of_recursive_mix_includes_its_consistency_term():
    model, method = Flat(), mm.RecursiveMix(k=2, features="body", head="head")
    first = mm.mixed_forward(model, method, X, Y, generator=seeded(1), state=None)
    assert torch.equal(first.loss(), soft_cross_entropy(first.logits, first.target)), "no history yet"
    out = mm.mixed_forward(model, method, X, Y, generator=seeded(2), state=first.state)
    term = method.consistency(model, out.plan, model.body(out.plan.mix(X)))
    assert float(term.detach()) > 0.01
    expected = cross_entropy(out.logits, out.target) + term
    torch.testing.assert_close(out.loss(cross_entropy), expected)


@pytest.mark.parametrize(("weight", "updates"), [(0.0, 1), (1.0, 2)])
def test_batch_norm_sees_the_clean_batch_only_for_its_loss(weight, updates):
    model = Network()
    mm.mixed_forward(model, Salient(k=4, clean_weight=weight), X, Y)
    assert int(model.norm.num_batches_tracked) == updates


def test_a_batch_that_stays_unmixed_has_no_clean_term():
    model = Network(dropout=0)
    total = mm.mixed_forward(model, Salient(k=3, p=0.0, clean_weight=1.0), X, Y).loss()
    assert model.seen == [(6, True)]
    torch.testing.assert_close(total, cross_entropy(Network(dropout=0)(X), Y))


@torch.no_grad()
def test_one_of_takes_the_weight_of_the_method_drawn():
    """At λ = 0 nothing is mixed: the loss is 1 + clean_weight times that of the clean batch."""
    scaled = Salient(clean_weight=2.0, clean_scale="per_class")
    method = mm.OneOf((mm.InputMixup(), Salient(clean_weight=0.5), scaled))
    clean = cross_entropy(Network(dropout=0)(X), Y)
    ratios = set()
    for seed in range(9):
        model = Network(dropout=0)
        out = mm.mixed_forward(model, method, X, Y, lam=[0.0], generator=seeded(seed))
        ratios.add(round(float(out.loss() / clean), 4))
    assert ratios == {1.0, 1.5, 1 + 2 * 2.0 / CLASSES}


def test_no_graph_is_kept_without_gradients():
    with torch.no_grad():
        out = mm.mixed_forward(Network(), Salient(clean_weight=1.0), X, Y)
        assert not out.loss().requires_grad


def test_autocast_and_a_clean_term():
    model, twin, method = Network(dropout=0), Network(dropout=0), Salient(k=2, clean_weight=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = mm.mixed_forward(model, method, X, Y, generator=seeded(1)).loss()
    total.backward()
    exact = mm.mixed_forward(twin, method, X, Y, generator=seeded(1)).loss()
    exact.backward()
    torch.testing.assert_close(total.float(), exact, atol=0.05, rtol=0.05)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=0.05, rtol=0.2)


@pytest.mark.parametrize("method", [mm.CutMix(k=2), Salient(clean_weight=1.0, clean_scale="loss")])
def test_a_criterion_must_return_a_scalar(method):
    out = mm.mixed_forward(Network(), method, X, Y)
    with pytest.raises(ValueError, match="criterion must return a scalar"):
        out.loss(nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(ValueError, match="criterion must return a scalar"):
        out.loss(lambda logits, target: 1.0)
    with pytest.raises(TypeError, match="criterion must be a function"):
        out.loss("cross_entropy")


HAS_TERMS = {
    "clean loss": lambda: mm.mixed_forward(Flat(), Salient(clean_weight=1.0), X, Y),
    "part": lambda: next(mm.mixed_parts(Flat(), Salient(k=2, clean_weight=1.0), X, Y)),
    "sage": lambda: mm.mixed_forward(Flat(), mm.SAGE(update_ratio=0.5), X, Y),
    "recursive": lambda: mm.mixed_forward(Flat(), mm.RecursiveMix(k=2, features="body", head="head"), X, Y, state=None),
}


@pytest.mark.parametrize("make", HAS_TERMS.values(), ids=HAS_TERMS)
def test_reading_logits_without_the_loss_warns_once(make, monkeypatch):
    monkeypatch.setattr(mm.MixedOutput, "_has_warned", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert make().logits.requires_grad
    assert len(caught) == 1
    assert "out.loss(criterion)" in str(caught[0].message)


@pytest.mark.parametrize("make", HAS_TERMS.values(), ids=HAS_TERMS)
def test_nothing_warns_where_the_loss_is_used_or_logits_are_not(make, monkeypatch):
    monkeypatch.setattr(mm.MixedOutput, "_has_warned", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for use in (
            lambda out: (out.logits, out.loss()),
            lambda out: (out.accuracy(), out.target, out.plan, repr(out)),
        ):
            use(make())
        with torch.no_grad():  # a measurement, not a training step
            assert make().logits.numel() > 0
        for method in (mm.CutMix(), Salient(p=0.0, clean_weight=1.0)):
            assert mm.mixed_forward(Flat(), method, X, Y).logits.requires_grad
    assert [str(warning.message) for warning in caught] == []


def test_a_state_of_another_form_raises():
    for state, error in ((3, TypeError), ({"foo": X}, ValueError)):
        with pytest.raises(error, match="state must"):
            mm.mixed_forward(Flat(), mm.RecursiveMix(), X, Y, state=state)


def test_accuracy_is_the_target_mass_on_the_prediction():
    out = mm.mixed_forward(Flat(), mm.InputMixup(k=3, per_pair=True), X, Y)
    expected = 0.0
    for k in range(3):
        for i in range(6):
            guess, lam = int(out.logits[6 * k + i].argmax()), float(out.plan.lam[k, i])
            partner = int(Y[out.plan.partner[i]])
            expected += (1 - lam) * (guess == int(Y[i])) + lam * (guess == partner)
    assert float(out.accuracy()) == pytest.approx(expected / 18)
    assert torch.equal(out.accuracy(), mixed_accuracy(out.logits, out.target))
    assert not out.accuracy().requires_grad


def test_the_plan_of_an_output_can_be_applied_again():
    out = mm.mixed_forward(model := Flat(), mm.CutMix(k=3), X, Y)
    assert torch.equal(model(out.plan.mix(X)), out.logits)
    assert torch.equal(out.plan.mix_target(Y, CLASSES), out.target)
    assert repr(out) == "MixedOutput(BoxPlan(k=3, batch=6, size=[5, 7]), logits=[18, 4])"


# Parts.


def test_parts_differ_from_one_pass_only_under_batch_statistics():
    model, method = network(norm=True), mm.InputMixup(k=4)

    def logits():
        whole = mm.mixed_forward(model, method, X, Y, generator=seeded(4)).logits
        parts = mm.mixed_parts(model, method, X, Y, generator=seeded(4))
        return whole, torch.cat([part.logits for part in parts])

    whole, parts = logits()
    assert not torch.allclose(whole, parts)
    model.eval()
    torch.testing.assert_close(*logits())


PARTED = {
    "clean loss": Salient(k=5, clean_weight=0.7, clean_scale="per_class"),
    "criterion on clean": Salient(k=5, clean_weight=0.7, clean_scale="loss"),
    "sage": mm.SAGE(k=5, update_ratio=0.3),
    "recursive": mm.RecursiveMix(k=5, features="body", head="head"),
    "hidden": mm.ManifoldMixup(k=5, layers=("body",)),
    "plain": mm.CutMix(k=5),
}


@pytest.mark.parametrize("criterion", [soft_cross_entropy, softmax_bce])
@pytest.mark.parametrize("steps", [1, 2, 5, 7, None])
@pytest.mark.parametrize("name", PARTED)
def test_part_losses_and_gradients_sum_to_those_of_the_batch(name, criterion, steps):
    method, history = PARTED[name], None
    if name == "recursive":
        history = mm.mixed_forward(Flat(), method, X.flip(0), Y.flip(0), state=None).state
    options = {"smoothing": 0.1, "state": history}
    whole, parted = Flat(), Flat()
    out = mm.mixed_forward(whole, method, X, Y, generator=seeded(4), **options)
    out.loss(criterion).backward()
    parts = mm.mixed_parts(parted, method, X, Y, steps=steps, generator=seeded(4), **options)
    before = list(parted.seen)
    assert before in ([], [6]), "at most the clean pass has run"
    rows = {1: [6] * 5, 2: [12, 12, 6]}.get(steps, [30])
    assert len(parts) == len(rows)
    total = 0.0
    for i, part in enumerate(parts):
        seen = parted.seen[len(before) :]
        if name != "hidden":
            assert seen == rows[: i + 1], "a part runs when it is reached, and not before"
        assert len(seen) == i + 1
        assert len(part.logits) == len(part.target) == rows[i]
        value = part.loss(criterion)
        value.backward()
        total += float(value.detach())
    assert len(parts) == i + 1
    assert total == pytest.approx(float(out.loss(criterion).detach()), rel=1e-5)
    for ours, theirs in zip(parted.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-4)


def test_parts_end_and_do_not_start_again():
    parts = mm.mixed_parts(model := Flat(), mm.CutMix(k=3), X, Y, steps=2)
    assert [part.plan.k for part in parts] == [2, 1]
    assert list(parts) == []
    assert model.seen == [12, 6]


def test_parts_of_an_unmixed_batch_are_one():
    (part,) = mm.mixed_parts(Flat(), mm.CutMix(k=5, p=0.0), X, Y, steps=1)
    assert torch.equal(part.target.argmax(1), Y)
    torch.testing.assert_close(part.loss(), cross_entropy(Flat()(X), Y))
    for steps in (0, 1.5):
        with pytest.raises(ValueError, match="steps must"):
            mm.mixed_parts(Flat(), mm.CutMix(k=5), X, Y, steps=steps)


# The state of methods that mix with the previous batch.


def test_most_methods_have_an_empty_state():
    out = mm.mixed_forward(Flat(), mm.CutMix(k=2), X, Y)
    assert dict(out.state) == {}
    again = mm.mixed_forward(Flat(), mm.CutMix(k=2), X, Y, state=out.state)
    assert len(again.logits) == 12


@pytest.mark.parametrize("steps", [1, None])
def test_the_state_is_the_last_batch_and_reaches_the_next(steps):
    method, model = mm.RecursiveMix(k=3), Flat()
    first = mm.mixed_forward(model, method, X, Y, state=None)
    assert len(first.logits) == 6, "the first batch stays unmixed"
    assert torch.equal(first.state["history_x"], X)
    assert torch.equal(first.state["history_logits"], first.logits)
    assert not any(value.requires_grad for value in first.state.values())
    options = {"generator": seeded(1), "state": first.state}
    *_, last = mm.mixed_parts(model, method, X.flip(0), Y.flip(0), steps=steps, **options)
    (step,) = method.plan(X.flip(0), generator=seeded(1), **first.state).history_steps
    out = mm.mixed_forward(model, method, X.flip(0), Y.flip(0), generator=seeded(1), state=first.state)
    rows = slice(6 * step, 6 * step + 6)
    torch.testing.assert_close(last.state["history_x"], out.plan.mix(X.flip(0))[rows])
    torch.testing.assert_close(last.state["history_target"], out.target[rows])
    torch.testing.assert_close(last.state["history_logits"], out.logits[rows].detach())


def test_the_state_outlives_batches_of_other_methods():
    model, several = Flat(), mm.OneOf((mm.RecursiveMix(k=2), mm.CutMix()), (0.4, 0.3))
    generator, state, mixed = seeded(0), None, 0
    for _ in range(40):
        out = mm.mixed_forward(model, several, X, Y, generator=generator, state=state)
        is_first = not state and len(out.logits) == len(X)
        assert set(out.state) == {"history_x", "history_target", "history_logits"} or is_first
        mixed += len(out.logits) == 2 * len(X)
        state = out.state
    # RecursiveMix is drawn 16 times on average, and mixes all but its first batch.
    assert 8 <= mixed <= 25


def test_a_missing_state_raises_and_none_begins():
    model, method = Flat(), mm.RecursiveMix(k=3)
    for call in (mm.mixed_forward, mm.mixed_parts):
        with pytest.raises(ValueError, match="state=None"):
            call(model, method, X, Y)
        call(model, method, X, Y, state=None)
        call(model, method, X, Y, history_x=None)
    mix = mm.Mix(method, CLASSES)
    with pytest.raises(ValueError, match="mixed_forward"):
        mix(X, Y)
    mix(X, Y, history_x=None)
