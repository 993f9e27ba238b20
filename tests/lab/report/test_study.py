"""The study of docs/study.md: what docs/results.md and the README say is what its stored rows give."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from multimix.lab.evaluation.cache import collect_runs
from multimix.lab.report.comparison import compare_at_equal_rows, compare_with_k1
from multimix.lab.report.frame import studies
from multimix.lab.report.pages.recipe import write_recipe_pages
from multimix.lab.report.sentences import k_headline
from multimix.lab.report.stats import paired, paired_by_seed, paired_equivalence
from multimix.lab.report.tables import signed

ROOT = Path(__file__).resolve().parents[3]
FIRST, FRESH, ALL = range(8), range(8, 16), range(16)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    with tarfile.open(ROOT / "docs/study/runs.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def all_rows(archive):
    return collect_runs([archive])


@pytest.fixture(scope="module")
def rows(all_rows):
    return [row for row in all_rows if row["recipe"] == "superclasses"]


@pytest.fixture(scope="module")
def page():
    return " ".join((ROOT / "docs/results.md").read_text().split())


def of_seeds(rows, seeds):
    (recipe_study,) = studies([row for row in rows if row["seed"] in seeds])
    return recipe_study


@pytest.mark.parametrize("seeds", [FIRST, FRESH, ALL], ids=["first", "fresh", "all"])
def test_the_page_has_the_primary_family_of_the_rows(rows, page, seeds):
    recipe_study = of_seeds(rows, seeds)
    assert k_headline(recipe_study) in page
    family = compare_with_k1(recipe_study, "last")
    assert len(family) == 4
    for one in family:
        assert one.paired.n == len(seeds)
        assert f"{signed(one.paired.mean)} ± {one.paired.half:.2f}" in page
        assert f"{one.p:.3f}" in page
        if seeds != ALL:  # of all seeds, the 95 % interval decides
            assert f"{signed(one.same.low)} … {signed(one.same.high)}" in page


@pytest.mark.slow
def test_the_report_begins_with_the_answer(archive, rows, tmp_path):
    pages = {result.page.name: result.page.read_text() for result in write_recipe_pages([archive], out=tmp_path)}
    assert sorted(pages) == ["speech-small.html", "superclasses-small.html"]
    lead = pages["superclasses-small.html"].partition("<h2")[0]
    assert k_headline(of_seeds(rows, ALL)) in lead
    assert "[1] [2] [3] [4] [5]: see the notes below" in lead


@pytest.mark.parametrize("arm", ["mixup", "manifoldmix", "cutmix", "puzzlemix"])
def test_the_page_has_k_2_of_the_rows(rows, page, arm):
    lines = {(group.arm, group.k, group.changed): group.values("last") for group in of_seeds(rows, FIRST).trained}
    for less, more in ((1, 2), (2, 5)):
        result = paired_by_seed(lines[arm, more, ()], lines[arm, less, ()])
        assert result.n == 8
        assert f"{signed(result.mean)} ± {result.half:.2f}" in page


def test_the_page_has_what_the_spiral_shows_under_48_settings(archive, page):
    result = []
    for folder in (archive / "spiral/multiverse").iterdir():
        one, five = (
            [json.loads((folder / f"{arm}-seed{seed:04d}.json").read_text())["result"]["right"] / 6 for seed in range(20)]
            for arm in ("manifold-k1", "multimix-k5")
        )
        gain = paired(five, one)
        verdict = "better" if gain.mean > gain.half else "worse" if gain.mean < -gain.half else "not settled"
        if paired_equivalence(gain, 1.0).p < 0.05:
            verdict = "equal"
        result.append((json.loads((folder / "settings.json").read_text()), gain, verdict))
    assert len(result) == 48
    gains, verdicts = [gain.mean for _, gain, _ in result], [verdict for *_, verdict in result]
    better, worse, equal, rest = (verdicts.count(name) for name in ("better", "worse", "equal", "not settled"))
    assert f"better than K = 1 in {better}, worse in {worse}, equal within ±1 point in {equal}; {rest} are not settled" in page
    assert f"{signed(sum(gains) / 48)} points; it is above 0 in {sum(gain > 0 for gain in gains)} of 48." in page
    inside = sum(abs(gain.mean - 3.33) <= gain.half for _, gain, _ in result)
    assert f"lies in the 95 % interval of {inside} settings" in page
    for words, name, value in (("turns: 2", "turns", 2.0), ("activation: tanh", "slope", None), ("α: 0.5", "alpha", 0.5)):
        chosen = [gain.mean for settings, gain, _ in result if settings[name] == value]
        assert f"| {words} | {len(chosen)} | {signed(sum(chosen) / len(chosen))} |" in page


def test_the_page_has_the_other_ways_of_the_rows(rows, page):
    recipe_study = of_seeds(rows, FIRST)
    lines = {(group.arm, group.k, group.changed): group.values("last") for group in recipe_study.trained}
    usual = lines["mixup", 5, ()]
    others = {changed: values for (arm, k, changed), values in lines.items() if (arm, k) == ("mixup", 5) and changed}
    assert len(others) == 3
    for values in others.values():
        result = paired_by_seed(values, usual)
        assert result.n == 8
        assert f"{signed(result.mean)} ± {result.half:.2f}" in page


def test_the_page_has_equal_compute_of_the_rows(rows, page):
    longer = [one for one in compare_at_equal_rows(of_seeds(rows, FIRST), "last") if "K = 1 [" in one.other]
    assert [(one.group, one.paired.n) for one in longer] == [("mixup K = 5", 8), ("cutmix K = 5", 4)]
    for one in longer:
        assert f"{signed(one.paired.mean)} ± {one.paired.half:.2f}" in page
        assert f"{signed(one.same.low)} … {signed(one.same.high)}" in page


def test_the_page_has_speech_of_the_rows(all_rows, page):
    (recipe_study,) = studies([row for row in all_rows if row["recipe"] == "speech"])
    lines = {(group.arm, group.k): group.values("last") for group in recipe_study.trained}
    assert sorted(lines) == [("mixup", 1), ("mixup", 5), ("none", 1), ("puzzlemix", 1), ("puzzlemix", 5)]
    for arm in ("mixup", "puzzlemix"):
        for own, other in (((arm, 1), ("none", 1)), ((arm, 5), (arm, 1))):
            result = paired_by_seed(lines[own], lines[other])
            assert result.n == 5
            assert f"{signed(result.mean)} ± {result.half:.2f}" in page
    assert k_headline(recipe_study, "last") in page


def test_what_is_packed_again_is_the_same(archive, tmp_path):
    few, again = tmp_path / "few", tmp_path / "again.tar.xz"
    few.mkdir()
    lines = (archive / "results.jsonl").read_text().splitlines(keepends=True)[:3]
    (few / "results.jsonl").write_text("".join(lines))
    pack = [sys.executable, ROOT / "tools/pack_study.py", few, "--archive", again]
    subprocess.run(pack, check=True)
    with tarfile.open(again) as packed:
        assert packed.extractfile("results.jsonl").read().decode() == "".join(lines)
    (few / "results.jsonl").write_text("")
    assert "has no results.jsonl with rows in it" in subprocess.run(pack, capture_output=True, text=True, check=False).stderr
