"""`multimix train` and `multimix list` as somebody types them: options, fields, errors in one sentence, files."""

import os

import pytest

from multimix.lab import cli, recipes
from multimix.lab.commands.options import Changes
from multimix.lab.storage import read_rows
from trial import RECIPE


@pytest.fixture(autouse=True)
def _trial(monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "recipe", lambda name, follow: RECIPE)
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0):
    assert cli.main(["train", "trial", *arguments]) == code


def test_one_method_is_trained_and_not_trained_twice(capsys, tmp_path):
    run("--scale", "smoke", "--method", "mixup", "--k", "3", "--seeds", "0", "1")
    captured = capsys.readouterr()
    assert captured.out.count("trial (smoke): mixup, K = 3, seed ") == 2
    assert "multimix report multimix-runs" in captured.err
    rows = read_rows(tmp_path / "multimix-runs" / "results.jsonl")
    assert [(row["arm"], row["k"], row["seed"]) for row in rows] == [("mixup", 3, 0), ("mixup", 3, 1)]
    assert not list(tmp_path.glob("**/table.*")), "tables are written by the report"
    run("--scale", "smoke", "--method", "mixup", "--k", "3", "--seeds", "1")
    assert "done before" in capsys.readouterr().err
    assert len(read_rows(tmp_path / "multimix-runs" / "results.jsonl")) == 2


def test_any_field_can_be_given(capsys, tmp_path):
    fields = (
        "--epochs",
        "1",
        "--schedule.at",
        "0.5",
        "0.7",
        "--method.alpha=0.3",
        "--set",
        "data.per_class=8",
        "--running.device",
        "cpu",
    )
    run("--scale", "smoke", "--method", "cutmix", *fields, "--out", "here")
    (row,) = read_rows(tmp_path / "here" / "results.jsonl")
    settings = row["settings"]
    assert (settings["epochs"], settings["schedule.at"], settings["method.alpha"], settings["data.per_class"]) == (
        1,
        [0.5, 0.7],
        0.3,
        8,
    )
    assert row["k"] == 5, "the paper's K unless given"
    assert row["train_samples"] == 80


def test_show_prints_every_field_and_trains_nothing(capsys, tmp_path):
    run("--method", "cutout", "--k", "2", "--show", "--batch", "20")
    lines = dict(line.split(" = ", 1) for line in capsys.readouterr().out.splitlines() if not line.startswith("#"))
    assert (lines["method"], lines["method.k"], lines["method.length"], lines["batch"]) == ("cutout", "2", "4", "20")
    assert not (tmp_path / "multimix-runs").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--epoch", "3"), "no option or field 'epoch' (did you mean 'epochs'?)"),
        (("--sedes", "3"), "no option or field 'sedes' (did you mean 'seeds'?)"),
        (("--schedule.rat", "3"), "no field 'schedule.rat' (did you mean 'schedule.rate'?)"),
        (("--method", "cutmx"), "no method 'cutmx' (did you mean 'cutmix'?)"),
        (("--method", "cutmix", "--method.alpa", "1"), "no field 'method.alpa' (did you mean 'method.alpha'?)"),
        (("--method", "cutmix", "--method.k", "1"), "method.k cannot be changed"),
        (("--epochs", "three"), "epochs must be a whole number, got 'three'"),
        (("--method", "cutmix", "--method.alpha", "-1"), "alpha must be"),
        (("--k", "3"), "k must be None without a method"),
        (("--seeds", "1", "1"), "seeds must be distinct"),
        (("--set", "epochs"), "--set takes FIELD=VALUE"),
        (("--mixed_precision", "fp16", "--running.device", "cpu"), "fp16 needs an accelerator"),
        (("--accumulate", "3"), "batch must be a multiple of processes × accumulate"),
        (("--network.name", "trial:Nothing"), "no class or function 'Nothing' in trial"),
        (("--method", "manifoldmix", "--method.layers", "stage9"), "no layer 'stage9'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(capsys, arguments, sentence):
    run(*arguments, code=2)
    error_output = capsys.readouterr().err.splitlines()[-1]
    assert sentence in error_output
    assert "Traceback" not in error_output


def test_a_diverged_run_is_named_and_the_others_go_on(capsys, tmp_path):
    run("--seeds", "0", "--schedule.rate", "1e30", "--schedule.warmup", "0", code=2)
    error_output = capsys.readouterr().err
    assert "3 runs of 3 diverged" in error_output
    assert "the loss became" in error_output
    assert "--schedule.warmup" in error_output
    assert not read_rows(tmp_path / "multimix-runs" / "results.jsonl")


def test_the_folder_of_the_data_comes_from_the_environment(capsys, monkeypatch):
    monkeypatch.setitem(os.environ, "MULTIMIX_DATA", "somewhere")
    run("--method", "none", "--data.name", "cifar10", "--network.name", "preact_resnet18_small", code=2)
    assert "somewhere must be or hold a folder cifar-10-batches-py" in capsys.readouterr().err


def test_list_names_everything(capsys):
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in ("cifar100_preact_resnet18", "puzzlemix", "batch_augmentation_mixup", "wrn16_8", "speech_commands_v1"):
        assert name in printed


def test_words_that_are_fields_become_changes(monkeypatch):
    seen = {}

    def train(recipe: str, /, *, seeds: tuple[int, ...] = (), skip_bad: bool = False, set_: Changes = ()):
        """Stands for the command."""
        seen.update(recipe=recipe, seeds=seeds, skip_bad=skip_bad, set_=set_)

    monkeypatch.setattr(cli, "command", lambda name: train)
    given = "x --seeds 1 2 --schedule.at 3 4 --data.per_class=5 --compile --skip-bad --method.alpha -1 --set d=6"
    cli.run_with_fields("train", given.split())
    changes = ("d=6", "schedule.at=3,4", "data.per_class=5", "compile=true", "method.alpha=-1")
    assert seen == {"recipe": "x", "seeds": (1, 2), "skip_bad": True, "set_": changes}
    with pytest.raises(ValueError, match="^'y' belongs to no option"):
        cli.run_with_fields("train", ["x", "y"])
