"""The import order of the folders: core, geometry, methods, output and mix, compat, lab."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import multimix

SOURCE = Path(multimix.__file__).parent

# From the bottom to the top. Groups on one line do not import each other.
LAYERS = """
core
geometry
methods
output distributed batchnorm
mix warmup testing
compat
multimix
lab.terminal lab.locks lab.sketch_pair
lab.images
lab.storage
lab.data lab.nets lab.method_options
lab.recipes
lab.training
lab.sweep
lab.evaluation
lab.report
lab.studies
lab.commands
lab.cli
"""
LEVEL = {group: level for level, line in enumerate(LAYERS.split("\n")) for group in line.split()}

# Modules that only collect public names; everything they name is at or below ``output``.
COLLECTIONS = {"multimix.plans", "multimix.losses", "multimix.random", "multimix.registry"}


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported(name):
    """Yield all modules of the project that a module imports, anywhere in its file."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                if f"{base}.{alias.name}" in MODULES:
                    yield f"{base}.{alias.name}"
                elif base in MODULES:
                    yield base


def group(name):
    """The folder, module or part of the lab that a module belongs to."""
    if name in COLLECTIONS:
        return "mix"
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["lab"] else 1]) or "multimix"


EDGES = {name: set(imported(name)) - {name} for name in MODULES}


def upward_imports(edges):
    """The imports that do not go to a lower layer."""
    return [
        f"{name} → {other}"
        for name in sorted(edges)
        for other in sorted(edges[name])
        if group(name) != group(other) and other != "multimix.lab" and LEVEL[group(other)] >= LEVEL[group(name)]
    ]


def test_every_module_is_in_a_layer():
    assert {group(name) for name in MODULES} - {"lab"} <= set(LEVEL)
    assert set(LEVEL) <= {group(name) for name in MODULES}, "no layer without modules"


def test_imports_go_down():
    assert upward_imports(EDGES) == []


def test_upward_imports_are_found():
    """From every folder of the library to the ones above it."""
    names = [
        "core.plan",
        "geometry.boxes",
        "methods.cutmix",
        "output",
        "mix",
        "compat.timm",
        "lab.cli",
    ]
    names = [f"multimix.{name}" for name in names]
    assert set(names) <= set(MODULES)
    for i, name in enumerate(names):
        for other in names[i + 1 :]:
            assert upward_imports({name: {other}}) == [f"{name} → {other}"]
            assert upward_imports({other: {name}}) == []


def test_the_library_does_not_import_the_lab():
    """By any kind of import, also one inside a function or by name."""
    assert MODULES["multimix.lab.cli"].is_file()
    for name, path in MODULES.items():
        if name.startswith("multimix.lab"):
            continue
        assert not any(other.startswith("multimix.lab") for other in EDGES[name]), name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith("multimix.lab"), name


def test_no_import_cycle_between_modules():
    try:
        TopologicalSorter(EDGES).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None
