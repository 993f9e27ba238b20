"""The shape of the package itself."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import multimix as mm

ROOT = Path(__file__).parents[1]
X, Y = torch.rand(4, 3, 8, 8), torch.arange(4)


def test_public_names_exist_and_are_few():
    assert len(mm.__all__) == len(set(mm.__all__)) <= 45
    assert all(hasattr(mm, name) for name in mm.__all__)
    for module in (mm.losses, mm.plans, mm.random, mm.registry):
        assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: mm.CutMix(k=5)(X, Y), TypeError, r"Mix\(.*mixed_forward\(.*\.plan\(x\)"),
        (lambda: mm.OneOf((mm.CutMix(),))(X, Y), TypeError, r"mixed_forward\("),
        (lambda: mm.CutMix(K=5), TypeError, "'K'.*'k'"),
        (lambda: mm.CutMix(aplha=5), TypeError, "'aplha'.*'alpha'"),
        (lambda: mm.CutMix(5), TypeError, r"CutMix\(k=5\)"),
        (lambda: mm.Mixup, AttributeError, "InputMixup.*multimix.compat.timm.Mixup"),
        (lambda: mm.MixUp, AttributeError, "InputMixup.*multimix.compat.torchvision.MixUp"),
        (lambda: mm.Cutmix, AttributeError, "'CutMix'"),
        (lambda: mm.ManifoldMixup(layers=(0, 1)), (TypeError, ValueError), "named_modules"),
    ],
)
def test_common_mistakes_are_answered_with_what_to_write(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def test_methods_are_copied_and_pickled():
    method = mm.CutMix(k=3, alpha=0.5)
    twins = copy.copy(method), copy.deepcopy(method), pickle.loads(pickle.dumps(method))
    assert all(twin == method for twin in twins)


def test_importing_costs_little_beside_torch():
    """Modules, not seconds, since the machine is noisy; benchmarks/mixing.py prints the time."""
    code = (
        "import sys, torch; before = set(sys.modules); import multimix; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}), 'torch._dynamo' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded[-1] == "False"
    assert set(loaded[:-1]) - set(sys.stdlib_module_names) <= {
        "multimix",
        "numpy",
    }  # in particular not numba


def test_files_stay_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {name: count for name, count in lengths.items() if count > 500} == {}


@pytest.mark.parametrize("method", [entry.method for entry in mm.registry.entries()], ids=lambda method: method.name)
def test_every_method_has_a_card(method):
    card = (ROOT / f"docs/methods/{method.name}.md").read_text()
    assert method.__name__ in card
    for section in ("Formula", "With K", "Defaults", "Cost", "Differences"):
        assert f"## {section}" in card, f"{method.name}: the card lacks {section!r}"


def test_names_are_unique_and_creatable():
    names = [name for known in mm.registry.entries() for name in known.names]
    assert len(names) == len(set(names))
    assert mm.create("manifold", layers=("a",)) == mm.ManifoldMixup(layers=("a",))
    assert mm.create("input", k=3) == mm.InputMixup(k=3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mm.create("cutmx"), "'cutmx'.*'cutmix'"),
        (lambda: mm.CutMix(k=0), "^k must"),
        (lambda: mm.NoMix(k=0), "^k must"),
        (lambda: mm.Cutout(k=0), "^k must"),
        (lambda: mm.CutMix(alpha=-1), "^alpha must"),
        (lambda: mm.CutMix(p=1.5), "^p must"),
        (lambda: mm.CutMix(box="slide"), "^box must"),
        (lambda: mm.CutMix(grid="real"), "^grid must"),
        (lambda: mm.FMix(spectrum="half"), "^spectrum must"),
        (lambda: mm.FMix(softness=0.7), "^softness must"),
        (lambda: mm.FMix(decay=-1), "^decay must"),
        (lambda: mm.Cutout(length=0), "^length must"),
        (lambda: mm.ManifoldMixup(layers=()), "^layers must"),
        (lambda: mm.ManifoldMixup(layers="layer1"), "^layers must"),
        (lambda: mm.CutMix(alpha="1"), "^alpha must"),
        (lambda: mm.CutMix(p="x"), "^p must"),
        (lambda: mm.create(5), "no method 5"),
        (lambda: mm.OneOf(mm.CutMix()), "^methods must"),
        (lambda: mm.MixPoints(torch.nn.Identity(), "layer1"), "^layers must"),
        (lambda: mm.OneOf(()), "^methods must"),
        (lambda: mm.OneOf((mm.CutMix(),), (0.5, 0.2)), "probabilities"),
        (lambda: mm.OneOf((mm.CutMix(), mm.FMix()), (0.7, 0.7)), "^probabilities must"),
    ],
)
def test_bad_options_raise(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mm.CutMix(K=5), r"CutMix has no option 'K' \(did you mean 'k'\?\)"),
        (lambda: mm.NoMix(K=5), "NoMix has no option 'K'.*'k'"),
        (lambda: mm.OneOf(method=(mm.CutMix(),)), "OneOf has no option 'method'.*'methods'"),
        (lambda: mm.create("cutmix", K=5), "'K'.*'k'"),
        (lambda: mm.create("cutmix", alhpa=1), "'alhpa'.*'alpha'"),
        (lambda: mm.create("one_of", probability=(1,)), "'probability'.*'probabilities'"),
        (lambda: mm.CutMix(5), r"must be keywords, such as CutMix\(k=5\)"),
        (lambda: mm.NoMix(5), r"must be keywords, such as NoMix\(k=5\)"),
        (lambda: mm.OneOf((mm.CutMix(),), (1.0,), 3), "must be keywords"),
        (lambda: mm.create("manifoldmix"), "ManifoldMixup requires layers="),
        (lambda: mm.ManifoldMixup(), r"requires layers=, such as ManifoldMixup\(layers=\('layer1', 'layer2'\)\)"),
        (lambda: mm.OneOf(), "OneOf requires methods="),
        (lambda: mm.StyleMix(k=2), "StyleMix requires pair="),
    ],
)
def test_wrong_option_names_raise(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    "method",
    [mm.CutMix(k=3), mm.NoMix(k=2), mm.ManifoldMixup(layers=("a", None)), mm.OneOf((mm.CutMix(), mm.FMix()), (0.3, 0.4))],
    ids=repr,
)
def test_methods_can_be_pickled_and_copied(method):
    for copied in (pickle.loads(pickle.dumps(method)), copy.copy(method), copy.deepcopy(method), replace(method)):
        assert copied == method
        assert copied.traits == method.traits
