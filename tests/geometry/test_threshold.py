import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multimix.geometry.threshold import nested_masks
from oracles import seeded


def rounded(wanted, places, up):
    """A whole number, a little off where a share has the precision of float32, is that number."""
    if abs(wanted - round(wanted)) <= places / 2**24:
        return round(wanted)
    return math.ceil(wanted) if up else math.floor(wanted)


@settings(max_examples=200)
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
            count = rounded(share * n, n, bool(up[row]))
            assert float(mask[k, row].double().sum()) == pytest.approx(count, abs=1e-4)
            if softness == 0:
                # The count brightest places, one by one.
                bright = sorted(range(n), key=lambda i: -float(field[row].flatten()[i]))[:count]
                assert mask[k, row].flatten().nonzero().flatten().tolist() == sorted(bright)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_share_of_whole_places_is_never_rounded_off(dtype):
    for places in (*range(1, 150), 784, 1024):
        lam = (torch.arange(places + 1, dtype=dtype) / places).double().unsqueeze(1)
        mask = nested_masks(torch.zeros(2, places), lam, torch.tensor([True, False]))
        assert mask.sum((2, 3)).tolist() == [[count, count] for count in range(places + 1)], places


def test_ties_keep_the_area_exact():
    mask = nested_masks(torch.zeros(1, 5, 5), torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([False]))
    assert float(mask.sum()) == 10


def test_soft_edge_is_a_ramp_of_the_width_asked_for():
    field = -torch.arange(100.0).unsqueeze(0)
    mask = nested_masks(field, torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([False]), 0.1).flatten()
    expected = torch.tensor([min(1.0, max(0.0, (60 - rank - 0.5) / 20)) for rank in range(100)])
    torch.testing.assert_close(mask, expected)
