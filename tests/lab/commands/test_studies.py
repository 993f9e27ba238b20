"""`multimix digits` and `multimix points`: recipes that are swept in this process, evaluated, and put on one page."""

import pytest

from multimix.lab.cli import main
from multimix.lab.commands.study_runner import _trainable
from multimix.lab.recipes import recipe
from multimix.lab.storage import read_rows
from multimix.lab.training.run import RESULTS
from multimix.methods.registry import entries


def arms(out):
    return [(row["arm"], row["k"], row["seed"]) for row in read_rows(out / RESULTS)]


@pytest.mark.slow
def test_a_page_with_error_calibration_and_pictures_and_nothing_is_trained_twice(tmp_path, capsys):
    command = ["points", "--quick", "--ks", "1", "2", "--out", str(tmp_path)]
    assert main(command) == 0
    expected = [(arm, k, seed) for seed in (0, 1) for arm, k in (("none", 1), ("sagemix", 1), ("sagemix", 2))]
    assert arms(tmp_path) == expected
    page = (tmp_path / "points-quick.html").read_text()
    for words in ("Holm", "Calibration", "CPU s", "its mixtures in ascending order of λ"):
        assert words in page
    said = capsys.readouterr()
    assert "- A quick look" in said.out
    assert "comparisons of ECE with no mixing" in said.out
    assert "[6/6] " in said.err
    (tmp_path / "points-quick.html").unlink()
    assert main([*command, "--rebuild"]) == 0
    assert (tmp_path / "points-quick.html").exists()
    assert arms(tmp_path) == expected


def test_digits_train_every_method_for_images_and_smoothing(capsys):
    names = _trainable(recipe("digits_smallnet"), "smoke", (1, 5))
    wanted = {entry.name for entry in entries() if entry.layout != "points"}
    assert set(names) == wanted | {"smoothing"}
    assert {"samix", "stylemix", "stylecutmix"} <= set(names)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_every_method_is_trained_on_digits(tmp_path, capsys):
    assert main(["digits", "--quick", "--seeds", "1", "--ks", "2", "--out", str(tmp_path)]) == 0
    assert {arm for arm, _, _ in arms(tmp_path)} == {entry.name for entry in entries() if entry.layout != "points"} | {
        "smoothing"
    }
    assert "failed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--ks", "0"], "ks must be one or more whole numbers, at least 1, got (0,)"),
        (["--methods", "mixap"], "no method 'mixap' (did you mean 'mixup'?)"),
        (["--methods", "sagemix"], "sagemix is for clouds of points"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_sentence(tmp_path, capsys, words, sentence):
    assert main(["digits", "--out", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith(sentence)
