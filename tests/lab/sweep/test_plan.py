"""Which runs a sweep has, and that budgets that are called equal are."""

from dataclasses import replace
from itertools import permutations

import pytest

from multimix import CutMix, NoMix
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.base import arm_settings
from multimix.lab.sweep.plan import Entry, plan_sweep, rows_per_sample
from multimix.lab.training.loop import Training
from multimix.lab.training.run import engine
from trial import RECIPE, plain_settings, settings, splits

EVERY = ("none", "smoothing", "mixup", "cutout", "cutmix", "large_batch", "batch_augmentation", "batch_augmentation_mixup")


def long_settings(scale):
    return replace(plain_settings(scale), epochs=12)


LONG = replace(RECIPE, settings=long_settings)


def plan(recipe=RECIPE, methods=("none", "mixup"), ks=(1, 3), seeds=(0,), **options):
    return plan_sweep(recipe, scale="smoke", methods=methods, ks=ks, seeds=seeds, **options)


def arms(planned):
    return [(one.run.seed, one.run.arm, one.run.k) for one in planned]


def test_methods_times_k_seed_by_seed_and_those_without_k_once():
    assert arms(plan(methods=("none", "smoothing", "cutmix"), ks=(5, 1), seeds=(3, 0))) == [
        (seed, arm, k)
        for seed in (3, 0)
        for arm, k in (("none", 1), ("smoothing", 1), ("cutmix", 5), ("cutmix", 1))
    ]  # fmt: skip


def test_what_is_named_twice_is_planned_once():
    once = plan(methods=("mixup", "none"), seeds=(1, 0), equal=("steps", "samples"))
    assert (
        plan(methods=("mixup", "input", "none", "none"), ks=(1, 3, 1), seeds=(1, 0, 1), equal=("steps", "samples", "steps"))
        == once
    )


def test_the_order_of_arguments_changes_no_run():
    costs = {("none", 1): 1.0, **{(arm, k): k * 1.1 for arm in ("mixup", "cutmix") for k in (1, 3)}}
    options = {"costs": costs, "equal": ("steps", "samples", "compute")}
    plans = [
        plan(LONG, methods=methods, ks=ks, **options)
        for methods in permutations(("none", "mixup", "cutmix"))
        for ks in ((1, 3), (3, 1))
    ]
    assert {frozenset(one.entry for one in planned) for planned in plans} == {frozenset(one.entry for one in plans[0])}


def test_at_equal_steps_the_settings_are_the_recipes_own():
    for one in plan(methods=EVERY, ks=(1, 3)):
        assert one.run.settings == arm_settings(RECIPE, plain_settings("smoke"), one.run.arm, one.run.k)
        assert one.equal == "steps"


@pytest.mark.parametrize("equal", ["samples", "compute"])
def test_k_1_needs_no_other_run_for_another_budget(equal):
    costs = dict.fromkeys([("none", 1), ("mixup", 1), ("mixup", 3)], 1.0)
    planned = plan(ks=(1,), equal=("steps", equal), costs=costs)
    assert len(planned) == 4
    assert len({one.run.folder for one in planned}) == 2


def rows_trained(run):
    """Rows of a real training, and how many one epoch has."""
    training = Training(run.settings, run.seed, splits(), engine(run.settings))
    training.run(None)
    rows = [epoch.rows for epoch in training.at.history]
    return sum(rows), rows[0]


@pytest.mark.slow
def test_at_equal_samples_as_many_rows_really_pass_the_network_up_to_half_an_epoch():
    changes = {"data.per_class": "12", "data.report_per_class": "1", "batch": "20"}
    found = {
        one.entry[1:3]: rows_trained(one.run) for one in plan(LONG, methods=EVERY, ks=(2, 5), equal=("samples",), changes=changes)
    }
    whole = 12 * 120
    assert found["none", 1] == (whole, 120)
    for (arm, k), (rows, epoch) in found.items():
        if not arm.startswith("large"):  # whose last, smaller batch is dropped
            assert abs(rows - whole) <= epoch / 2, (arm, k)
    assert found["mixup", 2] == (whole, 240), "6 epochs are exact"
    assert found["cutout", 5][0] == 2 * 600, "12 / 5 = 2.4 epochs are 2"
    assert found["batch_augmentation", 5][0] == 2 * 600
    assert found["large_batch", 5][0] == 12 * 100, "larger batches have no more rows, but 20 samples are left over"


def test_rows_of_batches_that_stay_unmixed_are_counted_as_they_come():
    assert rows_per_sample(settings(method=CutMix(k=5, p=0.5))) == 3.0
    assert rows_per_sample(settings(method=CutMix(k=5, alpha=0.0))) == 1.0
    assert rows_per_sample(settings(method=NoMix(k=5), repeats=4)) == 4.0


@pytest.mark.parametrize(("cost", "epochs"), [(1.0, 12), (0.5, 24), (2.39, 5), (2.4, 5), (8.0, 2), (100.0, 1)])
def test_at_equal_compute_the_epochs_are_divided_by_the_cost_and_the_schedule_ends_with_them(cost, epochs):
    (one,) = plan(LONG, methods=("mixup",), ks=(3,), equal=("compute",), costs={("mixup", 3): cost})
    assert one.run.settings.epochs == epochs
    ratio = epochs / 12
    for at in (0.1, 0.6, 1.9, 2.1, 11.0):
        assert one.run.settings.schedule.at_epoch(at * ratio) == pytest.approx(long_settings("smoke").schedule.at_epoch(at))
    assert replace(one.run.settings, epochs=12, schedule=long_settings("smoke").schedule) == arm_settings(
        LONG, long_settings("smoke"), "mixup", 3
    )


def test_an_arm_without_a_cost_is_left_out_at_equal_compute_alone():
    found = plan(equal=("steps", "compute"), costs={("none", 1): 1.0, ("mixup", 1): 1.0})
    assert [one.entry[:3] for one in found if one.run.arm == "mixup"] == [
        ("steps", "mixup", 1), ("compute", "mixup", 1), ("steps", "mixup", 3),
    ]  # fmt: skip


def test_changes_of_the_method_are_for_arms_that_have_one():
    none, mixup = plan(ks=(3,), changes={"method.alpha": "0.5", "epochs": "2"})
    assert mixup.run.settings.method.alpha == 0.5
    assert none.run.settings.method == NoMix()
    assert {none.run.settings.epochs, mixup.run.settings.epochs} == {2}
    with pytest.raises(ValueError, match="alpha"):
        plan(methods=("none",), changes={"method.alpha": "0.5"})


def test_an_entry_is_what_tells_a_row():
    (one,) = plan(methods=("mixup",), ks=(3,), seeds=(7,))
    assert one.entry == Entry("steps", "mixup", 3, 7, one.run.digest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"equal": ("time",)}, r"^equal must be of steps, samples, compute, got 'time'$"),
        ({"equal": ()}, r"^equal must name at least one of steps, samples, compute, got none$"),
        ({"equal": ("compute",)}, r"^equal compute needs the costs of the arms, got none$"),
        ({"methods": ()}, r"^methods must name at least one, got none$"),
        ({"ks": ()}, r"^ks must hold at least one K for mixup, got none$"),
        ({"ks": (0,)}, r"^k must be an integer of at least 1, got 0$"),
        ({"seeds": ()}, r"^seeds must be .*, got none$"),
        ({"methods": ("mixpu",)}, r"^no method 'mixpu' \(did you mean"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)


def test_phases_do_not_shrink():
    recipe = RECIPES["imagenet"]
    assert plan(recipe, equal=("steps",))
    with pytest.raises(
        ValueError, match=r"^imagenet has 3 phases, which do not shrink with the epochs; it can be swept at equal"
    ):
        plan(recipe, equal=("samples",))
