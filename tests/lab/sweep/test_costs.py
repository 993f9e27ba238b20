"""What an update costs: measured side by side by real updates, kept, and not measured twice."""

from itertools import count

import pytest

from multimix.lab.storage import read_rows
from multimix.lab.sweep import costs as module
from multimix.lab.sweep.child import End
from multimix.lab.sweep.costs import BASE, FILE, ROUNDS, WARM, Updates, measured, update_seconds
from multimix.lab.sweep.plan import arm_runs
from trial import RECIPE


def runs_of(methods=("none", "mixup", "large_batch"), ks=(3,), **changes):
    changes = {key.replace("_", "."): value for key, value in changes.items()}
    return arm_runs(RECIPE, scale="smoke", methods=methods, ks=ks, seeds=(0,), changes=changes)


class Measures:
    """In place of a process: hands out seconds and counts how often it was asked."""

    asked, broken = (), ()

    def __init__(self, work, arguments, log):
        assert work is update_seconds
        self.runs, self.log = arguments[0], log
        Measures.asked.append(list(self.runs))

    def end(self):
        seconds = {arm: {BASE: 0.1, ("mixup", 3): 0.25, ("mixup", 5): 0.5, ("large_batch", 3): 0.24}[arm] for arm in self.runs}
        return End("done", Updates({arm: time for arm, time in seconds.items() if arm not in self.broken}, self.broken))


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(module, "Child", Measures)
    monkeypatch.setattr(Measures, "asked", [])
    monkeypatch.setattr(Measures, "broken", {})
    return Measures


def costs(out, runs, **options):
    return measured(runs_of(("none",))[0], runs, data=".", out=out, note=lambda words: None, **options)


def test_costs_are_per_sample_and_relative_to_no_mixing(tmp_path, asked):
    found = costs(tmp_path, runs_of()).costs
    assert found == {("none", 1): 1.0, ("mixup", 3): 2.5, ("large_batch", 3): pytest.approx(0.8)}


def test_what_is_kept_is_not_measured_again_and_gives_the_same_numbers(tmp_path, asked):
    first = costs(tmp_path, runs_of())
    assert costs(tmp_path, runs_of()) == first
    more = costs(tmp_path, runs_of(("mixup",), ks=(3, 5))).costs
    assert more == {("mixup", 3): 2.5, ("mixup", 5): 5.0}
    assert asked.asked == [[BASE, ("mixup", 3), ("large_batch", 3)], [BASE, ("mixup", 5)]], "always beside no mixing"


@pytest.mark.parametrize("changes", [{"batch": "20"}, {"running_threads": "1"}])
def test_other_settings_or_threads_are_measured_anew(tmp_path, asked, changes):
    costs(tmp_path, runs_of(("mixup",), running_threads="2"))
    costs(tmp_path, runs_of(("mixup",), **changes))
    assert len(asked.asked) == 2


def test_a_damaged_file_is_told_and_measured_again(tmp_path, asked):
    heard = []
    (tmp_path / FILE).write_text("[{")
    measured(runs_of(("none",))[0], runs_of(), data=".", out=tmp_path, note=heard.append)
    assert heard[0] == f"line 1 of {tmp_path / FILE} is damaged and left out"
    assert len(read_rows(tmp_path / FILE, heard.append)) == 3


def test_an_arm_that_fails_is_told_and_the_others_have_their_costs(tmp_path, asked):
    Measures.broken = {("mixup", 3): "RuntimeError: no"}
    found = costs(tmp_path, runs_of())
    assert found.broken == {("mixup", 3): "RuntimeError: no"}
    assert set(found.costs) == {("none", 1), ("large_batch", 3)}


def test_without_no_mixing_there_is_nothing_to_compare_with(tmp_path, asked):
    Measures.broken = {BASE: "RuntimeError: no"}
    with pytest.raises(ValueError, match="^what an update costs could not be measured: RuntimeError: no "):
        costs(tmp_path, runs_of())


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
    assert found == Updates({BASE: 1.0, ("mixup", 3): 1.0}, {("cutmix", 1): "RuntimeError: the network is broken"})
    assert rows == [40, 120] * (WARM + ROUNDS), "five updates are an epoch: it went on to the next"
