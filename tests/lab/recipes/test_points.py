"""Clouds of points through everything that is done to a run: planned, trained, stopped, resumed, evaluated, reported."""

import pytest
import torch

import multimix as mm
from multimix.lab.data import read
from multimix.lab.evaluation.base import measure_named
from multimix.lab.evaluation.predictions import READING
from multimix.lab.evaluation.subject import run_subject
from multimix.lab.recipes import SCALES, recipe
from multimix.lab.recipes.base import arm_names
from multimix.lab.recipes.runs import planned
from multimix.lab.report.pages.recipe import write_recipe_pages
from multimix.lab.storage import read_rows
from multimix.lab.sweep.plan import plan_sweep
from multimix.lab.training.checkpoint import weights_digest
from multimix.lab.training.loop import Training
from multimix.lab.training.run import engine, train
from multimix.lab.training.samples import first_batch

RECIPE = recipe("points")
CAN = ["none", "mixup", "manifoldmix", "sagemix", "smoothing", "large_batch", "large_batch_input_mixup"]
OURS = "on which none, mixup, manifoldmix, sagemix, smoothing, large_batch, large_batch_input_mixup can be trained"


def smoke(method, k=2, **changes):
    changes = {"running.device": "cpu", **changes}
    (run,) = planned(RECIPE, scale="smoke", method=method, k=k, changes=changes)
    return run


def silent(sentence):
    """Nothing is told."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every arm that can be trained on clouds, in one folder of results."""
    out = tmp_path_factory.mktemp("runs")
    train([smoke(arm) for arm in CAN], data="nowhere", out=out, note=silent)
    return out


def test_every_arm_that_fits_is_trained(trained):
    rows = read_rows(trained / "results.jsonl")
    assert [row["arm"] for row in rows] == CAN == arm_names("points")
    assert all(epoch["loss"] > 0 for row in rows for epoch in row["epochs"])
    assert len({row["weights"] for row in rows}) == len(CAN)
    seen = {row["arm"]: row["epochs"][0]["rows"] / row["epochs"][0]["images"] for row in rows}
    assert seen == {arm: 2 if arm in ("mixup", "manifoldmix", "sagemix") else 1 for arm in CAN}


@pytest.mark.parametrize("arm", sorted({*arm_names()} - {*CAN}))
def test_the_others_are_refused_before_anything_is_trained(arm):
    sentence = f"^{arm} is for images, and shapes has clouds of points, {OURS}$"
    with pytest.raises(ValueError, match=sentence):
        smoke(arm)
    with pytest.raises(ValueError, match=sentence):
        plan_sweep(RECIPE, scale="smoke", methods=["none", arm], ks=[1], seeds=[0])


def test_clouds_are_not_mixed_where_there_are_images():
    with pytest.raises(ValueError, match="^sagemix is for clouds of points, and cifar100 has images, on which none, cutout, "):
        planned(recipe("cifar100_wrn16_8"), method="sagemix")
    assert "sagemix" not in arm_names("images")
    assert {*arm_names("images")} | {"sagemix"} == {*arm_names()}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"network.name": "vgg11_small"}, "the network vgg11_small is for images, and shapes has clouds of points"),
        ({"augment.flip": "true"}, "every field of augment is for images, and shapes has clouds of points"),
        ({"data.name": "digits"}, "the network pointnet is for clouds of points, and digits has images"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        smoke("none", **changes)


def test_the_options_of_the_methods():
    for scale in SCALES:
        found = {arm: planned(RECIPE, scale=scale, method=arm, k=5)[0].settings.method for arm in CAN[1:4]}
        assert found == {
            "mixup": mm.InputMixup(k=5, alpha=1.0),
            "manifoldmix": mm.ManifoldMixup(k=5, alpha=2.0, layers=("head.0",)),
            "sagemix": mm.SageMix(k=5, sigma=2.0),
        }


class Stopping:
    """Keeps the state after an update, and stops there."""

    def __init__(self, after):
        self.after, self.kept = after, None

    def due(self, updates):
        return False

    def step(self, *arguments): ...

    epoch = doing = step

    def between(self, updates, state, due):
        if updates == self.after:
            self.kept = state()
            raise KeyboardInterrupt


def test_a_run_that_was_stopped_ends_with_the_same_bits():
    run, splits = smoke("sagemix"), read("shapes", "nowhere")
    whole = Training(run.settings, 0, splits, engine(run.settings))
    whole.run(None)
    stopping = Stopping(after=7)  # in the second epoch
    with pytest.raises(KeyboardInterrupt):
        Training(run.settings, 0, splits, engine(run.settings)).run(stopping)
    again = Training(run.settings, 0, splits, engine(run.settings))
    again.resume(stopping.kept)
    assert (again.at.epoch, again.at.step) == (1, 2)
    again.run(None)
    assert weights_digest(again.network) == weights_digest(whole.network)
    assert [epoch.loss for epoch in again.at.history] == [epoch.loss for epoch in whole.at.history]


def test_the_stored_samples_are_what_the_network_sees():
    run, seen = smoke("sagemix"), []
    data = read("shapes", "nowhere")
    batch = first_batch(Training(run.settings, 0, data, engine(run.settings)))
    training = Training(run.settings, 0, data, engine(run.settings))
    training.network.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()) if module.training else None)
    training.run(None)
    assert list(batch.mixed.shape) == [2, 10, 48, 3]
    assert torch.equal(batch.mixed.flatten(0, 1), seen[0])


def of_sagemix(trained):
    (row,) = [row for row in read_rows(trained / "results.jsonl") if row["arm"] == "sagemix"]
    return run_subject(trained / row["folder"], "nowhere", device="cpu"), row


@pytest.mark.parametrize("name", ["error", "calibration", "gradient_norm", "training_time"])
def test_it_is_evaluated(name, trained):
    subject, row = of_sagemix(trained)
    measure = measure_named(name)
    options = {"ks": (1, 2), "batches": 2}
    found = measure.find(subject, READING, **{option: options[option] for option in measure.defaults if option in options})
    assert found.numbers
    if name == "error":
        assert found.numbers["error"] == pytest.approx(row["outcome"]["last"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("localization", "shapes has no boxes"),
        ("background", "shapes has no boxes"),
        ("corruption", "pixels must lie in 0 … 1"),
        ("transfer", "transfer needs a network of images"),
    ],
)
def test_what_is_about_pictures_is_refused_in_one_sentence(name, sentence, trained):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        measure_named(name).find(of_sagemix(trained)[0], READING)


def test_a_report_shows_mixed_clouds(trained, tmp_path):
    _, row = of_sagemix(trained)
    (report,) = write_recipe_pages([trained / row["folder"]], out=tmp_path)
    assert [path.name for path in report.files if path.name.startswith("samples")] == ["samples-1.svg"]
    assert "not in the paper" in report.page.read_text()
