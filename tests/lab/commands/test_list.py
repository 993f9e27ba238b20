"""The tables of `multimix list`, read back as text."""

import pytest
import torch
from rich.console import Console

from multimix.lab.cli import main
from multimix.lab.commands import list_names
from multimix.lab.data import DATASETS
from multimix.lab.nets import NETWORKS
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.base import arm_names


def shown(what, width=100):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(getattr(list_names, what)())
    return captured.get()


def lines(what):
    return {line.split()[0].rstrip(","): line for line in shown(what).splitlines() if line.strip()}


def test_all_four_lists_or_one(capsys):
    titles = ("Recipes:", "Methods and baselines:", "Networks:", "Data sets:")
    main(["list"])
    everything = capsys.readouterr().out
    assert all(title in everything for title in titles)
    main(["list", "data"])
    one = capsys.readouterr().out
    assert [title for title in titles if title in one] == ["Data sets:"]


@pytest.mark.parametrize(
    ("what", "names"), [("recipes", RECIPES), ("methods", arm_names()), ("networks", NETWORKS), ("data_sets", DATASETS)]
)
def test_everything_that_has_a_name_is_there(what, names):
    assert set(names) <= set(lines(what))
    # Names are never folded, however narrow the terminal.
    assert all(name in shown(what, width=60) for name in names)


def test_recipes_tell_their_rows_and_time():
    line = lines("recipes")["cifar100_wrn16_8"].split()
    assert "10" in line
    assert RECIPES["cifar100_wrn16_8"].takes["small"].split()[0] in line


def test_what_k_means():
    result = lines("methods")
    assert result["puzzlemix"].split()[-1] == "steps"
    assert result["large_batch"].split()[-1] == "factor"
    assert not {"steps", "factor"} & {result["none"].split()[-1], result["smoothing"].split()[-1]}
    assert "(also puzzle" in " ".join(shown("methods", 400).split())


def test_parameters_are_counted_for_100_classes_and_nothing_is_drawn():
    before = torch.get_rng_state()
    result = lines("networks")
    assert torch.equal(torch.get_rng_state(), before)
    assert "11,217,316" in result["preact_resnet18"]
    assert "4,937,252" in result["resnext29_4_24"]
    assert "23,712,932" in result["resnet50"]  # 25,557,032 − 900 · 2,049


def test_data_sets_tell_their_official_numbers():
    assert "50,000 train, 10,000 test" in lines("data_sets")["cifar100"]
    assert "1×161×101" in lines("data_sets")["speech_commands_v1"]
