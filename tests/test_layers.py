"""Imports go down only: from every room to rooms below it, and never in a circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import multimix

SOURCE = Path(multimix.__file__).parent

# From the bottom to the top; rooms of one line do not import each other.
LAYERS = """
allocator devices compiled
one_pass_kernel streamed_kernel
one_pass
checks precision pool
sampling mixing target loss logits
plan
hooks
saliency batch
geometry
methods
forward distributed
drop_in warmup testing
compat
multimix
lab.statistics lab.terminal lab.locks
lab.storage
lab.data lab.nets
lab.recipes
lab.training
lab.sweep lab.evaluation
lab.results
lab.look lab.studies
lab.compare lab.reproduce
lab.commands
lab.cli
"""
LEVEL = {room: level for level, line in enumerate(LAYERS.split("\n")) for room in line.split()}


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported(name):
    """All modules of the project that a module imports, wherever in its file."""
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


def room(name):
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["lab"] else 1]) or "multimix"


EDGES = {name: set(imported(name)) - {name} for name in MODULES}


def test_every_room_has_its_place():
    assert {room(name) for name in MODULES} - {"lab"} <= set(LEVEL)


def test_imports_go_down():
    edges = [(name, other) for name in EDGES for other in EDGES[name] if room(name) != room(other) and other != "multimix.lab"]
    upward = [f"{name} → {other}" for name, other in sorted(edges) if LEVEL[room(other)] >= LEVEL[room(name)]]
    assert not upward, "\n".join(upward)


def test_no_file_imports_itself_in_a_circle():
    try:
        TopologicalSorter(EDGES).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None
