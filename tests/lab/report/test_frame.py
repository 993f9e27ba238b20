import pytest
from scipy import stats

from multimix.lab.recipes.settings import Running
from multimix.lab.report import frame as frame_module
from multimix.lab.report.comparison import minus_baseline
from multimix.lab.report.frame import epoch_frame, join_settings, study
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe()


def described_groups(frame_study):
    return [(group.arm, group.k, group.seeds) for group in frame_study.groups]


def test_groups_are_those_of_the_recipe_in_its_order_then_the_others():
    rows = [result_row(RECIPE, "cutmix", 3, 0), result_row(RECIPE, "mixup", 5, 2), result_row(RECIPE, "mixup", 5, 1)]
    frame_study = study(RECIPE, "paper", rows)
    assert described_groups(frame_study) == [
        ("none", 1, []),
        ("mixup", 1, []),
        ("mixup", 5, [1, 2]),
        ("puzzlemix", 5, []),
        ("cutmix", 3, [0]),
    ]
    assert [group.label for group in frame_study.groups][:2] == ["none", "mixup K = 1"]
    assert frame_study.notes == ()


def test_rows_of_other_recipes_and_scales_are_passed_over():
    rows = [result_row(RECIPE, scale="small"), result_row(RECIPE) | {"recipe": "another"}, {"recipe": "another"}]
    frame_study = study(RECIPE, "paper", rows)
    assert not any(len(group.runs) for group in frame_study.groups)
    assert frame_study.notes == ()


def test_the_last_of_several_rows_counts_and_is_noted():
    rows = [result_row(RECIPE, "mixup", 5, 0, [9.0, 8.0, last]) for last in (7.0, 6.0, 5.0)]
    frame_study = study(RECIPE, "paper", [rows[0], result_row(RECIPE, "mixup", 5, 1), *rows[1:]])
    group = frame_study.groups[2]
    assert group.values("last") == {0: 5.0, 1: 30.0}
    assert frame_study.notes == ("mixup K = 5, seed 0, has 3 rows: the last one counts",)
    assert study(RECIPE, "paper", rows[:2]).notes == ("mixup K = 5, seed 0, has 2 rows: the last one counts",)


@pytest.mark.parametrize(("field", "inner"), [("settings", None), ("outcome", "selected"), ("epochs", "loss")])
def test_a_row_with_other_fields_is_rejected(field, inner):
    row = result_row(RECIPE)
    for content in (row["epochs"] if field == "epochs" else [row[field]]) if inner else [row]:
        del content[inner or field]
    with pytest.raises(ValueError, match=f"{inner or field}"):
        study(RECIPE, "paper", [row])


def test_runs_with_other_settings_are_groups_of_their_own_below_the_majority():
    odd = [result_row(RECIPE, "mixup", 5, 0, changes={"epochs": 7, "smoothing": 0.2})]
    rows = odd + [result_row(RECIPE, "mixup", 5, seed) for seed in (0, 1)]
    frame_study = study(RECIPE, "paper", rows)
    most, few = frame_study.groups[2:4]
    assert (most.seeds, most.differs, most.changed) == ([0, 1], (), ())
    assert (few.seeds, few.differs) == ([0], ("epochs = 7, not 3", "smoothing = 0.2, not 0.0"))
    assert few.changed == few.differs
    assert frame_study.notes == ()  # the group says it
    assert (most.digest, few.digest) == (rows[1]["digest"], rows[0]["digest"])


def test_the_majority_is_that_of_seeds_and_the_recipe_decides_between_equals():
    def digests(rows):
        return [group.digest for group in study(RECIPE, "paper", rows).groups[:2]]

    own, other = result_row(RECIPE), result_row(RECIPE, changes={"epochs": 7})
    assert digests([other, own]) == digests([own, other]) == [own["digest"], other["digest"]]
    # Rows of the same seed do not make a majority.
    assert digests([other, other, own]) == [own["digest"], other["digest"]]
    rows = [own, other, result_row(RECIPE, changes={"epochs": 7}, seed=1)]
    assert digests(rows) == [other["digest"], own["digest"]]
    assert study(RECIPE, "paper", rows).groups[1].differs == ("epochs = 3, not 7",)


def test_settings_that_are_not_the_recipes_are_noted_once_for_all_groups():
    rows = [result_row(RECIPE, arm, k, general={"epochs": 7}) for arm, k in (("none", 1), ("mixup", 5))]
    frame_study = study(RECIPE, "paper", rows)
    assert [group.differs for group in frame_study.groups if len(group.runs)] == [(), ()]
    assert frame_study.notes == ("† not with the recipe's settings: none, mixup K = 5 (epochs = 7, not 3)",)


def test_how_a_machine_did_it_is_no_difference():
    rows = [result_row(RECIPE, seed=0), result_row(RECIPE, seed=1, changes={"running": Running(workers=2)})]
    frame_study = study(RECIPE, "paper", rows)
    assert frame_study.groups[0].seeds == [0, 1]
    assert frame_study.groups[0].changed == ()


def test_the_same_number_written_in_another_way_is_named_by_its_digest():
    rows = [result_row(RECIPE, seed=0), result_row(RECIPE, seed=0)]
    rows[1] |= {"digest": "another", "settings": rows[1]["settings"] | {"schedule.at": [100]}}
    assert study(RECIPE, "paper", rows).groups[1].differs == (f"digest = another, not {rows[0]['digest']}",)


def test_arms_with_the_same_digest_stay_apart():
    rows = [result_row(RECIPE, "none", 1), result_row(RECIPE, "large_batch", 1)]
    assert rows[0]["digest"] == rows[1]["digest"]
    assert [(group.arm, group.seeds) for group in study(RECIPE, "paper", rows).groups if len(group.runs)] == [
        ("none", [0]),
        ("large_batch", [0]),
    ]


def test_the_difference_to_no_mixing_is_paired_over_the_common_seeds():
    none = {0: 30.0, 1: 31.5, 2: 29.0, 5: 90.0}
    mixup = {1: 30.0, 2: 28.25, 0: 27.0, 7: 1.0}
    rows = [result_row(RECIPE, "none", 1, seed, [50.0, 40.0, last]) for seed, last in none.items()]
    rows += [result_row(RECIPE, "mixup", 5, seed, [50.0, 40.0, last]) for seed, last in mixup.items()]
    frame_study = study(RECIPE, "paper", rows)
    result = minus_baseline(frame_study.groups[2], frame_study.groups, "last")
    assert result.n == 3
    assert result.mean == pytest.approx(((27.0 - 30.0) + (30.0 - 31.5) + (28.25 - 29.0)) / 3)
    assert result.p_t == pytest.approx(stats.ttest_rel([27.0, 30.0, 28.25], [30.0, 31.5, 29.0]).pvalue)
    assert minus_baseline(frame_study.groups[0], frame_study.groups, "last") is None
    assert minus_baseline(frame_study.groups[3], frame_study.groups, "last") is None  # not run
    one = study(RECIPE, "paper", [row for row in rows if row["seed"] in (0, 5, 7)])
    assert minus_baseline(one.groups[2], one.groups, "last") is None
    # Of two lines without mixing the one with more common seeds counts.
    rows += [result_row(RECIPE, "none", 3, seed) for seed in (0, 1)] + [
        result_row(RECIPE, "none", 4, seed) for seed in (0, 1, 2, 7)
    ]
    frame_study = study(RECIPE, "paper", rows)
    assert minus_baseline(frame_study.groups[2], frame_study.groups, "last").n == 4


def test_only_runs_that_differ_by_nothing_but_the_arm_are_compared():
    def run(arm, k, seed, last, **general):
        return result_row(RECIPE, arm, k, seed, [50.0, 40.0, last], general=general)

    rows = [run("none", 1, seed, 30.0) for seed in range(3)]
    rows += [run("none", 1, seed, 35.0, epochs=7) for seed in range(2)]
    rows += [run("mixup", 5, seed, 33.0 + seed, epochs=7) for seed in range(3)]
    rows += [run("mixup", 1, seed, 33.0, epochs=9) for seed in range(3)]
    frame_study = study(RECIPE, "paper", rows)
    by_arm = {group.label: group for group in frame_study.groups}
    result = minus_baseline(by_arm["mixup K = 5"], frame_study.groups, "last")
    assert (result.n, result.mean) == (2, -1.5)
    assert minus_baseline(by_arm["mixup K = 1"], frame_study.groups, "last") is None


@pytest.mark.parametrize(("arm", "k"), [("smoothing", 1), ("large_batch", 5), ("batch_augmentation_mixup", 5)])
def test_strategies_are_compared_though_they_change_more_than_the_method(arm, k):
    rows = [result_row(RECIPE, name, its_k, seed) for name, its_k in (("none", 1), (arm, k)) for seed in range(2)]
    frame_study = study(RECIPE, "paper", rows)
    assert minus_baseline(frame_study.groups[-1], frame_study.groups, "last").mean == 0
    assert frame_study.notes == ()


@pytest.mark.parametrize("arm", ["forgotten", "manifoldmix"])
def test_arms_that_cannot_be_made_are_shown_and_compared_all_the_same(arm, monkeypatch):
    rows = [result_row(RECIPE, "none", 1, seed) for seed in range(2)]
    rows += [result_row(RECIPE, "cutmix", 5, seed) | {"arm": arm} for seed in range(2)]
    original = frame_module.arm_settings

    def refuse(recipe, base, name, k):
        if name == "manifoldmix":
            raise ValueError("layers must be named")
        return original(recipe, base, name, k)

    monkeypatch.setattr(frame_module, "arm_settings", refuse)
    frame_study = study(RECIPE, "paper", rows)
    assert (frame_study.groups[-1].arm, frame_study.groups[-1].changed) == (arm, ())
    assert minus_baseline(frame_study.groups[-1], frame_study.groups, "last").n == 2


def test_options_of_the_method_are_changes_but_do_not_prevent_the_comparison():
    rows = [result_row(RECIPE, "none", 1, seed) for seed in range(2)]
    other = made_up_recipe(options={"mixup": {"alpha": 0.5}})
    rows += [result_row(other, "mixup", 5, seed) for seed in range(2)]
    frame_study = study(RECIPE, "paper", rows)
    assert frame_study.groups[2].changed == ("method.alpha = 0.5, not 1.0",)
    assert minus_baseline(frame_study.groups[2], frame_study.groups, "last").n == 2


def test_circumstances_that_make_runs_differ_are_noted():
    rows = [
        result_row(RECIPE, seed=0),
        result_row(RECIPE, seed=1, device="cuda", processes=4, skipped=2),
        result_row(RECIPE, "mixup", 5, skipped=2, environment={"commit": "def", "torch": "2.13.0", "threads": "2"}),
    ]
    assert study(RECIPE, "paper", rows).notes == (
        "bad samples left out of the data: 2 (none (4 processes), mixup K = 5)",
        "seconds do not compare, they are from different machines: cpu, 1 process, threads: 2; cuda, 4 processes, threads: 2",
        "the runs are of different versions: abc1234 with torch 2.13.0; def with torch 2.13.0",
    )


def test_images_are_those_of_all_epochs_and_missing_values_have_no_summary():
    rows = [result_row(RECIPE, seed=0), result_row(RECIPE, seed=1)]
    rows[1]["epochs"][0]["images"] = 4000
    group = study(RECIPE, "paper", rows).groups[0]
    assert group.mean("images") == (3000 + 6000) / 2
    assert group.summary("selected") is None
    assert study(RECIPE, "paper", []).groups[0].mean("images") is None


def test_long_differences_are_cut_short():
    assert join_settings(["a = 1, not 2", "b = 1, not 2", "c = 1, not 2"], 2) == "a = 1, not 2; b = 1, not 2; and 1 more"
    assert join_settings(["a", "b"], 2) == "a; b"


def test_an_unknown_metric_is_an_error():
    with pytest.raises(ValueError, match="metric"):
        study(made_up_recipe([("none", 1)], "alone", metric="accuracy"), "paper", [])


def test_runs_of_several_processes_are_groups_of_their_own_and_not_paired_with_others():
    rows = [result_row(RECIPE, "none", 1, seed) for seed in range(3)]
    for seed in range(3):
        row = result_row(RECIPE, "mixup", 5, seed)
        rows += [row, row | {"digest": row["digest"] + "-2p", "processes": 2}]
    frame_study = study(RECIPE, "paper", rows)
    one, two = (group for group in frame_study.groups if (group.arm, group.k) == ("mixup", 5))
    assert (one.processes, one.label, one.differs) == (1, "mixup K = 5", ())
    assert (two.processes, two.label, two.differs) == (2, "mixup K = 5 (2 processes)", ())
    assert minus_baseline(one, frame_study.groups, "last").n == 3
    assert minus_baseline(two, frame_study.groups, "last") is None


def test_the_epoch_frame_adds_up_what_was_spent():
    rows = [result_row(RECIPE, "mixup", 5, 3), result_row(RECIPE, "none", 1, 0, device="cuda", seconds=3.0)]
    frame = epoch_frame(rows)
    assert frame.samples.tolist() == [5000, 10000, 15000] * 2
    assert frame.compute.tolist() == [2.0, 4.0, 6.0, 3.0, 6.0, 9.0]
    assert frame.steps.tolist() == [10, 20, 30] * 2
    assert frame.seed.tolist() == [3, 3, 3, 0, 0, 0]


def test_evaluations_are_columns_by_measure_and_number():
    row = result_row(RECIPE) | {"evaluations": {"calibration[bins = 3]": {"numbers": {"ece": 2.5, "temperature": None}}}}
    (group,) = study(RECIPE, "paper", [row]).trained
    assert group.values("calibration[bins = 3].ece") == {0: 2.5}
    assert group.values("calibration[bins = 3].temperature") == group.values("error.error") == {}
