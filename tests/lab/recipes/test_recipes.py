"""Every recipe at every scale: the paper's numbers, typed again from the specification, names, and sizes."""

from dataclasses import fields

import pytest

from multimix.lab.recipes import RECIPES, SCALES, recipe
from multimix.lab.recipes.base import arm_settings
from multimix.lab.recipes.runs import planned
from multimix.lab.training.log import Outcome

CASES = [(name, scale) for name in RECIPES for scale in SCALES]
OF_KNOWN_SIZE = [name for name in RECIPES if name != "folder"]  # which is whatever its user has


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_every_row_has_settings_of_its_own(name, scale):
    entry = recipe(name)
    made = [arm_settings(entry, entry.settings(scale), row.arm, row.k) for row in entry.rows]
    assert len({settings.digest() for settings in made}) == len(set(made)) == len(entry.rows)
    assert entry.takes[scale]
    assert entry.metric in {field.name for field in fields(Outcome)}
    assert entry.title
    assert entry.about


@pytest.mark.parametrize("name", RECIPES)
def test_the_three_scales_differ(name):
    assert len({recipe(name).settings(scale).digest() for scale in SCALES}) == 3


@pytest.mark.parametrize("name", OF_KNOWN_SIZE)
def test_reduced_scales_fit_a_cpu(name):
    full = recipe(name).settings("paper")
    for scale in ("small", "smoke"):
        settings = recipe(name).settings(scale)
        small = "" if name in ("points", "digits") else "_small"  # those networks are small enough
        assert settings.network.name == f"{full.network.name}{small}"
        halved = ("stem_stride=2",) if name == "superclasses" else ()  # a quarter of the work: docs/study.md
        assert settings.network.options == (*full.network.options, *halved)
        assert settings.mixed_precision == ("bf16" if name == "superclasses" else "no")  # fp16 needs a GPU
        # The photos of Tiny-ImageNet show that everything runs where ImageNet is not at hand.
        other = "tiny_imagenet" if (name, scale) == ("imagenet", "smoke") else full.data.name
        assert (settings.data.name, settings.data.report, settings.data.select) == (other, full.data.report, full.data.select)
        # Five times the batch must still be a batch, if only ten words of the thirty are there.
        classes = 10 if name == "speech" else settings.data.entry().classes
        samples = classes * settings.data.per_class
        assert 5 * settings.batch <= samples
        assert samples * settings.epochs <= (250_000 if scale == "small" else 3_000)
        assert settings.schedule.at_epoch(settings.epochs) < settings.schedule.at_epoch(0) / 50


@pytest.mark.parametrize("name", OF_KNOWN_SIZE)
def test_smoke_is_a_few_updates(name):
    settings = recipe(name).settings("smoke")
    classes, data = settings.data.entry().classes, settings.data
    updates = sum(classes * data.per_class // settings.in_epoch(epoch).batch for epoch in range(settings.epochs))
    assert updates <= (90 if name == "imagenet" else 40)
    assert not data.entry().folders or data.report_per_class <= 2, "what is not read from files is small"
    assert settings.epochs // settings.evaluate_every <= 3


def test_below_the_papers_scale_the_last_epoch_is_reported():
    entry = recipe("cifar100_preact_resnet18")
    assert [entry.reported(scale) for scale in SCALES] == ["median", "last", "last"]
    assert recipe("speech").reported("small") == "selected"


@pytest.mark.parametrize(("scale", "length"), [("paper", 112), ("small", 56), ("smoke", 24)])
def test_holes_shrink_with_the_images(scale, length):
    settings = arm_settings(recipe("imagenet"), recipe("imagenet").settings(scale), "cutout", 1)
    assert settings.method.length == length


def test_what_phases_set_is_not_set_beside_them():
    with pytest.raises(ValueError, match=r"^batch has no effect in the phases of imagenet; set phases\.0\.batch"):
        planned(recipe("imagenet"), method="none", changes={"batch": "64"})
    with pytest.raises(ValueError, match="phases.0.size"):
        planned(recipe("imagenet"), method="none", changes={"augment.size": "96"})
    (run,) = planned(recipe("imagenet"), method="none", changes={"phases.1.batch": "64"})
    assert run.settings.in_epoch(20).batch == 64
