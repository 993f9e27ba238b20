"""GridMix: equal to the slow loops; laws of crop, grid and share. Chance failures below 1e-3."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from scipy import stats

import box_family_oracles as slow
import multimix as mm
from multimix.methods.grid_mix import GridMix, HoleGrid, holes_along
from oracles import seeded


def images(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed))


def crops(masks):
    """``low, high [B, 2]`` of what masks ``[B, 1, H, W]`` cover, given that it is a box."""
    low, high = [], []
    for axis in (2, 3):
        covered = masks[:, 0].amax(3 - axis + 1)
        low.append(covered.argmax(1))
        high.append(covered.shape[1] - covered.flip(1).argmax(1))
    low, high = torch.stack(low, 1), torch.stack(high, 1)
    assert torch.equal((high - low).prod(1), masks.sum((1, 2, 3)).long())
    return low, high


def runs(covered):
    """How many runs of places a boolean row has."""
    return int(covered[0]) + sum(1 for a, b in pairwise(covered) if b and not a)


OPTIONS = [
    {},
    {"crop": 1.0},
    {"crop": 0.4, "crop_aspect": 3.0, "holes": 4},
    {"random_offset": False, "holes": (1, 9), "hole_aspect": (0.3, 3.0)},
    {"crop": (0.0, 0.2), "holes": 20},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("per_pair", [False, True])
@pytest.mark.parametrize("shape", [(4, 2, 7, 11), (1, 1, 20, 6), (3, 2, 29), (2, 1, 6, 4, 9), (2, 1, 1, 1)], ids=str)
def test_equal_to_the_slow_loop(options, per_pair, shape):
    x = images(*shape)
    partner = torch.randperm(shape[0], generator=seeded(1))
    lam = [0.0, 0.0213, 0.3137, 0.6541, 1.0]  # no holes that end in the middle of a place, where the last bit would decide
    for seed in range(3):
        plan = GridMix(k=5, per_pair=per_pair, **options).plan(x, partner=partner, lam=lam, generator=seeded(seed))
        mixed = plan.mix(x).unflatten(0, (5, shape[0]))
        for k, share in enumerate(lam):
            expected = slow.grid_mix(x, partner.tolist(), share, seeded(seed), per_pair=per_pair, **options)
            assert torch.equal(mixed[k], expected)
        single = GridMix(per_pair=per_pair, **options).plan(x, partner=partner, lam=lam[2:3], generator=seeded(seed))
        assert torch.equal(single.mix(x), mixed[2])


def test_masks_are_binary_and_nest_and_the_target_is_their_share():
    x = torch.zeros(1).expand(300, 1, 23, 17)
    plan = GridMix(k=6, per_pair=True).plan(x, generator=seeded(2))
    assert set(plan.mask.unique().tolist()) == {0.0, 1.0}
    assert (plan.mask.diff(dim=0) >= 0).all()
    assert torch.equal(plan.lam, plan.mask.double().mean((2, 3, 4)))
    assert (plan.lam.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("lam", [0.1, 0.5, 0.85])
def test_every_place_is_covered_with_probability_lam(lam):
    """By the random offset, borders included; so the mean share is λ at any size and number of holes."""
    n, size = 8000, (11, 16)
    x = torch.zeros(1).expand(n, 1, *size)
    mask = GridMix(crop=1.0, per_pair=True).plan(x, lam=[lam], generator=seeded(3)).mask[0, :, 0]
    sigma = math.sqrt(lam * (1 - lam) / n)
    assert float((mask.mean(0) - lam).abs().max()) < 4.9 * sigma  # 176 places
    spread = float(mask.mean((1, 2)).std()) / math.sqrt(n)
    assert float(mask.mean()) == pytest.approx(lam, abs=4.5 * spread)


def test_share_is_lam_times_that_of_the_crop_up_to_rounding():
    x = torch.zeros(1).expand(200, 1, 240, 180)
    lam = mm.random.sample_path(2, 1.0, rows=200, generator=seeded(4))
    plan = GridMix(per_pair=True).plan(x, lam=torch.cat([lam, torch.ones(1, 200)]), generator=seeded(5))
    crop = plan.lam[2]
    # Each of at most 6 holes an axis is off by at most a place, of a crop no shorter than 180 · √(0.5 / 2) = 90.
    side = 2 * 6 / 90
    assert ((plan.lam[:2] / crop - lam).abs() <= 2 * side * lam.sqrt() + side**2).all()
    assert float((plan.lam[:2] / crop - lam).mean()) == pytest.approx(0, abs=2e-3)


def test_law_of_the_crop():
    """At λ = 1 the mask is the crop: area U(0.5, 1), proportions U(0.5, 2) as far as they fit, position uniform."""
    n, size = 1500, (60, 100)
    x = torch.zeros(1).expand(n, 1, *size)
    plan = GridMix(per_pair=True).plan(x, lam=[1.0], generator=seeded(6))
    low, high = crops(plan.mask[0])
    tall = ((high - low)[:, 0] / 60) / ((high - low)[:, 1] / 100)
    area = float(plan.lam.mean())
    assert area == pytest.approx(0.75, abs=4.5 * 0.5 / math.sqrt(12 * n) + 1e-3)
    assert (
        (tall >= torch.maximum(plan.lam[0], torch.tensor(0.5)) - 0.06) & (tall <= (1 / plan.lam[0]).clamp(max=2) + 0.06)
    ).all()
    whole = ((plan.lam[0] - 0.5) * 2 * 5).long().clamp(0, 4)
    assert stats.chisquare(torch.bincount(whole, minlength=5).numpy()).pvalue > 1e-3
    fixed = GridMix(per_pair=True, crop=0.25, crop_aspect=1.0).plan(x, lam=[1.0], generator=seeded(7))
    low, high = crops(fixed.mask[0])
    for axis, side in enumerate(size):
        assert ((high - low)[:, axis] == side // 2).all()
        count = torch.bincount(low[:, axis], minlength=side // 2 + 1)
        assert len(count) == side // 2 + 1
        assert stats.chisquare(count.numpy()).pvalue > 1e-3


def test_law_of_the_holes():
    """Runs of places along a row that holes cross, with the first hole in the corner."""
    n = 1500
    x = torch.zeros(1).expand(n, 1, 60, 90)
    mask = GridMix(per_pair=True, crop=1.0, random_offset=False).plan(x, lam=[0.25], generator=seeded(9)).mask[0, :, 0].bool()
    assert mask[:, 0, 0].all()
    across = Counter(runs(row.tolist()) for row in mask[:, 0])
    assert set(across) == {2, 3, 4, 5, 6}
    assert stats.chisquare(list(across.values())).pvalue > 1e-3
    # Square cells: as many down as the height asks for.
    for one in mask[:50]:
        assert runs(one[:, 0].tolist()) == max(1, round(60 / (90 / runs(one[0].tolist()))))
    tall = GridMix(crop=1.0, holes=6, hole_aspect=2.0, random_offset=False).plan(x[:1], lam=[0.25]).mask[0, 0, 0].bool()
    assert (runs(tall[0].tolist()), runs(tall[:, 0].tolist())) == (6, 2)
    small = GridMix(crop=1.0, holes=20, random_offset=False).plan(torch.zeros(1, 1, 7, 9), lam=[0.25]).mask[0, 0, 0].bool()
    assert (runs(small[0].tolist()), runs(small[:, 0].tolist())) == (4, 3)


def test_offsets_are_shared_along_the_path_and_drawn_for_each_pair():
    x = torch.zeros(1).expand(400, 1, 40)
    plan = GridMix(k=2, per_pair=True, holes=4, crop=1.0).plan(x, lam=[0.1, 0.5], generator=seeded(10))
    first = plan.mask[0, :, 0].argmax(1) % 10
    assert stats.chisquare(torch.bincount(first, minlength=10).numpy()).pvalue > 1e-3
    assert (plan.mask[1] >= plan.mask[0]).all()


def test_both_ends_inside_the_crop():
    x = images(3, 2, 15, 10)
    for seed in range(200):
        plan = GridMix(k=2, crop=1.0).plan(x, lam=[0.0, 1.0], generator=seeded(seed))
        none, every = plan.mix(x).chunk(2)
        assert torch.equal(none, x)
        assert torch.equal(every, x[plan.partner])


def test_a_hole_as_large_as_its_cell_takes_every_place():
    """The remainder of a place a sliver before the hole's corner is rounded to 1, which is not below 1."""
    offset = math.nextafter(0.25, 1.0)
    assert torch.tensor(0.25 - offset, dtype=torch.float64).remainder(1) == 1
    grid = HoleGrid(*(torch.tensor([[value]], dtype=torch.float64) for value in (0.0, 10.0, 5.0, offset)))
    (holes,) = holes_along(torch.ones(1, 1, dtype=torch.float64), grid, (10,))
    assert (holes == 1).all()


def test_options_are_checked():
    for options, sentence in [
        ({"holes": 0}, "holes must"),
        ({"holes": 2.5}, "holes must"),
        ({"crop": (0.5, 1.5)}, "crop must"),
        ({"crop_aspect": -1}, "crop_aspect must"),
        ({"hole_aspect": (1, 2, 3)}, "hole_aspect must"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            GridMix(**options)
    with pytest.raises(ValueError, match="GridMix needs x of shape"):
        GridMix().plan(torch.randn(3, 4))
