"""Last, median of the last ten, best, and the epoch chosen by another part."""

import pytest

from multimix.lab.training.log import Epoch, is_best, outcome


def epoch(number, error, selection=None, seconds=1.0):
    return Epoch(number, 10 * number, 0.1, 1.0, 50.0, 2.0 + number, 100, 500, seconds, 2 * seconds, error, None, None, selection)


def test_outcome_by_hand():
    errors = [50, 10, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 60]
    history = [epoch(i + 1, float(error), seconds=float(i)) for i, error in enumerate(errors)]
    found = outcome(history)
    assert (found.last, found.best, found.best_epoch) == (60.0, 10.0, 2)
    # The last ten, 39 … 31 and 60, sorted: the middle two are 35 and 36.
    assert found.median == 35.5
    assert (found.selected, found.selected_epoch) == (None, None)
    assert (found.squared_grad_norm, found.seconds_per_epoch, found.cpu_seconds_per_epoch) == (15.0, 6.0, 12.0)


def test_the_selected_epoch_is_chosen_by_the_other_part_alone():
    history = [epoch(1, 30.0, 20.0), epoch(2, 25.0, 10.0), epoch(3, 12.0, 10.0), epoch(4, 11.0, 15.0)]
    found = outcome(history)
    assert (found.selected, found.selected_epoch) == (25.0, 2), "the first of equal ones"
    assert (found.best, found.best_epoch) == (11.0, 4)


def test_epochs_that_were_not_evaluated_do_not_count():
    history = [epoch(1, 30.0), epoch(2, None), epoch(3, 20.0), epoch(4, None), epoch(5, 22.0)]
    assert outcome(history).median == 22.0
    far = [epoch(1, 5.0), *(epoch(i, None) for i in range(2, 12)), epoch(12, 40.0)]
    assert outcome(far).median == 40.0, "only the last ten epochs, not the last ten evaluations"
    with pytest.raises(ValueError, match="the last of 2 epochs must have been evaluated"):
        outcome(history[:2])


def test_the_best_epoch_is_the_first_with_the_least_error():
    history = [epoch(i + 1, error) for i, error in enumerate([30.0, None, 20.0, 20.0, 25.0, 10.0])]
    assert [is_best(history[: i + 1]) for i in range(6)] == [True, False, True, False, False, True]
    chosen = [epoch(1, 30.0, 5.0), epoch(2, 10.0, 6.0), epoch(3, 40.0, 4.0)]
    assert [is_best(chosen[: i + 1]) for i in range(3)] == [True, False, True], "by the part to select by"
