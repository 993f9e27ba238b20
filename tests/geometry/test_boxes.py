"""Boxes: order, area, position. Statistical tests have fixed seeds and fail by chance with probability 1e-3 or less."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import oracles
from multimix import CutMix
from multimix.geometry.boxes import centered_boxes, inside, random_center
from multimix.random import sample_path
from oracles import seeded

FITS, GRIDS = ["clip", "shift"], ["continuous", "integer"]


@settings(max_examples=300)
@given(
    size=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    lam=st.lists(st.floats(0, 1), min_size=1, max_size=6).map(sorted),
    seed=st.integers(0, 10**6),
    fit=st.sampled_from(FITS),
    grid=st.sampled_from(GRIDS),
)
def test_equal_to_the_slow_loop_nested_and_within(size, lam, seed, fit, grid):
    # Where a side is a whole or half number, the last bit of a power decides; two ways of computing it may differ there.
    sides = [side * share ** (1 / len(size)) for side in size for share in lam if 0 < share < 1]
    assume(all(abs(2 * side - round(2 * side)) > 1e-9 for side in sides))
    center = random_center(1, size, grid, seeded(seed))
    low, high = centered_boxes(torch.tensor(lam, dtype=torch.float64).unsqueeze(1), center, size, fit, grid)
    for k, share in enumerate(lam):
        box = list(zip(low[k, 0].tolist(), high[k, 0].tolist(), strict=True))
        expected = oracles.cutmix_box(share, center[0].tolist(), size, fit, grid)
        # An empty box may lie anywhere.
        assert box == expected or math.prod(b - a for a, b in expected) == math.prod(b - a for a, b in box) == 0
    assert (low >= 0).all()
    assert (high <= torch.tensor(size)).all()
    assert (high >= low).all()
    assert (low.diff(dim=0) <= 0).all()
    assert (high.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("grid", GRIDS)
def test_shift_has_the_area_up_to_rounding_and_both_ends(grid):
    size = (31, 18)
    lam = sample_path(1, 1.0, rows=20_000, generator=seeded(0))
    low, high = centered_boxes(lam, random_center(20_000, size, grid, seeded(1)), size, "shift", grid)
    area = (high - low).prod(-1) / (31 * 18)
    bound = lam.sqrt() * (1 / (2 * 31) + 1 / (2 * 18)) + 1 / (4 * 31 * 18)
    assert ((area - lam).abs() <= bound + 1e-12).all()
    assert float(area.mean()) == pytest.approx(0.5, abs=4 * math.sqrt(1 / 12 / 20_000))
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    low, high = centered_boxes(ends, random_center(50, size, grid, seeded(2)), size, "shift", grid)
    assert ((high - low)[0].prod(-1) == 0).all()
    assert ((high - low)[1].prod(-1) == 31 * 18).all()


def test_mean_clipped_area_is_77_240ths():
    """E[λ̂ | λ] = λ (1 − √λ/4)² for real edges; rounding both edges down leaves the mean."""
    x = torch.zeros(1).expand(100_000, 1, 64, 48)
    plan = CutMix(per_pair=True).plan(x, generator=seeded(3))
    spread = float(plan.lam.std()) / math.sqrt(100_000)
    assert float(plan.lam.mean()) == pytest.approx(77 / 240, abs=3.3 * spread)


def test_mean_clipped_area_on_the_integer_grid():
    """The published integer rule at 32 × 32, by full enumeration of centres and sides: sides lose a place when odd."""
    sides = torch.linspace(0, 1, 20_001, dtype=torch.float64)[1:].sub(1 / 40_000).sqrt().mul(32).floor()
    half = (sides / 2).floor()
    center = torch.arange(32, dtype=torch.float64).unsqueeze(1)
    width = (center + half).clamp(max=32) - (center - half).clamp(min=0)
    expected = float((width.mean(0) ** 2).mean()) / 32**2
    x = torch.zeros(1).expand(60_000, 1, 32, 32)
    lam = CutMix(per_pair=True, grid="integer").plan(x, generator=seeded(4)).lam
    assert float(lam.mean()) == pytest.approx(expected, abs=3.3 * float(lam.std()) / math.sqrt(60_000))
    assert expected == pytest.approx(0.299, abs=1e-3)


@pytest.mark.parametrize("grid", GRIDS)
def test_boxes_of_one_place_are_everywhere_equally_often(grid):
    """Corners and borders included: the last row and column are what other libraries have missed."""
    size, n = (6, 9), 27_000
    lam = torch.tensor([[1 / 54]], dtype=torch.float64)
    low, high = centered_boxes(lam, random_center(n, size, grid, seeded(5)), size, "shift", grid)
    assert ((high - low).prod(-1) == 1).all()
    where = low[0, :, 0] * 9 + low[0, :, 1]
    assert stats.chisquare(torch.bincount(where, minlength=54).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("side", [16, 18])
def test_no_border_is_favoured(fit, grid, side):
    """A place is covered as often as its mirror image; clipped edges are rounded down, so there the mirror is one place off."""
    if (fit, grid, side) == ("shift", "integer", 16):
        pytest.skip("a box of even side around a whole centre cannot lie in the middle")
    n = 40_000
    lam = torch.full((1, n), 0.25, dtype=torch.float64)
    low, high = centered_boxes(lam, random_center(n, (side, side), grid, seeded(6)), (side, side), fit, grid)
    cover = inside(low[0], high[0], torch.Size((side, side)))[:, 0].double().mean(0)
    cover = cover[:-1, :-1] if fit == "clip" else cover
    worst = 5 * math.sqrt(0.5 / n)  # five standard deviations of the difference of two shares, at most 324 of them
    assert float((cover - cover.flip(0)).abs().max()) < worst
    assert float((cover - cover.flip(1)).abs().max()) < worst
    assert float((cover - cover.T).abs().max()) < worst


def test_height_and_width_are_not_swapped():
    size = (161, 101)
    low, high = centered_boxes(
        torch.tensor([[0.25]], dtype=torch.float64),
        torch.tensor([[80.0, 50.0]], dtype=torch.float64),
        size,
        "shift",
        "continuous",
    )
    assert (high - low).flatten().tolist() == [80, 50]


@pytest.mark.parametrize("size", [(7,), (4, 6), (3, 2, 5)], ids=str)
def test_inside_counts_the_box(size):
    low = torch.zeros(2, len(size), dtype=torch.long)
    high = torch.tensor([list(size), [1] * len(size)])
    mask = inside(low, high, torch.Size(size))
    assert mask.shape == (2, 1, *size)
    assert mask[0].all()
    assert int(mask[1].sum()) == 1
    assert bool(mask[1].flatten()[0])


@pytest.mark.parametrize("fit", ["clip", "shift"])
@pytest.mark.parametrize("grid", ["continuous", "integer"])
@pytest.mark.parametrize("size", [(7,), (9, 16), (5, 8, 13)])
def test_boxes_do_not_depend_on_the_number_of_rows(fit, grid, size):
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        lam = torch.rand(5, 1, dtype=torch.float64, generator=generator).sort(0).values
        lam[0], lam[-1] = 0, 1
        center = random_center(1, size, grid, generator)
        shared = centered_boxes(lam, center, size, fit, grid)
        of_two = centered_boxes(lam.expand(-1, 2), center.expand(2, -1), size, fit, grid)
        for edges, expected in zip(shared, of_two, strict=True):
            assert edges.dtype == torch.int64
            assert torch.equal(edges, expected[:, :1])
