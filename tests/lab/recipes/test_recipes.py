"""Every recipe at every scale: the paper's numbers, typed again from the specification, names, and sizes."""

from dataclasses import fields

import pytest

from multimix.lab.recipes import RECIPES, SCALES, recipe
from multimix.lab.recipes.base import arm_settings
from multimix.lab.training.log import Outcome
from multimix.lab.training.run import planned

# Error in per cent on CIFAR-100 with PreActResNet18, WRN16-8 and ResNeXt29-4-24, on Tiny-ImageNet and on ImageNet.
TABLES = ("cifar100_preact_resnet18", "cifar100_wrn16_8", "cifar100_resnext29_4_24", "tiny_imagenet", "imagenet")
ERRORS = """
    none         1   23.53  21.93  21.84  43.54  24.03
    mixup        1   22.49  20.18  21.78  43.35  22.97
    manifoldmix  1   21.62  20.49  21.45  41.21  23.30
    cutout       1   21.12  19.19  20.86  40.52  24.10
    cutmix       1   21.29  20.14  20.92  43.11  22.92
    fmix         1   21.52  19.75  21.87  42.38  23.96
    comixup      1   19.89  19.24  19.43  35.94  22.39
    puzzlemix    1   20.61  19.27  19.74  36.79  22.54
    smoothing    1   23.09  21.45  20.66  43.04  23.44
    puzzlemix    5   19.19  18.52  18.23  34.84  22.29
"""
STRATEGIES = """
    large_batch               5  33.45
    large_batch_mixup         5  26.54
    batch_augmentation        5  20.91
    batch_augmentation_mixup  5  19.41
    puzzlemix                 5  18.23
"""
CASES = [(name, scale) for name in RECIPES for scale in SCALES]


def column(text, place):
    lines = [line.split() for line in text.strip().splitlines()]
    return {(line[0], int(line[1])): float(line[2 + place]) for line in lines}


def numbers(name):
    return {(row.arm, row.k): row.paper for row in recipe(name).rows}


@pytest.mark.parametrize("place", range(5))
def test_errors_of_the_tables(place):
    assert numbers(TABLES[place]) == column(ERRORS, place)
    assert [row.arm for row in recipe(TABLES[place]).rows] == [line.split()[0] for line in ERRORS.strip().splitlines()]


def test_errors_of_the_batch_strategies():
    assert numbers("batch_strategies") == column(STRATEGIES, 0)


def test_where_the_specification_has_no_number_there_is_none():
    assert numbers("effect_of_k") == {
        ("puzzlemix", 1): 20.61,
        ("puzzlemix", 3): None,
        ("puzzlemix", 5): 19.19,
        ("puzzlemix", 7): None,
        ("puzzlemix", 9): None,
    }
    assert numbers("training_time") == numbers("gradient_norm") == dict.fromkeys(numbers("effect_of_k"))
    assert numbers("speech") == dict.fromkeys(numbers("cifar100_wrn16_8"))


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(
        ValueError, match=r"no recipe 'cifar100_wrn' \(did you mean 'cifar100_wrn16_8'\?\); there are cifar100_pre"
    ):
        recipe("cifar100_wrn")
    with pytest.raises(ValueError, match=r"no recipe 'xyz'; there are"):
        recipe("xyz")


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


@pytest.mark.parametrize("name", RECIPES)
def test_reduced_scales_fit_a_cpu(name):
    full = recipe(name).settings("paper")
    for scale in ("small", "smoke"):
        settings = recipe(name).settings(scale)
        small = "" if name in ("shapes_pointnet", "digits_smallnet") else "_small"  # those networks are small enough
        assert settings.network.name == f"{full.network.name}{small}"
        assert settings.network.options == full.network.options
        assert settings.mixed_precision == "no"
        assert (settings.data.name, settings.data.report, settings.data.select) == (
            full.data.name, full.data.report, full.data.select,
        )  # fmt: skip
        # Five times the batch must still be a batch, if only ten words of the thirty are there.
        classes = 10 if name == "speech" else settings.data.entry().classes
        samples = classes * settings.data.per_class
        assert 5 * settings.batch <= samples
        assert samples * settings.epochs <= (250_000 if scale == "small" else 3_000)
        if name != "training_time":  # which only looks at the first epochs
            assert settings.schedule.at_epoch(settings.epochs) < settings.schedule.at_epoch(0) / 50


@pytest.mark.parametrize("name", RECIPES)
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
    with pytest.raises(ValueError, match="imagenet has phases, set phases.0.batch and so on instead of batch"):
        planned(recipe("imagenet"), method="none", changes={"batch": "64"})
    with pytest.raises(ValueError, match="phases.0.size"):
        planned(recipe("imagenet"), method="none", changes={"augment.size": "96"})
    (run,) = planned(recipe("imagenet"), method="none", changes={"phases.1.batch": "64"})
    assert run.settings.in_epoch(20).batch == 64
