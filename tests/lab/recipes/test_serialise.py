"""Settings changed by words, and brought back from their description through JSON with the same digest."""

import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Literal

import pytest

import multimix as mm
from multimix.lab.recipes import RECIPES, SCALES
from multimix.lab.recipes.base import arm_names, arm_settings
from multimix.lab.recipes.serialise import apply_changes, describe, rebuild
from multimix.lab.recipes.settings import (
    Augmentation,
    Data,
    Knots,
    Milestones,
    Network,
    Phase,
    Settings,
)
from multimix.methods import create
from multimix.methods.registry import entries
from multimix.methods.samix.block import NewBlock
from multimix.methods.style.small_pair import NewPair


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    at: tuple[float, ...] = ()
    pair: tuple[int, int] = (1, 2)
    name: str | None = None
    kind: Literal["a", "b"] = "a"
    on: bool = True


@dataclass(frozen=True)
class Outer:
    epochs: int = 3
    inner: Inner = field(default_factory=Inner)
    size: int | None = None


@pytest.mark.parametrize(
    ("path", "words", "expected"),
    [
        ("epochs", "7", Outer(epochs=7)),
        ("epochs", "-2", Outer(epochs=-2)),
        ("epochs", "9007199254740993", Outer(epochs=9007199254740993)),
        ("epochs", "1e2", Outer(epochs=100)),
        ("inner.pair", "3.0, -1e1", Outer(inner=Inner(pair=(3, -10)))),
        ("inner.name", "inf", Outer(inner=Inner(name="inf"))),
        ("inner.rate", "2e-3", Outer(inner=Inner(rate=0.002))),
        ("inner.rate", "1", Outer(inner=Inner(rate=1.0))),
        ("inner.at", "100,200", Outer(inner=Inner(at=(100.0, 200.0)))),
        ("inner.at", "(1, 2.5)", Outer(inner=Inner(at=(1.0, 2.5)))),
        ("inner.at", "[1, 2.5,]", Outer(inner=Inner(at=(1.0, 2.5)))),
        ("inner.at", "4", Outer(inner=Inner(at=(4.0,)))),
        ("inner.at", "", Outer(inner=Inner(at=()))),
        ("inner.at", "()", Outer(inner=Inner(at=()))),
        ("inner.pair", "3,4", Outer(inner=Inner(pair=(3, 4)))),
        ("inner.name", "none", Outer()),
        ("inner.name", "some", Outer(inner=Inner(name="some"))),
        ("inner.kind", "b", Outer(inner=Inner(kind="b"))),
        ("inner.on", "off", Outer(inner=Inner(on=False))),
        ("inner.on", "0", Outer(inner=Inner(on=False))),
        ("size", "5", Outer(size=5)),
        ("size", "null", Outer()),
    ],
)
def test_words_become_values(path, words, expected):
    assert apply_changes(Outer(), {path: words}) == expected
    assert apply_changes(Outer(), {path.replace("_", "-"): words}) == expected


def test_several_at_once_and_the_first_stays_as_it_is():
    first = Outer()
    assert apply_changes(first, {"epochs": "9", "inner.rate": "0.5", "inner.kind": "b"}) == Outer(9, Inner(rate=0.5, kind="b"))
    assert first == Outer()


@pytest.mark.parametrize(
    ("path", "words", "sentence"),
    [
        ("epoch", "7", r"no field 'epoch' \(did you mean 'epochs'\?\); --show lists all fields$"),
        ("inner.rat", "7", r"no field 'inner.rat' \(did you mean 'inner.rate'\?\); --show lists all fields$"),
        ("inner.rate.x", "7", r"no field 'inner.rate.x' \(did you mean 'inner.rate'\?\)"),
        ("inner.pair.0", "7", r"no field 'inner.pair.0' \(did you mean 'inner.pair'\?\)"),
        ("inner", "7", "inner has fields of its own, set one of them: inner.rate, inner.at"),
        ("epochs", "many", "epochs must be a whole number, got 'many'$"),
        ("epochs", "2.5", "epochs must be a whole number, got '2.5'$"),
        ("epochs", "True", "epochs must be a whole number, got 'True'$"),
        ("epochs", "25e-1", "epochs must be a whole number, got '25e-1'$"),
        ("epochs", "inf", "epochs must be a whole number, got 'inf'$"),
        ("inner.rate", "nan", "inner.rate must be a number, got 'nan'$"),
        ("inner.rate", "-Infinity", "inner.rate must be a number, got '-Infinity'$"),
        ("inner.rate", "1e999", "inner.rate must be a number, got '1e999'$"),
        ("inner.at", "1, nan", r"inner.at must be a list \(each a number\), got '1, nan'$"),
        ("inner.at", "1,,2", r"inner.at must be a list \(each a number\), got '1,,2'$"),
        ("inner.at", "[, 1]", r"inner.at must be a list"),
        ("inner.at", "(1, 2", r"inner.at must be a list"),
        ("inner.at", "1) 2(", r"inner.at must be a list"),
        ("inner.at", "1 2", r"inner.at must be a list"),
        ("size", "", "size must be a whole number or none, got ''$"),
        ("inner.rate", "fast", "inner.rate must be a number, got 'fast'$"),
        ("inner.at", "1,x", r"inner.at must be a list \(each a number\), got '1,x'$"),
        ("inner.pair", "1,2,3", r"inner.pair must be a list \(a whole number, a whole number\), got '1,2,3'$"),
        ("inner.kind", "c", "inner.kind must be one of a, b, got 'c'$"),
        ("inner.on", "maybe", "inner.on must be true or false, got 'maybe'$"),
        ("size", "big", "size must be a whole number or none, got 'big'$"),
    ],
)
def test_what_does_not_fit_is_one_sentence(path, words, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        apply_changes(Outer(), {path: words})


PHASES = (
    Phase(epoch=0, batch=64, size=28, smallest_crop=0.35),
    Phase(epoch=3, batch=32, size=32, smallest_crop=0.25, short_side=40),
)
SCHEDULES = [Milestones(0.1, (3.0, 4.5), 0.2, 1.0), Knots(((0.0, 0.5), (6.0, 0.25), (6.0, 0.1)))]
OPTIONS = {"layers": ("stage1", "stage2"), "block": NewBlock("stage3", kappa=None), "pair": NewPair(width=8)}


def full(method=None, schedule=SCHEDULES[0]):
    """Settings in which as much as possible differs from the defaults."""
    return Settings(
        data=Data("cifar100", select="validation", per_class=7),
        network=Network("preact_resnet18", ("width=(8, 16)", "stem_stride=2")),
        method=mm.CutMix(k=3) if method is None else method,
        schedule=schedule,
        epochs=6,
        batch=50,
        augment=Augmentation(flip=True, smallest_crop=0.3, size=32),
        phases=PHASES,
        k_chunk=2,
    )


def methods():
    made = [create(known.name, **{option: OPTIONS[option] for option in known.required}) for known in entries()]
    colours = mm.PuzzleMix(mean=(0.5, 0.25, 0.125), std=0.5, blocks=(4, (3, 5)), transport_size=2)
    return [*made, colours, mm.OneOf((mm.CutMix(k=2), mm.InputMixup(alpha=0.5)), (0.25, 0.5))]


EVERY = [*(full(method) for method in methods()), full(mm.InputMixup(), SCHEDULES[1])]


def leaves(value, path=""):
    """Every field that is no dataclass, with its value, by its dotted name."""
    for one in fields(value):
        inner, name = getattr(value, one.name), path + one.name
        if is_dataclass(inner):
            yield from leaves(inner, name + ".")
        elif isinstance(inner, tuple) and inner and is_dataclass(inner[0]):
            for i, part in enumerate(inner):
                yield from leaves(part, f"{name}.{i}.")
        else:
            yield name, inner


@pytest.mark.parametrize("settings", EVERY, ids=lambda settings: type(settings.method).__name__)
def test_the_text_of_its_own_value_changes_no_field(settings):
    """Of any settings, whatever kind its method and its schedule are."""
    texts = {name: str(value) for name, value in leaves(settings)}
    assert {"data.select", "network.options", "phases.1.short_side", "running.device", "mixed_precision"} < texts.keys()
    assert repr(apply_changes(settings, texts)) == repr(settings)  # repr tells 1, 1.0 and True apart


@pytest.mark.parametrize("settings", EVERY, ids=lambda settings: type(settings.method).__name__)
def test_what_show_prints_can_be_given_back(settings):
    kinds = ("method", "schedule")
    lines = {name: value for name, value in describe(settings).items() if name not in kinds}
    texts = {name: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in lines.items()}
    texts.pop("method.methods", None)
    assert repr(apply_changes(settings, texts)) == repr(settings)


@pytest.mark.parametrize(
    ("path", "words", "expected"),
    [
        ("method.alpha", "0.5", mm.ManifoldMixup(layers=("a",), alpha=0.5)),
        ("method.layers", "none,stage1", mm.ManifoldMixup(layers=(None, "stage1"))),
        ("method.layers", "['stage1', None]", mm.ManifoldMixup(layers=("stage1", None))),
        ("method.sampler", "grid", mm.ManifoldMixup(layers=("a",), sampler="grid")),
    ],
)
def test_a_method_is_changed_by_its_own_fields(path, words, expected):
    assert apply_changes(full(mm.ManifoldMixup(layers=("a",))), {path: words}).method == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"blocks": "16"}, mm.PuzzleMix(blocks=(16,))),
        ({"blocks": "2, (3, 5), [4, 4]"}, mm.PuzzleMix(blocks=(2, (3, 5), (4, 4)))),
        ({"blocks": "2e0, (3, 1e1)"}, mm.PuzzleMix(blocks=(2, (3, 10)))),
        ({"blocks": "((3, 5),)"}, mm.PuzzleMix(blocks=((3, 5),))),
        ({"blocks": "(3, 5)"}, mm.PuzzleMix(blocks=(3, 5))),
        ({"mean": "0.5"}, mm.PuzzleMix(mean=0.5)),
        ({"mean": "0.5, 0.25, 0.125", "std": "1, 1, 0.5"}, mm.PuzzleMix(mean=(0.5, 0.25, 0.125), std=(1.0, 1.0, 0.5))),
        ({"std": "0.5"}, mm.PuzzleMix(std=0.5)),
        ({"transport": "none"}, mm.PuzzleMix(transport="none")),
    ],
)
def test_options_of_several_types_are_read(words, expected):
    changed = apply_changes(full(mm.PuzzleMix()), {f"method.{name}": text for name, text in words.items()}).method
    assert repr(changed) == repr(expected)


def test_points_of_a_schedule():
    start = full(schedule=SCHEDULES[1])
    assert apply_changes(start, {"schedule.points": "(0, 1), (5, 0.5)"}).schedule == Knots(((0.0, 1.0), (5.0, 0.5)))
    assert apply_changes(start, {"schedule.points": "[[0, 1], [5, 0.5]]"}).schedule == Knots(((0.0, 1.0), (5.0, 0.5)))
    assert apply_changes(start, {"schedule.points": "(0, 1)"}).schedule == Knots(((0.0, 1.0),))


def test_positions_in_a_tuple_of_dataclasses():
    changed = apply_changes(full(), {"phases.1.batch": "16", "phases.0.clean_weight": "0.5", "phases.1.short-side": "none"})
    assert changed.phases == (replace(PHASES[0], clean_weight=0.5), replace(PHASES[1], batch=16, short_side=None))
    assert apply_changes(full(), {"phases": "()"}).phases == ()
    both = full(mm.OneOf((mm.CutMix(k=2), mm.InputMixup(alpha=0.5)), (0.25, 0.5)))
    assert apply_changes(both, {"method.methods.1.alpha": "2"}).method.methods[1] == mm.InputMixup(alpha=2.0)


def test_what_belongs_together_is_changed_together():
    """The first of these alone would be refused."""
    three = replace(full(), phases=(*PHASES, replace(PHASES[1], epoch=5)))
    assert [phase.epoch for phase in apply_changes(three, {"phases.1.epoch": "6", "phases.2.epoch": "9"}).phases] == [0, 6, 9]
    plain = replace(full(), augment=Augmentation(), phases=())
    for names in (["smallest_crop", "size"], ["size", "smallest_crop"]):
        changed = apply_changes(plain, {f"augment.{name}": {"size": "32", "smallest_crop": "0.3"}[name] for name in names})
        assert changed.augment == Augmentation(smallest_crop=0.3, size=32)


@pytest.mark.parametrize(
    ("path", "words", "sentence"),
    [
        ("phases.2.batch", "64", r"no field 'phases.2.batch' \(did you mean 'phases.1.batch'\?\)"),
        ("phases.1.bach", "64", r"no field 'phases.1.bach' \(did you mean 'phases.1.batch'\?\)"),
        ("phases.1", "64", "phases.1 has fields of its own, set one of them: phases.1.epoch, phases.1.batch"),
        ("phases", "64", "phases has fields of its own, set one of them: phases.0.epoch, phases.0.batch"),
        ("phases.1.epoch", "0", "phases must start at epoch 0 and ascend, got 0, 0"),
        ("augment.size", "none", "augment.smallest_crop needs augment.size, the side of what the network sees"),
        ("method", "fmix", "method has fields of its own, set one of them: method.k, method.p"),
        ("method.alpa", "1", r"no field 'method.alpa' \(did you mean 'method.alpha'\?\)"),
        ("method.alpha", "-1", "alpha must be"),
        ("method.sampler", "best", "method.sampler must be one of iid, stratified, antithetic, grid, got 'best'"),
        ("schedule.at", "5,3", "at must ascend, got 5, 3"),
        ("loss", "bce", "loss must be one of softmax_bce, cross_entropy, got 'bce'"),
        ("data.select", "train", "data.select must be one of validation, test or none, got 'train'"),
    ],
)
def test_what_does_not_fit_settings_is_one_sentence(path, words, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        apply_changes(full(), {path: words})


@pytest.mark.parametrize(
    ("path", "words", "sentence"),
    [
        ("method.blocks", "2, x", r"method.blocks must be a list \(each a whole number or a list \(a whole number, a whole"),
        ("method.blocks", "2, (3, x)", "method.blocks must be a list"),
        ("method.blocks", "2, (3, 5", "method.blocks must be a list"),
        ("method.mean", "inf", "method.mean must be a number or a list"),
        ("method.mean", "grey", r"method.mean must be a number or a list \(each a number\), got 'grey'"),
        ("method.transport", "fast", "method.transport must be one of exact, reference, none, got 'fast'"),
        ("method.std", "0", "std must be positive, got 0.0"),
        ("schedule.points", "0, 1, 2", r"schedule.points must be a list \(each a list \(a number, a number\)\), got '0, 1, 2'"),
        ("schedule.rate", "1", "no field 'schedule.rate'"),
    ],
)
def test_what_does_not_fit_puzzle_mix_or_knots_is_one_sentence(path, words, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        apply_changes(full(mm.PuzzleMix(), SCHEDULES[1]), {path: words})


def test_a_word_where_a_function_may_be_too():
    start = full(mm.SaliencyMix())
    assert apply_changes(start, {"method.saliency_from": "gradient"}).method == mm.SaliencyMix(saliency_from="gradient")
    with pytest.raises(ValueError, match=r"^method.saliency_from must be one of fine, gradient or an object \(in Python\), got"):
        apply_changes(start, {"method.saliency_from": "corse"})


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_and_arm(name, scale):
    recipe = RECIPES[name]
    arms = arm_names(recipe.settings(scale).data.entry().layout)
    if name in ("speech", "digits"):  # whose images are not augmented
        arms = [arm for arm in arms if not arm.startswith("batch_augmentation")]
    for arm in arms:
        settings = arm_settings(recipe, recipe.settings(scale), arm, 3)
        again = rebuild(Settings, json.loads(json.dumps(describe(settings))))
        assert again == settings
        assert again.digest() == settings.digest()


def test_older_and_newer_descriptions():
    settings = RECIPES["imagenet"].settings("paper")
    given = describe(settings)
    del given["compile"]
    assert rebuild(Settings, given) == replace(settings, compile=False)
    with pytest.raises(ValueError, match=r"has the setting phases\.1\.colour, which this version does not have"):
        rebuild(Settings, {**given, "phases.1.colour": 3})
    with pytest.raises(ValueError, match="made with method 'hypermix', which this version does not have"):
        rebuild(Settings, {**given, "method": "hypermix"})


def test_the_backend_of_a_run_is_its_own():
    settings = arm_settings(RECIPES["tiny_imagenet"], RECIPES["tiny_imagenet"].settings("paper"), "puzzlemix", 5)
    certified = apply_changes(settings, {"method.backend": "torch"})
    assert rebuild(Settings, describe(certified)) == certified != settings


def test_an_option_that_is_younger_than_a_run_does_not_change_its_digest():
    settings = arm_settings(RECIPES["tiny_imagenet"], RECIPES["tiny_imagenet"].settings("paper"), "puzzlemix", 5)
    before = {name: value for name, value in describe(settings).items() if name != "method.saliency_pool"}
    assert rebuild(Settings, before).digest() == settings.digest()
    pooled = apply_changes(settings, {"method.saliency_pool": "2"})
    assert pooled.method.saliency_pool == 2
    assert pooled.digest() != settings.digest()
