"""The study of docs/study.md: what docs/results.md and the README say is what its stored rows give."""

import tarfile
from pathlib import Path

import pytest

from multimix.lab.evaluation.cache import collect_runs
from multimix.lab.results.comparison import studies
from multimix.lab.results.settled import against_one, headline
from multimix.lab.results.table import signed

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def superclasses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    with tarfile.open(ROOT / "docs/study/runs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (whole,) = [one for one in studies(collect_runs([folder])) if one.recipe.name == "superclasses"]
    return whole


@pytest.fixture(scope="module")
def page():
    return " ".join((ROOT / "docs/results.md").read_text().split())


def test_the_page_has_the_answer_of_the_rows(superclasses, page):
    assert headline(superclasses, "last") in page


def test_the_page_has_every_member_of_the_primary_family(superclasses, page):
    family = against_one(superclasses, "last")
    assert len(family) == 4
    for one in family:
        assert one.paired.n == 8
        assert f"{signed(one.paired.mean)} ± {one.paired.half:.2f}" in page
        assert f"{signed(one.same.low)} … {signed(one.same.high)}" in page
