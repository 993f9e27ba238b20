"""The facts of the protocols at paper scale, and the sizes of the reduced ones, typed again from the specification."""

from dataclasses import replace

import pytest
import torch

import multimix as mm
from multimix.lab.nets import network
from multimix.lab.recipes import RECIPES, recipe
from multimix.lab.recipes.base import arm_settings
from multimix.lab.recipes.settings import Optimizer
from multimix.lab.report.paper import exhibit
from multimix.methods.samix.block import NewBlock

OF_IMAGES = [name for name in RECIPES if name not in ("points", "digits", "folder")]


def arm(name, arm, k=1, scale="paper", follow="text"):
    return arm_settings(recipe(name, follow), recipe(name, follow).settings(scale), arm, k)


def parameters(settings):
    made = network(settings.network.name, settings.data.entry().classes, **settings.network.given())
    return sum(weight.numel() for weight in made.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("cifar100_preact_resnet18", 11_217_316),
        ("cifar100_wrn16_8", 11_012_036),
        ("cifar100_resnext29_4_24", 4_937_252),
    ],
)
def test_cifar100(name, count):
    settings = recipe(name).settings("paper")
    assert parameters(settings) == count
    assert (settings.data.name, settings.data.report) == ("cifar100", "test")
    assert (settings.data.per_class, settings.data.report_per_class) == (None, None)
    assert (settings.epochs, settings.running.workers) == (300, 8)
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
    # The paper has s > 0; the code of manifold mixup mixes the input as well.
    assert arm(name, "manifoldmix").method.layers == ("stage1", "stage2")
    assert arm(name, "manifoldmix", follow="code").method.layers == (None, "stage1", "stage2")
    assert arm(name, "cutout").method.length == 8
    assert arm(name, "fmix").method.decay == 3
    assert arm(name, "smoothing").smoothing == 0.1
    puzzle = arm(name, "puzzlemix", 5).method
    assert (puzzle.k, puzzle.labels, puzzle.eta, puzzle.beta, puzzle.gamma, puzzle.neighborhood) == (5, 3, 0.2, 1.2, 0.5, 4)
    assert (puzzle.transport_size, puzzle.transport_eps, puzzle.clean_weight, puzzle.adv_p) == (4, 0.8, 0, 0)
    assert puzzle.std == pytest.approx([68.2 / 255, 65.4 / 255, 70.4 / 255])


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_the_consistency_term_asks_the_head_about_what_it_is_given(name, scale):
    """RecursiveMix as published, where a layer puts out what the head takes the mean of: for the whole image it is the model."""
    settings = arm(name, "recursivemix", scale=scale)
    method = settings.method
    # VGG gives the head all places, a final norm is followed by a function: no layer puts out what the head takes the mean of.
    if settings.network.name.startswith("vgg") or "final_norm=True" in settings.network.options:
        assert method.traits.own_loss is None
        return
    made = settings.network.built(settings.data.entry().classes, 3)
    seen = []
    made.get_submodule(method.features).register_forward_hook(lambda *of: seen.append(of[2]))
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = made(x)
        torch.testing.assert_close(made.get_submodule(method.head)(seen[0].mean((2, 3))), logits)
    assert method.area == 0.5
    assert method.omega == (0.5 if name == "imagenet" else 0.1)


@pytest.mark.parametrize("name", [name for name in OF_IMAGES if name != "speech"])
def test_alignment_has_something_after_it(name):
    """If only the mean over places followed, it would not matter to which places the partner is brought."""
    settings = arm(name, "alignmixup", scale="small")
    made = settings.network.built(settings.data.entry().classes, 3).eval()
    (layer,) = settings.method.layers
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def mixed(moved):
        change = made.get_submodule(layer).register_forward_hook(lambda *of: (of[2] + moved(of[2].flip(0))) / 2)
        with torch.no_grad(), change:
            return made(x)

    assert (mixed(lambda z: z.roll((1, 2), (2, 3)).flip(3)) - mixed(lambda z: z)).abs().max() > 1e-5


@pytest.mark.parametrize(
    ("name", "options"),
    [("preact_resnet18", (0.5, 0.7)), ("wrn16_8", (0.7, 0.5)), ("resnext29_4_24", (0.7, 0.5))],
)
def test_sage_on_cifar100(name, options):
    method = arm(f"cifar100_{name}", "sage").method
    assert (method.bound, method.update_ratio) == options


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
    assert (puzzle.transport_size, puzzle.clean_weight, puzzle.neighborhood, puzzle.beta) == (None, 0, 4, 1.2)
    assert arm("tiny_imagenet", "puzzlemix", 5, follow="code").method == replace(puzzle, clean_weight=1.0)


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
    assert (puzzle.beta, puzzle.gamma, puzzle.eta, puzzle.transport_eps, puzzle.neighborhood) == (1.5, 0.5, 0.2, 0.8, 2)


FIRST = [(0, 0.5), (4, 0.75), (8, 1.0), (14.999999, 0.125), (15, 0.2), (27.5, 0.11), (39.999999, 0.02), (40, 0.02)]
BY_STEPS = [(52.5, 0.02), (64.999, 0.02), (65, 0.002), (89.999, 0.002), (90, 0.0002), (99.999999, 0.0002)]
BY_LINES = [(52.5, 0.011), (65, 0.002), (90, 0.0002), (95, 0.00011), (99.999999, 0.00002)]


@pytest.mark.parametrize(("follow", "rates"), [("text", FIRST + BY_STEPS), ("code", FIRST + BY_LINES)])
def test_rates_of_imagenet(follow, rates):
    for epoch, rate in rates:
        assert recipe("imagenet", follow).settings("paper").schedule.at_epoch(epoch) == pytest.approx(rate, rel=1e-4)
        # A fifth of the epochs, a sixteenth of the batches.
        assert recipe("imagenet", follow).settings("small").schedule.at_epoch(epoch / 5) == pytest.approx(rate / 16, rel=1e-4)


@pytest.mark.parametrize(
    ("scale", "epochs", "expected", "clean_weight"),
    [
        ("paper", (0, 14), (1024, 128, 0.08, 160), 1),
        ("paper", (15, 39), (448, 224, 0.087, 352), 1),
        ("paper", (40, 99), (448, 224, 0.087, 352), 0),
        ("small", (0, 2), (64, 64, 0.08, 80), 1),
        ("small", (3, 7), (28, 112, 0.087, 176), 1),
        ("small", (8, 19), (28, 112, 0.087, 176), 0),
    ],
)
def test_phases_of_imagenet(scale, epochs, expected, clean_weight):
    for epoch in epochs:
        for follow, weight in (("text", 0), ("code", clean_weight)):
            now = arm("imagenet", "puzzlemix", 5, scale, follow).in_epoch(epoch)
            sizes = now.batch, now.augment.size, now.augment.smallest_crop, now.augment.short_side
            assert (sizes, now.method.clean_weight) == (expected, weight)
        plain = arm("imagenet", "cutmix", 5, scale).in_epoch(epoch)
        assert (plain.batch, plain.method.traits.own_loss) == (expected[0], None)


@pytest.mark.parametrize("method", [mm.SAGE(update_ratio=0.7), mm.SAMix(block=NewBlock("stage3"))], ids=str)
def test_a_clean_loss_that_belongs_to_the_method_lasts_through_all_phases(method):
    """The protocol ends that of Puzzle Mix and Co-Mixup; where it follows from other options there is nothing to set."""
    settings = replace(recipe("imagenet").settings("paper"), method=method)
    assert method.traits.own_loss is not None
    assert [settings.in_epoch(epoch).method for epoch in (0, 15, 40, 99)] == [method] * 4
    assert settings.in_epoch(40).batch == 448


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
    rows = {}
    for row in exhibit("II").rows:
        settings = arm("cifar100_resnext29_4_24", row.arm, row.k)
        rows[row.arm] = settings.batch, settings.repeats, settings.method.name, settings.method.k
    assert rows == {
        "large_batch": (500, 1, "none", 1),
        "large_batch_mixup": (500, 1, "puzzlemix", 1),
        "batch_augmentation": (100, 5, "none", 1),
        "batch_augmentation_mixup": (100, 5, "puzzlemix", 1),
        "puzzlemix": (100, 1, "puzzlemix", 5),
    }
    for name in ("large_batch_input_mixup", "batch_augmentation_input_mixup"):
        assert arm("cifar100_resnext29_4_24", name, 5).method == arm("cifar100_resnext29_4_24", "mixup", 1).method


@pytest.mark.parametrize(("name", "metric"), [("cifar100_wrn16_8", "median"), ("imagenet", "last")])
def test_what_is_reported(name, metric):
    assert recipe(name).metric == metric


def test_batch_augmentation_needs_samples_that_are_augmented():
    with pytest.raises(ValueError, match="^batch augmentation shows augmented samples, and the recipe on speech_commands_v1"):
        arm("speech", "batch_augmentation")


@pytest.mark.parametrize(
    ("name", "layer", "kappa", "rescale_p"),
    [
        ("cifar100_preact_resnet18", "stage3", 0.25, 0.25),
        ("cifar100_wrn16_8", "stage2", 0.25, 0.25),
        ("cifar100_resnext29_4_24", "stage2", 0.25, 0.25),
        ("tiny_imagenet", "stage3", None, 0.0),
    ],
)
def test_samix_looks_at_the_last_stage_but_one(name, layer, kappa, rescale_p):
    method = arm(name, "samix").method
    assert (method.block.layer, method.block.kappa, method.rescale_p) == (layer, kappa, rescale_p)
