import pytest

from multimix.lab.recipes.settings import Knots, Milestones


def test_milestones_fall_from_their_epoch_on():
    schedule = Milestones(0.2, (100, 200))
    assert [schedule.at_epoch(e) for e in (0, 99.99, 100, 199, 200, 299)] == pytest.approx([0.2, 0.2, 0.02, 0.02, 0.002, 0.002])


def test_warm_up_is_a_line_from_0():
    schedule = Milestones(0.4, (10,), warmup=5)
    assert [schedule.at_epoch(e) for e in (0, 1, 2.5, 5, 10)] == pytest.approx([0, 0.08, 0.2, 0.4, 0.04])


IMAGENET = Knots(
    ((0, 0.5), (8, 1.0), (15, 0.125), (15, 0.2), (40, 0.02), (65, 0.002), (90, 0.0002), (100, 0.00002)),
)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        *[(0, 0.5), (4, 0.75), (8, 1.0), (11.5, 0.5625), (14.9999999, 0.125), (15, 0.2), (27.5, 0.11), (40, 0.02)],
        *[(52.5, 0.011), (65, 0.002), (90, 0.0002), (95, 0.00011), (100, 0.00002), (120, 0.00002), (-1, 0.5)],
    ],
)
def test_knots_are_joined_by_lines_and_jump_where_two_meet(epoch, rate):
    assert IMAGENET.at_epoch(epoch) == pytest.approx(rate, rel=1e-5)


def test_squeezed_into_a_tenth():
    for schedule in (Milestones(0.2, (100, 200), warmup=5), IMAGENET):
        for epoch in (0, 3, 47, 120, 250):
            assert schedule.squeezed(0.1).at_epoch(epoch / 10) == pytest.approx(schedule.at_epoch(epoch))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Milestones(0.1, (20, 10)), "at must ascend, got 20, 10"),
        (lambda: Milestones(0.0), "rate and factor must be positive"),
        (lambda: Knots(()), r"points must hold at least one \(epoch, rate\)"),
        (lambda: Knots(((5, 1.0), (3, 1.0))), "epochs of points must ascend, got 5, 3"),
        (lambda: Knots(((5, -1.0),)), "rates must be at least 0, got -1"),
    ],
)
def test_bad_schedules_are_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
