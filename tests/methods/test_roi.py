"""RoI-align to one place: equal to the slow loop, exact on the whole image; watching a layer by its name."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import recursive_oracle as slow
from multimix.core.hooks import MixingError, captured, visible_layer
from multimix.methods.recursive_mix import axis_weights, roi_mean
from oracles import seeded


def maps(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def drawn_boxes(k, rows, size, seed=0, outside=0):
    generator = seeded(seed)
    sides = [(torch.randint(-outside, side + 1 + outside, (2, k, rows), generator=generator)).sort(0).values for side in size]
    low, high = (torch.stack([side[end] for side in sides], -1) for end in (0, 1))
    return low, high


@pytest.mark.parametrize("size", [(32, 32), (33, 20), (7, 5), (8, 50)], ids=str)
@pytest.mark.parametrize("places", [(4, 4), (7, 3), (1, 1), (5, 8), (11, 6)], ids=str)
@pytest.mark.parametrize(("rows", "outside"), [(1, 0), (3, 0), (3, 25)])
def test_equal_to_the_slow_loop(size, places, rows, outside):
    features = maps(2 * 3, 2, *places)
    low, high = drawn_boxes(2, rows, size, seed=sum(places), outside=outside)
    found = roi_mean(features, low, high, torch.Size(size))
    for k in range(2):
        for i in range(3):
            row = i if rows == 3 else 0
            box = list(zip(low[k, row].tolist(), high[k, row].tolist(), strict=True))
            torch.testing.assert_close(found[3 * k + i], slow.roi(features[3 * k + i], box, size), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("places", range(1, 40))
def test_the_whole_image_is_the_mean(places):
    """For every ratio of sides: one cell too many would come from rounding."""
    for side in range(1, 120):
        edges = torch.tensor([0]), torch.tensor([side])
        assert torch.equal(axis_weights(*edges, side, places), torch.full((1, places), 1 / places, dtype=torch.float64))


def test_the_whole_image_is_global_average_pooling():
    features, size = maps(6, 3, 5, 7), torch.Size((33, 20))
    low, high = torch.zeros(2, 1, 2, dtype=torch.long), torch.tensor(size).expand(2, 1, 2)
    torch.testing.assert_close(roi_mean(features, low, high, size), features.mean((2, 3)), atol=1e-15, rtol=1e-14)
    rounded = roi_mean(features.bfloat16(), low, high, size)
    assert rounded.dtype == torch.float32, "a mean in half precision would lose digits"
    torch.testing.assert_close(rounded, features.bfloat16().float().mean((2, 3)))


@pytest.mark.parametrize("size", [(12,), (9, 12), (4, 6, 8)], ids=str)
def test_signals_images_and_volumes(size):
    """A constant map keeps its value, a map linear in its places has the value of the box's middle."""
    places = [side // 2 for side in size]
    low = torch.tensor([[[side // 4 for side in size]]])
    high = low + 2
    constant = torch.full((1, 1, *places), 2.5, dtype=torch.float64)
    torch.testing.assert_close(roi_mean(constant, low, high, torch.Size(size)), torch.full((1, 1), 2.5, dtype=torch.float64))
    for axis, side in enumerate(size):
        slope = torch.arange(places[axis], dtype=torch.float64).reshape(-1, *[1] * (len(size) - axis - 1)).expand(places)
        found = float(roi_mean(slope[None, None], low, high, torch.Size(size)))
        middle = (int(low[0, 0, axis]) + 1) * places[axis] / side - 0.5
        assert found == pytest.approx(min(max(middle, 0), places[axis] - 1), abs=1e-12)


def test_weights_sum_to_one_inside_and_an_empty_box_has_none():
    low, high = (edge[..., 0] for edge in drawn_boxes(4, 500, (31,)))
    total = axis_weights(low, high, 31, 7).sum(-1)
    assert torch.equal(total > 0, high > low)
    torch.testing.assert_close(total[high > low], torch.ones(int((high > low).sum()), dtype=torch.float64))
    features, size = maps(4, 2, 3, 3), torch.Size((9, 9))
    edges = torch.tensor([[[0, 4]]]), torch.tensor([[[9, 4]]])
    assert torch.equal(roi_mean(features, *edges, size), torch.zeros(4, 2, dtype=torch.float64))


def test_gradients():
    features, size = maps(4, 2, 3, 4).requires_grad_(), torch.Size((9, 8))
    low, high = drawn_boxes(2, 2, size, seed=3)
    assert torch.autograd.gradcheck(lambda z: roi_mean(z, low, high, size), (features,))


def network():
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(body=nn.Linear(3, 4), act=nn.Tanh(), head=nn.Linear(4, 2)))


def test_a_layer_is_watched_and_let_go():
    model, x = network(), torch.randn(5, 3)
    with captured(model, "act") as seen:
        result = model(x)
    (features,) = seen
    assert torch.equal(model.head(features), result)
    assert features.requires_grad
    assert not model.act._forward_hooks
    with captured(model, None) as seen:
        model(x)
    assert seen == []
    with pytest.raises(ZeroDivisionError), captured(model, "act"):
        raise ZeroDivisionError
    assert not model.act._forward_hooks


def test_a_layer_that_does_not_run_once_is_refused():
    model, x = network(), torch.randn(5, 3)
    with pytest.raises(MixingError, match="'act' must run once.* 0 times"), captured(model, "act"):
        model.head(model.body(x))
    with pytest.raises(MixingError, match="'act'.* 2 times"), captured(model, "act"):  # noqa: PT012  two passes are the point
        model(x)
        model(x)
    with pytest.raises(ValueError, match="no layer 'ac'"), captured(model, "ac"):
        pass
    assert not model.act._forward_hooks


def test_compiled_models_are_refused():
    with pytest.raises(MixingError, match="compiled.*layer 'act'"):
        visible_layer(torch.compile(network()), "act")
    part = nn.Sequential(network(), nn.Identity())
    part[0].compile()
    with pytest.raises(MixingError, match="compiled.*layer '0.act'"):
        visible_layer(part, "0.act")
    assert visible_layer(part, "1") is part[1]


def test_no_gradient_is_lost_in_a_checkpoint_without_a_word():
    class Saving(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.body, self.head, self.reentrant = nn.Linear(3, 4), nn.Linear(4, 2), reentrant

        def forward(self, x):
            return checkpoint(lambda z: self.head(self.body(z)), x, use_reentrant=self.reentrant)

    x = torch.randn(5, 3, requires_grad=True)
    model = Saving(True)
    with pytest.raises(MixingError, match="'body'.*gradient"), captured(model, "body"):
        model(x)
    model = Saving(False)
    plain = copy.deepcopy(model)
    with captured(model, "body") as seen:
        loss = model(x).sum()
    (loss + (seen[0] ** 2).sum()).backward()
    hidden = plain.body(x)
    (plain.head(hidden).sum() + (hidden**2).sum()).backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_autocast_does_not_round_the_mean():
    features, size = maps(6, 3, 5, 7).float(), torch.Size((33, 20))
    low, high = torch.zeros(2, 1, 2, dtype=torch.long), torch.tensor(size).expand(2, 1, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = roi_mean(features, low, high, size)
    torch.testing.assert_close(found, features.mean((2, 3)))
