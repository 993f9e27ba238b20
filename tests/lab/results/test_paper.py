"""The paper's numbers, compared with the fact sheet beside the project, and how its tables and figures are found."""

import re
from pathlib import Path

import pytest

from multimix.lab.evaluation.names import MEASURES
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.base import SCALES, arm_names
from multimix.lab.recipes.spiral import ARMS
from multimix.lab.results.paper import DEMO, EXHIBITS, FIGURES, TABLES, any_exhibit, exhibit, paper_error
from multimix.lab.training.log import Outcome

FACTS = Path(__file__).parents[4] / "shared" / "paper" / "README.md"
with_facts = pytest.mark.skipif(not FACTS.exists(), reason=f"{FACTS.name} of the paper is not beside the project")


def facts(head):
    """A table of the fact sheet by the beginning of its head: cells by the method's name, in the order of the sheet."""
    lines = FACTS.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| method | {head}"))
    rows = [line.strip("| ").split(" | ") for line in lines[start + 2 :]]
    end = next((i for i, row in enumerate(rows) if len(row) < 2), len(rows))
    return {name: [read(cell) for cell in cells] for name, *cells in rows[:end]}


def read(cell):
    mean, _, sd = cell.partition(" ± ")
    return float(mean), float(sd) if sd else None


def ours(number, *places):
    """The same of a table in the code: columns by their places."""
    table = TABLES[number - 1]
    return {row.label: [tuple(table.columns[place].paper[row.key]) for place in places] for row in table.rows}


@with_facts
def test_every_value_of_the_tables_is_the_papers_with_its_deviation():
    assert ours(1, 0, 1, 2, 3) == facts("PreActResNet18")
    one_run = facts("III ImageNet")
    for place, (number, column) in enumerate(((3, 0), (4, 0), (5, 1), (5, 2), (7, 0), (8, 0))):
        assert ours(number, column) == {name: [values[place]] for name, values in one_run.items()}, number
    steps = facts("1 | 2 | 3")
    assert ours(6, *range(10)) == ours(6, *range(10, 20)) == steps


@with_facts
def test_the_batch_strategies_and_the_spiral_are_the_papers():
    text = " ".join(FACTS.read_text(encoding="utf-8").split())
    labels = ("large-batch training", "large-batch mixup", "batch augmentation", "batch augmentation with mixup", "multi-mix")
    expected = [read(re.search(rf"[ ,]{label} (\d+\.\d+ ± \d+\.\d+)", text)[1]) for label in labels]
    assert [values for [values] in ours(2, 0).values()] == expected
    spiral = re.search(r"Fig. 4: no mixup ([\d.]+), manifold mixup ([\d.]+), multi-mix ([\d.]+)", text)
    assert [value.mean for value in FIGURES[2].columns[0].paper.values()] == [float(number) for number in spiral.groups()]


def test_the_figure_against_k_knows_the_points_of_table_one():
    known = {key: value.mean for key, value in exhibit("figure", "6").columns[0].paper.items()}
    methods = {("mixup", 1): 21.78, ("manifoldmix", 1): 21.45, ("cutmix", 1): 20.92, ("puzzlemix", 1): 19.74}
    assert known == {("none", 1): 21.84, **methods, ("puzzlemix", 5): 18.23}
    assert {row.k for row in exhibit("figure", "6").rows} == {1, 3, 5, 7, 9}


def test_the_arms_of_the_spiral_are_those_of_the_study():
    spiral = exhibit("figure", "4")
    assert [(row.arm, row.k, spiral.columns[0].paper[row.key].mean) for row in spiral.rows] == [
        (arm.name, arm.k, arm.paper) for arm in ARMS
    ]


def test_tables_are_one_to_eight_and_figures_two_to_eight():
    assert [one.label for one in EXHIBITS] == [
        *(f"Table {number}" for number in ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")),
        *(f"Fig. {number}" for number in range(2, 9)),
    ]
    assert len({one.name for one in EXHIBITS}) == 15
    known = {name for one in EXHIBITS for name in one.recipes}
    assert known == {*RECIPES, DEMO} - {"shapes_pointnet", "digits_smallnet", "superclasses", "folder"}  # which are ours


@pytest.mark.parametrize("one", [one for one in EXHIBITS if one.columns], ids=lambda one: one.label)
def test_rows_columns_and_claims_are_those_of_arms_outcomes_and_evaluators(one):
    keys = [row.key for row in one.rows]
    assert len(set(keys)) == len(keys)
    assert len({column.head for column in one.columns}) == len(one.columns)
    assert one.claims
    for claim in one.claims:
        assert claim.first in keys
        assert isinstance(claim.second, float) or claim.second in keys
        assert 0 <= claim.column < len(one.columns)
    if one.name != "spiral":
        assert {row.arm for row in one.rows} <= {*arm_names()}
        names = {column.name(scale, row.k) for column in one.columns for row in one.rows for scale in SCALES}
        assert all("." in name or name in Outcome.__annotations__ for name in names)
        assert not any("{" in name for name in names)
    assert set(one.evaluators) <= set(MEASURES)


def test_a_run_is_named_once_whoever_asks():
    wanted = [training for one in EXHIBITS for training in one.trainings]
    assert wanted.count(("cifar100_resnext29_4_24", "puzzlemix", 5)) == 4  # Tables I and II, Figs. 6 and 8
    assert len(exhibit("figure", "7").trainings) == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("I", ["2.29", "1.51", "1.68", "1.95", "names no loss", "s > 0"]),
        ("III", ["160", "352", "128", "224", "co-mixup paper"]),
        ("IV", ["IoU > 0.25", "IoU ≥ 0.5"]),
        ("V", ["random replacement", "39.01", "38.77"]),
        ("VI", ["67.99", "70.16", "last stage"]),
        ("VIII", ["logistic output"]),
    ],
)
def test_what_is_odd_in_the_paper_is_noted_at_its_table(wanted, words):
    notes = " ".join(exhibit("table", wanted).notes)
    assert [word for word in words if word not in notes] == []


def test_a_gain_in_a_note_is_the_difference_of_the_tables_numbers():
    puzzle, multi = (TABLES[0].columns[place].paper for place in (2, 3)), TABLES[0]
    gains = [round(paper["puzzlemix", 1].mean - paper["puzzlemix", 5].mean, 2) for paper in puzzle]
    assert gains == [1.51, 1.95]
    assert re.search(r"19\.74 − 18\.23 = 1\.51 and 36\.79 − 34\.84 = 1\.95", multi.notes[0])


def test_they_are_found_by_number_and_by_name():
    assert exhibit("table", "VIII") is exhibit("table", "8") is exhibit("table", " Calibration") is TABLES[7]
    assert any_exhibit("v") is TABLES[4]
    assert any_exhibit("Fig. 6") is any_exhibit("fig6") is any_exhibit("figure6") is any_exhibit("effect-of-k") is FIGURES[4]
    assert any_exhibit("Table II") is TABLES[1]
    with pytest.raises(
        ValueError, match=r"no table 'calibraton' with results \(did you mean 'calibration'\?\); there are I errors"
    ):
        exhibit("table", "calibraton")
    with pytest.raises(ValueError, match="no figure '1'.*; there are 2 samples"):
        exhibit("figure", "1")
    with pytest.raises(ValueError, match="nothing in the paper is called 'IX'"):
        any_exhibit("IX")


def test_the_papers_error_of_an_arm_of_a_recipe():
    assert paper_error("cifar100_resnext29_4_24", "large_batch", 5) == (33.45, 0.11)
    assert paper_error("imagenet", "puzzlemix", 5) == (22.29, None)
    assert paper_error("imagenet", "sage", 1) is None


def test_no_claim_contradicts_the_papers_own_numbers():
    for one in EXHIBITS:
        for claim in one.claims:
            column = one.columns[claim.column]
            if not isinstance(claim.second, float) and {claim.first, claim.second} <= set(column.paper):
                assert (column.paper[claim.first].mean < column.paper[claim.second].mean) == column.lower, claim.words
    assert len(exhibit("table", "VIII").claims) == 8  # input mixup has the least ECE
    assert len(exhibit("table", "V").claims) == 17  # under replacement co-mixup is ahead
    assert len(exhibit("table", "VI").claims) == 90  # one reading counts
