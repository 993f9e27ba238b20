"""What an update costs: measured side by side by real updates, kept, and not measured twice."""

from itertools import count

import pytest

from multimix.lab.storage import read_rows
from multimix.lab.sweep import costs as module
from multimix.lab.sweep.costs import BASE, FILE, ROUNDS, WARM, Measured, measure_costs, update_seconds
from multimix.lab.sweep.engines import End
from multimix.lab.sweep.plan import arm_runs
from trial import RECIPE


def runs_of(methods=("none", "mixup", "large_batch"), ks=(3,), **changes):
    changes = {key.replace("_", "."): value for key, value in changes.items()}
    return arm_runs(RECIPE, scale="smoke", methods=methods, ks=ks, seeds=(0,), changes=changes)


class Measures:
    """In place of an engine: hands out seconds and notes what it was asked for."""

    machine = "here"

    def __init__(self):
        self.asked, self.broken = [], {}

    def start(self, work, arguments, log):
        assert work is update_seconds
        self.asked.append(list(arguments[0]))
        return arguments[0]

    def end(self, runs):
        seconds = {arm: {BASE: 0.1, ("mixup", 3): 0.25, ("mixup", 5): 0.5, ("large_batch", 3): 0.24}[arm] for arm in runs}
        return End("done", Measured({arm: time for arm, time in seconds.items() if arm not in self.broken}, self.broken))


@pytest.fixture
def engine():
    return Measures()


def costs(out, runs, engine):
    return measure_costs(runs_of(("none",))[0], runs, data=".", out=out, engine=engine, note=lambda words: None)


def test_costs_are_per_sample_and_relative_to_no_mixing(tmp_path, engine):
    found = costs(tmp_path, runs_of(), engine).numbers
    assert found == {("none", 1): 1.0, ("mixup", 3): 2.5, ("large_batch", 3): pytest.approx(0.8)}


def test_what_is_kept_is_not_measured_again_and_gives_the_same_numbers(tmp_path, engine):
    first = costs(tmp_path, runs_of(), engine)
    assert costs(tmp_path, runs_of(), engine) == first
    more = costs(tmp_path, runs_of(("mixup",), ks=(3, 5)), engine).numbers
    assert more == {("mixup", 3): 2.5, ("mixup", 5): 5.0}
    assert engine.asked == [[BASE, ("mixup", 3), ("large_batch", 3)], [BASE, ("mixup", 5)]], "always beside no mixing"


@pytest.mark.parametrize("changes", [{"batch": "20"}, {"running_threads": "1"}])
def test_other_settings_or_threads_are_measured_anew(tmp_path, engine, changes):
    costs(tmp_path, runs_of(("mixup",), running_threads="2"), engine)
    costs(tmp_path, runs_of(("mixup",), **changes), engine)
    assert len(engine.asked) == 2


def test_a_damaged_file_is_told_and_measured_again(tmp_path, engine):
    heard = []
    (tmp_path / FILE).write_text("[{")
    measure_costs(runs_of(("none",))[0], runs_of(), data=".", out=tmp_path, engine=engine, note=heard.append)
    assert heard[0] == f"line 1 of {tmp_path / FILE} is damaged and left out"
    assert len(read_rows(tmp_path / FILE, heard.append)) == 3


def test_an_arm_that_fails_is_told_and_the_others_have_their_costs(tmp_path, engine):
    engine.broken = {("mixup", 3): "RuntimeError: no"}
    found = costs(tmp_path, runs_of(), engine)
    assert found.broken == {("mixup", 3): "RuntimeError: no"}
    assert set(found.numbers) == {("none", 1), ("large_batch", 3)}


def test_without_no_mixing_there_is_nothing_to_compare_with(tmp_path, engine):
    engine.broken = {BASE: "RuntimeError: no"}
    with pytest.raises(ValueError, match="^what an update costs could not be measured: RuntimeError: no "):
        costs(tmp_path, runs_of(), engine)


def test_real_updates_of_all_arms_in_turn(tmp_path, monkeypatch):
    rows, plain = [], module.update

    def update(*arguments):
        done = plain(*arguments)
        rows.append(int(done.numbers[3]))
        return done

    monkeypatch.setattr(module, "update", update)
    ticks = count()
    broken = runs_of(("cutmix",), ks=(1,), network_name="lab.sweep.failing:Raises")
    runs = {(run.arm, run.k): run for run in [*runs_of(("none", "mixup")), *broken]}
    found = update_seconds(runs, ".", tmp_path, clock=lambda: float(next(ticks)))
    assert found.numbers == {BASE: 1.0, ("mixup", 3): 1.0}
    assert list(found.broken) == [("cutmix", 1)]
    assert found.broken["cutmix", 1].startswith("MixingError: ")
    assert found.broken["cutmix", 1].endswith(": the network is broken")
    assert rows == [40, 120] * (WARM + ROUNDS), "five updates are an epoch: it went on to the next"
