"""The budget: as many updates for every run, all inside the time, no more epochs would fit, a sentence if nothing does."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimix.lab.studies.compare.budget import (
    EVALUATIONS_PER_RUN,
    MAX_EPOCHS,
    MIN_EPOCHS,
    OVERHEAD_SECONDS,
    RESERVE,
    Work,
    divide,
    parse_seconds,
)
from multimix.lab.studies.compare.setup import fitting_batch

NONE, CUTMIX = ("none", 1), ("cutmix", 5)


def work(classes=(100, 20), seconds=(0.02, 0.1), seeds=3, batch=10, reading=0.001, jobs=1):
    def sizes(most):
        counts = [count if most is None else min(count, most) for count in classes]
        return sum(counts), sum(count // 2 for count in counts)

    return Work(dict(zip((NONE, CUTMIX), seconds, strict=True)), NONE, seeds, batch, reading, sizes, max(classes), jobs)


def simulated(one, epochs, most):
    """Every file read, every update and evaluation of every run, one after the other."""
    train, test = one.sizes(most)
    clock = (train + test) * one.reading
    for _ in range(one.seeds):
        for seconds in one.updates.values():
            for _ in range(epochs):
                for _ in range(max(1, train // min(one.batch, train))):
                    clock += seconds / one.jobs
            clock += (OVERHEAD_SECONDS + EVALUATIONS_PER_RUN * test * one.updates[NONE] / one.batch / 2) / one.jobs
    return clock


@settings(max_examples=60)
@given(
    budget=st.floats(20, 5000),
    spent=st.floats(0, 20),
    classes=st.lists(st.integers(1, 60), min_size=2, max_size=4),
    seconds=st.tuples(st.floats(0.001, 0.5), st.floats(0.001, 2.0)),
    seeds=st.integers(1, 3),
    jobs=st.integers(1, 2),
)
def test_it_fits_and_no_more_would(budget, spent, classes, seconds, seeds, jobs):
    one = work(tuple(classes), seconds, seeds, jobs=jobs)
    left = budget * (1 - RESERVE) - spent
    try:
        division = divide(budget, spent, one)
    except ValueError:
        assert simulated(one, MIN_EPOCHS, min(5, max(classes))) > left * (1 - 1e-9)
        return
    assert division.seconds == pytest.approx(simulated(one, division.epochs, division.per_class))
    assert division.seconds <= left
    assert MIN_EPOCHS <= division.epochs <= MAX_EPOCHS
    if division.per_class is None and division.epochs < MAX_EPOCHS:
        assert simulated(one, division.epochs + 1, None) > left * (1 - 1e-9)
    if division.per_class is not None:
        assert division.epochs == MIN_EPOCHS
        assert division.per_class < max(classes)
        assert simulated(one, MIN_EPOCHS, division.per_class + 1) > left * (1 - 1e-9)


def test_twice_the_seeds_get_half_the_epochs_each():
    few, many = (divide(600, 0, work(seeds=seeds, reading=0, seconds=(0.1, 0.5))) for seeds in (2, 4))
    assert few.epochs == pytest.approx(2 * many.epochs, rel=0.15)


def test_a_small_folder_does_not_take_a_large_budget():
    division = divide(1e6, 0, work())
    assert division.epochs == MAX_EPOCHS
    assert division.per_class is None


def test_what_the_sentence_asks_for_suffices():
    one = work()
    with pytest.raises(
        ValueError, match=r"^budget must be at least \d+[sm], got 5 s: the minimum time for 6 runs of 10 epochs"
    ) as raised:
        divide(5, 1, one)
    needed = re.search(r"at least (\d+[sm])", str(raised.value))[1]
    assert divide(parse_seconds(needed), 1, one).epochs == MIN_EPOCHS


@pytest.mark.parametrize(
    ("words", "seconds"), [("30m", 1800), ("2h", 7200), ("90s", 90), ("90", 90), ("1h30m", 5400), ("0.5 min", 30)]
)
def test_times(words, seconds):
    assert parse_seconds(words) == seconds


@pytest.mark.parametrize("words", ["", "soon", "5x", "-3m", "0", "m", "1h!", "nan"])
def test_what_is_no_time(words):
    with pytest.raises(ValueError, match=r"^budget must be a time such as .*, got "):
        parse_seconds(words)


@pytest.mark.parametrize(("train", "batch"), [(2, 2), (8, 4), (100, 12), (5000, 32)])
def test_batches(train, batch):
    assert fitting_batch(train) == batch
