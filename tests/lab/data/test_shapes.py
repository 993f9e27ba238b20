import math

import pytest
import torch
from scipy import stats

from multimix.lab.data import DATASETS, Augment, Loader, read
from multimix.lab.data import shapes as data
from multimix.lab.data.shapes import (
    HEIGHT,
    KINDS,
    OF_A,
    OF_B,
    PAPER,
    TUBE,
    Clouds,
    _view,
    bodies,
    cloud_picture,
    read_shapes,
    rotations,
    unit,
)
from oracles import seeded


def test_the_same_clouds_every_time_as_the_entry_says():
    splits, entry = read("shapes", "nowhere"), DATASETS["shapes"]
    again = read_shapes()
    for part, count in entry.counts.items():
        split = splits[part]
        assert len(split) == count
        assert list(split.pixels.shape) == [count, *reversed(entry.size)]
        assert split.pixels.dtype == torch.float32
        assert torch.equal(split.pixels, again[part].pixels)
        assert split.classes == tuple(KINDS)
        assert torch.bincount(split.labels).tolist() == [count // entry.classes] * entry.classes
    assert entry.classes == len(KINDS)
    assert entry.layout == "points"
    assert entry.last_steps == ()


def test_every_cloud_fills_the_unit_sphere_and_no_two_are_alike():
    splits = read_shapes()
    x = torch.cat([splits["train"].pixels, splits["test"].pixels])
    torch.testing.assert_close(x.norm(dim=2).amax(1), torch.ones(len(x)))
    torch.testing.assert_close(x.mean(1), torch.zeros(len(x), 3), atol=1e-6, rtol=0)
    assert len(x[:, 0].unique(dim=0)) == len(x)


def test_a_loader_hands_out_clouds_as_they_are_and_repeats_them():
    part = read_shapes()["train"].subset(2, seed=3)
    assert isinstance(part, Clouds)
    ((x, y),) = Loader(part, Augment(), batch=10, shuffle=False, repeats=3)
    assert torch.equal(x, torch.cat([part.pixels] * 3))
    assert torch.equal(y, part.labels.repeat(3))


@pytest.mark.parametrize("pixels", [torch.zeros(2, 4, 2), torch.zeros(2, 4, 3).double(), torch.zeros(2, 3, 4, 4)], ids=str)
def test_what_are_no_clouds_is_refused(pixels):
    with pytest.raises(ValueError, match=r"^clouds must be float32 \[M, N, 3\], got torch.float"):
        Clouds(pixels, torch.tensor([0, 1]), ("a", "b"))


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


def count(flags):
    return int(flags.sum()), flags.numel()


def test_surfaces_are_covered_evenly():
    """Shares of area known from school, each by an exact binomial test."""
    cube = data.cube(1, N, seeded(1))[0]
    torus = data.torus(1, N, seeded(2))[0]
    cone = data.cone(1, N, seeded(3))[0]
    cylinder = data.cylinder(1, N, seeded(4))[0]
    slant = math.hypot(1, HEIGHT)
    expected = [
        *[(count(cube[:, axis] == side), 1 / 6) for axis in range(3) for side in (-1, 1)],
        (count(torus[:, :2].norm(dim=1) > 1), 0.5 + TUBE / math.pi),
        (count(cone[:, 2] == 0), 1 / (1 + slant)),
        (count(cone[cone[:, 2] == 0][:, :2].norm(dim=1) < 0.5), 0.25),
        (count(cone[cone[:, 2] > 0][:, 2] > HEIGHT / 2), 0.25),
        (count(cylinder[:, 2] == 0), 1 / (2 + 2 * HEIGHT)),
        (count(cylinder[:, 2] == HEIGHT), 1 / (2 + 2 * HEIGHT)),
        (count(cylinder[cylinder[:, 2] == 0][:, :2].norm(dim=1) < 0.5), 0.25),
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


def test_the_generator_decides():
    first, again, other = (bodies(torch.arange(5), 16, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def draw(points, share, size=120):
    """Which pixels are not paper, and the picture in 0 … 255."""
    picture = cloud_picture(torch.tensor(points), torch.tensor(share), size) * 255
    return (picture - torch.tensor(PAPER)[:, None, None]).abs().amax(0) > 20, picture


def middle(where):
    return where.nonzero().double().mean(0).tolist()


def test_up_is_up_and_all_of_the_unit_sphere_fits():
    around = torch.nn.functional.normalize(torch.randn(500, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    where, picture = draw(around.tolist(), [0.0] * 500)
    assert picture.shape == (3, 120, 120)
    edge = torch.ones(120, 120, dtype=torch.bool)
    edge[3:-3, 3:-3] = False
    assert not where[edge].any()
    assert where.any(1).sum() > 95
    assert where.any(0).sum() > 95
    high, low = (middle(draw([[0.0, 0.0, z]], [0.0])[0]) for z in (0.9, -0.9))
    assert high[0] < 30
    assert low[0] > 90
    assert abs(high[1] - 59.5) < 1
    right, left = (middle(draw([[x, 0.0, 0.0]], [0.0])[0]) for x in (0.9, -0.9))
    assert right[1] > 90
    assert left[1] < 30


def test_colours_go_from_a_to_b():
    found = []
    for share in (0.0, 0.5, 1.0):
        where, picture = draw([[0.0, -1.0, 0.0]], [share])  # seen from the front
        y, x = map(round, middle(where))
        found.append(picture[:, y, x])
    a, b = torch.tensor(OF_A), torch.tensor(OF_B)
    for share, colour in zip((0.0, 0.5, 1.0), found, strict=True):
        whole = (1 - share) * a + share * b
        faded = torch.tensor(PAPER) - whole
        part = (colour - whole)[faded.abs() > 20] / faded[faded.abs() > 20]
        assert part.std() < 0.03
        assert 0 <= part.mean() < 0.2


def test_near_points_are_larger_darker_and_in_front():
    near, far = (draw([[0.0, y, 0.0]], [1.0]) for y in (-0.9, 0.9))
    assert near[0].sum() > far[0].sum()
    assert near[1].min() < far[1].min()
    sight = _view()[:, 2]  # one behind the other: the front one covers the other, whoever comes first
    front, back = (0.5 * sight).tolist(), (-0.5 * sight).tolist()
    one = draw([front, back], [0.0, 1.0])[1]
    assert torch.equal(one, draw([back, front], [1.0, 0.0])[1])
    assert one[0, 60, 60] > one[2, 60, 60]


def test_fewer_points_are_larger():
    one, many = (draw([[0.0, 0.0, 0.0]] * count, [0.0] * count)[0].sum() for count in (1, 400))
    assert one > 2 * many
