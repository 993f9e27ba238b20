"""The design is balanced, verdicts follow from the runs, and the page shows all settings."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from scipy import stats

from multimix.lab.recipes.spiral import ARMS, K5, SpiralSettings
from multimix.lab.studies.spiral.multiverse import FACTORS, MARGIN, by_level, judged, multiverse, run_multiverse
from multimix.lab.studies.spiral.multiverse_page import write_multiverse
from multimix.lab.studies.spiral.runs import SpiralResult, SpiralRun


def made_up(settings, none, one, five, tested=600):
    """A result with these numbers of right answers, a run for each."""
    counts = dict(zip(ARMS, (none, one, five), strict=True))
    runs = {
        arm.name: tuple(SpiralRun(s, right, tested, (), 1.0, {}) for s, right in enumerate(own)) for arm, own in counts.items()
    }
    return SpiralResult(settings, tuple(range(len(none))), runs)


def test_every_level_occurs_equally_often_and_no_setting_twice():
    settings = multiverse()
    assert len(set(settings)) == len(settings) == 48
    for name, levels in FACTORS.items():
        assert Counter(getattr(one, name) for one in settings) == dict.fromkeys(levels, 48 // len(levels))
    assert multiverse() == settings


def test_verdicts_follow_from_the_runs():
    base, count = [540] * 6, [550, 552, 549, 551, 553, 548]
    shifts = {
        "better": [30, 33, 28, 31, 35, 27],
        "worse": [-30, -25, -28, -33, -24, -27],
        "equal": [1, -1, 0, 2, -2, 0],
        "not settled": [60, -70, 5, -3, 40, 0],
    }
    settings = [replace(SpiralSettings(), turns=1 + place / 10) for place in range(4)]
    five = [[a + b for a, b in zip(count, shift, strict=True)] for shift in shifts.values()]
    found = judged([made_up(one, base, count, own) for one, own in zip(settings, five, strict=True)])
    assert [one.verdict for one in found] == list(shifts)
    for one, own in zip(found, five, strict=True):
        difference = [(a - b) / 6 for a, b in zip(own, count, strict=True)]
        assert one.gain.mean == pytest.approx(sum(difference) / 6)
        sides = (
            stats.ttest_1samp(difference, side, alternative=to).pvalue for side, to in ((MARGIN, "less"), (-MARGIN, "greater"))
        )
        assert one.same.p == pytest.approx(max(sides))
        means = (90.0, sum(count) / 36, sum(own) / 36)
        squares = sum((mean - arm.paper) ** 2 for mean, arm in zip(means, ARMS, strict=True))
        assert one.distance == pytest.approx((squares / 3) ** 0.5)
    assert sum(level.settings for level in by_level(found) if level.factor == "slope") == 4


@pytest.mark.slow
def test_a_short_multiverse_is_trained_resumed_and_shown(tmp_path):
    notes = []
    universes = run_multiverse(quick=True, seeds=2, out=tmp_path, progress=lambda *_: None, note=notes.append)
    assert len(universes) == 6
    assert run_multiverse(quick=True, seeds=2, out=tmp_path, rebuild=True, note=notes.append) == universes
    files = write_multiverse(universes, tmp_path)
    stored = json.loads(files.results.read_text())
    for one, row in zip(universes, stored["settings"], strict=True):
        assert row["right"][K5.name] == [run.right for run in one.result.runs[K5.name]]
        assert row["slope"] == one.result.settings.slope
    page = files.page.read_text()
    assert "Of 6 settings K = 5 is better than K = 1 in" in page
    assert page.count("<svg") == 2


def test_one_seed_cannot_be_judged(tmp_path):
    with pytest.raises(ValueError, match="seeds must be at least 2, got 1"):
        run_multiverse(seeds=1, out=tmp_path)
