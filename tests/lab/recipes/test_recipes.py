"""Every recipe at every scale: the paper's numbers, typed again from the specification, and the facts of the protocols."""

import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from multimix.lab import recipes
from multimix.lab.nets import network
from multimix.lab.recipes import RECIPES, SCALES, recipe
from multimix.lab.recipes.arms import arm_settings
from multimix.lab.training.history import Outcome
from multimix.lab.training.settings import Optimizer

# Error in per cent on CIFAR-100 with PreActResNet18, WRN16-8 and ResNeXt29-4-24, on Tiny-ImageNet and on ImageNet.
TABLES = ("cifar100_preact_resnet18", "cifar100_wrn16_8", "cifar100_resnext29_4_24", "tiny_imagenet", "imagenet")
ERRORS = """
    none         1   23.53  21.93  21.84  43.54  24.03
    mixup        1   22.49  20.18  21.78  43.35  22.97
    manifoldmix  1   21.62  20.49  21.45  41.21  23.30
    cutout       1   21.12  19.19  20.86  40.52  24.10
    cutmix       1   21.29  20.14  20.92  43.11  22.92
    fmix         1   21.52  19.75  21.87  42.38  23.96
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
SHARED = {"__init__", "base", "arms", "cifar100"}
CASES = [(name, scale) for name in RECIPES for scale in SCALES]


def column(text, place):
    lines = [line.split() for line in text.strip().splitlines()]
    return {(line[0], int(line[1])): float(line[2 + place]) for line in lines}


def numbers(name):
    return {(row.arm, row.k): row.paper for row in recipe(name).rows}


def arm(name, arm, k=1, scale="paper"):
    return arm_settings(recipe(name), recipe(name).settings(scale), arm, k)


def parameters(settings):
    made = network(settings.network.name, settings.data.entry().classes, **settings.network.given())
    return sum(weight.numel() for weight in made.parameters())


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


def test_a_recipe_is_called_as_its_file():
    folder = Path(recipes.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - SHARED == set(RECIPES)
    for name in RECIPES:
        module = importlib.import_module(f"multimix.lab.recipes.{name}")
        assert module.RECIPE is RECIPES[name]
        assert module.RECIPE.name == name
        assert f"multimix.lab.cli train {name}" in module.__doc__ or f"multimix train {name}" in module.__doc__


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
        assert settings.network.name == f"{full.network.name}_small"
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
    assert data.report_per_class <= 2
    assert settings.epochs <= 3


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("cifar100_preact_resnet18", 11_217_316),
        ("cifar100_wrn16_8", 11_012_036),
        ("cifar100_resnext29_4_24", 4_937_252),
        ("batch_strategies", 4_937_252),
        ("effect_of_k", 11_217_316),
        ("training_time", 11_217_316),
        ("gradient_norm", 11_217_316),
    ],
)
def test_cifar100(name, count):
    settings = recipe(name).settings("paper")
    assert parameters(settings) == count
    assert (settings.data.name, settings.data.report) == ("cifar100", "test")
    assert (settings.data.per_class, settings.data.report_per_class) == (None, None)
    assert settings.epochs == (5 if name == "training_time" else 300)
    assert [settings.schedule.at_epoch(epoch) for epoch in (0, 99, 100, 199, 200, 299)] == pytest.approx(
        [0.2, 0.2, 0.02, 0.02, 0.002, 0.002]
    )
    assert (settings.batch, settings.loss, settings.smoothing) == (100, "softmax_bce", 0)
    assert (settings.augment.flip, settings.augment.padding, settings.augment.rotation) == (True, 2, 0)
    assert settings.optimizer == Optimizer(momentum=0.9, nesterov=True, weight_decay=1e-4, norm_decay=True)


def test_methods_on_cifar100():
    name = "cifar100_preact_resnet18"
    assert [arm(name, kind).method.alpha for kind in ("mixup", "manifoldmix", "cutmix", "fmix", "puzzlemix")] == [1, 2, 1, 1, 1]
    assert [arm(name, kind).method.p for kind in ("mixup", "cutmix", "fmix")] == [1, 1, 1]
    assert arm(name, "manifoldmix").method.layers == (None, "stage1", "stage2")
    assert arm(name, "cutout").method.length == 8
    assert arm(name, "fmix").method.decay == 3
    assert arm(name, "smoothing").smoothing == 0.1
    puzzle = arm(name, "puzzlemix", 5).method
    assert (puzzle.k, puzzle.labels, puzzle.eta, puzzle.beta, puzzle.gamma, puzzle.neighbourhood) == (5, 3, 0.2, 1.2, 0.5, 4)
    assert (puzzle.transport_size, puzzle.transport_eps, puzzle.clean_weight, puzzle.adv_p) == (4, 0.8, 0, 0)
    assert puzzle.std == pytest.approx([68.2 / 255, 65.4 / 255, 70.4 / 255])


def test_tiny_imagenet():
    settings = recipe("tiny_imagenet").settings("paper")
    assert parameters(settings) == 11_268_616
    assert settings.network.given() == {"stem_stride": 2}
    assert (settings.data.name, settings.data.report) == ("tiny_imagenet", "validation")
    assert (settings.epochs, settings.batch, settings.loss) == (1200, 100, "softmax_bce")
    assert [settings.schedule.at_epoch(epoch) for epoch in (0, 599, 600, 899, 900)] == pytest.approx(
        [0.2, 0.2, 0.02, 0.02, 0.002]
    )
    assert (settings.augment.flip, settings.augment.padding) == (True, 4)
    assert settings.optimizer == Optimizer(momentum=0.9, nesterov=True, weight_decay=1e-4, norm_decay=True)
    alphas = [arm("tiny_imagenet", kind).method.alpha for kind in ("mixup", "manifoldmix", "cutmix", "fmix", "puzzlemix")]
    assert alphas == [0.2, 0.2, 0.2, 1, 1]
    assert arm("tiny_imagenet", "cutout").method.length == 16
    puzzle = arm("tiny_imagenet", "puzzlemix", 5).method
    assert (puzzle.transport_size, puzzle.clean_weight, puzzle.neighbourhood, puzzle.beta) == (None, 1, 4, 1.2)


def test_imagenet():
    settings = recipe("imagenet").settings("paper")
    assert parameters(settings) == 25_557_032
    assert settings.network.given() == {"zero_init": True}
    assert (settings.data.name, settings.data.report) == ("imagenet", "validation")
    assert (settings.epochs, settings.loss) == (100, "cross_entropy")
    assert settings.optimizer == Optimizer(momentum=0.9, nesterov=False, weight_decay=1e-4, norm_decay=False)
    assert (settings.augment.flip, settings.augment.evaluate_resize, settings.augment.evaluate_crop) == (True, 256, 224)
    alphas = [arm("imagenet", kind).method.alpha for kind in ("mixup", "manifoldmix", "cutmix", "fmix", "puzzlemix")]
    assert alphas == [0.2, 0.2, 1, 1, 1]
    assert arm("imagenet", "cutout").method.length == 112
    puzzle = arm("imagenet", "puzzlemix", 5).method
    assert (puzzle.beta, puzzle.gamma, puzzle.eta, puzzle.transport_eps, puzzle.neighbourhood) == (1.5, 0.5, 0.2, 0.8, 2)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        *[(0, 0.5), (4, 0.75), (8, 1.0), (14.999999, 0.125), (15, 0.2), (27.5, 0.11), (39.999999, 0.02), (40, 0.02)],
        *[(52.5, 0.011), (65, 0.002), (90, 0.0002), (95, 0.00011), (99.999999, 0.00002)],
    ],
)
def test_rates_of_imagenet(epoch, rate):
    assert recipe("imagenet").settings("paper").schedule.at_epoch(epoch) == pytest.approx(rate, rel=1e-4)
    # A fifth of the epochs, a sixteenth of the batches.
    assert recipe("imagenet").settings("small").schedule.at_epoch(epoch / 5) == pytest.approx(rate / 16, rel=1e-4)


@pytest.mark.parametrize(
    ("scale", "epochs", "expected"),
    [
        ("paper", (0, 14), (1024, 128, 0.08, 160, 1)),
        ("paper", (15, 39), (448, 224, 0.087, 352, 1)),
        ("paper", (40, 99), (448, 224, 0.087, 352, 0)),
        ("small", (0, 2), (64, 64, 0.08, 80, 1)),
        ("small", (3, 7), (28, 112, 0.087, 176, 1)),
        ("small", (8, 19), (28, 112, 0.087, 176, 0)),
    ],
)
def test_phases_of_imagenet(scale, epochs, expected):
    for epoch in epochs:
        now = arm("imagenet", "puzzlemix", 5, scale).in_epoch(epoch)
        sizes = now.batch, now.augment.size, now.augment.smallest_crop, now.augment.short_side
        assert (*sizes, now.method.clean_weight) == expected
        plain = arm("imagenet", "cutmix", 5, scale).in_epoch(epoch)
        assert (plain.batch, plain.method.clean_weight) == (expected[0], 0)


@pytest.mark.parametrize(("name", "epochs"), [("preact_resnet18", 10), ("wrn16_8", 8), ("resnext29_4_24", 6)])
def test_small_cifar100(name, epochs):
    settings = recipe(f"cifar100_{name}").settings("small")
    assert (settings.epochs, settings.batch, settings.loss) == (epochs, 50, "cross_entropy")
    assert (settings.data.per_class, settings.data.report_per_class) == (50, 20)
    moments = [share * epochs for share in (0, 0.32, 0.35, 0.65, 0.68, 1)]
    assert [settings.schedule.at_epoch(moment) for moment in moments] == pytest.approx([0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005])


def test_small_speech_keeps_the_rate():
    settings = recipe("speech").settings("small")
    assert (settings.epochs, settings.batch, settings.data.per_class, settings.data.report_per_class) == (15, 50, 200, 50)
    assert [settings.schedule.at_epoch(epoch) for epoch in (0, 4, 5, 9, 10)] == pytest.approx([3e-3, 3e-3, 3e-4, 3e-4, 3e-5])


def test_speech():
    settings = recipe("speech").settings("paper")
    assert parameters(settings) == 13_172_894
    assert (settings.data.name, settings.data.report, settings.data.select) == ("speech_commands_v1", "test", "validation")
    assert (settings.epochs, settings.batch, settings.loss) == (30, 100, "cross_entropy")
    assert [settings.schedule.at_epoch(epoch) for epoch in (0, 9, 10, 19, 20)] == pytest.approx(
        [0.003, 0.003, 0.0003, 0.0003, 0.00003]
    )
    assert (settings.augment.flip, settings.augment.padding, settings.optimizer.momentum) == (False, 0, 0.9)
    assert recipe("speech").metric == "selected"
    assert arm("speech", "mixup").method.alpha == 0.2
    assert arm("speech", "puzzlemix", 5).method.out_of_range == "clamp"


def test_the_batch_strategies_see_five_times_the_samples():
    seen = {row.arm: arm("batch_strategies", row.arm, row.k) for row in recipe("batch_strategies").rows}
    rows = {name: (settings.batch, settings.repeats, settings.method.k) for name, settings in seen.items()}
    assert rows == {
        "large_batch": (500, 1, 1),
        "large_batch_mixup": (500, 1, 1),
        "batch_augmentation": (100, 5, 1),
        "batch_augmentation_mixup": (100, 5, 1),
        "puzzlemix": (100, 1, 5),
    }


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("cifar100_wrn16_8", "median"),
        ("effect_of_k", "median"),
        ("training_time", "seconds_per_epoch"),
        ("gradient_norm", "squared_grad_norm"),
        ("imagenet", "last"),
    ],
)
def test_what_is_reported(name, metric):
    assert recipe(name).metric == metric


@pytest.mark.parametrize("scale", SCALES)
def test_the_figures_train_what_the_table_trains(scale):
    table = recipe("cifar100_preact_resnet18")
    for name in ("effect_of_k", "gradient_norm"):
        assert arm(name, "puzzlemix", 5, scale).digest() == arm(table.name, "puzzlemix", 5, scale).digest()
    assert arm("batch_strategies", "puzzlemix", 5, scale) == arm("cifar100_resnext29_4_24", "puzzlemix", 5, scale)
