"""The demo's page from rows alone: numbers checked with scipy, sentences, tables, and the page in a browser."""

import html
import json
import math
import re
import warnings
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from browser import in_browser, opened, sound
from multimix.lab.images import ImageGrid
from multimix.lab.recipes.spiral import ARMS, K1, K5, NONE, SpiralSettings
from multimix.lab.report.exhibits import fill, largest_scale
from multimix.lab.report.pages.spiral import (
    accuracy_table,
    comparisons,
    expectation_table,
    findings,
    headline,
    p_value,
    paired_table,
    read_demo,
    read_spiral,
    spiral_frame,
    spiral_picture,
    write_spiral_page,
)
from multimix.lab.report.paper import exhibit

SPREAD = [0, 4, -3, 7, 2, -6, 5, 1, -2, 3, 6, -4, 8, -1, -5, 9, -7, 10, -8, -9]


def write_rows(folder, none, one, five, settings=None, name="spiral.json"):
    """Write ``spiral.json`` for numbers of right answers out of 600."""
    rows = [
        {"arm": arm.name, "seed": seed, "right": right, "tested": 600, "accuracy": right / 6}
        | {"cpu_seconds": 1.5, "environment": {"multimix": "1", "threads": "1"}}
        for arm, rights in zip(ARMS, (none, one, five), strict=True)
        for seed, right in enumerate(rights)
    ]
    content = {"settings": asdict(settings or SpiralSettings()), "network": "8 hidden layers", "rows": rows}
    (folder / name).write_text(json.dumps(content))
    return folder / name


@pytest.fixture
def made_up(tmp_path):
    return lambda *rights: read_spiral(write_rows(tmp_path, *rights))


def shifted(by, spread=SPREAD):
    return [540 + by + one for one in spread]


CLEAR_GAIN = shifted(-30), shifted(10, SPREAD[::-1]), shifted(30)


def accuracies(study, arm):
    return study.of(arm).accuracy.tolist()


def met(study):
    return [row[-1] for row in expectation_table(study).rows]


def test_numbers_agree_with_scipy(made_up):
    result = made_up(*CLEAR_GAIN)
    ours, theirs = accuracies(result, K1), accuracies(result, NONE)
    outcome = comparisons(result)[0].test
    assert outcome.p_t == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    rights = [result.of(arm).right for arm in (K1, NONE)]  # whole numbers tie, percentages may not
    assert outcome.p_wilcoxon == pytest.approx(stats.wilcoxon(*rights).pvalue)
    assert outcome.wins == sum(a > b for a, b in zip(ours, theirs, strict=True))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (outcome.mean - outcome.half, outcome.mean + outcome.half) == pytest.approx((low, high))
    interval = stats.t.interval(0.95, 19, loc=sum(ours) / 20, scale=stats.sem(ours))
    shown = result.summaries[K1]
    assert (shown.mean - shown.half, shown.mean + shown.half) == pytest.approx(interval)
    assert shown.median == pytest.approx(sorted(ours)[9] / 2 + sorted(ours)[10] / 2)


def test_comparisons_are_the_three_asked_for(made_up):
    pairs = [(one.first, one.second, one.paper) for one in comparisons(made_up(*CLEAR_GAIN))]
    assert pairs == [(K1, NONE, 3.50), (K5, NONE, 6.83), (K5, K1, 3.33)]


def test_a_clear_gain_is_said_to_be_one(made_up):
    first, second, third, paper = findings(made_up(*CLEAR_GAIN))
    assert first.startswith("Manifold mixup, K = 1 is better than no mixup: +6.67 ± ")
    assert second.startswith("Multi-mix, K = 5 is better than no mixup: +10.00 ± 0.00 points")
    assert third.startswith("Multi-mix, K = 5 is better than manifold mixup, K = 1: +3.33 ± ")
    assert re.search(r"higher in (\d+) of 20", third)[1] == str(
        sum(30 + a > 10 + b for a, b in zip(SPREAD, SPREAD[::-1], strict=True))
    )
    assert "K = 5 ahead of K = 1 by +3.33 points; that lies inside our interval" in paper
    assert "neither confirmed nor refuted" in paper


def test_a_difference_that_does_not_show_is_not_claimed(made_up):
    result = made_up(shifted(-30), shifted(0), shifted(-1, SPREAD[::-1]))
    third, paper = findings(result)[2:4]
    assert third.startswith("Between multi-mix, K = 5 and manifold mixup, K = 1 these data show no difference: −0.17 ± ")
    assert "the 95 % interval contains 0" in third
    low, high = stats.ttest_rel(accuracies(result, K5), accuracies(result, K1)).confidence_interval(0.95)
    assert re.search(r"anything from (\S+) to (\S+) points", third).groups() == (f"−{-low:.2f}", f"+{high:.2f}")
    assert "better" not in third
    assert "worse" not in third
    reached = sum(a - b >= 3.33 - 1e-9 for a, b in zip(accuracies(result, K5), accuracies(result, K1), strict=True))
    assert f"outside our interval for the mean difference, and {reached} of 20 seeds" in paper


def test_a_loss_is_said_to_be_one(made_up):
    third = findings(made_up(shifted(-30), shifted(0), shifted(-20, SPREAD[5:] + SPREAD[:5])))[2]
    assert third.startswith("Multi-mix, K = 5 is worse than manifold mixup, K = 1: −3.33 ± ")


def test_nothing_different_at_all_is_no_difference(made_up):
    third = findings(made_up(shifted(-30), shifted(0), shifted(0)))[2]
    assert "show no difference: 0.00 ± 0.00 points" in third
    assert "higher in 0 of 20 seeds, equal in 20; paired t-test p = 1.00, Wilcoxon p = 1.00" in third


def test_tests_that_disagree_are_named(made_up):
    one_outlier = [1] * 19 + [-300]
    third = findings(made_up(shifted(-30), [500] * 20, [500 + d for d in one_outlier]))[2]
    assert "show no difference" in third
    assert "disagree at the 5 % level" in third
    assert "disagree" not in findings(made_up(*CLEAR_GAIN))[0]


def test_five_seeds_are_not_blamed_for_wilcoxon(made_up):
    sentences = findings(made_up([480, 481, 483, 485, 480], [550, 551, 552, 553, 555], [550, 553, 552, 551, 554]))
    assert "is better than" in sentences[0]
    assert "Wilcoxon p = 0.062" in sentences[0]
    assert not any("disagree" in sentence for sentence in sentences)


def test_one_seed_says_so_and_no_interval_is_invented(made_up):
    sentences = findings(made_up([540], [560], [570]))
    assert sentences[0] == "One seed cannot compare manifold mixup, K = 1 with no mixup; they differ by +3.33 points here."
    assert "one seed" in sentences[3]
    assert "nan" not in " ".join(sentences)


def test_collapsed_runs_are_counted_apart(made_up):
    result = made_up([300, 419, 420, 500], [550] * 4, [550, 551, 552, 553])
    assert [result.collapsed(arm) for arm in ARMS] == [2, 0, 0]  # 420 of 600 is 70 %
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "no mixup: 2 of 4" in findings(result)[-1]
    assert not any("collapsed" in sentence for sentence in findings(made_up(*CLEAR_GAIN)))


def test_a_short_run_is_called_one(made_up):
    result = made_up([500, 501], [550, 549], [551, 552], SpiralSettings(epochs=400))
    assert findings(result)[0].startswith("This was a short run (400 of 3,000 epochs, 2 seeds)")
    assert met(result) == []


def test_expectations_can_be_met_and_missed(made_up):
    assert met(made_up(*CLEAR_GAIN)) == ["yes"] * 6
    below = made_up(shifted(-30), shifted(10), shifted(0))  # 1.67 points below K = 1
    assert met(below) == ["yes", "yes", "no", "yes", "yes", "yes"]
    small = made_up(shifted(0), shifted(17), shifted(19))  # 2.83 and 3.17 points
    assert met(small)[:2] == ["no", "yes"]
    fallen = made_up([300, *shifted(-30)[1:]], shifted(10), [300, 301, *shifted(30)[2:]])
    assert met(fallen)[3:] == ["yes", "yes", "no"]
    assert met(made_up(shifted(-30)[:19], shifted(0)[:19], shifted(1)[:19])) == []


@pytest.mark.parametrize(
    ("p", "shown"), [(1.0, "1.00"), (0.314, "0.31"), (0.049, "0.049"), (0.0061, "0.0061"), (4.6e-8, "5e−8"), (2e-12, "2e−12")]
)
def test_p_values_are_short(p, shown):
    assert p_value(p) == shown


def test_the_interval_of_one_value_is_not_a_number(made_up):
    assert math.isnan(made_up([540], [560], [570]).summaries[K5].half)


SHORT = SpiralSettings(epochs=4)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spiral")
    path = write_rows(folder, [560, 400, 580], [570, 571, 575], [580, 590, 579], SHORT)
    titles = ("training", *(f"{arm.words}\nmedian run (seed 12): 90.00 %" for arm in ARMS))
    pixels = np.random.default_rng(0).integers(0, 255, (4, 40, 40, 3), np.uint8)
    (folder / "spiral-boundaries.npz").write_bytes(ImageGrid(pixels, titles, 2, "a line").to_bytes())
    return write_spiral_page(path)


@in_browser
def test_the_page_is_sound_and_silent(page, tmp_path):
    assert opened(page, tmp_path / "profile")[1] == []
    assert len(sound(page, tmp_path)["drawings"]) == 2


def test_the_page_has_numbers_settings_pictures_and_the_paper_beside_ours(page):
    text = html.unescape(page.read_text())
    study = read_spiral(page.with_suffix(".json"))
    for arm in ARMS:
        values = accuracies(study, arm)
        assert f"<td>{arm.words}</td><td>3</td><td>{sum(values) / 3:.2f} ± " in text
        assert f"<td>{arm.paper:.2f}</td>" in text
        assert f"{arm.words}, median run (seed 12): 90.00 %" in text
    assert text.count(">median run (seed 12): 90.00 %</text>") == 3
    for paper in ("+3.50", "+6.83", "+3.33"):
        assert f"<td>{paper}</td>" in text
    assert text.count("one run, generator and settings not published") == 2
    assert "This was a short run (4 of 3,000 epochs, 3 seeds)" in text
    assert "<dt>decay</dt><dd>0.0001</dd>" in text
    assert "<dt>seeds</dt><dd>0, 1, 2</dd>" in text
    assert "9 runs: multimix 1, threads 1" in text
    assert "Expected beforehand" not in text
    assert not re.search(r"nan\b", re.sub(r"base64,[^\"]+", "", text))
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", text)


def test_the_page_depends_on_the_files_alone(page, tmp_path):
    for file in page.parent.glob("spiral*[!l]"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert write_spiral_page(tmp_path / "spiral.json").read_bytes() == page.read_bytes()


def test_one_seed_and_a_collapsed_run_make_a_page_without_pictures(tmp_path):
    page = write_spiral_page(write_rows(tmp_path, [300], [300], [300]))
    text = re.sub(r"base64,[^\"]+", "", html.unescape(page.read_text()))
    assert "no mixup: 1 of 1" in text
    assert "one seed cannot compare" in text
    assert "Decision boundaries" not in text
    assert "nan" not in text.lower()


def test_tables_have_the_numbers(made_up):
    study = made_up(*CLEAR_GAIN)
    assert accuracy_table(study).rows[0][1:6] == ["20", "85.08 ± 0.46", "85.08", "0", "90.67"]
    assert paired_table(study).rows[1] == ["K = 5 − none", "+10.00 ± 0.00", "20 of 20", "2e−6", "8e−6", "+6.83"]
    assert headline(study).endswith("(means of 20 seeds). Mixing is better for both K; K = 5 is above K = 1.")


RIGHT = [528, 360, 534], [570, 576, 582], [576, 576, 588]


def test_exhibits_are_filled_from_the_demo(tmp_path):
    spiral, path = exhibit("fig4"), write_rows(tmp_path, *RIGHT)
    frame = spiral_frame(path)
    assert list(frame.columns) == ["arm", "seed", "right", "tested", "accuracy", "cpu_seconds"]
    demo = read_demo(tmp_path)
    assert demo["paper"].equals(frame)
    outcome = fill(spiral, "paper", [], demo)
    assert next(iter(outcome.cells.values())).values == {0: 88.0, 1: 60.0, 2: 89.0}
    assert any("below 70 % (no mixup: 1)" in note for note in outcome.notes)
    assert set(demo) == {"paper", "small"}
    assert largest_scale(spiral, [], demo) == "paper"
    path.unlink()
    write_rows(tmp_path, *RIGHT, SpiralSettings(epochs=200), "spiral-quick.json")
    assert set(read_demo(tmp_path)) == {"smoke"}


@pytest.mark.parametrize("changed", [{"noise": 0.5}, {"epochs": 200}])
def test_runs_with_other_settings_are_left_out_with_a_note(tmp_path, capsys, changed):
    write_rows(tmp_path, *RIGHT, SpiralSettings(**changed))
    assert read_demo(tmp_path) == {}
    assert "spiral.json" in capsys.readouterr().err
    assert spiral_picture(tmp_path, "paper") is None


def test_the_picture_is_that_of_the_scale(page):
    assert spiral_picture(page.parent, "smoke") is None
    assert spiral_picture(page.parent, "paper") is None  # four epochs are not the demo
    for file, name in (("spiral.json", "spiral-quick.json"), ("spiral-boundaries.npz", "spiral-quick-boundaries.npz")):
        (page.parent / name).write_bytes((page.parent / file).read_bytes())
    assert spiral_picture(page.parent, "smoke").count(b"<image") == 4


ROW = {"arm": "none", "seed": 0, "right": 1, "tested": 2, "accuracy": 50.0, "cpu_seconds": 1.0, "environment": {}}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", {"settings": {}, "network": "", "rows": [ROW]}, {"settings": {"epochs": 0}, "network": "", "rows": []}],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, content):
    (tmp_path / "spiral-quick.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ValueError, match="spiral-quick.json is damaged: multimix demo --quick --out"):
        read_demo(tmp_path)
