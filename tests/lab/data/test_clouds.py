"""Bodies: their points lie on the surface they should, evenly; turned and scaled as said."""

import math

import pytest
import torch
from scipy import stats

from multimix.lab.data import clouds as data
from multimix.lab.data.clouds import HEIGHT, KINDS, TUBE, bodies, rotations, split, unit
from oracles import seeded

N = 4_000


def on_surface(kind, p):
    x, y, z = p
    radius = math.hypot(x, y)
    if kind == "sphere":
        return math.isclose(math.hypot(x, y, z), 1, abs_tol=1e-5)
    if kind == "cube":
        return max(abs(x), abs(y), abs(z)) == 1
    if kind == "torus":
        return math.isclose(math.hypot(radius - 1, z), TUBE, abs_tol=1e-5)
    if kind == "cone":
        return (z == 0 and radius <= 1 + 1e-5) or math.isclose(radius, 1 - z / HEIGHT, abs_tol=1e-5)
    return (math.isclose(radius, 1, abs_tol=1e-5) and 0 <= z <= HEIGHT) or (z in (0, HEIGHT) and radius <= 1 + 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_points_lie_on_the_surface(kind):
    x = KINDS[kind](3, 200, seeded(0))
    assert x.shape == (3, 200, 3)
    assert all(on_surface(kind, p) for p in x.flatten(0, 1).tolist())


def share(flags):
    return int(flags.sum()), flags.numel()


def test_surfaces_are_covered_evenly():
    """Shares of area known from school, each by an exact binomial test."""
    cube = data.cube(1, N, seeded(1))[0]
    torus = data.torus(1, N, seeded(2))[0]
    cone = data.cone(1, N, seeded(3))[0]
    cylinder = data.cylinder(1, N, seeded(4))[0]
    slant = math.hypot(1, HEIGHT)
    expected = [
        *[(share(cube[:, axis] == side), 1 / 6) for axis in range(3) for side in (-1, 1)],
        (share(torus[:, :2].norm(dim=1) > 1), 0.5 + TUBE / math.pi),
        (share(cone[:, 2] == 0), 1 / (1 + slant)),
        (share(cone[cone[:, 2] == 0][:, :2].norm(dim=1) < 0.5), 0.25),
        (share(cone[cone[:, 2] > 0][:, 2] > HEIGHT / 2), 0.25),
        (share(cylinder[:, 2] == 0), 1 / (2 + 2 * HEIGHT)),
        (share(cylinder[:, 2] == HEIGHT), 1 / (2 + 2 * HEIGHT)),
        (share(cylinder[cylinder[:, 2] == 0][:, :2].norm(dim=1) < 0.5), 0.25),
    ]
    for (hits, of), probability in expected:
        assert stats.binomtest(hits, of, probability).pvalue > 1e-4
    sphere = data.sphere(1, N, seeded(5))[0]
    assert stats.kstest(sphere[:, 2].numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3  # slices of equal height have equal area


def test_rotations_keep_lengths_and_handedness():
    for upright in (False, True):
        turn = rotations(50, seeded(0), upright=upright)
        torch.testing.assert_close(turn @ turn.transpose(1, 2), torch.eye(3).expand(50, 3, 3), atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.linalg.cross(turn[:, 0], turn[:, 1]), turn[:, 2], atol=1e-5, rtol=0)
    torch.testing.assert_close(turn[:, 2], torch.tensor([[0.0, 0.0, 1.0]]).expand(50, 3))


def test_turned_evenly():
    turn = rotations(2_000, seeded(1), upright=False)
    for row in range(3):  # the image of each axis is uniform on the sphere
        assert stats.kstest(turn[:, row, 2].numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3
    turn = rotations(2_000, seeded(2), upright=True)
    angle = torch.atan2(turn[:, 0, 1], turn[:, 0, 0])
    assert stats.kstest(angle.numpy(), "uniform", args=(-math.pi, 2 * math.pi)).pvalue > 1e-3


def test_clouds_fill_the_unit_sphere():
    x = bodies(torch.arange(5).repeat(4), 30, seeded(0))
    torch.testing.assert_close(x.mean(1), torch.zeros(20, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.norm(dim=2).amax(1), torch.ones(20))
    assert torch.equal(unit(torch.full((1, 4, 3), 0.5)), torch.zeros(1, 4, 3))


def test_noise_and_kinds_count():
    label = torch.zeros(6, dtype=torch.long)
    spread = [bodies(label, 400, seeded(1), noise=noise).norm(dim=2).std(1).mean() for noise in (0.0, 0.2)]
    assert spread[1] > spread[0]
    kinds = [bodies(torch.tensor([number]), 300, seeded(2), noise=0.0) for number in range(5)]
    assert all(not torch.equal(a, b) for i, a in enumerate(kinds) for b in kinds[:i])


def test_a_split_is_balanced_and_repeatable():
    first, again, other = (split(3, 4, 16, seeded(seed)) for seed in (0, 0, 1))
    assert first.x.shape == (15, 16, 3)
    assert first.x_test.shape == (20, 16, 3)
    assert torch.bincount(first.label).tolist() == [3] * 5
    assert torch.bincount(first.label_test).tolist() == [4] * 5
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
