"""Comparisons of a study against scipy, Holm's correction by hand, and sentences that count what shows."""

import pytest
from scipy import stats

from multimix.lab.report.comparison import comparisons
from multimix.lab.report.frame import studies
from multimix.lab.report.sentences import findings, headline
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe()
LAST = {
    ("none", 1): [30.0, 31.0, 32.0],
    ("mixup", 1): [28.0, 29.5, 30.2],
    ("mixup", 5): [25.0, 26.0, 27.5],
    ("puzzlemix", 5): [30.1, 31.5, 31.0],
}


def rows(ece=None, **more):
    made = []
    for (arm, k), values in LAST.items():
        for seed, value in enumerate(values):
            row = result_row(RECIPE, arm, k, seed, (60.0, 40.0, value), scale="small", **more)
            numbers = {} if ece is None else {"calibration": {"numbers": {"ece": ece[arm, k][seed]}}}
            made.append(row | {"evaluations": numbers, "place": "nowhere"})
    return made


def test_every_comparison_is_a_paired_t_test_with_holms_correction():
    (study,) = studies(rows(), {"made_up": RECIPE})
    result = {(one.group, one.other): one for one in comparisons(study, "last")}
    pairs = {
        ("mixup K = 1", "none"): (("mixup", 1), ("none", 1)),
        ("mixup K = 5", "none"): (("mixup", 5), ("none", 1)),
        ("mixup K = 5", "mixup K = 1"): (("mixup", 5), ("mixup", 1)),
        ("puzzlemix K = 5", "none"): (("puzzlemix", 5), ("none", 1)),
    }
    assert set(result) == set(pairs)
    plain = {}
    for key, (first, second) in pairs.items():
        test = stats.ttest_rel(LAST[first], LAST[second])
        plain[key] = test.pvalue
        assert result[key].paired.p_t == pytest.approx(test.pvalue)
        low, high = test.confidence_interval()
        assert result[key].paired.mean - result[key].paired.half == pytest.approx(low)
        assert result[key].paired.mean + result[key].paired.half == pytest.approx(high)
    ordered = sorted(plain, key=plain.get)
    largest = 0.0
    for place, key in enumerate(ordered):
        largest = max(largest, min(1.0, (4 - place) * plain[key]))
        assert result[key].p_holm == pytest.approx(largest)


def test_sentences_count_what_shows():
    ece = {key: [1.0, 2.0, 3.5] for key in LAST} | {("mixup", 5): [9.0, 10.2, 11.1]}
    (study,) = studies(rows(ece), {"made_up": RECIPE})
    error_none, error_one, ece_none, ece_one = findings(study)[:4]
    assert error_none.startswith("3 comparisons of error with no mixing: lower in 2 (mixup K = 1 ")
    assert "higher in 0, not different in 1" in error_none
    assert "n = 3" in error_none
    assert error_one.startswith("1 comparison of error with K = 1 of the same method: lower in 1 (mixup K = 5 −3.07 ± ")
    assert "higher in 1 (mixup K = 5 +7.93 ± " in ece_none
    assert "not different in 2" in ece_none
    assert "higher in 1 (mixup K = 5 " in ece_one


def with_costs(seconds, confidence=None):
    """Rows whose CPU seconds and confidence depend on the arm and K; accuracy is 70 %."""
    made = []
    for row in rows(device="cpu"):
        key = row["arm"], row["k"]
        epochs = [{**epoch, "cpu_seconds": seconds[key]} for epoch in row["epochs"]]
        numbers = {} if confidence is None else {"calibration": {"numbers": {"confidence": confidence[key], "accuracy": 70.0}}}
        made.append({**row, "epochs": epochs, "evaluations": numbers})
    return made


COSTS = {("none", 1): 1.0, ("mixup", 1): 2.0, ("mixup", 5): 5.0, ("puzzlemix", 5): 9.0}


def sentences(made):
    (study,) = studies(made, {"made_up": RECIPE})
    return findings(study)


def test_confidence_is_said_with_its_direction_where_it_was_measured():
    confidence = {("none", 1): 74.5, ("mixup", 1): 66.0, ("mixup", 5): 61.25, ("puzzlemix", 5): 79.0}
    assert (
        "Mean confidence minus accuracy is below 0 (underconfident) in 2 of 4 trainings; no mixing has +4.50 (none); "
        "the lowest is −8.75 (mixup K = 5); the highest is +9.00 (puzzlemix K = 5), in points."
    ) in sentences(with_costs(COSTS, confidence))
    assert not any("confidence" in sentence for sentence in sentences(with_costs(COSTS)))


def test_cost_is_the_ratio_of_the_largest_k_to_the_smallest_on_one_machine():
    assert "Cost: for the same number of updates K = 5 took 2.5 times the CPU time of K = 1." in sentences(with_costs(COSTS))
    elsewhere = [{**row, "device": "cuda"} if row["k"] == 5 else row for row in with_costs(COSTS)]
    assert not any("Cost" in sentence for sentence in sentences(elsewhere))
    assert not any("Cost" in sentence for sentence in sentences([{**row, "device": "cuda"} for row in with_costs(COSTS)]))


def test_power_counts_the_comparisons_and_names_the_least_p_of_few_seeds():
    assert sentences(rows())[-1].startswith("4 comparisons in all: about 0.2 would show at 5 % without correction")
    assert "With 3 seeds a rank test (Wilcoxon's) cannot give a p below 0.25" in sentences(rows())[-1]
    ece = {key: [1.0, 2.0, 3.5] for key in LAST}
    assert sentences(rows(ece))[-1].startswith("8 comparisons in all: about 0.4 ")


def test_nothing_to_compare_is_said():
    (study,) = studies([row for row in rows() if row["arm"] == "none"], {"made_up": RECIPE})
    assert findings(study) == ["Nothing is compared: there is one way of training."]


def test_studies_are_recipes_at_scales():
    made = rows() + [row | {"scale": "smoke"} for row in rows()[:2]]
    result = studies(made, {"made_up": RECIPE})
    assert [(study.recipe.name, study.scale, sum(len(group.seeds) for group in study.groups)) for study in result] == [
        ("made_up", "small", 12),
        ("made_up", "smoke", 2),
    ]
    with pytest.raises(ValueError, match="recipe 'made_up'"):
        studies(made, {"other": RECIPE})


def test_the_headline_names_the_lowest_error_and_whether_it_shows():
    (study,) = studies(rows(), {"made_up": RECIPE})
    corrected = next(one.p_holm for one in comparisons(study, "last") if (one.group, one.other) == ("mixup K = 5", "none"))
    (mean,) = [group.summary(study.error).mean for group in study.trained if group.label == "mixup K = 5"]
    words = headline(study)
    assert words.startswith(f"mixup K = 5 has the lowest error of 4, {mean:.2f} % (± ")
    assert (", significant after" in words) == (corrected < 0.05)
    (alone,) = studies([row for row in rows() if row["arm"] == "none"], {"made_up": RECIPE})
    assert headline(alone).startswith("No mixing: error of the last epoch ")
    (two,) = studies([row for row in rows() if row["seed"] < 2], {"made_up": RECIPE})
    assert "two seeds cannot distinguish" in headline(two)
    assert "±" not in headline(two)
