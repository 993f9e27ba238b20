"""Resized partners in boxes: every layout and precision equals the slow loop."""

from dataclasses import replace

import pytest
import torch

import box_family_oracles as slow
from multimix.geometry.resized import ResizedPlan
from multimix.methods.recursive_mix import RecursiveMix
from oracles import seeded

PARTNER = torch.tensor([2, 0, 3, 1])
LAYOUTS = {
    "contiguous": torch.clone,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every other column": lambda x: torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
}


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


def plan(resize, per_pair, batch=4, size=(6, 9)):
    """Two steps with boxes of all kinds: empty ones, a place, the whole image, up to each border."""
    boxes = [[(0, 0), (3, 8)], [(2, 5), (2, 9)], [(0, 6), (0, 9)], [(1, 2), (4, 5)], [(2, 6), (0, 4)], [(4, 4), (2, 2)]]
    picked = torch.randint(len(boxes), (2, batch if per_pair else 1), generator=seeded(3))
    edges = torch.tensor(boxes)[picked]
    return ResizedPlan(partner=PARTNER[:batch], low=edges[..., 0], high=edges[..., 1], size=torch.Size(size), resize=resize)


def expected(x, plan):
    rows = []
    for low, high in zip(plan.low.expand(-1, len(x), -1), plan.high.expand(-1, len(x), -1), strict=True):
        boxes = [list(zip(a, b, strict=True)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        rows.append(slow.paste_resized(x, plan.partner.tolist(), boxes, plan.resize))
    return torch.cat(rows)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("per_pair", [False, True])
def test_equal_to_the_slow_loop_in_every_layout(layout, dtype, resize, per_pair):
    x, drawn = images(4, 3, 6, 9).to(dtype), plan(resize, per_pair)
    wanted, z = expected(x, drawn), LAYOUTS[layout](x)
    found = drawn.mix(z)
    torch.testing.assert_close(found, wanted, atol=0 if resize == "nearest" else 1e-6, rtol=0)
    assert torch.equal(z, x), "inputs are never changed"
    assert found.is_contiguous(memory_format=torch.channels_last) == (layout == "channels last")


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_gradients_change_nothing(resize, threads):
    """Large enough for two threads; a batch with gradients goes another way."""
    x = images(4, 3, 120, 130, seed=1)
    low, high = torch.tensor([[[10, 0]], [[3, 0]]]), torch.tensor([[[60, 55]], [[120, 99]]])
    drawn = ResizedPlan(partner=PARTNER, low=low, high=high, size=x.shape[2:], resize=resize)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = drawn.mix(x)
    finally:
        torch.set_num_threads(before)
    followed = drawn.mix(x.clone().requires_grad_())
    assert followed.requires_grad
    torch.testing.assert_close(found, followed.detach(), atol=0 if resize == "nearest" else 1e-6, rtol=0)
    with torch.no_grad():
        assert torch.equal(drawn.mix(x.clone().requires_grad_()), found)


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_a_history_of_higher_precision_is_rounded_last(resize):
    x, past = images(4, 2, 6, 9), images(4, 2, 6, 9, seed=5).double()
    method = RecursiveMix(k=3, resize=resize, per_pair=True, box="shift")
    given = {"history_x": past, "history_target": torch.ones(4, 1)}
    drawn = method.plan(x, lam=[0.1, 0.4, 0.9], generator=seeded(6), **given)
    exact = replace(drawn, history_x=past).mix(x.double())
    assert torch.equal(drawn.mix(x), exact.float())
