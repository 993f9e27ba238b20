"""The README's Python runs as it stands, block after block."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["logits"].shape == names["target"].shape


def test_the_evaluation_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluation.md").read_text(), flags=re.DOTALL)
    names = {}
    exec(compile(block, "evaluation.md", "exec"), names)
    assert len(names["seen"]) == 40


def test_the_loop_of_the_migration_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "migrate.md").read_text(), flags=re.DOTALL)
    names = {}
    exec(compile(block, "migrate.md", "exec"), names)
    assert (len(names["mixed"]), names["target"].shape) == (80, (80, 10))
    assert all(weight.grad is not None for weight in names["model"].parameters())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
