"""Methods that ask the model: when it is asked, what it is asked, and the clean loss beside the mixed one."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import multimix as mm
from batches import batch
from oracles import seeded
from salient import CLASSES, Network, Salient, images, labels, soft_labels

X, Y = images(), labels()


def state(model):
    return [value.clone() for value in model.state_dict().values()]


def unchanged(model, before):
    return all(torch.equal(now, then) for now, then in zip(model.state_dict().values(), before, strict=True))


@pytest.mark.parametrize("y", [labels(), soft_labels()], ids=["indices", "soft"])
def test_saliency_comes_from_the_model(y):
    model, method = Network(dropout=0), Salient(k=3)
    plan = method.plan(X, saliency=mm.input_saliency(model, X, y), generator=seeded(1))
    target = plan.mix_target(y, CLASSES if y.ndim == 1 else None)
    expected = model(plan.mix(X))
    model = Network(dropout=0)
    logits, found = mm.mixed_logits(model, method, X, y, generator=seeded(1))
    torch.testing.assert_close(logits, expected)
    assert torch.equal(found, target)
    assert model.seen == [(6, False), (18, True)], "one pass on the clean batch, one on the mixed"
    model = Network(dropout=0)
    parts = list(mm.mixed_chunks(model, method, X, y, generator=seeded(1)))
    assert torch.equal(torch.cat([part for _, part, _ in parts]), target)
    assert model.seen == [(6, False)] + [(6, True)] * 3


def test_smoothing_and_num_classes_do_not_reach_the_saliency():
    model = Network(dropout=0)
    plan = Salient(k=2).plan(X, saliency=mm.input_saliency(model, X, Y), generator=seeded(1))
    _, target = mm.mixed_logits(model, Salient(k=2), X, Y, num_classes=CLASSES, smoothing=0.3, generator=seeded(1))
    assert torch.equal(target, plan.mix_target(Y, CLASSES, 0.3))


@pytest.mark.parametrize("call", [mm.mixed_logits, mm.mixed_loss])
def test_methods_without_needs_ask_nothing(call):
    model, generator, twin = Network(), seeded(2), seeded(2)
    call(model, mm.CutMix(k=2, p=0.9), X, Y, generator=generator)
    plan = mm.CutMix(k=2, p=0.9).plan(X, generator=twin)
    assert model.seen == [(plan.k * 6, True)]
    assert torch.equal(generator.get_state(), twin.get_state())


@pytest.mark.parametrize(
    "method",
    [Salient(k=2, p=0.5), mm.OneOf((mm.InputMixup(k=1), Salient(k=2)), (0.4, 0.4)), mm.OneOf((Salient(k=2, p=0.5), mm.NoMix()))],
    ids=["p", "one of", "one of p"],
)
def test_only_a_method_that_was_drawn_is_asked_for(method):
    """The coins are thrown once, before the model is asked, so that the stream is that of ``plan``."""
    model, generator, twin = Network(), seeded(3), seeded(3)
    kinds = set()
    for _ in range(40):
        model.seen.clear()
        logits, _ = mm.mixed_logits(model, method, X, Y, generator=generator)
        plan = method.plan(X, saliency=torch.ones(6, 5, 7), generator=twin)
        assert torch.equal(generator.get_state(), twin.get_state())
        rows = plan.k * 6
        assert len(logits) == rows
        kinds.add(rows)
        assert model.seen == ([(6, False)] if rows == 12 else []) + [(rows, True)]
    assert kinds == {6, 12}


def test_a_map_that_is_handed_in_is_used():
    model, saliency = Network(), torch.rand(6, 5, 7, generator=seeded(4))
    _, target = mm.mixed_logits(model, Salient(k=2), X, Y, generator=seeded(1), saliency=saliency)
    assert model.seen == [(12, True)]
    assert torch.equal(target, Salient(k=2).plan(X, saliency=saliency, generator=seeded(1)).mix_target(Y, CLASSES))
    mixed = mm.OneOf((mm.InputMixup(), Salient()))
    for seed in range(4):
        mm.mixed_logits(model, mixed, X, Y, saliency=saliency, generator=seeded(seed))


@pytest.mark.parametrize("call", [mm.mixed_logits, mm.mixed_loss, lambda *a, **k: list(mm.mixed_chunks(*a, **k))])
def test_unknown_keywords_are_refused_before_a_draw_or_a_pass(call):
    model, generator = Network(), seeded(0)
    before, drawn = state(model), generator.get_state()
    with pytest.raises(TypeError, match="Salient.plan takes no 'salience'; it takes saliency, partner, lam"):
        call(model, Salient(p=0.5), X, Y, generator=generator, salience=torch.ones(6, 5, 7))
    assert model.seen == []
    assert unchanged(model, before)
    assert torch.equal(generator.get_state(), drawn)


@dataclass(frozen=True, kw_only=True)
class Demanding(Salient):
    @property
    def traits(self):
        return super().traits._replace(needs=("saliency", "depth"))


def test_what_no_model_can_tell_is_asked_of_the_caller():
    model = Network()
    for call in (lambda: mm.mixed_logits(model, Demanding(), X, Y), lambda: mm.mixed_loss(model, Demanding(), X, Y)):
        with pytest.raises(TypeError, match="Demanding.plan needs depth="):
            call()
    assert model.seen == []
    with pytest.raises(TypeError, match="Salient.plan needs saliency="):
        Salient().plan(X)


def test_inputs_asks_only_for_what_is_missing():
    model = Network()
    assert mm.CutMix().inputs(batch(model, X, Y)) == {}
    assert Salient().inputs(batch(model, X, Y, saliency=X[:, 0])) == {}
    assert model.seen == []
    assert list(Salient().inputs(batch(model, X, Y))) == ["saliency"]
    told = Salient(clean_weight=0.1).inputs(batch(model, X, Y, saliency=X[:, 0]))
    assert told["clean"].loss.requires_grad
    assert told["clean"].logits.requires_grad


def test_a_method_with_a_clean_weight_says_so():
    assert mm.CutMix().traits.own_loss is None
    assert Salient(clean_weight=0.5).traits.own_loss == "adds a clean loss of weight 0.5"
    assert mm.OneOf((mm.CutMix(), Salient(clean_weight=0.2))).traits.own_loss == "adds a clean loss of weight 0.2"
    with pytest.raises(ValueError, match="^clean_weight must be finite and at least 0, got -1"):
        Salient(clean_weight=-1)
    with pytest.raises(ValueError, match="^no clean_scale 'auto'; there are plain, per_class, loss"):
        Salient(clean_scale="auto")


@pytest.mark.parametrize("method", [Salient(clean_weight=1.0), mm.OneOf((mm.CutMix(), Salient(clean_weight=1.0)), (0.9, 0.1))])
def test_a_clean_loss_that_would_be_lost_is_refused(method):
    model = Network()
    for where, call in {
        "mixed_logits": lambda: mm.mixed_logits(model, method, X, Y),
        "mixed_chunks": lambda: list(mm.mixed_chunks(model, method, X, Y)),
        "Mix": lambda: mm.Mix(method, CLASSES, model=model),
    }.items():
        with pytest.raises(ValueError, match=f"adds a clean loss of weight 1, which {where} cannot hand out: use mixed_loss"):
            call()
    assert model.seen == []


@pytest.mark.parametrize("given", [False, True], ids=["asked", "handed in"])
@pytest.mark.parametrize("y", [labels(), soft_labels()], ids=["indices", "soft"])
@pytest.mark.parametrize(
    ("scale", "loss", "factor"),
    [
        ("plain", mm.soft_cross_entropy, 1),
        ("per_class", mm.softmax_bce, 2 / CLASSES),
        ("per_class", mm.soft_cross_entropy, 2 / CLASSES),
        ("plain", mm.softmax_bce, 1),
    ],
)
def test_the_clean_term_by_hand(scale, loss, factor, y, given):
    """Gradients against the sum written out: the clean term once, not K times, on unsmoothed labels."""
    method = Salient(k=3, clean_weight=0.7, clean_scale=scale)
    model, twin = Network(dropout=0), Network(dropout=0)
    saliency = torch.rand(6, 5, 7, generator=seeded(5))
    handed = {"saliency": saliency} if given else {}
    total = mm.mixed_loss(model, method, X, y, loss=loss, smoothing=0.1, num_classes=CLASSES, generator=seeded(1), **handed)
    total.backward()

    rows = one_hot(y, CLASSES).float() if y.ndim == 1 else y
    leaf = X.clone().requires_grad_()
    clean = -(rows * twin(leaf).log_softmax(1)).sum(1).mean()
    if not given:
        saliency = torch.autograd.grad(clean, leaf, retain_graph=True)[0].square().mean(1).sqrt()
    plan = Salient(k=3).plan(X, saliency=saliency, generator=seeded(1))
    expected = loss(twin(plan.mix(X)), 0.9 * plan.mix_target(rows) + 0.1 / CLASSES) + 0.7 * factor * clean
    expected.backward()
    torch.testing.assert_close(total, expected)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert model.seen == [(6, True), (18, True)]


@pytest.mark.parametrize(("weight", "updates"), [(0.0, 1), (1.0, 2)])
def test_batch_norm_sees_the_clean_batch_only_for_its_loss(weight, updates):
    model = Network()
    mm.mixed_loss(model, Salient(k=4, clean_weight=weight), X, Y)
    assert int(model.norm.num_batches_tracked) == updates


def test_without_a_clean_weight_it_is_the_loss_of_mixed_logits():
    model = Network(dropout=0).eval()
    for method in (mm.CutMix(k=3), Salient(k=3), mm.NoMix()):
        total = mm.mixed_loss(model, method, X, Y, generator=seeded(1))
        torch.testing.assert_close(total, cross_entropy(*mm.mixed_logits(model, method, X, Y, generator=seeded(1))))


def test_a_batch_that_stays_unmixed_has_no_clean_term():
    model = Network(dropout=0)
    total = mm.mixed_loss(model, Salient(k=3, p=0.0, clean_weight=1.0), X, Y)
    assert model.seen == [(6, True)]
    torch.testing.assert_close(total, cross_entropy(Network(dropout=0)(X), Y))


@torch.no_grad()
def test_one_of_takes_the_weight_of_the_method_drawn():
    """At λ = 0 nothing is mixed, so that the loss is 1 + clean_weight times that of the clean batch."""
    method = mm.OneOf((mm.InputMixup(), Salient(clean_weight=0.5), Salient(clean_weight=2.0, clean_scale="per_class")))
    clean = cross_entropy(Network(dropout=0)(X), Y)
    ratios = {
        round(float(mm.mixed_loss(Network(dropout=0), method, X, Y, lam=[0.0], generator=seeded(s)) / clean), 4) for s in range(9)
    }
    assert ratios == {1.0, 1.5, 1 + 2 * 2.0 / CLASSES}


def test_no_graph_is_left_without_gradients():
    with torch.no_grad():
        assert not mm.mixed_loss(Network(), Salient(clean_weight=1.0), X, Y).requires_grad


def test_a_loss_must_be_one_number():
    with pytest.raises(ValueError, match=r"loss must give one number as a tensor, got shape \[12\]"):
        mm.mixed_loss(Network(), mm.CutMix(k=2), X, Y, loss=nn.CrossEntropyLoss(reduction="none"))


def test_draws_stay_on_the_cpu_while_the_model_uses_the_default_device():
    class Asks(Network):
        def forward(self, x):
            self.device = torch.empty(0).device.type  # torch 2.6 does not tell in another way
            return super().forward(x)

    model = Asks().eval()
    for method in (Salient(k=2, p=0.9), Salient(k=2)):
        with torch.device("meta"):
            logits, target = mm.mixed_logits(model, method, X, Y, generator=seeded(1))
        assert model.device == "meta"
        assert logits.device.type == target.device.type == "cpu"
        assert torch.equal(target, mm.mixed_logits(model, method, X, Y, generator=seeded(1))[1])


def test_autocast_and_a_clean_term():
    model, twin = Network(dropout=0), Network(dropout=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = mm.mixed_loss(model, Salient(k=2, clean_weight=1.0), X, Y, generator=seeded(1))
    total.backward()
    exact = mm.mixed_loss(twin, Salient(k=2, clean_weight=1.0), X, Y, generator=seeded(1))
    exact.backward()
    torch.testing.assert_close(total.float(), exact, atol=0.05, rtol=0.05)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=0.05, rtol=0.2)


class Plain(nn.Module):
    """Rows do not know each other, so that chunks must add up to the whole."""

    def __init__(self):
        super().__init__()
        self.seen = []
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.head = nn.Linear(2 * 5 * 7, CLASSES)

    def forward(self, x):
        self.seen.append(len(x))
        return self.head(x.flatten(1))


@pytest.mark.parametrize("loss", [mm.soft_cross_entropy, mm.softmax_bce])
@pytest.mark.parametrize("steps", [1, 2, 5, 7, None])
def test_terms_add_up_to_the_loss_with_its_clean_part(loss, steps):
    method = Salient(k=5, clean_weight=0.7, clean_scale="per_class")
    whole, parts = Plain(), Plain()
    mm.mixed_loss(whole, method, X, Y, loss=loss, smoothing=0.1, generator=seeded(4)).backward()
    terms = mm.mixed_terms(parts, method, X, Y, loss=loss, smoothing=0.1, steps=steps, generator=seeded(4))
    assert parts.seen == [6], "nothing but the clean pass runs before a term is called"
    assert len(terms) == (1 if steps is None else -(-5 // steps))
    rows = []
    for term in terms:
        value, logits, target, _ = term()
        assert logits.shape == target.shape
        rows.append(len(logits) // 6)
        value.backward()
    assert rows == {1: [1] * 5, 2: [2, 2, 1]}.get(steps, [5])
    torch.testing.assert_close(parts.head.weight.grad, whole.head.weight.grad)


def test_terms_of_an_unmixed_batch_are_one():
    (term,) = mm.mixed_terms(Plain(), mm.CutMix(k=5, p=0.0), X, Y, steps=1)
    assert torch.equal(term().target.argmax(1), Y)
    with pytest.raises(ValueError, match="steps must be a whole number, at least 1, or None, got 0"):
        mm.mixed_terms(Plain(), mm.CutMix(k=5), X, Y, steps=0)


def test_what_a_method_remembers_outlives_batches_of_others():
    """Of several methods: whoever is drawn, the history is that of the last batch that the one which remembers saw."""
    model, several = Network(), mm.OneOf((mm.RecursiveMix(k=2), mm.CutMix()), (0.4, 0.3))
    generator, carried, mixed = seeded(0), {}, 0
    for _ in range(40):
        (term,) = mm.mixed_terms(model, several, X, Y, generator=generator, **carried)
        found = term()
        before, carried = carried, found.carried
        assert set(carried) == {"history_x", "history_target", "history_logits"} or (not before and len(found.logits) == len(X))
        mixed += len(found.logits) == 2 * len(X)
    # 40 batches, of which 16 are RecursiveMix's in the mean, all but the first of them mixed.
    assert 8 <= mixed <= 25


def test_history_that_nobody_hands_on_is_refused_and_none_begins():
    model, method = Network(), mm.RecursiveMix(k=3)
    sentence = "^RecursiveMix mixes with the batch before, which {} does not hand on: use mixed_terms, or give history_x=, "
    for where, call in {
        "mixed_logits": lambda **given: mm.mixed_logits(model, method, X, Y, **given),
        "mixed_loss": lambda **given: mm.mixed_loss(model, method, X, Y, **given),
        "mixed_chunks": lambda **given: list(mm.mixed_chunks(model, method, X, Y, **given)),
        "Mix": lambda **given: mm.Mix(method, CLASSES)(X, Y, **given),
    }.items():
        with pytest.raises(ValueError, match=sentence.format(where)):
            call()
        call(history_x=None)


def test_labels_on_another_device_are_refused_before_the_model_runs():
    def never(x):
        raise AssertionError("the model ran")

    model = nn.Identity()
    model.forward = never
    x, y = torch.rand(4, 3, 6, 6, generator=seeded(0)), torch.arange(4, device="meta")
    for call in (
        lambda: mm.mixed_loss(model, mm.CutMix(), x, y, num_classes=4),
        lambda: mm.mixed_logits(model, mm.InputMixup(), x, y, num_classes=4),
        lambda: mm.Mix(mm.CutMix(), num_classes=4)(x, y),
    ):
        with pytest.raises(ValueError, match="x and y must be on one device, got cpu and meta"):
            call()
