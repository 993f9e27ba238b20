"""The shape of the package itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import multimix as mm

ROOT = Path(__file__).parents[1]
LIBRARY = [path for path in (ROOT / "src/multimix").rglob("*.py") if "lab" not in path.relative_to(ROOT / "src/multimix").parts]


def test_the_library_never_imports_the_lab():
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not any("lab" in name.split(".") for name in names), path


def test_importing_costs_little_beside_torch():
    """Modules, not seconds, since the machine is noisy; benchmarks/mixing.py prints the time."""
    code = (
        "import sys, torch; before = set(sys.modules); import multimix; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}), 'torch._dynamo' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded[-1] == "False"
    assert set(loaded[:-1]) - set(sys.stdlib_module_names) <= {"multimix", "numpy"}  # in particular not numba


@pytest.mark.parametrize("path", [path.relative_to(ROOT) for path in (ROOT / "src").rglob("*.py")], ids=str)
def test_files_stay_short(path):
    assert len((ROOT / path).read_text().splitlines()) <= 500


@pytest.mark.parametrize("method", mm.METHODS, ids=lambda method: method.name)
def test_every_method_has_a_card(method):
    card = (ROOT / f"docs/methods/{method.name}.md").read_text()
    assert method.__name__ in card
    for section in ("Formula", "With K", "Defaults", "Cost", "Differences"):
        assert f"## {section}" in card, f"{method.name}: the card lacks {section!r}"


def test_names_are_unique_and_creatable():
    names = [name for known in mm.entries() for name in known.names]
    assert len(names) == len(set(names))
    assert mm.create("manifold", layers=("a",)) == mm.ManifoldMixup(layers=("a",))
    assert mm.create("input", k=3) == mm.InputMixup(k=3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mm.create("cutmx"), r"no method 'cutmx' \(did you mean 'cutmix'\?\); there are none, cutout, mixup"),
        (lambda: mm.create("cutmix", alhpa=1), r"cutmix has no option 'alhpa' \(did you mean 'alpha'\?\); it has k, p"),
        (lambda: mm.create("manifoldmix"), "manifoldmix needs layers="),
        (lambda: mm.CutMix(k=0), "k must be a whole number, at least 1, got 0"),
        (lambda: mm.NoMix(k=0), "k must be a whole number, at least 1, got 0"),
        (lambda: mm.Cutout(k=0), "k must be a whole number, at least 1, got 0"),
        (lambda: mm.CutMix(alpha=-1), "alpha must be finite and at least 0"),
        (lambda: mm.CutMix(p=1.5), "p must lie in 0 … 1, got 1.5"),
        (lambda: mm.CutMix(box="slide"), "no box 'slide'; there are clip, shift"),
        (lambda: mm.CutMix(grid="real"), "no grid 'real'; there are continuous, integer"),
        (lambda: mm.FMix(spectrum="half"), "no spectrum 'half'; there are full, reference"),
        (lambda: mm.FMix(softness=0.7), "softness must lie in 0 … 0.5, got 0.7"),
        (lambda: mm.FMix(decay=-1), "decay must be finite and at least 0, got -1"),
        (lambda: mm.Cutout(length=0), "length must be a whole number, at least 1, got 0"),
        (lambda: mm.ManifoldMixup(layers=()), "layers must be a tuple of layer names"),
        (lambda: mm.ManifoldMixup(layers="layer1"), "layers must be a tuple of layer names"),
        (lambda: mm.CutMix(alpha="1"), "alpha must be finite and at least 0 .* got '1'"),
        (lambda: mm.CutMix(p="x"), "p must lie in 0 … 1, got 'x'"),
        (lambda: mm.create(5), "no method 5; there are none"),
        (lambda: mm.OneOf(mm.CutMix()), "methods must be a tuple of one or more mixing methods"),
        (lambda: mm.MixPoints(torch.nn.Identity(), "layer1"), "layers must be a tuple of layer names"),
        (lambda: mm.OneOf(()), "methods must be a tuple of one or more mixing methods"),
        (lambda: mm.OneOf((mm.CutMix(),), (0.5, 0.2)), "1 methods need as many probabilities, got 2"),
        (lambda: mm.OneOf((mm.CutMix(), mm.FMix()), (0.7, 0.7)), "probabilities must sum to at most 1, got 1.4"),
    ],
)
def test_bad_options_are_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
