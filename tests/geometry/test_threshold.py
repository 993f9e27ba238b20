import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multimix.geometry.threshold import nested_masks
from oracles import seeded


@settings(max_examples=200, deadline=None)
@given(
    size=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    lam=st.lists(st.floats(0, 1), min_size=1, max_size=6).map(sorted),
    softness=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 10**6),
)
def test_nested_with_exact_area(size, lam, softness, seed):
    field = torch.randn(3, *size, generator=seeded(seed))
    up = torch.tensor([True, False, True])
    mask = nested_masks(field, torch.tensor(lam, dtype=torch.float64).unsqueeze(1), up, softness)
    n = math.prod(size)
    assert mask.shape == (len(lam), 3, 1, *size)
    assert (mask.diff(dim=0) >= 0).all()
    assert ((mask >= 0) & (mask <= 1)).all()
    for k, share in enumerate(lam):
        for row in range(3):
            count = math.ceil(share * n) if up[row] else math.floor(share * n)
            assert float(mask[k, row].double().sum()) == pytest.approx(count, abs=1e-4)
            if softness == 0:
                # The count brightest places, one by one.
                bright = sorted(range(n), key=lambda i: -float(field[row].flatten()[i]))[:count]
                assert mask[k, row].flatten().nonzero().flatten().tolist() == sorted(bright)


def test_ties_keep_the_area_exact():
    mask = nested_masks(torch.zeros(1, 5, 5), torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([False]))
    assert float(mask.sum()) == 10


def test_soft_edge_is_a_ramp_of_the_width_asked_for():
    field = -torch.arange(100.0).unsqueeze(0)
    mask = nested_masks(field, torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([False]), 0.1).flatten()
    expected = torch.tensor([min(1.0, max(0.0, (60 - rank - 0.5) / 20)) for rank in range(100)])
    torch.testing.assert_close(mask, expected)
