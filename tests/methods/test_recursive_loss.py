"""The loss of RecursiveMix with its consistency term: equal to the slow loops, wherever layers and precision come from."""

import copy
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import multimix as mm
import recursive_oracle as slow
from multimix.methods.recursive_mix import RecursiveMix
from oracles import seeded
from recursive_cases import CLASSES, LINKED, Network, images, labels, past


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize(("head", "there"), [("head", 4), ("head", 3), ("other", 6)])
def test_the_whole_loss_is_that_of_the_slow_loop(k, steps, per_pair, head, there):
    size = (9, 12)
    x, y = images(4, 2, *size, dtype=torch.float64), labels(4)
    history = past(there, 2, *size, dtype=torch.float64)
    areas = [0.4] if k == 1 else [0.01, 0.2, 0.45, 0.7, 1.0]
    method = RecursiveMix(k=k, features="body", head=head, omega=0.7, per_pair=per_pair)
    model, loops = Network(), Network()
    given = {"lam": areas, "generator": seeded(3), **history}
    total = sum(part.loss() for part in mm.mixed_parts(model, method, x, y, steps=steps, **given))
    expected = terms = 0.0
    for edges in slow.boxes(areas, 4, there, size, seeded(3), per_pair=per_pair):
        mixed, shares = slow.pasted(x, history["history_x"], edges)
        for i, share in enumerate(shares):
            old = history["history_target"][i] if i < there else torch.zeros(CLASSES)
            target = (1 - share) * one_hot(y[i], CLASSES).double() + share * old
            expected = expected + slow.cross_entropy(loops(mixed[i : i + 1])[0], target) / (4 * k)
        to_logits = getattr(loops, head)
        own = slow.consistency(loops.body(mixed), to_logits, edges, history["history_logits"], size, 0.7)
        expected, terms = expected + own / k, terms + own
    assert terms.item() > 0
    torch.testing.assert_close(total, expected)
    total.backward()
    expected.backward()
    for ours, theirs in zip(model.parameters(), loops.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert (model.other.weight.grad is not None) == (head == "other"), "the head learns from the term"


@pytest.mark.parametrize("steps", [None, 1])
def test_beside_a_mean_over_classes_the_term_is_one_too(steps):
    """Its gradient is about 1/C of a cross-entropy's, and the term would outweigh it if it stayed as it is."""
    x, y, history = images(4, 2, 9, 9, dtype=torch.float64), labels(4), past(4, 2, 9, 9, dtype=torch.float64)
    totals = {}
    for scale in ("plain", "per_class"):
        for omega in (0.0, 0.7):
            method = RecursiveMix(k=2, **{**LINKED, "omega": omega, "omega_scale": scale})
            parts = mm.mixed_parts(Network(), method, x, y, steps=steps, generator=seeded(1), **history)
            totals[scale, omega] = sum(part.loss(mm.losses.softmax_bce) for part in parts)
    plain, mean = (totals[scale, 0.7] - totals[scale, 0.0] for scale in ("plain", "per_class"))
    assert plain > 0
    torch.testing.assert_close(CLASSES * mean, plain)


def test_without_weight_or_layer_there_is_no_term_and_without_logits_no_plan():
    x, y, history = images(4, 2, 9, 9, dtype=torch.float64), labels(4), past(4, 2, 9, 9, dtype=torch.float64)
    plan = RecursiveMix(k=2).plan(x, generator=seeded(1), **history)
    expected = cross_entropy(Network()(plan.mix(x)), plan.mix_target(y, CLASSES).double())
    for options in ({}, {**LINKED, "omega": 0.0}):
        assert RecursiveMix(**options).traits.own_loss is None
        found = mm.mixed_forward(Network(), RecursiveMix(k=2, **options), x, y, generator=seeded(1), **history).loss()
        torch.testing.assert_close(found, expected)
    del history["history_logits"]
    with pytest.raises(TypeError, match="needs history_logits="):
        mm.mixed_forward(Network(), RecursiveMix(k=2, **LINKED), x, y, generator=seeded(1), **history).loss()


def test_a_misspelt_head_is_found_at_the_first_batch():
    x, y = images(4, 2, 9, 9, dtype=torch.float64), labels(4)
    with pytest.raises(ValueError, match="no layer 'haed'"):
        mm.mixed_parts(Network(), RecursiveMix(**{**LINKED, "head": "haed"}), x, y, state=None)


def test_nothing_is_stored_and_the_model_is_left_alone():
    model, x, y, history = Network(dtype=torch.float32), images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method = RecursiveMix(k=2, **LINKED)
    before = copy.deepcopy(vars(method))
    first, again = (mm.mixed_forward(model, method, x, y, generator=seeded(1), **history).loss() for _ in range(2))
    assert torch.equal(first, again)
    assert vars(method) == before
    assert not model.body._forward_hooks


def test_half_precision_features_and_wrapped_models():
    """Under autocast the map is bfloat16, the head float32: the term is close to that of full precision."""
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method = RecursiveMix(k=2, **LINKED)
    full = mm.mixed_forward(Network(dtype=torch.float32), method, x, y, generator=seeded(1), **history).loss()
    model = Network(dtype=torch.float32)

    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, z):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(z).float()

    inner = replace(method, features="inner.body", head="inner.head")
    found = mm.mixed_forward(Rounded(), inner, x, y, generator=seeded(1), **history).loss()
    found.backward()
    assert found.item() == pytest.approx(full.item(), rel=0.02)
    named = nn.Sequential(OrderedDict(net=Network(dtype=torch.float32)))
    named_method = replace(method, features="net.body", head="net.head")
    same = mm.mixed_forward(named, named_method, x, y, generator=seeded(1), **history).loss()
    assert torch.equal(same, full)
