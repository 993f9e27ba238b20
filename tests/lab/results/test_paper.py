import re

import pytest

from multimix.lab.evaluation import MEASURES
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.base import SCALES, arm_names
from multimix.lab.results.paper import DEMO, TABLES, paper_table
from multimix.lab.training.log import Outcome


def papers(number):
    """The paper's numbers of a table, row by row."""
    table = TABLES[number]
    return {row.label: [column.paper_number(row.key) for column in table.columns] for row in table.rows}


def test_numbers_and_names_are_unique_and_every_recipe_of_the_paper_is_shown():
    assert list(TABLES) == [table.number for table in TABLES.values()] == list(range(1, 13))
    assert len({table.name for table in TABLES.values()}) == 12
    assert {name for table in TABLES.values() for name in table.recipes} == {*RECIPES, DEMO} - {
        "shapes_pointnet",
        "digits_smallnet",
    }  # which are ours


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_rows_and_columns_are_those_of_arms_recipes_and_outcomes(table):
    assert table.against in [row.key for row in table.rows]
    assert len({row.key for row in table.rows}) == len(table.rows)
    assert len({column.head for column in table.columns}) == len(table.columns)
    if table.name != "spiral":
        assert {row.arm for row in table.rows} - {*arm_names()} == set()
        names = {column.name(scale, row.k) for column in table.columns for row in table.rows for scale in SCALES}
        assert all("." in name or name in Outcome.__annotations__ for name in names)
        assert not any("{" in name for name in names)


def test_every_evaluation_has_an_evaluator_of_this_name():
    assert {name for table in TABLES.values() for name in table.evaluators} <= set(MEASURES)


def test_the_papers_errors_are_those_of_the_specification():
    # methods.md, section 9.
    assert papers(2) == {
        "no mixing": [23.53, 21.93, 21.84, 43.54],
        "input mixup": [22.49, 20.18, 21.78, 43.35],
        "manifold mixup": [21.62, 20.49, 21.45, 41.21],
        "cutout": [21.12, 19.19, 20.86, 40.52],
        "cutmix": [21.29, 20.14, 20.92, 43.11],
        "FMix": [21.52, 19.75, 21.87, 42.38],
        "co-mixup": [19.89, 19.24, 19.43, 35.94],
        "puzzle-mix": [20.61, 19.27, 19.74, 36.79],
        "label smoothing": [23.09, 21.45, 20.66, 43.04],
        "multi-mix, K = 5": [19.19, 18.52, 18.23, 34.84],
    }
    assert [value for [value] in papers(3).values()] == [24.03, 22.97, 23.30, 24.10, 22.92, 23.96, 22.39, 22.54, 23.44, 22.29]
    assert [value for [value] in papers(1).values()] == [90.67, 94.17, 97.50]
    assert [value for [value] in papers(9).values()] == [33.45, 26.54, 20.91, 19.41, 18.23]
    assert [value for [value] in papers(10).values()] == [20.61, None, 19.19, None, None]


def test_numbers_that_are_not_known_are_not_there():
    for number in (4, 5, 6, 7, 8, 11, 12):
        assert {value for values in papers(number).values() for value in values} == {None}


def test_a_column_holds_no_number_that_its_recipe_has():
    for table in TABLES.values():
        for column in table.columns:
            held = {} if column.recipe == DEMO else {(row.arm, row.k) for row in RECIPES[column.recipe].rows}
            assert column.value != "reported" or not held & set(column.paper)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (2, ["2.29", "1.51", "1.68", "1.95"]),
        (3, ["160", "352", "128", "224"]),
        (4, ["IoU > 0.25", "IoU ≥ 0.5"]),
        (5, ["39.01", "38.77"]),
        (6, ["67.99", "70.16"]),
        (8, ["logistic output"]),
        (11, ["parallel execution"]),
        (12, ["‖E g‖²"]),
    ],
)
def test_errors_of_the_papers_text_are_noted_at_their_tables(number, words):
    notes = " ".join(TABLES[number].notes)
    assert [word for word in words if word not in notes] == []


def test_a_gain_in_a_note_is_the_difference_of_the_tables_numbers():
    numbers = papers(2)
    gains = [round(a - b, 2) for a, b in zip(numbers["puzzle-mix"], numbers["multi-mix, K = 5"], strict=True)]
    assert gains == [1.42, 0.75, 1.51, 1.95]
    assert re.search(r"19\.74 − 18\.23 = 1\.51 and 36\.79 − 34\.84 = 1\.95", TABLES[2].notes[0])


def test_a_table_is_found_by_number_and_by_name():
    assert paper_table("8") is paper_table("calibration") is paper_table(" Calibration") is TABLES[8]
    with pytest.raises(ValueError, match=r"no table 'calibraton' \(did you mean 'calibration'\?\); there are 1 spiral, 2 errors"):
        paper_table("calibraton")
    with pytest.raises(ValueError, match="no table '13'.*; there are .*12 gradient-norm$"):
        paper_table("13")
