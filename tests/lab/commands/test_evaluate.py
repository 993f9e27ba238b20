"""multimix evaluate on real trainings of the digits: numbers, what is kept, what is said."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

import trial
from multimix.lab.cli import main
from multimix.lab.data import Loader
from multimix.lab.evaluation.cache import EVALUATIONS, collect_runs, finished_runs
from multimix.lab.evaluation.subject import run_subject
from multimix.lab.recipes.runs import planned
from multimix.lab.storage import read_rows
from multimix.lab.training.run import train
from trial import RECIPE, splits


@pytest.fixture
def copied(out, tmp_path):
    return shutil.copytree(out, tmp_path / "results")


def evaluated(*arguments):
    assert main(["evaluate", *map(str, arguments)]) == 0


def test_all_runs_of_a_folder(copied, capsys):
    rows = read_rows(copied / "results.jsonl")
    evaluated(copied, "--on", "error", "calibration", "--data", ".")
    printed = capsys.readouterr().out
    assert "mixup K = 3, seed 1" in printed
    evaluations = collect_runs([copied])
    for before, row in zip(rows, evaluations, strict=True):
        assert row["evaluations"]["error"]["numbers"]["error"] == pytest.approx(before["outcome"]["last"])
        assert row["evaluations"]["error"]["numbers"]["n"] == before["report_samples"]
        numbers = row["evaluations"]["calibration"]["numbers"]
        assert numbers["nll"] == pytest.approx(before["epochs"][-1]["nll"], rel=1e-5)
        assert 0 <= numbers["ece"] <= 100
        assert not (copied / row["folder"] / "evaluation").exists(), "only pictures that need the network are stored"


def test_what_is_known_is_not_measured_again(copied, monkeypatch, capsys):
    run = finished_runs(copied)[0]
    evaluated(run, "--data", ".")
    text = (run / EVALUATIONS).read_text()
    monkeypatch.setattr(nn.Module, "__call__", lambda *given: pytest.fail("the network ran"))
    evaluated(run, "--data", ".")
    assert (run / EVALUATIONS).read_text() == text
    monkeypatch.undo()
    evaluated(run, "--data", ".", "--again")
    assert len((run / EVALUATIONS).read_text().splitlines()) == 4
    evaluated(run, "--data", ".", "--on", "calibration", "--set", "bins=15")
    assert len((run / EVALUATIONS).read_text().splitlines()) == 5


def test_evaluations_are_not_written_through_a_link(copied, tmp_path, capsys):
    run = finished_runs(copied)[0]
    (tmp_path / "notes.txt").write_text("")
    (run / EVALUATIONS).unlink(missing_ok=True)
    (run / EVALUATIONS).symlink_to(tmp_path / "notes.txt")
    evaluated(run, "--on", "error", "--data", ".")
    assert "evaluations.jsonl': it is a symbolic link" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "notes.txt").read_text() == ""


def test_the_best_epoch(copied):
    run = finished_runs(copied)[2]
    (row,) = [row for row in read_rows(copied / "results.jsonl") if run.name in row["folder"]]
    evaluated(run, "--data", ".", "--on", "error", "--checkpoint", "best")
    (run_row,) = collect_runs([run])
    assert run_row["evaluations"]["error@best"]["numbers"]["error"] == pytest.approx(row["outcome"]["best"])


def test_other_samples(copied):
    run = finished_runs(copied)[0]
    evaluated(run, "--data", ".", "--on", "error", "--whole")
    (run_row,) = collect_runs([run])
    (row,) = run_row["evaluations"].values()
    assert row["numbers"]["n"] == len(splits()["test"])
    assert row["options"]["per_class"] is None
    assert list(run_row["evaluations"]) == ["error[per_class = None]"], "tables take what was asked as usual, only"


def test_unusual_options_do_not_take_the_place_of_the_usual(copied):
    run = finished_runs(copied)[0]
    evaluated(run, "--data", ".", "--on", "calibration")
    (before,) = collect_runs([run])
    evaluated(run, "--data", ".", "--on", "calibration", "--set", "bins=50", "--per-class", "2")
    (after,) = collect_runs([run])
    assert after["evaluations"]["calibration"] == before["evaluations"]["calibration"]
    (other,) = (key for key in after["evaluations"] if key != "calibration")
    assert other == "calibration[per_class = 2, bins = 50]"


def test_last_and_best_weights_that_are_the_same_are_two_evaluations(copied):
    run = finished_runs(copied)[0]
    shutil.copy(sorted(run.glob("step-*.checkpoint"))[-1], run / "best.checkpoint")
    evaluated(run, "--data", ".", "--on", "error", "--checkpoint", "best")
    evaluated(run, "--data", ".", "--on", "error")
    assert set(collect_runs([run])[0]["evaluations"]) == {"error", "error@best"}


def test_other_samples_in_the_data_folder_are_measured_anew(copied, monkeypatch):
    run = finished_runs(copied)[0]
    evaluated(run, "--data", ".", "--on", "error")
    subject = run_subject(run, ".")
    fewer = subject.parts()._replace(report=subject.report.subset(5, 0))
    monkeypatch.setattr("multimix.lab.evaluation.runner.run_subject", lambda *a, **b: replace(subject, parts=lambda: fewer))
    evaluated(run, "--data", ".", "--on", "error")
    assert collect_runs([run])[0]["evaluations"]["error"]["numbers"]["n"] == 50


def test_a_run_that_cannot_be_written_is_shown_all_the_same(copied, capsys):
    first, second = finished_runs(copied)[:2]
    (first / EVALUATIONS).mkdir()
    evaluated(first, second, "--data", ".", "--on", "error")
    captured = capsys.readouterr()
    assert "cannot be stored" in captured.err
    assert captured.out.count("none, seed") == 2


def test_weights_that_do_not_fit_are_one_sentence(copied, capsys, monkeypatch):
    run = finished_runs(copied)[0]
    monkeypatch.setattr(trial, "DropNet", trial.PlainNet)  # the code has changed since
    assert main(["evaluate", str(run), "--data", ".", "--on", "error"]) == 2
    assert "do not fit the network trial:DropNet" in capsys.readouterr().err


@pytest.mark.parametrize(("field", "value"), [("repeats", "2"), ("k_chunk", "1"), ("accumulate", "2")])
def test_updates_that_are_made_in_another_way_are_not_measured(tmp_path, capsys, field, value):
    runs = planned(RECIPE, scale="smoke", method="mixup", k=2, changes={field: value, "epochs": "1", "schedule.at": ""})
    train(runs, data=".", out=tmp_path, note=lambda sentence: None)
    assert main(["evaluate", str(tmp_path), "--on", "gradient_norm", "--data", "."]) == 2
    assert f"has {field} = {value}" in capsys.readouterr().err


def test_gradient_norm_time_and_corruption(copied):
    runs = finished_runs(copied)
    evaluated(runs[0], runs[2], "--on", "gradient_norm", "training_time", "--set", "ks=1,2", "batches=2", "--data", ".")
    plain, mixed = (
        {key.partition("[")[0]: row for key, row in collect_runs([run])[0]["evaluations"].items()} for run in (runs[0], runs[2])
    )
    assert list(plain["gradient_norm"]["numbers"]) == ["k1"], "without mixing there is one K"
    assert list(mixed["gradient_norm"]["numbers"]) == ["k1", "k2"]
    assert mixed["training_time"]["numbers"]["k1"] == 1
    assert mixed["training_time"]["numbers"]["increase_1"] == 0
    assert mixed["training_time"]["result"]["repeats"] == 2, "of a run at smoke scale"
    assert mixed["training_time"]["numbers"]["seconds_k1"] > 0
    evaluated(runs[0], "--on", "corruption", "--set", "corruptions=blur", "severities=1,5", "--data", ".")
    result = collect_runs([runs[0]])[0]["evaluations"]["corruption[severities = 1 5, corruptions = blur]"]
    assert [(row["name"], row["severity"]) for row in result["result"]["rows"]] == [("clean", None), ("blur", 1), ("blur", 5)]
    assert result["numbers"]["blur"] == pytest.approx(sum(row["top1"]["percent"] for row in result["result"]["rows"][1:]) / 2)


def test_speech_protocol_takes_the_best_validation_epoch(tmp_path):
    (run,) = planned(RECIPE, scale="smoke", method="none", changes={"data.select": "test"})
    train([run], data=".", out=tmp_path, note=lambda sentence: None)
    evaluated(tmp_path, "--on", "speech", "--data", ".")
    (row,) = collect_runs([tmp_path])
    numbers = row["evaluations"]["speech@best"]["numbers"]
    assert numbers["error"] == pytest.approx(row["outcome"]["selected"])
    assert numbers["selected_epoch"] == row["outcome"]["selected_epoch"]


def test_what_cannot_be_done_is_said_and_the_rest_is_done(copied, capsys):
    run = finished_runs(copied)[0]
    assert main(["evaluate", str(run), "--on", "localization", "background", "speech", "error", "--data", "."]) == 2
    captured = capsys.readouterr()
    assert "digits has no boxes, which background needs" in captured.err
    assert "digits has no boxes, which localization needs" in captured.err
    assert captured.err.rstrip().endswith("some evaluations failed, see above")
    assert "no part to select an epoch by" in captured.err
    assert "top-1 and top-5 error" in captured.out
    assert list(collect_runs([run])[0]["evaluations"]) == ["error"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--on", "eror"], "no measure 'eror' (did you mean 'error'?)"),
        (["--per-class", "3", "--whole"], "give one of them"),
        (["--data-set", "digit"], "no data set 'digit'"),
        (["--part", "validation"], "digits has no part 'validation' here"),
        (["--set", "mean=0.5"], "mean cannot be set for"),
        (["--set", "bin=5"], "no measure has an option 'bin' (did you mean 'bins'?)"),
        (["--set", "severities=1"], "severities is an option of corruption"),
    ],
)
def test_wrong_words(copied, capsys, arguments, sentence):
    assert main(["evaluate", str(finished_runs(copied)[0]), "--data", ".", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_places_that_are_none(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 2
    assert "nowhere must be a folder" in capsys.readouterr().err
    assert main(["evaluate", "nothing.at:all", "--data-set", "digits"]) == 2
    assert "cannot import the network 'nothing.at:all': No module named 'nothing'; is it in" in capsys.readouterr().err
    assert main(["evaluate", "trial:settings", "--data-set", "digits"]) == 2
    assert "must make an nn.Module, got Settings" in capsys.readouterr().err
    assert main(["evaluate", "trial:PlainNet"]) == 2
    assert "data_set must be given for 'trial:PlainNet'" in capsys.readouterr().err


def test_any_network_by_import_path(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trial.PlainNet", lambda: fixed_net())
    arguments = ["--data-set", "digits", "--data", ".", "--out", tmp_path, "--on", "error", "--set", "mean=0", "std=1"]
    evaluated("trial:PlainNet", *arguments)
    (row,) = read_rows(tmp_path / "trial.PlainNet" / EVALUATIONS)
    pixels, labels = splits()["test"].batch(torch.arange(len(splits()["test"])))
    with torch.no_grad():
        wrong = fixed_net()(pixels if pixels.is_floating_point() else pixels / 255).argmax(1) != labels
    assert row["numbers"]["error"] == pytest.approx(100 * wrong.double().mean().item())
    assert row["options"]["mean"] == [0.0]


def fixed_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_an_unfinished_run_is_evaluated_and_said_to_be_one(copied, capsys):
    run = finished_runs(copied)[0]
    (copied / "results.jsonl").write_text("")
    evaluated(run, "--data", ".", "--on", "error")
    assert f"{run.name} is not finished" in capsys.readouterr().err


def test_the_subject_of_a_run_knows_how_it_was_trained(copied):
    run = finished_runs(copied)[2]
    subject = run_subject(run, ".")
    stored = json.loads((run / "settings.json").read_text())
    assert subject.settings.digest() == stored["digest"]
    assert subject.title == "mixup K = 3, seed 0"
    assert len(subject.parts().train) == 200
    assert len(subject.history) == 3
    assert subject.parts() is subject.parts(), "data are read once"


def test_both_kinds_of_batch_norm_statistics(copied, capsys):
    """Recomputed ones are those of unmixed training samples, as the training or the evaluation prepares them."""
    run = finished_runs(copied)[2]
    subject = run_subject(run, ".")
    settings, train = subject.settings, subject.parts().train
    before = [buffer.clone() for buffer in subject.network.buffers()]
    for way, augment in (("recomputed", settings.augment.training(settings.data.entry())), ("unaugmented", subject.evaluation)):
        layer = subject.with_batchnorm(way).network.stage1[1]
        loader = Loader(train, augment, batch=settings.batch, drop_last=False)
        x = torch.cat([x for x, _ in loader.epoch(settings.epochs)])
        torch.testing.assert_close(layer.running_mean, subject.network.stage1[0](x).mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(layer.running_mean, subject.network.stage1[1].running_mean, atol=1e-3)
    assert all(map(torch.equal, before, subject.network.buffers()))
    evaluated(run, "--data", ".", "--on", "error", "--batchnorm", "as_trained", "recomputed")
    assert "recomputed" in capsys.readouterr().out
    (row,) = collect_runs([run])
    assert {"error", "error[batchnorm = recomputed]"} <= set(row["evaluations"])


@pytest.mark.parametrize("measure", ["gradient_norm", "training_time"])
def test_statistics_without_an_effect_are_rejected(copied, capsys, measure):
    words = [
        "evaluate",
        str(finished_runs(copied)[0]),
        "--data",
        ".",
        "--on",
        measure,
        "--batchnorm",
        "recomputed",
        "--set",
        "ks=1",
    ]
    assert main(words) == 2
    assert "batchnorm recomputed has no effect" in capsys.readouterr().err
