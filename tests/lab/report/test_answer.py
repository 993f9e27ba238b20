"""What is said about made-up results: better beyond doubt, perhaps chance, worse, one seed; and code that runs."""

import shlex
from pathlib import Path

import numpy
import pytest
import torch
from scipy import stats
from torch import nn

import multimix as mm
from multimix.lab.report.answer import answer, constructor_call, usage_code
from multimix.lab.report.frame import studies
from multimix.lab.report.pages.compare import class_changes
from multimix.lab.studies.compare.run import Request, _command
from multimix.methods.samix.block import NewBlock
from multimix.methods.style.small_pair import NewPair
from result_rows import made_up_recipe, result_row

RECIPE = made_up_recipe(rows=(("none", 1),), name="own")


def whole(errors, seconds=None, **more):
    rows = []
    for (arm, k), values in errors.items():
        for seed, value in enumerate(values):
            row = result_row(RECIPE, arm, k, seed, (60.0, 40.0, value), scale="small", seconds=(seconds or {}).get((arm, k), 2.0))
            rows.append(row | {"evaluations": more.get("evaluations", {}).get((arm, k), {}), "place": "nowhere"})
    (study,) = studies(rows, {"own": RECIPE})
    return study


NONE, CUT, FIVE = ("none", 1), ("cutmix", 1), ("cutmix", 5)


def test_better_beyond_doubt():
    errors = {NONE: [30.0, 31.0, 32.0, 30.5], CUT: [25.1, 26.0, 27.2, 25.4], FIVE: [29.0, 33.0, 31.0, 30.0]}
    recommendation = answer(whole(errors))
    assert recommendation.headline == "cutmix K = 1 is best: error 25.9 % instead of 30.9 % without mixing (significant)."
    assert recommendation.better
    test = stats.ttest_rel(errors[CUT], errors[NONE])
    half = test.confidence_interval().high - numpy.mean(numpy.subtract(errors[CUT], errors[NONE]))
    assert f"cutmix K = 1 minus no mixing: −4.95 ± {half:.2f} points" in recommendation.sentences[0]
    assert "over 4 seeds" in recommendation.sentences[0]


def test_perhaps_chance():
    recommendation = answer(whole({NONE: [30.0, 31.0, 32.0], CUT: [31.5, 29.0, 30.0]}))
    assert recommendation.headline == (
        "No method is significantly better than no mixing: cutmix K = 1 has the lowest error, 30.2 % instead of 31.0 %."
    )
    assert not recommendation.better


def test_no_mixing_is_best():
    recommendation = answer(whole({NONE: [20.0, 21.0, 22.0], CUT: [31.5, 32.4, 33.6]}))
    assert recommendation.headline == "No mixing has the lowest error, 21.0 %: none of these methods is better on these data."
    assert "Significantly worse than no mixing: cutmix K = 1." in recommendation.sentences


def test_equal_errors_are_no_win_of_no_mixing_and_no_spread_is_no_interval():
    recommendation = answer(whole({NONE: [70.0, 60.0], CUT: [70.0, 60.0]}))
    assert (
        recommendation.headline
        == "No method has a lower error than no mixing, 65.0 %: none of these methods is better on these data."
    )
    assert ": 0.00 points of error (the same in each of the 2 seeds)" in recommendation.sentences[0]
    recommendation = answer(whole({NONE: [70.0, 60.0], CUT: [65.0, 55.0]}))
    assert ": −5.00 points of error (the same in each of the 2 seeds)" in recommendation.sentences[0]


def test_one_seed_says_nothing_about_how_sure():
    recommendation = answer(whole({NONE: [20.0], CUT: [10.0]}))
    assert recommendation.headline.startswith("With one seed, cutmix K = 1 has the lowest error, 10.0 %; one seed cannot ")
    assert not recommendation.better


def test_the_cheapest_of_those_not_told_apart_is_advised():
    errors = {NONE: [30.0, 31.0, 32.0, 30.5], CUT: [25.3, 26.0, 27.2, 25.4], FIVE: [25.0, 26.1, 26.9, 25.5]}
    recommendation = answer(whole(errors, seconds={NONE: 1.0, CUT: 1.5, FIVE: 6.0}))
    assert (recommendation.best.k, recommendation.advice.k) == (5, 1)
    assert "Cost: cutmix K = 1 took 1.5 times the CPU s of no mixing for the same number of updates." in recommendation.sentences


def test_a_network_that_had_no_time_to_learn_is_said():
    recommendation = answer(
        whole({NONE: [20.0, 21.0, 22.0], CUT: [31.5, 32.4, 33.6]})
    )  # made-up rows have a training accuracy of 50 %
    assert any(
        words.startswith("Without mixing the network fitted only 50 % of its training samples")
        for words in recommendation.sentences
    )


def test_changes_of_classes_by_hand():
    def seen(*wrong):
        entries = [{"n": 4, "wrong": count, "error": 25.0 * count} for count in wrong]
        result = {"classes": ["a", "b", "c"], "per_class": [*entries, {"n": 0, "wrong": 0, "error": None}]}
        return {
            "error": {"numbers": {"n": 8, "error": 1.0, "error_low": 0.5, "error_high": 2.0}, "result": result, "options": {}}
        }

    study = whole({NONE: [30.0, 31.0], CUT: [25.0, 24.0]}, evaluations={NONE: seen(3, 1), CUT: seen(1, 2)})
    assert class_changes(study, answer(study).best) == [("a", 75.0, 25.0, 4), ("b", 25.0, 50.0, 4)]


@pytest.mark.parametrize(
    "method", [mm.CutMix(k=5), mm.PuzzleMix(k=2, std=0.25), mm.ManifoldMixup(k=3, layers=("0",)), mm.InputMixup(k=1)]
)
def test_the_code_makes_the_method_again_and_runs(method):
    lines = usage_code(method, method.name, method.k)
    names = {"mm": mm, "torch": torch, "model": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, 5))}
    names |= {"x": torch.rand(4, 3, 16, 16), "y": torch.arange(4)}
    exec(lines, names)
    assert names["method"] == method
    assert names["loss"].ndim == 0
    assert eval(constructor_call(method), {"mm": mm}) == method


@pytest.mark.parametrize(
    "method",
    [
        mm.RecursiveMix(k=2),
        mm.SAMix(k=2, block=NewBlock("0")),
        mm.StyleMix(k=2, pair=NewPair(width=4, steps=2, batch=2), side=None),
    ],
    ids=["history", "trained network", "network"],
)
def test_the_code_of_methods_with_more_than_a_batch_runs(method):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    names = {"torch": torch, "model": model, "x": torch.rand(4, 3, 16, 16), "y": torch.arange(4)}
    exec(usage_code(method, method.name, method.k), names)
    names["loss"].backward()
    assert model[0].weight.grad.abs().sum() > 0


def test_the_command_on_the_page_names_the_place_and_survives_a_shell():
    request = Request(None, ("cutmix",), (1, 5), 2, 60.0, 1, {"network.options": "a=b c"})
    words = shlex.split(_command(Path("Bob's birds"), request, Path("my results")))
    assert words[:3] == ["multimix", "compare", "Bob's birds"]
    assert words[words.index("--out") + 1] == "my results"
    assert words[-1] == "network.options=a=b c"


def test_code_without_mixing():
    assert "mm." not in usage_code(None, "none", 1)
    assert usage_code(None, "smoothing", 1) == "# no mixing, labels smoothed by 0.1"
