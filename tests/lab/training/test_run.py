"""Which runs are planned, and what training them leaves: one row each, whatever happened before."""

import json
import re
from dataclasses import asdict, replace

import pytest

import tree
from killing import the_server
from multimix.lab.recipes.runs import RESULTS, planned
from multimix.lab.recipes.serialise import describe
from multimix.lab.recipes.settings import Data
from multimix.lab.storage import read_rows
from multimix.lab.training import run as module
from multimix.lab.training.checkpoint import latest_checkpoint, read_checkpoint
from multimix.lab.training.run import train
from trial import MEAN, RECIPE, STD

NONE = {"method": "none"}
QUICK = {"epochs": "1"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def heard():
    return []


@pytest.fixture(scope="module")
def server():
    return the_server()


def plan(method=None, **options):
    return planned(RECIPE, scale="smoke", method=method, **options)


def rows(out):
    """All rows; a damaged one is an error."""

    def damaged(sentence):
        raise AssertionError(sentence)

    return read_rows(out / RESULTS, damaged)


def untrained(monkeypatch):
    def never(*arguments):
        raise AssertionError("it trains")

    monkeypatch.setattr(module.Training, "run", never)


def test_results_are_not_written_through_a_link(out, tmp_path, monkeypatch):
    untrained(monkeypatch)
    out.mkdir()
    (tmp_path / "notes.txt").write_text("")
    (out / RESULTS).symlink_to(tmp_path / "notes.txt")
    with pytest.raises(OSError, match=r"results\.jsonl': it is a symbolic link"):
        train(plan("none"), data=".", out=out)
    assert (tmp_path / "notes.txt").read_text() == ""


def test_without_a_method_the_rows_of_the_recipe_are_planned_seed_by_seed():
    runs = plan(seeds=(3, 0))
    assert [(run.seed, run.arm, run.k) for run in runs] == [
        (3, "none", 1), (3, "mixup", 1), (3, "mixup", 3), (0, "none", 1), (0, "mixup", 1), (0, "mixup", 3),
    ]  # fmt: skip
    assert [getattr(run.settings.method, "k", None) for run in runs[:3]] == [1, 1, 3]
    assert {run.scale for run in runs} == {"smoke"}
    assert len({run.folder for run in runs}) == 6


@pytest.mark.parametrize(
    ("method", "k", "expected"),
    [
        ("mixup", None, ("mixup", 5)),
        ("input", 2, ("mixup", 2)),
        ("none", None, ("none", 1)),
        ("none", 7, ("none", 1)),
        ("smoothing", 7, ("smoothing", 1)),
        ("large_batch", None, ("large_batch", 5)),
    ],
)
def test_one_method_has_the_k_it_is_given_or_5_if_k_means_anything(method, k, expected):
    (run,) = plan(method, k=k)
    assert (run.arm, run.k) == expected
    assert f"k{expected[1]}-seed0" in run.folder.name


def test_the_title_and_the_folder_say_the_scale():
    (run,) = plan("mixup", k=3, seeds=(2,))
    assert run.title == "trial (smoke): mixup, K = 3, seed 2"
    assert plan("none")[0].title == "trial (smoke): none, seed 0"
    assert str(run.folder) == f"trial/smoke/mixup-k3-seed2-{run.settings.digest()}"


@pytest.mark.parametrize(("seeds", "got"), [((), "none"), ((1, 1), "1, 1"), ((0, -1), "0, -1")])
def test_seeds_are_different_and_at_least_0(seeds, got):
    with pytest.raises(ValueError, match=f"^seeds must be .*, got {got}$"):
        plan(seeds=seeds)


def test_k_needs_a_method():
    with pytest.raises(ValueError, match="^k must be None without a method, got 3"):
        plan(k=3)


def test_general_changes_come_before_the_arm_and_those_of_the_method_after():
    (larger,) = plan("large_batch_mixup", k=3, changes={"batch": "20", "method.alpha": "0.7"})
    assert (larger.settings.batch, larger.settings.method.alpha, larger.settings.method.k) == (60, 0.7, 1)
    (rotated,) = plan("batch_augmentation", k=3, changes={"augment.rotation": "2"})
    assert (rotated.settings.repeats, rotated.settings.augment.rotation) == (3, 15.0), "the strategy's own"
    (puzzle,) = plan("puzzlemix", k=2, changes={"method.clean-weight": "0.5", "data.per_class": "7"})
    assert (puzzle.settings.method.clean_weight, puzzle.settings.data.per_class) == (0.5, 7)
    assert (puzzle.settings.method.mean, puzzle.settings.method.std) == ((MEAN,), (STD,)), "told by the data set"
    (layers,) = plan("manifoldmix", k=2)
    assert layers.settings.method.layers == (None, "stage1"), "the recipe's"
    assert len({run.settings.digest() for run in (larger, rotated, puzzle, layers)}) == 4


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("mixupp", {}, "no method 'mixupp' (did you mean 'mixup'?)"),
        ("mixup", {"scedule.rate": "1"}, "no field 'scedule.rate' (did you mean 'schedule.rate'?)"),
        ("mixup", {"schedule.rat": "1"}, "no field 'schedule.rat' (did you mean 'schedule.rate'?)"),
        ("mixup", {"method.alfa": "1"}, "no field 'method.alfa' (did you mean 'method.alpha'?)"),
        ("mixup", {"epochs": "many"}, "epochs must be a whole number, got 'many'"),
        ("mixup", {"epochs": "0"}, "epochs must be at least 1, got 0"),
        (None, {"method.alpha": "1"}, "no field 'method.alpha'"),
    ],
)
def test_what_is_not_known_is_one_sentence_with_the_nearest_name(method, changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        plan(method, changes=changes)
    assert "\n" not in str(caught.value)


def test_a_run_leaves_one_row_and_its_settings(out, heard):
    runs = plan("mixup", k=2, seeds=(4, 5), changes=QUICK)
    results = train(runs, data=".", out=out, note=heard.append)
    assert None not in results
    found = rows(out)
    for run, result, row in zip(runs, results, found, strict=True):
        assert {name: row[name] for name in run.key()} == run.key()
        assert row["outcome"] == asdict(result)
        assert row["epochs"] == [json.loads(line) for line in (out / row["folder"] / "epochs.jsonl").read_text().splitlines()]
        assert [epoch["number"] for epoch in row["epochs"]] == [1]
        assert row["settings"] == json.loads(json.dumps(describe(run.settings)))
        assert (row["device"], row["processes"], row["skipped"]) == ("cpu", 1, 0)
        assert (row["train_samples"], row["report_samples"]) == (200, 100)
        assert row["folder"] == str(run.folder)
        assert {"torch", "commit", "threads"} <= row["environment"].keys()
        written = json.loads((out / run.folder / "settings.json").read_text())
        assert {name: written[name] for name in (*run.key(), "settings")} == {**run.key(), "settings": row["settings"]}
    assert found[0]["weights"] != found[1]["weights"]
    assert any(run.title in sentence for run in runs for sentence in heard)


def test_what_is_done_is_not_done_again(out, heard, monkeypatch):
    first = train(plan("none", changes=QUICK), data=".", out=out, note=heard.append)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    untrained(monkeypatch)
    heard.clear()
    assert train(plan("none", changes=QUICK), data="/nowhere", out=out, note=heard.append) == first
    assert heard == [f"trial (smoke): none, seed 0: done before, error {first[0].last:.2f} % in the last epoch"]
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()} == before


def test_how_the_machine_does_it_makes_no_other_run_and_everything_else_does(out, heard):
    train(plan("none", changes=QUICK), data=".", out=out, note=heard.append)
    for changes in ({"running.log_every": "2"}, {"running.checkpoint_updates": "none"}, {"running.threads": "1"}):
        train(plan("none", changes={**QUICK, **changes}), data=".", out=out, note=heard.append)
    assert len(rows(out)) == 1
    for count, changes in enumerate(({"batch": "50"}, {"data.per_class": "19"}, {"optimizer.momentum": "0.8"}), start=2):
        train(plan("none", changes={**QUICK, **changes}), data=".", out=out, note=heard.append)
        assert len(rows(out)) == count
    assert len({row["weights"] for row in rows(out)}) == 4


def test_a_lost_row_is_made_again_from_the_last_checkpoint(out, heard, monkeypatch):
    runs = plan("cutmix", k=2, changes=QUICK)
    first = train(runs, data=".", out=out, note=heard.append)
    (before,) = rows(out)
    (out / RESULTS).unlink()

    def never(*arguments):
        raise AssertionError("it trains")

    monkeypatch.setattr("multimix.lab.training.loop.update", never)
    assert train(runs, data=".", out=out, note=heard.append) == first
    (after,) = rows(out)
    assert {**after, "time": None} == {**before, "time": None}


def test_a_damaged_row_is_named_and_made_again(out, heard):
    runs = plan("none", changes=QUICK)
    first = train(runs, data=".", out=out, note=heard.append)
    content = (out / RESULTS).read_text()
    (out / RESULTS).write_text(content.replace('"seed": 0', '"seed": 1'))
    assert train(runs, data=".", out=out, note=heard.append) == first
    assert f"line 1 of {out / RESULTS} is damaged and left out" in heard
    assert len(read_rows(out / RESULTS, heard.append)) == 1


DIVERGES = {"schedule.rate": "1e30", "schedule.warmup": "0", "running.checkpoint_updates": "1", "epochs": "1"}


def test_a_run_that_diverges_says_what_to_try_and_the_others_go_on(out, heard):
    runs = plan("none", changes=DIVERGES) + plan("none", changes=QUICK)
    results = train(runs, data=".", out=out, note=heard.append)
    assert results[0] is None
    assert results[1] is not None
    assert [result is None for result in results] == [run is runs[0] for run in runs]
    (sentence,) = (sentence for sentence in heard if "the loss became" in sentence)
    assert sentence.startswith("trial (smoke): none, seed 0: the loss became nan in epoch 1, update 2 (learning rate 1e+30)")
    assert "the last checkpoint before it is kept" in sentence
    assert "smaller learning rate (--schedule.rate)" in sentence
    assert "warm-up (--schedule.warmup 5)" in sentence
    assert [row["digest"] for row in rows(out)] == [runs[1].settings.digest()]
    assert read_checkpoint(out / runs[0].folder / "step-000000001.checkpoint").values["at"]["updates"] == 1
    heard.clear()
    assert train(runs, data=".", out=out, note=heard.append) == results, "again, at the same update"
    assert sentence in heard


def test_a_gradient_that_is_no_number_is_divergence_too(out, heard):
    (run,) = plan("none", changes={**DIVERGES, "schedule.rate": "1e18"})
    assert train([run], data=".", out=out, note=heard.append) == [None]
    newest = latest_checkpoint(out / run.folder, heard.append)
    assert all(value.isfinite().all() for value in newest.tensors.values()), "the last good one"


def test_a_last_update_that_breaks_the_network_is_no_result(out, heard):
    """Weights of 1e25 are numbers, what comes out of them is none, and no update follows whose loss would tell."""
    (run,) = plan("none", changes={**DIVERGES, "schedule.rate": "1e25", "batch": "200"})
    for _ in range(2):
        assert train([run], data=".", out=out, note=heard.append) == [None]
        assert heard.pop().startswith(
            "trial (smoke): none, seed 0: the outputs became infinite or NaN in epoch 1, update 1 (learning rate 1e+25); the last"
        )
        assert rows(out) == []
        assert not list((out / run.folder).glob("*.checkpoint")), "not even as the best epoch"


def test_data_that_are_not_there_are_one_sentence(out, tmp_path, heard):
    recipe = replace(RECIPE, settings=lambda scale: replace(RECIPE.settings(scale), data=Data("cifar100")))
    for folder, what in ((tmp_path / "nowhere", "does not exist"), (tmp_path, "has none")):
        with pytest.raises(
            ValueError, match=f"^{folder} must be or hold a folder cifar-100-python with meta in it, it {what} .*data fetch"
        ):
            train(planned(recipe, method="none"), data=folder, out=out, note=heard.append)
    assert not (out / RESULTS).exists()


def test_a_file_in_place_of_the_folder_of_results_is_one_sentence(tmp_path, heard):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="^out must be a folder, '.*file' is a file$"):
        train(plan("none"), data=".", out=tmp_path / "file" / "runs", note=heard.append)


def test_half_precision_on_a_cpu_is_refused(out, heard):
    with pytest.raises(ValueError, match="^mixed_precision fp16 needs an accelerator; on a CPU it can be no or bf16$"):
        train(plan("none", changes={"mixed_precision": "fp16"}), data=".", out=out, note=heard.append)
    assert not out.exists()


def test_precision_may_change_from_call_to_call(out, heard):
    for precision in ("bf16", "no"):
        train(plan("none", changes={**QUICK, "mixed_precision": precision}), data=".", out=out, note=heard.append)
    train(plan("none", changes=QUICK), data=".", out=out.with_name("alone"), note=heard.append)
    assert rows(out)[0]["weights"] != rows(out)[1]["weights"] == rows(out.with_name("alone"))[0]["weights"]


@pytest.fixture
def pictures(tmp_path):
    return tree.make_tree(tmp_path / "data")


def test_files_are_trained_from_with_the_sizes_of_every_phase(pictures, out, heard, server):
    (result,) = train(planned(tree.RECIPE, method="none"), data=pictures, out=out, note=heard.append)
    (row,) = rows(out)
    assert (row["scale"], row["train_samples"], row["report_samples"]) == ("paper", 24, 12)
    assert [(epoch["updates"], epoch["images"]) for epoch in row["epochs"]] == [(6, 24), (10, 24)]
    assert result.last < 60, "colours are learnt; chance is 67 %"
    assert server.train(out, {**NONE, "changes": {"running.workers": "2"}}, module="tree", data=pictures).error is None
    assert rows(out)[1]["weights"] == row["weights"], "by workers too, at another scale, since the settings are the same"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_corrupt_picture_is_named_or_left_out_and_counted(workers, pictures, out, heard):
    corrupt = sorted((pictures / "imagenet" / "train").rglob("*.png"))[5]
    corrupt.write_bytes(corrupt.read_bytes()[:200])
    missing = sorted((pictures / "imagenet" / "val").rglob("*.png"))[1]
    changes = {"running.workers": workers}
    with pytest.raises(ValueError, match=f"^{corrupt} is an image that cannot be decoded: .*") as caught:
        train(planned(tree.RECIPE, method="none", changes=changes), data=pictures, out=out, note=heard.append)
    assert "\n" not in str(caught.value)
    missing.write_bytes(b"no picture")
    runs = planned(tree.RECIPE, method="none", changes={**changes, "data.skip_bad": "true"})
    (result,) = train(runs, data=pictures, out=out, note=heard.append)
    (row,) = rows(out)
    assert (row["skipped"], row["train_samples"], row["report_samples"]) == (2, 23, 11)
    assert result is not None


def test_runs_of_several_processes_are_kept_apart():
    (run,) = planned(RECIPE, method="mixup", k=3)
    two = run._replace(processes=2)
    assert two.digest == f"{run.digest}-2p"
    assert two.folder != run.folder
    assert two.key() != run.key()
