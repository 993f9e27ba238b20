"""Clouds as pictures: where points are drawn, how large, in which colour, and who covers whom."""

import torch

from multimix.lab.data.cloud_picture import OF_A, OF_B, PAPER, _view, cloud_picture


def drawn(points, share, size=120):
    """Which pixels are not paper, and the picture in 0 … 255."""
    picture = cloud_picture(torch.tensor(points), torch.tensor(share), size) * 255
    return (picture - torch.tensor(PAPER)[:, None, None]).abs().amax(0) > 20, picture


def middle(where):
    return where.nonzero().double().mean(0).tolist()


def test_up_is_up_and_all_of_the_unit_sphere_fits():
    around = torch.nn.functional.normalize(torch.randn(500, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    where, picture = drawn(around.tolist(), [0.0] * 500)
    assert picture.shape == (3, 120, 120)
    edge = torch.ones(120, 120, dtype=torch.bool)
    edge[3:-3, 3:-3] = False
    assert not where[edge].any()
    assert where.any(1).sum() > 95
    assert where.any(0).sum() > 95
    high, low = (middle(drawn([[0.0, 0.0, z]], [0.0])[0]) for z in (0.9, -0.9))
    assert high[0] < 30
    assert low[0] > 90
    assert abs(high[1] - 59.5) < 1
    right, left = (middle(drawn([[x, 0.0, 0.0]], [0.0])[0]) for x in (0.9, -0.9))
    assert right[1] > 90
    assert left[1] < 30


def test_colours_go_from_a_to_b():
    found = []
    for share in (0.0, 0.5, 1.0):
        where, picture = drawn([[0.0, -1.0, 0.0]], [share])  # seen from the front
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
    near, far = (drawn([[0.0, y, 0.0]], [1.0]) for y in (-0.9, 0.9))
    assert near[0].sum() > far[0].sum()
    assert near[1].min() < far[1].min()
    sight = _view()[:, 2]  # one behind the other: the front one covers the other, whoever comes first
    front, back = (0.5 * sight).tolist(), (-0.5 * sight).tolist()
    one = drawn([front, back], [0.0, 1.0])[1]
    assert torch.equal(one, drawn([back, front], [1.0, 0.0])[1])
    assert one[0, 60, 60] > one[2, 60, 60]


def test_fewer_points_are_larger():
    one, many = (drawn([[0.0, 0.0, 0.0]] * count, [0.0] * count)[0].sum() for count in (1, 400))
    assert one > 2 * many
