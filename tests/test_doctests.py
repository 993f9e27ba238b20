"""The examples in docstrings give what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import multimix

SOURCE = Path(multimix.__file__).parent
NAMES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(NAMES) > 10


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_module(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
